"""What goes into a training job."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pairmark.service.heldout.schemas import EvaluationRequest

IF_BETTER = "if-better"


class JobRequest(BaseModel):
    """A training job as a client asks for it."""

    model_config = ConfigDict(extra="forbid")

    learner: str | None = Field(
        None,
        description="a kind listed by GET /learners; by default the one that chooses for itself: among similarities "
        "where the dataset has identities or pairs, among rankers where it has rankings",
    )
    dataset: str = Field(description="`name` (its newest version) or `name:version`")
    model: str = Field(description="name under which the version is registered")
    params: dict[str, Any] = Field(
        default_factory=dict, description="the learner's parameters; see its JSON Schema"
    )
    evaluation: EvaluationRequest = Field(default_factory=EvaluationRequest)
    unlabelled: str | None = Field(
        None,
        description="a dataset for learners that use unlabelled rows, with the columns of `dataset` (a sparse one "
        "may be narrower or wider); its labels, if it has any, are not looked at",
    )
    budget_seconds: float | None = Field(
        None,
        gt=0,
        le=7 * 86_400,
        description="about how long the search for the best candidate may take, for learners that race several",
    )
    promote: bool | str = Field(
        IF_BETTER,
        description="`if-better`: the version takes `production` unless it is worse than the one there on the same "
        "held-out data (the first version always does); true: it takes it in any case; another string: it takes that "
        "alias; false: none moves",
    )
