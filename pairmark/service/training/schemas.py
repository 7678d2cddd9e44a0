"""What goes into a training job."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pairmark.service.heldout.schemas import EvaluationRequest

IF_BETTER = "if-better"


class JobRequest(BaseModel):
    """A training job to queue."""

    model_config = ConfigDict(extra="forbid")

    learner: str | None = Field(
        None,
        description="a kind listed by `GET /learners`; default: `similarity-auto` for identities and pairs, "
        "`label-ranking-auto` for rankings, which compare several learners",
    )
    dataset: str = Field(description="`name` (its newest version) or `name:version`")
    model: str = Field(description="name of the model; the result is registered as its next version")
    params: dict[str, Any] = Field(
        default_factory=dict, description="the learner's parameters; see its JSON Schema"
    )
    evaluation: EvaluationRequest = Field(default_factory=EvaluationRequest)
    unlabelled: str | None = Field(
        None,
        description="a dataset for learners that use unlabelled rows. It has the same columns as `dataset` (sparse "
        "data may have fewer or more); its labels, if any, are ignored",
    )
    budget_seconds: float | None = Field(
        None,
        gt=0,
        le=7 * 86_400,
        description="approximate time limit, in seconds, for learners that compare several candidates",
    )
    promote: bool | str = Field(
        IF_BETTER,
        description="`if-better`: `production` moves to the new version unless it is worse than the current one on "
        "the same held-out data; true: `production` always moves; another string: that alias moves; false: no alias "
        "moves",
    )
