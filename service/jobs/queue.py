"""The job queue: a table, leases on the database's clock, writes fenced by attempt number."""

from __future__ import annotations

import re
import secrets
from typing import Any

from sqlalchemy.orm import Session

from pairmark.service.datasets.ingest import dataset_out
from pairmark.service.datasets.repository import dataset_of
from pairmark.service.errors import RateLimited, UnknownJob
from pairmark.service.jobs import repository
from pairmark.service.jobs.leases import Leases
from pairmark.service.jobs.schemas import GalleryTask, JobEventOut, JobOut, JobPage, JobState
from pairmark.service.jobs.views import job_out
from pairmark.service.pagination import checked_limit, decode_cursor, encode_cursor
from pairmark.service.tables import JobRow

EVENTS_A_READ = 500
_ID = re.compile(r"[0-9a-f]{32}")


class JobQueue(Leases):
    """Submit, watch and cancel jobs; and, inherited, claim them, keep them and end them."""

    def submit_task(self, wanted: GalleryTask) -> JobOut:
        """Queue the measuring of a gallery.

        Raises
        ------
        UnknownDataset
        RateLimited
            When ``max_queued_jobs`` wait already.
        """
        with self._db.write() as session:
            repository.lock_submissions(session)
            dataset = dataset_out(dataset_of(session, wanted.dataset, hold=True))
            row = self.add(
                session,
                task=wanted.task,
                gallery=wanted.gallery,
                learner=wanted.kind,
                dataset_id=dataset.id,
                dataset=f"{dataset.name}:{dataset.version}",
                model=wanted.model,
                params=wanted.request,
                evaluation={},
            )
        return job_out(row, [])

    def add(self, session: Session, **values: Any) -> JobRow:
        """Queue a row within the caller's transaction, which holds `repository.lock_submissions`."""
        if repository.count_queued(session) >= self._settings.max_queued_jobs:
            raise RateLimited(
                f"{self._settings.max_queued_jobs} jobs wait already; try again when some are done",
                retry_after=30,
            )
        row = JobRow(
            **{"task": "training", **values},
            id=secrets.token_hex(16),
            state="queued",
            progress=0.0,
            stage="queued",
            message="",
            attempt=0,
            cancel_requested=False,
            created_at=self._db.now(session),
        )
        repository.add_job(session, row)
        return row

    def get(self, job_id: str) -> JobOut:
        """The job of that id, or `UnknownJob`."""
        with self._db.read() as session:
            row = repository.find(session, _askable(job_id))
            if row is None:
                raise UnknownJob(f"there is no job {job_id[:64]!r}")
            return job_out(row, repository.attempts_of(session, [row.id])[row.id])

    def page(
        self,
        limit: int = 50,
        cursor: str | None = None,
        state: JobState | None = None,
        *,
        galleries: bool = True,
    ) -> JobPage:
        """Jobs, newest first. ``galleries``: whether those that measure galleries are among them."""
        checked_limit(limit)
        after: tuple[float, str] | None = None
        if cursor is not None:
            created_at, job_id = decode_cursor(cursor, float, str)
            after = (created_at, job_id)
        with self._db.read() as session:
            rows = repository.page(session, limit=limit + 1, after=after, state=state, galleries=galleries)
            attempts = repository.attempts_of(session, [row.id for row in rows])
        shown = rows[:limit]
        more = encode_cursor(shown[-1].created_at, shown[-1].id) if len(rows) > limit else None
        return JobPage(items=[job_out(row, attempts[row.id]) for row in shown], next_cursor=more)

    def cancel(self, job_id: str) -> JobOut:
        """Cancel a job: at once when it waits; a running one is stopped by its worker, and registers nothing.

        A job that has ended already is returned as it is.
        """
        with self._db.write() as session:
            row = repository.locked(session, _askable(job_id))
            if row is None:
                raise UnknownJob(f"there is no job {job_id[:64]!r}")
            now = self._db.now(session)
            if row.state == "queued":
                row.state, row.stage, row.finished_at, row.cancel_requested = (
                    "cancelled",
                    "cancelled",
                    now,
                    True,
                )
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
                raise UnknownJob(f"there is no job {job_id[:64]!r}")
        return [
            JobEventOut.model_validate({"id": row.id, "event": row.event, "data": row.data}) for row in rows
        ]

    def depths(self) -> dict[str, int]:
        """How many jobs are in each state."""
        with self._db.read() as session:
            return repository.count_by_state(session)


def _askable(job_id: str) -> str:
    """The id, if it could be one; a database may refuse the very characters of others."""
    if not _ID.fullmatch(job_id):
        raise UnknownJob(f"there is no job {job_id[:64]!r}")
    return job_id
