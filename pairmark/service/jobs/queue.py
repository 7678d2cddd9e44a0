"""The job queue: a table, leases on the database's clock, writes fenced by attempt number.

In the order of a job's life: `JobQueue.enqueue` adds a row; `Leases.claim` gives it to a worker as an attempt, whose
lease `renew` extends; `Progress` tells how far it is; `Leases.finish`, `fail`, `cancelled`, `release` or `lost` end the
attempt, and `_requeue_lost` those that fell silent.
"""

from __future__ import annotations

import logging
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy.orm import Session

from pairmark.schemas.base import Page
from pairmark.schemas.jobs import EvaluationRequest, JobEventOut, JobOut, JobState, Task, WorkerOut
from pairmark.service.audit.log import record, recovered
from pairmark.service.db import Database
from pairmark.service.errors import (
    Conflict,
    Fenced,
    NotReady,
    PairmarkError,
    RateLimited,
    TrainingFailed,
    UnknownJob,
    WorkerSilent,
)
from pairmark.service.jobs import repository
from pairmark.service.names import EVERY_NAME, VisibleNames, tenant_of
from pairmark.service.pagination import page_of, start_of
from pairmark.service.processes import is_alive
from pairmark.service.scheduling import current_owner, note_limit
from pairmark.service.settings import Settings
from pairmark.service.tables import JobAttempt, JobRow, WorkerRow


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


class Claim(BaseModel, frozen=True):
    """The right to work on a job: every write names the attempt, and a superseded attempt is refused.

    Attributes
    ----------
    attempt : counts up with every claim, and fences writes.
    params, evaluation : validated when the job was submitted.
    created_at : seconds since the epoch.
    task : what is to be done.
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


@dataclass(frozen=True, kw_only=True)
class Lease:
    """How a claim stands: still held, and whether somebody asked to cancel it."""

    valid: bool
    cancel_requested: bool


T = TypeVar("T")
_COMMIT_RETRY_S = 60.0
_SILENT_LEASES = 1.5
_MOST_LATE_LEASES = 3
"""Another worker waits so many leases longer for one whose process still runs on the same machine."""
_REMOVE_SILENT_S = 86_400.0
_WAITING: dict[str, Any] = {
    "state": "queued",
    "stage": "queued",
    "lease_until": None,
    "worker": None,
    "progress": 0.0,
}


class Leases:
    """Claims and what may be done under them.

    A claim holds its job while heartbeats renew its lease. When they stop, the next claimant records the dead
    attempt as ``lost`` and starts another with a higher number; whatever the old one still writes is refused.
    """

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self._settings = settings

    def claim(self, worker: str, job_id: str | None = None) -> Claim | None:
        """Take the oldest waiting job (or ``job_id`` alone), or one whose worker fell silent; none when there is
        nothing to do."""
        # 1. A look that takes no lock: idle workers look several times a second.
        with self._db.read() as session:
            if not repository.any_claimable(session, self._db.now(session), job_id):
                return None
        # 2. In one transaction: queue again what fell silent, take a job under a higher attempt number, and open the
        # attempt. From its commit on, every write of an earlier attempt is refused.
        with self._db.write() as session:
            now = self._db.now(session)
            self._requeue_lost(session, worker[:200], now)
            row = repository.claim(
                session, worker=worker[:200], now=now, lease_until=now + self._settings.lease_s, job_id=job_id
            )
            if row is None:
                return None
            repository.open_attempt(session, row.id, row.attempt, worker[:200], now)
            repository.thin_progress(session, row.id)
            event = {"message": f"attempt {row.attempt} started"}
            repository.add_event(session, row.id, "log", event, now)
            return _claim(row, worker[:200])

    def mark_alive(self, worker: str, job_id: str | None = None) -> None:
        """Note that a worker is alive, and which job it runs."""
        with self._db.write() as session:
            now = self._db.now(session)
            repository.mark_worker(session, worker[:200], job_id, now)
            repository.remove_workers_before(session, now - _REMOVE_SILENT_S)

    def leave(self, worker: str) -> None:
        """Note that a worker stopped in order."""
        with self._db.write() as session:
            repository.remove_worker(session, worker[:200])

    def workers(self) -> list[WorkerOut]:
        """Workers that are alive: heard of within one and a half leases."""
        with self._db.read() as session:
            rows = self._alive(session)
        return [WorkerOut.model_validate({**row.values(), "job": row.job_id}) for row in rows]

    def _alive(self, session: Session) -> list[WorkerRow]:
        since = self._db.now(session) - _SILENT_LEASES * self._settings.lease_s
        return repository.workers_since(session, since)

    def claim_of(self, job_id: str, attempt: int) -> Claim:
        """The claim that a process was started for, or `Fenced` when it is no longer held."""
        with self._db.read() as session:
            row = repository.find(session, job_id)
        if row is None or row.attempt != attempt or row.state != "running" or row.worker is None:
            raise Fenced(f"attempt {attempt} at job {job_id} is no longer held")
        return _claim(row, row.worker)

    def renew(self, claim: Claim) -> Lease:
        """Renew the claim's lease, note that its worker is alive, and see whether the claim still stands."""
        with self._db.write() as session:
            now = self._db.now(session)
            until = now + self._settings.lease_s
            repository.mark_worker(session, claim.worker, claim.job_id, now)
            if not repository.write_fenced(session, claim.job_id, claim.attempt, {"lease_until": until}):
                return Lease(valid=False, cancel_requested=False)
            return self._lease_in(session, claim)

    def lease(self, claim: Claim) -> Lease:
        """See whether the claim still stands, without writing."""
        with self._db.read() as session:
            return self._lease_in(session, claim)

    def progress(
        self, claim: Claim, *, fraction: float, stage: str, message: str = "", event: bool = True
    ) -> None:
        """Tell how far the job is; ``event`` also adds to its stream. Raises `Fenced` when superseded."""
        fraction = min(max(fraction, 0.0), 1.0)
        with self._db.write() as session:
            data = {"progress": fraction, "stage": stage[:200], "message": message[:2000]}
            _write(session, claim, data)
            if event:
                data["progress"] = round(fraction, 4)
                repository.add_event(session, claim.job_id, "progress", data, self._db.now(session))

    def log(self, claim: Claim, message: str, facts: Mapping[str, Any] | None = None) -> None:
        """Add a line to the job's stream, with ``facts`` (JSON-able) beside it. Raises `Fenced` when superseded."""
        with self._db.write() as session:
            _write(session, claim, {"message": message[:2000]})
            event = {**(facts or {}), "message": message[:2000]}
            repository.add_event(session, claim.job_id, "log", event, self._db.now(session))

    def finish(
        self,
        claim: Claim,
        session: Session,
        *,
        version: int | None = None,
        result: dict[str, str] | None = None,
        message: str = "",
    ) -> None:
        """End the job well, in the caller's transaction, together with what it made; `Fenced` when the attempt was
        superseded or a cancel was asked for: the transaction must be given up."""
        outcome = {"version": version} if result is None else {"result": result}
        values = {"version": version, "result": result, "progress": 1.0, "message": message[:2000]}
        facts = {"model": claim.model, **outcome}
        self._end(session, claim, "succeeded", values, facts, audited=facts, uncancelled=True)

    def fail(self, claim: Claim, error: PairmarkError) -> None:
        """End the job with an error that a person can act on. Raises `Fenced` when superseded."""
        note = {"type": f"/problems/{error.slug}", "title": error.title, "detail": error.detail[:4000]}
        persist(self._db, lambda session: self._fail(session, claim, note))

    def cancelled(self, claim: Claim) -> None:
        """End the job as cancelled, after its work was stopped. Raises `Fenced` when superseded."""
        persist(self._db, lambda session: self._cancelled(session, claim, "stopped while running"))

    def release(self, claim: Claim, detail: str) -> None:
        """Give the job back to the queue, because the worker was asked to stop. Raises `Fenced` when superseded."""

        def give_back(session: Session) -> None:
            now = self._db.now(session)
            note = f"attempt {claim.attempt} was given back: {detail}"
            _write(session, claim, {**_WAITING, "message": note})
            repository.close_attempt(
                session, claim.job_id, claim.attempt, outcome="released", detail=detail, now=now
            )
            repository.add_event(session, claim.job_id, "log", {"message": note}, now)

        persist(self._db, give_back)

    def lost(self, claim: Claim, detail: str, error: type[PairmarkError] = TrainingFailed) -> None:
        """Give up the attempt through no fault of the job's: it is tried again, up to ``max_attempts`` times, then
        failed with ``error``. Raises `Fenced` when superseded."""
        persist(self._db, lambda session: self._lost(session, claim, detail, error))

    def _requeue_lost(self, session: Session, claimant: str, now: float) -> None:
        for row in repository.expired(session, now):
            claim = _claim(row, row.worker or "")
            silent = now - (row.lease_until or 0.0)
            is_late = claim.worker != claimant and _runs_here(claim.worker)
            if is_late and silent < _MOST_LATE_LEASES * self._settings.lease_s:
                # A busy machine: whoever it holds up would not get on faster with the job.
                continue
            if row.cancel_requested:
                self._cancelled(session, claim, "its worker fell silent")
            else:
                detail = f"no heartbeat from {row.worker} for {self._settings.lease_s + silent:.3g} s"
                self._lost(session, claim, detail, WorkerSilent)

    def _lost(
        self, session: Session, claim: Claim, detail: str, error: type[PairmarkError] = TrainingFailed
    ) -> None:
        """Queue a lost attempt's job again, or fail it when that happened too often."""
        job_id, now = claim.job_id, self._db.now(session)
        note = f"attempt {claim.attempt} was lost: {detail}"
        # First, since it is refused where the attempt was superseded: then nothing below may happen.
        _write(session, claim, {"message": note})
        repository.close_attempt(session, job_id, claim.attempt, outcome="lost", detail=detail, now=now)
        lost = repository.count_lost(session, job_id)
        if lost >= self._settings.max_attempts:
            failed = {
                "type": f"/problems/{error.slug}",
                "title": error.title,
                "detail": f"{lost} attempts were lost, the last one: {detail}",
            }
            self._fail(session, claim, failed, outcome="lost", detail=detail)
            return
        _write(session, claim, {**_WAITING, "message": note})
        repository.add_event(session, job_id, "log", {"message": note}, now)
        recovered(session, now, "job", f"job:{job_id}", attempt=claim.attempt, reason=detail)

    def _fail(
        self,
        session: Session,
        claim: Claim,
        error: dict[str, str],
        *,
        outcome: str | None = None,
        detail: str = "",
    ) -> None:
        self._end(
            session,
            claim,
            "failed",
            {"message": error["detail"][:2000], "error": error},
            {"error": error},
            audited={"error": error["type"]},
            outcome=outcome,
            detail=detail or error["detail"],
        )

    def _cancelled(self, session: Session, claim: Claim, detail: str) -> None:
        self._end(session, claim, "cancelled", {"message": "cancelled"}, {}, audited={}, detail=detail)

    def _end(
        self,
        session: Session,
        claim: Claim,
        state: str,
        values: dict[str, Any],
        facts: dict[str, Any],
        *,
        audited: dict[str, Any],
        outcome: str | None = None,
        detail: str = "",
        uncancelled: bool = False,
    ) -> None:
        """End a job with its attempt, its stream and a line in the audit log, or raise `Fenced`."""
        # All in the caller's transaction: a job is never over without its attempt, its last event and its audit entry.
        job_id, now = claim.job_id, self._db.now(session)
        over = {"state": state, "stage": state, "lease_until": None, "finished_at": now}
        _write(session, claim, {**over, **values}, uncancelled=uncancelled)
        repository.close_attempt(
            session, job_id, claim.attempt, outcome=outcome or state, detail=detail, now=now
        )
        repository.add_event(session, job_id, "done", {"state": state, **facts}, now)
        after, tenant = {"state": state, **audited}, tenant_of(claim.model) or None
        record(session, now, "job.end", f"job:{job_id}", after=after, tenant=tenant)

    def _lease_in(self, session: Session, claim: Claim) -> Lease:
        row = repository.find(session, claim.job_id)
        if row is None or row.state != "running" or row.attempt != claim.attempt:
            return Lease(valid=False, cancel_requested=False)
        return Lease(valid=True, cancel_requested=row.cancel_requested)


def _runs_here(worker: str) -> bool:
    """Whether a worker of the default name, ``host:pid``, is a process of this machine that runs."""
    host, _, pid = worker.rpartition(":")
    return host == socket.gethostname() and pid.isdecimal() and is_alive(int(pid))


def _write(session: Session, claim: Claim, values: dict[str, Any], *, uncancelled: bool = False) -> None:
    if not repository.write_fenced(session, claim.job_id, claim.attempt, values, uncancelled=uncancelled):
        raise Fenced(f"attempt {claim.attempt} at job {claim.job_id} is no longer held")


def persist(db: Database, work: Callable[[Session], T]) -> T:
    """Run ``work`` in one transaction, again while the database is away. ``work`` must bear being run twice."""
    deadline = time.monotonic() + _COMMIT_RETRY_S
    pause = 0.2
    while True:
        try:
            with db.write() as session:
                result = work(session)
            return result
        except NotReady:
            if time.monotonic() + pause > deadline:
                raise
            time.sleep(pause)
            pause = min(pause * 2, 5.0)


def _claim(row: JobRow, worker: str) -> Claim:
    # A job that an earlier version queued may say more.
    evaluation = {
        name: row.evaluation[name] for name in EvaluationRequest.model_fields if name in row.evaluation
    }
    facts = {"job_id": row.id, "worker": worker, "evaluation": evaluation}
    return Claim.model_validate({**row.values(), **facts})


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


class JobQueue(Leases):
    """Submit, watch and cancel jobs; and, inherited, claim them, keep them and end them."""

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
                note_limit("queued-jobs", limit, 0)
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
            return job_out(row, [], unattended=not self._alive(session))

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
        return job_out(row, attempts, unattended=not self._alive(session))

    def get(self, job_id: str) -> JobOut:
        """The job of that id, or `UnknownJob`."""
        with self._db.read() as session:
            row = repository.find(session, _askable(job_id))
            if row is None:
                raise unknown_job(job_id)
            attempts = repository.attempts_of(session, [row.id])[row.id]
            return job_out(row, attempts, unattended=not self._alive(session))

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
            unattended = not self._alive(session)
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
            row = repository.locked(session, _askable(job_id))
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
                workers=len(self._alive(session)),
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


_progress_log = logging.getLogger("pairmark.jobs")

_WRITE_EVERY_S = 0.5
_EVENT_STEP = 0.01


class Progress:
    """Progress of one attempt, whose ``stages`` say where each begins and ends on the job's way from 0 to 1."""

    def __init__(self, queue: JobQueue, claim: Claim, stages: Mapping[str, tuple[float, float]]) -> None:
        self._stages = stages
        self._queue = queue
        self._claim = claim
        self._stage = "starting"
        self._written_at = 0.0
        self._event_at = -1.0

    def stage(self, name: str) -> None:
        """A stage begins: always written. Raises `Fenced` when the attempt was superseded."""
        self._stage = name
        self._write(self._stages[name][0], "", event=True)

    def within(self, share: float, message: str = "") -> None:
        """A share of the stage is done: written when enough time has passed."""
        if time.monotonic() - self._written_at < _WRITE_EVERY_S:
            return
        low, high = self._stages[self._stage]
        fraction = low + (high - low) * min(max(share, 0.0), 1.0)
        self._write(fraction, message, event=fraction >= self._event_at + _EVENT_STEP)

    def log(self, message: str, facts: Mapping[str, Any] | None = None) -> None:
        """A line for people in the job's events, and the same as facts. Raises `Fenced` when superseded."""
        try:
            self._queue.log(self._claim, message, facts)
        except NotReady:
            self._away()

    def _write(self, fraction: float, message: str, *, event: bool) -> None:
        self._written_at = time.monotonic()
        if event:
            self._event_at = fraction
        try:
            self._queue.progress(
                self._claim, fraction=fraction, stage=self._stage, message=message, event=event
            )
        except NotReady:
            self._away()

    def _away(self) -> None:
        # Progress is for people; the work goes on while the database is away.
        _progress_log.warning(
            "progress was not written: the database does not answer", extra={"job": self._claim.job_id}
        )
