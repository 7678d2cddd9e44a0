"""Job rows as clients see them."""

from __future__ import annotations

from pairmark.service.jobs.schemas import JobOut
from pairmark.service.tables import JobAttempt, JobRow

START_ONE = "queued jobs wait until one is started with `pairmark worker`, or `pairmark serve --with-worker`"
_UNATTENDED = f"no worker is alive: {START_ONE}"


def job_out(row: JobRow, attempts: list[JobAttempt], *, attended: bool = True) -> JobOut:
    """A job with its history; one that waits while no worker is alive (``attended``) says so."""
    message = row.message
    if not attended and row.state == "queued":
        message = f"{_UNATTENDED}. {message}" if message else _UNATTENDED
    return JobOut.model_validate({**row.values(), "message": message, "attempts": attempts})
