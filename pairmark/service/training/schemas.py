"""What goes into a training job."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from pairmark.service.heldout.schemas import EvaluationRequest
from pairmark.wire.jobs import JobParameters


class JobRequest(BaseModel, JobParameters, extra="forbid"):
    """A training job to queue."""

    params: dict[str, Any] = Field(
        default_factory=dict, description="the learner's parameters; see its JSON Schema"
    )
    evaluation: EvaluationRequest = Field(default_factory=EvaluationRequest)
