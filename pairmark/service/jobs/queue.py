"""The job queue, as those who submit see it: `JobQueue.enqueue` adds a row of a table; workers claim it by `Leases`."""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pairmark.schemas.base import Page
from pairmark.schemas.jobs import JobEventOut, JobOut, JobState
from pairmark.service.audit.log import record
from pairmark.service.db import Database, name_filter, read_rows
from pairmark.service.errors import Conflict, RateLimited, UnknownJob
from pairmark.service.jobs.leases import Leases, add_event
from pairmark.service.names import EVERY_NAME, VisibleNames, tenant_of
from pairmark.service.scheduling import current_owner
from pairmark.service.settings import Settings
from pairmark.service.tables import JobAttempt, JobEvent, JobRow

START_ONE = "queued jobs wait until one is started with `pairmark worker`, or `pairmark serve --with-worker`"
_UNATTENDED = f"no worker is alive: {START_ONE}"
EVENTS_A_READ = 500
# Of PostgreSQL's advisory locks, the one of submissions; and the form of a job's id.
_SUBMIT_LOCK = 7261949
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

    def enqueue(self, prepare: Callable[[Session], JobRow], once: tuple[str, str] | None = None) -> JobOut:
        """Queue a job of any kind, which ``prepare`` checks and makes in the transaction that queues it; the one way
        in. With ``once``, an idempotency key and its request's digest, the same two give the job that they made before;
        `Conflict` when the key was used for another one. `RateLimited` when ``max_queued_jobs`` wait already.

        ``prepare`` gives a row that says what is to be done, whose dataset and params were checked; a ``message`` is
        what its owner should know before it runs.
        """
        with self._db.write() as session:
            # One submission at a time, so that the bound holds and a key makes one job; SQLite's writers wait for one
            # another.
            if not self._db.is_sqlite:
                session.execute(select(func.pg_advisory_xact_lock(_SUBMIT_LOCK)))
            earlier = None if once is None else self._earlier(session, *once)
            if earlier is not None:
                return earlier
            row, owner, limit = prepare(session), current_owner(), self._settings.max_queued_jobs
            waiting = (
                select(JobRow.owner, func.count()).where(JobRow.state == "queued").group_by(JobRow.owner)
            )
            queued = {row[0]: row[1] for row in session.execute(waiting)}
            # A full queue still lets in who waits for less than a share of it.
            if sum(queued.values()) >= limit and queued.get(owner, 0) >= limit // len({*queued, owner}):
                raise RateLimited(
                    f"{limit} jobs wait already; try again when some are done",
                    spent=("queued-jobs", limit),
                    retry_after=30,
                )
            row.id, row.owner, row.state = secrets.token_hex(16), owner, "queued"
            row.created_at = self._db.now(session)
            if once is not None:
                row.idempotency_key, row.request_sha256 = once
            session.add(row)
            session.flush()
            facts = {name: getattr(row, name) for name in ("task", "learner", "dataset", "model")}
            where, tenant = f"job:{row.id}", tenant_of(row.model)
            record(session, row.created_at, "job.submit", where, after=facts, tenant=tenant)
            return job_out(row, [], unattended=not self.leases.alive(session))

    def _earlier(self, session: Session, key: str, request_sha256: str) -> JobOut | None:
        row = session.scalar(select(JobRow).where(JobRow.idempotency_key == key))
        if row is None:
            return None
        if row.request_sha256 != request_sha256:
            raise Conflict(
                "this Idempotency-Key was used for another request; use a new key for a new job",
                field="Idempotency-Key",
                job=row.id,
            )
        return self._jobs_out(session, [row])[0]

    def get(self, job_id: str) -> JobOut:
        """The job of that id, or `UnknownJob`."""
        with self._db.read() as session:
            row = session.get(JobRow, _askable(job_id))
            if row is None:
                raise unknown_job(job_id)
            return self._jobs_out(session, [row])[0]

    def page(
        self,
        limit: int = 50,
        cursor: str | None = None,
        state: JobState | None = None,
        *,
        models: VisibleNames = EVERY_NAME,
    ) -> Page[JobOut]:
        """Jobs, newest first: those that train one of these models."""
        query, order = select(JobRow).where(name_filter(models, JobRow.model)), (JobRow.created_at, JobRow.id)
        if state is not None:
            query = query.where(JobRow.state == state)
        with self._db.read() as session:
            rows, following = read_rows(session, query, order, limit, cursor, newest_first=True)
            return Page[JobOut](items=self._jobs_out(session, rows), next_cursor=following)

    def _jobs_out(self, session: Session, rows: Sequence[JobRow]) -> list[JobOut]:
        """Jobs with their histories."""
        attempts: dict[str, list[JobAttempt]] = {row.id: [] for row in rows}
        query = select(JobAttempt).where(JobAttempt.job_id.in_(attempts)).order_by(JobAttempt.attempt)
        for attempt in session.scalars(query):
            attempts[attempt.job_id].append(attempt)
        unattended = not self.leases.alive(session)
        return [job_out(row, attempts[row.id], unattended=unattended) for row in rows]

    def cancel(self, job_id: str) -> JobOut:
        """Cancel a job: at once when it waits; a running one is stopped by its worker, and registers nothing.

        A job that has ended already is returned as it is.
        """
        with self._db.write() as session:
            # Locked, so that no claim comes between the look at its state and the change.
            row = session.get(JobRow, _askable(job_id), with_for_update=True)
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
                add_event(session, job_id, "done", {"state": "cancelled"}, now)
            elif row.state == "running":
                row.cancel_requested = True
        return self.get(job_id)

    def events(self, job_id: str, after: int = 0) -> list[JobEventOut]:
        """Up to 500 events with an id above ``after``, in order. The stream is over after ``done``."""
        with self._db.read() as session:
            later = JobEvent.job_id == _askable(job_id), JobEvent.id > after
            rows = session.scalars(
                select(JobEvent).where(*later).order_by(JobEvent.id).limit(EVENTS_A_READ)
            ).all()
            if not rows and session.get(JobRow, job_id) is None:
                raise unknown_job(job_id)
        return [JobEventOut.model_validate(row) for row in rows]

    def reading(self) -> QueueReading:
        """How the queue stands."""
        with self._db.read() as session:
            counts = select(JobRow.state, func.count(), func.min(JobRow.created_at)).group_by(JobRow.state)
            by_state = {state: (n, oldest) for state, n, oldest in session.execute(counts)}
            now = self._db.now(session)
            return QueueReading(
                states={state: n for state, (n, _) in by_state.items()},
                workers=len(self.leases.alive(session)),
                oldest_s=max(now - by_state.get("queued", (0, now))[1], 0.0),
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
