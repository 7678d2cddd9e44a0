"""What goes into a training job and what is reported about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pairmark.service.heldout.schemas import EvaluationRequest
from pairmark.service.pagination import Page
from pairmark.service.times import Moment

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
AttemptOutcome = Literal["succeeded", "failed", "cancelled", "lost", "released"]
Task = Literal["training", "gallery-calibration", "gallery-evaluation"]
EventName = Literal["progress", "log", "done"]


class AttemptOut(BaseModel):
    """One attempt at a job, and how it ended."""

    model_config = ConfigDict(from_attributes=True)

    attempt: int
    worker: str
    started_at: Moment
    ended_at: Moment | None
    outcome: AttemptOutcome | None = Field(
        description="`lost`: its worker stopped responding, or its process was killed; `released`: its worker was "
        "asked to stop; null: still running"
    )
    detail: str


class WorkerOut(BaseModel):
    """A worker that is alive."""

    name: str = Field(description="`host:pid`")
    started_at: Moment
    seen_at: Moment
    job: str | None = Field(description="the job it runs")


class ErrorOut(BaseModel):
    """Why a job failed, and how to fix it."""

    type: str = Field(description="/problems/SLUG, a page that says how to fix it")
    title: str
    detail: str


class JobOut(BaseModel):
    """A job. Times are ISO 8601, UTC."""

    id: str
    task: Task = Field(
        description="the kind of job; for gallery jobs, `learner` and `model` are those of the gallery's version"
    )
    gallery: str | None = Field(description="the gallery that is calibrated or measured")
    result: dict[str, str] | None = Field(
        description="the result of a gallery job: the id of a `calibration` or `evaluation`"
    )
    state: JobState
    progress: float = Field(ge=0.0, le=1.0)
    stage: str
    message: str
    learner: str
    dataset: str
    unlabelled: str | None = Field(description="the dataset of unlabelled rows, `name:version`")
    model: str
    params: dict[str, Any]
    evaluation: EvaluationRequest
    promote: str | None = Field(
        description="the alias that moves to the new version; `if-better`: `production` moves unless the new version "
        "is worse"
    )
    version: int | None
    error: ErrorOut | None
    cancel_requested: bool
    attempts: list[AttemptOut]
    created_at: Moment
    started_at: Moment | None
    finished_at: Moment | None


class JobPage(Page[JobOut]):
    """Some jobs, newest first."""


class JobEventOut(BaseModel):
    """One entry of a job's event stream; `id` only grows."""

    model_config = ConfigDict(from_attributes=True)

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
