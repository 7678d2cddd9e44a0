"""The job queue: a table, leases on the database's clock, writes fenced by attempt number."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from service.datasets.ingest import dataset_out
from service.datasets.repository import dataset_of
from service.db import is_unique_violation
from service.errors import Conflict, InvalidInput, RateLimited, UnknownJob
from service.pagination import checked_limit, decode_cursor, encode_cursor
from service.tables import JobRow
from service.training import repository
from service.training.leases import Leases
from service.training.schemas import GalleryTask, JobEventOut, JobOut, JobPage, JobRequest, JobState
from service.training.validation import checked_request
from service.training.views import job_out

EVENTS_A_READ = 500
_ID = re.compile(r"[0-9a-f]{32}")


class JobQueue(Leases):
    """Submit, watch and cancel jobs; and, inherited, claim them, keep them and end them."""

    def submit(self, request: JobRequest, idempotency_key: str | None = None) -> JobOut:
        """Validate a request and queue it.

        Parameters
        ----------
        idempotency_key : the same key with the same request gives the job it made before.

        Raises
        ------
        InvalidInput, UnknownLearner, UnknownDataset
            When the request cannot be trained as it stands.
        Conflict
            When the key was used for another request.
        RateLimited
            When ``max_queued_jobs`` wait already.
        """
        if idempotency_key is not None and not (
            idempotency_key.isprintable() and 1 <= len(idempotency_key) <= 200
        ):
            raise InvalidInput(
                "Idempotency-Key: expected 1 to 200 printable characters", field="Idempotency-Key"
            )
        digest = _digest(request)
        if idempotency_key is not None:
            with self._db.read() as session:
                earlier = self._earlier(session, idempotency_key, digest)
            if earlier is not None:
                return earlier
        try:
            with self._db.write() as session:
                repository.lock_submissions(session)
                if idempotency_key is not None:
                    earlier = self._earlier(session, idempotency_key, digest)
                    if earlier is not None:
                        return earlier
                dataset = dataset_out(dataset_of(session, request.dataset, hold=True))
                more = request.unlabelled
                unlabelled = None if more is None else dataset_out(dataset_of(session, more, hold=True))
                checked = checked_request(request, dataset, self._settings, unlabelled)
                row = self._queued(
                    session,
                    learner=request.learner,
                    dataset_id=checked.dataset_id,
                    dataset=checked.dataset,
                    unlabelled_id=checked.unlabelled_id,
                    unlabelled=checked.unlabelled,
                    model=request.model,
                    params=checked.params,
                    evaluation=request.evaluation.model_dump(),
                    promote=checked.promote,
                    idempotency_key=idempotency_key,
                    request_sha256=digest,
                )
        except IntegrityError as error:
            if not is_unique_violation(error) or idempotency_key is None:
                raise
            with self._db.read() as session:
                earlier = self._earlier(session, idempotency_key, digest)
            if earlier is None:
                raise
            return earlier
        return job_out(row, [])

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
            row = self._queued(
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

    def _queued(self, session: Session, **values: Any) -> JobRow:
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

    def _earlier(self, session: Session, key: str, digest: str) -> JobOut | None:
        row = repository.by_idempotency_key(session, key)
        if row is None:
            return None
        if row.request_sha256 != digest:
            raise Conflict(
                "this Idempotency-Key was used for another request; use a new key for a new job",
                field="Idempotency-Key",
                job=row.id,
            )
        return job_out(row, repository.attempts_of(session, [row.id])[row.id])


def _askable(job_id: str) -> str:
    """The id, if it could be one; a database may refuse the very characters of others."""
    if not _ID.fullmatch(job_id):
        raise UnknownJob(f"there is no job {job_id[:64]!r}")
    return job_id


def _digest(request: JobRequest) -> str:
    body = json.dumps(request.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()
