"""The job queue, as those who submit see it: `JobQueue.enqueue` adds a row of a table; workers claim it by `Leases`."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from pairmark.schemas.base import Page
from pairmark.schemas.jobs import JobEventOut, JobOut, JobState, Task
from pairmark.service.audit.log import record
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, RateLimited, UnknownJob
from pairmark.service.jobs import repository
from pairmark.service.jobs.leases import Leases
from pairmark.service.names import EVERY_NAME, VisibleNames, tenant_of
from pairmark.service.pagination import page_of, start_of
from pairmark.service.scheduling import current_owner, note_limit
from pairmark.service.settings import Settings
from pairmark.service.tables import JobAttempt, JobRow


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """What to queue.

    Attributes
    ----------
    dataset, unlabelled : `name:version`, with their ids.
    params : checked.
    message : what its owner should know before it runs.
    """

    task: Task = "training"
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


START_ONE = "queued jobs wait until one is started with `pairmark worker`, or `pairmark serve --with-worker`"
_UNATTENDED = f"no worker is alive: {START_ONE}"
EVENTS_A_READ = 500
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True)
class QueueReading:
    """How the queue stands.

    Attributes
    ----------
    states : jobs by state. workers : how many are alive.
    oldest_s : seconds that the first job has waited.
    """

    states: dict[str, int]
    workers: int
    oldest_s: float


class JobQueue:
    """Submit, watch and cancel jobs.

    Attributes
    ----------
    leases : by which workers claim them, keep them and end them.
    """

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db, self._settings = db, settings
        self.leases = Leases(db, settings)

    def enqueue(self, prepare: Callable[[Session], NewJob], once: Once | None = None) -> JobOut:
        """Queue a job of any kind, which ``prepare`` checks and makes in the transaction that queues it; the one way
        in. With ``once``, the same key and request give the job that they made before; `Conflict` when the key was used
        for another one. `RateLimited` when ``max_queued_jobs`` wait already."""
        with self._db.write() as session:
            repository.lock_submissions(session)
            earlier = None if once is None else self._earlier(session, once)
            if earlier is not None:
                return earlier
            job, owner, limit = prepare(session), current_owner(), self._settings.max_queued_jobs
            queued = repository.count_queued_by_owner(session)
            if sum(queued.values()) >= limit and queued.get(owner, 0) >= limit // len({*queued, owner}):
                note_limit("queued-jobs", limit)
                raise RateLimited(f"{limit} jobs wait already; try again when some are done", retry_after=30)
            row = JobRow(
                **vars(job),
                id=secrets.token_hex(16),
                owner=owner,
                idempotency_key=None if once is None else once.key,
                request_sha256=None if once is None else once.request_sha256,
                state="queued",
                progress=0.0,
                stage="queued",
                attempt=0,
                cancel_requested=False,
                created_at=self._db.now(session),
            )
            session.add(row)
            session.flush()
            facts = {"task": job.task, "learner": job.learner, "dataset": job.dataset, "model": job.model}
            record(
                session,
                row.created_at,
                "job.submit",
                f"job:{row.id}",
                after=facts,
                tenant=tenant_of(job.model),
            )
            return job_out(row, [], unattended=not self.leases.alive(session))

    def _earlier(self, session: Session, once: Once) -> JobOut | None:
        row = repository.by_idempotency_key(session, once.key)
        if row is None:
            return None
        if row.request_sha256 != once.request_sha256:
            raise Conflict(
                "this Idempotency-Key was used for another request; use a new key for a new job",
                field="Idempotency-Key",
                job=row.id,
            )
        attempts = repository.attempts_of(session, [row.id])[row.id]
        return job_out(row, attempts, unattended=not self.leases.alive(session))

    def get(self, job_id: str) -> JobOut:
        """The job of that id, or `UnknownJob`."""
        with self._db.read() as session:
            row = repository.find(session, _askable(job_id))
            if row is None:
                raise unknown_job(job_id)
            attempts = repository.attempts_of(session, [row.id])[row.id]
            return job_out(row, attempts, unattended=not self.leases.alive(session))

    def page(
        self,
        limit: int = 50,
        cursor: str | None = None,
        state: JobState | None = None,
        *,
        models: VisibleNames = EVERY_NAME,
    ) -> Page[JobOut]:
        """Jobs, newest first: those that train one of these models."""
        after = start_of(limit, cursor, float, str)
        with self._db.read() as session:
            rows = repository.page(session, limit=limit + 1, after=after, state=state, models=models)
            attempts = repository.attempts_of(session, [row.id for row in rows])
            unattended = not self.leases.alive(session)
        return page_of(
            Page[JobOut],
            rows,
            limit,
            lambda row: (row.created_at, row.id),
            lambda row: job_out(row, attempts[row.id], unattended=unattended),
        )

    def cancel(self, job_id: str) -> JobOut:
        """Cancel a job: at once when it waits; a running one is stopped by its worker, and registers nothing.

        A job that has ended already is returned as it is.
        """
        with self._db.write() as session:
            row = repository.lock_job(session, _askable(job_id))
            if row is None:
                raise unknown_job(job_id)
            now = self._db.now(session)
            if row.state in ("queued", "running") and not row.cancel_requested:
                tenant, before = tenant_of(row.model), {"state": row.state}
                record(session, now, "job.cancel", f"job:{job_id}", before=before, tenant=tenant)
            if row.state == "queued":
                row.state = row.stage = "cancelled"
                row.finished_at, row.cancel_requested = now, True
                row.message = "cancelled before it started"
                repository.add_event(session, job_id, "done", {"state": "cancelled"}, now)
            elif row.state == "running":
                row.cancel_requested = True
        return self.get(job_id)

    def events(self, job_id: str, after: int = 0) -> list[JobEventOut]:
        """Up to 500 events with an id above ``after``, in order. The stream is over after ``done``."""
        with self._db.read() as session:
            rows = repository.events_after(session, _askable(job_id), after, EVENTS_A_READ)
            if not rows and repository.find(session, job_id) is None:
                raise unknown_job(job_id)
        return [JobEventOut.model_validate(row) for row in rows]

    def reading(self) -> QueueReading:
        """How the queue stands."""
        with self._db.read() as session:
            oldest = repository.oldest_queued(session)
            return QueueReading(
                states=repository.count_by_state(session),
                workers=len(self.leases.alive(session)),
                oldest_s=0.0 if oldest is None else max(self._db.now(session) - oldest, 0.0),
            )


def unknown_job(job_id: str) -> UnknownJob:
    """What to raise where no job of that id is to be seen."""
    return UnknownJob(f"there is no job {job_id[:64]!r}")


def _askable(job_id: str) -> str:
    """The id, if it could be one; a database may refuse the very characters of others."""
    if not _ID.fullmatch(job_id):
        raise unknown_job(job_id)
    return job_id


def job_out(row: JobRow, attempts: list[JobAttempt], *, unattended: bool = False) -> JobOut:
    """A job with its history; the message of one that waits says so where no worker is alive (``unattended``)."""
    waits = _UNATTENDED if unattended and row.state == "queued" else ""
    message = ". ".join(text for text in (waits, row.message) if text)
    return JobOut.model_validate({**row.values(), "message": message, "attempts": attempts})
