"""The job queue: a table, leases on the database's clock, writes fenced by attempt number."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from pairmark.schemas.jobs import JobEventOut, JobOut, JobPage, JobState
from pairmark.service.audit.actor import current_actor
from pairmark.service.audit.log import record
from pairmark.service.errors import Conflict, RateLimited, UnknownJob
from pairmark.service.jobs import repository
from pairmark.service.jobs.claims import NewJob, Once
from pairmark.service.jobs.leases import Leases
from pairmark.service.keys.tenants import check_quotas
from pairmark.service.names import EVERY_NAME, VisibleNames, tenant_of
from pairmark.service.pagination import page_of, start_of
from pairmark.service.shares import current_owner, note_limit
from pairmark.service.tables import JobAttempt, JobRow

START_ONE = "queued jobs wait until one is started with `pairmark worker`, or `pairmark serve --with-worker`"
_UNATTENDED = f"no worker is alive: {START_ONE}"
_ANOTHER = "`pairmark worker` starts another worker beside it"
EVENTS_A_READ = 500
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True)
class QueueReading:
    """How the queue stands.

    Attributes
    ----------
    states : jobs by state. workers : how many are alive.
    oldest_s : seconds that the first job has waited.
    durations : (task, state) -> how many jobs ended so, and their seconds from first start to end.
    """

    states: dict[str, int]
    workers: int
    oldest_s: float
    durations: dict[tuple[str, str], tuple[int, float]]


class JobQueue(Leases):
    """Submit, watch and cancel jobs; and, inherited, claim them, keep them and end them."""

    def enqueue(self, prepare: Callable[[Session], NewJob], once: Once | None = None) -> JobOut:
        """Queue a job of any kind, which ``prepare`` checks and makes in the transaction that queues it; the one way
        in. With ``once``, the same key and request give the job that they made before; `Conflict` when the key was used
        for another one. `RateLimited` when ``max_queued_jobs`` wait already."""
        if once is not None:
            with self._db.read() as session:
                earlier = self._earlier(session, once)
            if earlier is not None:
                return earlier
        try:
            with self._db.write() as session:
                repository.lock_submissions(session)
                earlier = None if once is None else self._earlier(session, once)
                if earlier is not None:
                    return earlier
                row = self._add(session, prepare(session), once)
                return job_out(row, [], waits=self._waits(session, [row])(row))
        except IntegrityError as error:
            if once is None or "unique" not in str(error.orig).lower():
                raise
            with self._db.read() as session:
                earlier = self._earlier(session, once)
            if earlier is None:
                raise
            return earlier

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
        return job_out(row, attempts, waits=self._waits(session, [row])(row))

    def _waits(self, session: Session, rows: Sequence[JobRow]) -> Callable[[JobRow], str]:
        """What a job of these waits for, in words; nothing where it runs, has ended, or a worker is free for it."""
        if not any(row.state == "queued" for row in rows):
            return lambda row: ""
        n_workers, unfinished = len(self._alive(session)), repository.unfinished(session)

        def text(row: JobRow) -> str:
            if row.state != "queued":
                return ""
            if not n_workers:
                return _UNATTENDED
            ahead = [
                job
                for job in unfinished
                if job.state == "running" or (job.created_at, job.id) < (row.created_at, row.id)
            ]
            if len(ahead) < n_workers:
                return ""
            # Whoever sees this job sees those of its own team; of others it is told only that there are some.
            own = [
                job
                for job in ahead
                if tenant_of(job.gallery or job.model) == tenant_of(row.gallery or row.model)
            ]
            if not own:
                return f"waits behind other jobs: {len(ahead)}; {_ANOTHER}"
            state = f"running, {100 * own[0].progress:.0f} % done" if own[0].state == "running" else "queued"
            rest_of_queue = f" and {len(ahead) - 1} more" if len(ahead) > 1 else ""
            return f"waits behind job {own[0].id} ({state}){rest_of_queue}; {_ANOTHER}"

        return text

    def _add(self, session: Session, job: NewJob, once: Once | None) -> JobRow:
        name, owner = job.gallery or job.model, current_owner()
        limit = self._settings.max_queued_jobs
        queued = repository.count_queued_by_owner(session)
        if sum(queued.values()) >= limit and queued.get(owner, 0) >= limit // len({*queued, owner}):
            note_limit("queued-jobs", limit, 0)
            raise RateLimited(f"{limit} jobs wait already; try again when some are done", retry_after=30)
        check_quotas(session, self._settings, name, jobs=1)
        row = JobRow(
            **vars(job),
            id=secrets.token_hex(16),
            owner=owner,
            idempotency_key=None if once is None else once.key,
            request_sha256=None if once is None else once.request_sha256,
            trace_id=current_actor().trace_id,
            state="queued",
            progress=0.0,
            stage="queued",
            attempt=0,
            cancel_requested=False,
            created_at=self._db.now(session),
        )
        repository.add_job(session, row)
        facts = {"task": job.task, "learner": job.learner, "dataset": job.dataset, "model": job.model}
        record(session, row.created_at, "job.submit", f"job:{row.id}", after=facts, tenant=tenant_of(name))
        return row

    def get(self, job_id: str) -> JobOut:
        """The job of that id, or `UnknownJob`."""
        with self._db.read() as session:
            row = repository.find(session, _askable(job_id))
            if row is None:
                raise unknown_job(job_id)
            attempts = repository.attempts_of(session, [row.id])[row.id]
            return job_out(row, attempts, waits=self._waits(session, [row])(row))

    def page(
        self,
        limit: int = 50,
        cursor: str | None = None,
        state: JobState | None = None,
        *,
        models: VisibleNames = EVERY_NAME,
        galleries: VisibleNames = EVERY_NAME,
    ) -> JobPage:
        """Jobs, newest first: those that train one of these models, and those that measure one of these galleries."""
        after = start_of(limit, cursor, float, str)
        with self._db.read() as session:
            rows = repository.page(
                session, limit=limit + 1, after=after, state=state, models=models, galleries=galleries
            )
            attempts = repository.attempts_of(session, [row.id for row in rows])
            waits = self._waits(session, rows)
            texts = {row.id: waits(row) for row in rows}
        return page_of(
            JobPage,
            rows,
            limit,
            lambda row: (row.created_at, row.id),
            lambda row: job_out(row, attempts[row.id], waits=texts[row.id]),
        )

    def cancel(self, job_id: str) -> JobOut:
        """Cancel a job: at once when it waits; a running one is stopped by its worker, and registers nothing.

        A job that has ended already is returned as it is.
        """
        with self._db.write() as session:
            row = repository.locked(session, _askable(job_id))
            if row is None:
                raise unknown_job(job_id)
            now = self._db.now(session)
            if row.state in ("queued", "running") and not row.cancel_requested:
                tenant, before = tenant_of(row.gallery or row.model), {"state": row.state}
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

    def jobs_since(self, after: int) -> tuple[int, set[str]]:
        """Jobs with events above number ``after``, and the newest number; with ``after`` below 0, the number alone."""
        with self._db.read() as session:
            newest = repository.newest_event(session)
            jobs = repository.jobs_with_events(session, after) if 0 <= after < newest else set()
        return newest, jobs

    def reading(self) -> QueueReading:
        """How the queue stands."""
        with self._db.read() as session:
            oldest = repository.oldest_queued(session)
            return QueueReading(
                states=repository.count_by_state(session),
                workers=len(self._alive(session)),
                oldest_s=0.0 if oldest is None else max(self._db.now(session) - oldest, 0.0),
                durations=repository.durations(session),
            )


def unknown_job(job_id: str) -> UnknownJob:
    """What to raise where no job of that id is to be seen."""
    return UnknownJob(f"there is no job {job_id[:64]!r}")


def _askable(job_id: str) -> str:
    """The id, if it could be one; a database may refuse the very characters of others."""
    if not _ID.fullmatch(job_id):
        raise unknown_job(job_id)
    return job_id


def job_out(row: JobRow, attempts: list[JobAttempt], *, waits: str = "") -> JobOut:
    """A job with its history; its message begins with what it ``waits`` for."""
    message = ". ".join(text for text in (waits, row.message) if text)
    return JobOut.model_validate({**row.values(), "message": message, "attempts": attempts})
