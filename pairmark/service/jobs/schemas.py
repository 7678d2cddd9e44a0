"""What goes into a training job and what is reported about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, Field

from pairmark.service.heldout.schemas import EvaluationRequest
from pairmark.service.pagination import Page
from pairmark.wire.base import Moment
from pairmark.wire.jobs import AttemptFields, JobErrorFields, JobFields, Task

EventName = Literal["progress", "log", "done"]


class AttemptOut(BaseModel, AttemptFields, from_attributes=True):
    """One attempt at a job, and how it ended."""


class WorkerOut(BaseModel):
    """A worker that is alive."""

    name: str = Field(description="`host:pid`")
    started_at: Moment
    seen_at: Moment
    job: str | None = Field(description="the job it runs")


class ErrorOut(BaseModel, JobErrorFields):
    """Why a job failed, and how to fix it."""


class JobOut(BaseModel, JobFields):
    """A job. Times are ISO 8601, UTC."""

    evaluation: EvaluationRequest


class JobPage(Page[JobOut]):
    """Some jobs, newest first."""


class JobEventOut(BaseModel, from_attributes=True):
    """One entry of a job's event stream; `id` only grows."""

    id: int
    event: EventName
    data: dict[str, Any]


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
