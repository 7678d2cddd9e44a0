"""What is queued, and the right of a worker to work on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from pairmark.schemas.jobs import EvaluationRequest, Task


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """What to queue.

    Attributes
    ----------
    dataset, unlabelled : `name:version`, with their ids.
    params : checked; for galleries, the body of the request.
    message : what its owner should know before it runs.
    """

    task: Task = "training"
    gallery: str | None = None
    learner: str
    dataset_id: str
    dataset: str
    unlabelled_id: str | None = None
    unlabelled: str | None = None
    model: str
    params: dict[str, Any]
    evaluation: dict[str, Any] = field(default_factory=dict)
    promote: str | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Once:
    """An idempotency key, and the digest of the request that it came with."""

    key: str
    request_sha256: str


class Claim(BaseModel, frozen=True):
    """The right to work on a job: every write names the attempt, and a superseded attempt is refused.

    Attributes
    ----------
    attempt : counts up with every claim, and fences writes.
    params, evaluation : validated when the job was submitted.
    created_at : seconds since the epoch.
    task, gallery : what is to be done, and with which gallery.
    trace_id : of the W3C trace that the submission belonged to.
    """

    job_id: str
    attempt: int
    worker: str
    learner: str
    dataset_id: str
    dataset: str
    unlabelled_id: str | None
    model: str
    params: dict[str, Any]
    evaluation: EvaluationRequest
    promote: str | None
    created_at: float
    task: Task = "training"
    gallery: str | None = None
    trace_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Lease:
    """How a claim stands: still held, and whether somebody asked to cancel it."""

    valid: bool
    cancel_requested: bool
