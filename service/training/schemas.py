"""What goes into a training job."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pairmark.service.heldout.schemas import EvaluationRequest


class JobRequest(BaseModel):
    """A training job as a client asks for it."""

    model_config = ConfigDict(extra="forbid")

    learner: str = Field(description="a kind listed by GET /learners, e.g. similarity-forest")
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
    promote: bool | str = Field(
        True,
        description="true: move the alias `production` to the new version; a string: that alias; false: none",
    )
