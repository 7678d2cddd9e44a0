"""Claims of jobs: leases on the database's clock, writes fenced by attempt number.

In the order of a job's life: `Leases.claim` gives it to a worker as an attempt, whose lease `renew` extends; `finish`,
`fail`, `cancelled`, `release` or `lost` end the attempt, and `_requeue_lost` those that fell silent.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy.orm import Session

from pairmark.schemas.jobs import EvaluationRequest, Task, WorkerOut
from pairmark.service.audit.log import record, record_recovery
from pairmark.service.db import Database
from pairmark.service.errors import (
    Fenced,
    NotReady,
    PairmarkError,
    TrainingFailed,
    WorkerSilent,
)
from pairmark.service.jobs import repository
from pairmark.service.names import tenant_of
from pairmark.service.processes import is_alive
from pairmark.service.settings import Settings
from pairmark.service.tables import JobRow, WorkerRow


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
            now = self._db.now(session)
            if not repository.any_claimable(session, now, self._furthest(now), job_id):
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

    def mark_alive(self, worker: str) -> None:
        """Note that a worker is alive, and runs no job."""
        with self._db.write() as session:
            now = self._db.now(session)
            repository.mark_worker(session, worker[:200], None, now)
            repository.remove_workers_before(session, now - _REMOVE_SILENT_S)

    def leave(self, worker: str) -> None:
        """Note that a worker stopped in order."""
        with self._db.write() as session:
            repository.remove_worker(session, worker[:200])

    def workers(self) -> list[WorkerOut]:
        """Workers that are alive: heard of within one and a half leases."""
        with self._db.read() as session:
            rows = self.alive(session)
        return [WorkerOut.model_validate({**row.values(), "job": row.job_id}) for row in rows]

    def alive(self, session: Session) -> list[WorkerRow]:
        """Their rows."""
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

    def _furthest(self, now: float) -> float:
        """When the last lease ends that was given by the clock as it is now. Of a server nothing is known: its clock
        may be set back under workers of other machines, who renew their leases in a moment."""
        return now + 2 * self._settings.lease_s if self._db.is_sqlite else math.inf

    def _requeue_lost(self, session: Session, claimant: str, now: float) -> None:
        for row in repository.expired_jobs(session, now, self._furthest(now)):
            claim = _claim(row, row.worker or "")
            silent = now - (row.lease_until or 0.0)
            is_late = claim.worker != claimant and _runs_here(claim.worker)
            if is_late and silent < _MOST_LATE_LEASES * self._settings.lease_s:
                # A busy machine: whoever it holds up would not get on faster with the job.
                continue
            if row.cancel_requested:
                self._cancelled(session, claim, "its worker fell silent")
            else:
                how_long = f" for {self._settings.lease_s + silent:.3g} s" if silent > 0 else ""
                detail = f"no heartbeat from {row.worker}{how_long}"
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
        record_recovery(session, now, "job", f"job:{job_id}", attempt=claim.attempt, reason=detail)

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
