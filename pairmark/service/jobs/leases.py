"""A worker's side of the queue: claim a job, keep it, end it.

Leases run on the database's clock and every write is fenced by the attempt's number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from pairmark.schemas.jobs import WorkerOut
from pairmark.service.audit.log import record
from pairmark.service.audit.recovery import recovered
from pairmark.service.db import Database
from pairmark.service.errors import Fenced, NotReady, PairmarkError, TrainingFailed
from pairmark.service.jobs import repository
from pairmark.service.jobs.claims import Claim, Lease
from pairmark.service.settings import Settings
from pairmark.service.tables import JobRow, WorkerRow

T = TypeVar("T")
_COMMIT_RETRY_S = 60.0
_SILENT_LEASES = 1.5
_FORGET_S = 86_400.0
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
        with self._db.read() as session:
            if not repository.any_claimable(session, self._db.now(session), job_id):
                return None
        with self._db.write() as session:
            now = self._db.now(session)
            self._requeue_lost(session, now)
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
            repository.forget_workers_before(session, now - _FORGET_S)

    def leave(self, worker: str) -> None:
        """Note that a worker stopped in order."""
        with self._db.write() as session:
            repository.forget_worker(session, worker[:200])

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
        """Renew the claim's lease and see whether it still stands."""
        with self._db.write() as session:
            until = self._db.now(session) + self._settings.lease_s
            if not repository.write_fenced(session, claim.job_id, claim.attempt, {"lease_until": until}):
                return Lease(valid=False, cancel_requested=False)
            return self._lease(session, claim)

    def look(self, claim: Claim) -> Lease:
        """See whether the claim still stands, without writing."""
        with self._db.read() as session:
            return self._lease(session, claim)

    def progress(
        self, claim: Claim, *, fraction: float, stage: str, message: str = "", event: bool = True
    ) -> None:
        """Tell how far the job is; ``event`` also adds to its stream. Raises `Fenced` when superseded."""
        fraction = min(max(fraction, 0.0), 1.0)
        with self._db.write() as session:
            data = {"progress": fraction, "stage": stage[:200], "message": message[:2000]}
            _write(session, claim.job_id, claim.attempt, data)
            if event:
                data["progress"] = round(fraction, 4)
                repository.add_event(session, claim.job_id, "progress", data, self._db.now(session))

    def log(self, claim: Claim, message: str, facts: Mapping[str, Any] | None = None) -> None:
        """Add a line to the job's stream, with ``facts`` (JSON-able) beside it. Raises `Fenced` when superseded."""
        with self._db.write() as session:
            _write(session, claim.job_id, claim.attempt, {"message": message[:2000]})
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
        self._end(
            session, claim.job_id, claim.attempt, "succeeded", values, facts, audited=facts, uncancelled=True
        )

    def fail(self, claim: Claim, error: PairmarkError) -> None:
        """End the job with an error that a person can act on. Raises `Fenced` when superseded."""
        note = {"type": f"/problems/{error.slug}", "title": error.title, "detail": error.detail[:4000]}
        persist(self._db, lambda session: self._fail(session, claim.job_id, claim.attempt, note))

    def cancelled(self, claim: Claim) -> None:
        """End the job as cancelled, after its work was stopped. Raises `Fenced` when superseded."""
        persist(
            self._db,
            lambda session: self._cancelled(session, claim.job_id, claim.attempt, "stopped while running"),
        )

    def release(self, claim: Claim, detail: str) -> None:
        """Give the job back to the queue, because the worker was asked to stop. Raises `Fenced` when superseded."""

        def give_back(session: Session) -> None:
            now = self._db.now(session)
            note = f"attempt {claim.attempt} was given back: {detail}"
            _write(session, claim.job_id, claim.attempt, {**_WAITING, "message": note})
            repository.close_attempt(
                session, claim.job_id, claim.attempt, outcome="released", detail=detail, now=now
            )
            repository.add_event(session, claim.job_id, "log", {"message": note}, now)

        persist(self._db, give_back)

    def lost(self, claim: Claim, detail: str, error: type[PairmarkError] = TrainingFailed) -> None:
        """Give up the attempt through no fault of the job's: it is tried again, up to ``max_attempts`` times, then
        failed with ``error``. Raises `Fenced` when superseded."""
        persist(
            self._db,
            lambda session: self._lost(
                session, claim.job_id, claim.attempt, detail, self._db.now(session), error
            ),
        )

    def _requeue_lost(self, session: Session, now: float) -> None:
        for row in repository.expired(session, now):
            detail = f"no heartbeat from {row.worker} for {self._settings.lease_s:g} s"
            if row.cancel_requested:
                self._cancelled(session, row.id, row.attempt, "its worker fell silent")
            else:
                self._lost(session, row.id, row.attempt, detail, now)

    def _lost(
        self,
        session: Session,
        job_id: str,
        attempt: int,
        detail: str,
        now: float,
        error: type[PairmarkError] = TrainingFailed,
    ) -> None:
        """Queue a lost attempt's job again, or fail it when that happened too often."""
        note = f"attempt {attempt} was lost: {detail}"
        _write(session, job_id, attempt, {"message": note})
        repository.close_attempt(session, job_id, attempt, outcome="lost", detail=detail, now=now)
        lost = repository.count_lost(session, job_id)
        if lost >= self._settings.max_attempts:
            failed = {
                "type": f"/problems/{error.slug}",
                "title": error.title,
                "detail": f"{lost} attempts were lost, the last one: {detail}. This is most often for want of "
                "memory: give workers more or train on fewer pairs, then submit the job again",
            }
            self._fail(session, job_id, attempt, failed, outcome="lost", detail=detail)
            return
        repository.write_fenced(session, job_id, attempt, {**_WAITING, "message": note})
        repository.add_event(session, job_id, "log", {"message": note}, now)
        recovered(session, now, "job", f"job:{job_id}", attempt=attempt, reason=detail)

    def _fail(
        self,
        session: Session,
        job_id: str,
        attempt: int,
        error: dict[str, str],
        *,
        outcome: str | None = None,
        detail: str | None = None,
    ) -> None:
        self._end(
            session,
            job_id,
            attempt,
            "failed",
            {"message": error["detail"][:2000], "error": error},
            {"error": error},
            audited={"error": error["type"]},
            outcome=outcome,
            detail=detail or error["detail"],
        )

    def _cancelled(self, session: Session, job_id: str, attempt: int, detail: str) -> None:
        self._end(
            session, job_id, attempt, "cancelled", {"message": "cancelled"}, {}, audited={}, detail=detail
        )

    def _end(
        self,
        session: Session,
        job_id: str,
        attempt: int,
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
        now = self._db.now(session)
        over = {"state": state, "stage": state, "lease_until": None, "finished_at": now}
        _write(session, job_id, attempt, {**over, **values}, uncancelled=uncancelled)
        repository.close_attempt(session, job_id, attempt, outcome=outcome or state, detail=detail, now=now)
        repository.add_event(session, job_id, "done", {"state": state, **facts}, now)
        tenant = repository.tenant_of_job(session, job_id)
        record(session, now, "job.end", f"job:{job_id}", after={"state": state, **audited}, tenant=tenant)

    def _lease(self, session: Session, claim: Claim) -> Lease:
        row = repository.lease_of(session, claim.job_id)
        valid = row is not None and row[0] == "running" and row[1] == claim.attempt
        return Lease(valid=valid, cancel_requested=bool(valid and row and row[2]))


def _write(
    session: Session, job_id: str, attempt: int, values: dict[str, Any], *, uncancelled: bool = False
) -> None:
    if not repository.write_fenced(session, job_id, attempt, values, uncancelled=uncancelled):
        raise Fenced(f"attempt {attempt} at job {job_id} is no longer held")


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
    return Claim.model_validate({**row.values(), "job_id": row.id, "worker": worker})
