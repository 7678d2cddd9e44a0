"""Job rows as clients see them."""

from __future__ import annotations

from pairmark.service.heldout.schemas import EvaluationRequest
from pairmark.service.jobs.schemas import AttemptOut, ErrorOut, JobOut
from pairmark.service.tables import JobAttempt, JobRow
from pairmark.service.times import iso

START_ONE = "queued jobs wait until one is started with `pairmark worker`, or `pairmark serve --with-worker`"
_UNATTENDED = f"no worker is alive: {START_ONE}"


def job_out(row: JobRow, attempts: list[JobAttempt], *, attended: bool = True) -> JobOut:
    """A job with its history.

    Parameters
    ----------
    attended : whether a worker is alive; a job that waits says so where none is.
    """
    message = row.message
    if not attended and row.state == "queued":
        message = f"{_UNATTENDED}. {message}" if message else _UNATTENDED
    return JobOut.model_validate(
        {
            "id": row.id,
            "task": row.task,
            "gallery": row.gallery,
            "result": row.result,
            "state": row.state,
            "progress": row.progress,
            "stage": row.stage,
            "message": message,
            "learner": row.learner,
            "dataset": row.dataset,
            "unlabelled": row.unlabelled,
            "model": row.model,
            "params": row.params,
            "evaluation": EvaluationRequest.model_validate(row.evaluation),
            "promote": row.promote,
            "version": row.version,
            "error": None if row.error is None else ErrorOut.model_validate(row.error),
            "cancel_requested": row.cancel_requested,
            "attempts": [
                AttemptOut.model_validate(
                    {
                        "attempt": entry.attempt,
                        "worker": entry.worker,
                        "started_at": iso(entry.started_at),
                        "ended_at": iso(entry.ended_at),
                        "outcome": entry.outcome,
                        "detail": entry.detail,
                    }
                )
                for entry in attempts
            ],
            "created_at": iso(row.created_at),
            "started_at": iso(row.started_at),
            "finished_at": iso(row.finished_at),
        }
    )
