"""Answers about jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pairmark.wire.base import Limits, Moment, Record, Text

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
AttemptOutcome = Literal["succeeded", "failed", "cancelled", "lost", "released"]
Task = Literal["training", "gallery-calibration", "gallery-evaluation"]


class AttemptFields(Record):
    attempt: int
    worker: str
    started_at: Moment
    ended_at: Moment | None
    outcome: Annotated[
        AttemptOutcome | None,
        Text(
            "`lost`: its worker stopped responding, or its process was killed; `released`: its worker was "
            "asked to stop; null: still running"
        ),
    ]
    detail: str


class JobErrorFields(Record):
    type: Annotated[str, Text("/problems/SLUG, a page that says how to fix it")]
    title: str
    detail: str


class JobFields(Record):
    id: str
    task: Annotated[
        Task,
        Text("the kind of job; for gallery jobs, `learner` and `model` are those of the gallery's version"),
    ]
    gallery: Annotated[str | None, Text("the gallery that is calibrated or measured")]
    result: Annotated[
        dict[str, str] | None, Text("the result of a gallery job: the id of a `calibration` or `evaluation`")
    ]
    state: JobState
    progress: Annotated[float, Limits(minimum=0.0, maximum=1.0)]
    stage: str
    message: str
    learner: str
    dataset: str
    unlabelled: Annotated[str | None, Text("the dataset of unlabelled rows, `name:version`")]
    model: str
    params: dict[str, Any]
    evaluation: Any
    promote: Annotated[
        str | None,
        Text(
            "the alias that moves to the new version; `if-better`: `production` moves unless the new version "
            "is worse"
        ),
    ]
    version: int | None
    error: JobErrorFields | None
    cancel_requested: bool
    attempts: list[AttemptFields]
    created_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
