"""Claims of jobs: leases on the database's clock, writes fenced by attempt number, and what they tell people.

In the order of a job's life: `Leases.claim` gives it to a worker as an attempt, whose lease `renew` extends; `finish`,
`fail`, `cancelled`, `release` or `lost` end the attempt, and `_requeue_lost` those that fell silent. `Progress` says
how far an attempt is.
"""

import logging
import math
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import ColumnElement, Update, and_, delete, exists, func, insert, or_, select, update
from sqlalchemy.orm import Session, aliased

from pairmark.schemas.jobs import EvaluationRequest, Task, WorkerOut
from pairmark.service.audit.log import record, record_recovery
from pairmark.service.db import Database, execute_change, insert_into
from pairmark.service.errors import (
    Fenced,
    NotReady,
    PairmarkError,
    TrainingFailed,
    WorkerSilent,
)
from pairmark.service.names import tenant_of
from pairmark.service.processes import is_alive
from pairmark.service.settings import Settings
from pairmark.service.tables import JobAttempt, JobEvent, JobRow, WorkerRow


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


T = TypeVar("T")
# How long the end of an attempt is tried while the database is away, and by how many leases a worker is silent that
# counts as gone.
_COMMIT_RETRY_S = 60.0
_SILENT_LEASES = 1.5
_MOST_LATE_LEASES = 3
"""Another worker waits so many leases longer for one whose process still runs on the same machine."""
# A worker that never signed off is listed no longer after a day; its job goes back to the queue by its lease.
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
        self._db, self._settings = db, settings

    def claim(self, worker: str, job_id: str | None = None) -> Claim | None:
        """Take the oldest waiting job (or ``job_id`` alone), or one whose worker fell silent; none when there is
        nothing to do."""
        # 1. A look that takes no lock: idle workers look several times a second.
        with self._db.read() as session:
            claimable = or_(JobRow.state == "queued", self._silent(self._db.now(session)))
            wanted = claimable if job_id is None else and_(claimable, JobRow.id == job_id)
            if not session.scalar(select(exists().where(wanted))):
                return None
        # 2. In one transaction: queue again what fell silent, take a job under a higher attempt number, and open the
        # attempt. From its commit on, every write of an earlier attempt is refused.
        with self._db.write() as session:
            now = self._db.now(session)
            self._requeue_lost(session, worker[:200], now)
            values = {"worker": worker[:200], "lease_until": now + self._settings.lease_s}
            row = session.scalar(_taking_update(job_id, now).values(**values))
            if row is None:
                return None
            session.execute(
                insert(JobAttempt).values(
                    job_id=row.id, attempt=row.attempt, worker=worker[:200], started_at=now, detail=""
                )
            )
            # Log events say what earlier attempts came to.
            session.execute(delete(JobEvent).where(JobEvent.job_id == row.id, JobEvent.event == "progress"))
            add_event(session, row.id, "log", {"message": f"attempt {row.attempt} started"}, now)
            return _claim(row, worker[:200])

    def mark_alive(self, worker: str) -> None:
        """Note that a worker is alive, and runs no job."""
        with self._db.write() as session:
            now = self._db.now(session)
            _mark_worker(session, worker, None, now)
            session.execute(delete(WorkerRow).where(WorkerRow.seen_at < now - _REMOVE_SILENT_S))

    def leave(self, worker: str) -> None:
        """Note that a worker stopped in order."""
        with self._db.write() as session:
            session.execute(delete(WorkerRow).where(WorkerRow.name == worker[:200]))

    def workers(self) -> list[WorkerOut]:
        """Workers that are alive: heard of within one and a half leases."""
        with self._db.read() as session:
            rows = self.alive(session)
        return [WorkerOut.model_validate({**row.values(), "job": row.job_id}) for row in rows]

    def alive(self, session: Session) -> list[WorkerRow]:
        """Their rows."""
        since = self._db.now(session) - _SILENT_LEASES * self._settings.lease_s
        return list(
            session.scalars(select(WorkerRow).where(WorkerRow.seen_at >= since).order_by(WorkerRow.name))
        )

    def claim_of(self, job_id: str, attempt: int) -> Claim:
        """The claim that a process was started for, or `Fenced` when it is no longer held."""
        with self._db.read() as session:
            row = session.get(JobRow, job_id)
        # A child may start late, when its job is over or was claimed anew: it must not work beside its successor.
        if row is None or row.attempt != attempt or row.state != "running" or row.worker is None:
            raise Fenced(f"attempt {attempt} at job {job_id} is no longer held")
        return _claim(row, row.worker)

    def renew(self, claim: Claim) -> bool | None:
        """Renew the claim's lease, and note that its worker is alive; returns what `is_cancelled` does."""
        with self._db.write() as session:
            now = self._db.now(session)
            _mark_worker(session, claim.worker, claim.job_id, now)
            # The heartbeat itself is fenced: a superseded attempt does not keep its successor's job.
            renewal = _fenced_update(claim).values(lease_until=now + self._settings.lease_s)
            return session.scalar(renewal.returning(JobRow.cancel_requested))

    def is_cancelled(self, claim: Claim) -> bool | None:
        """Whether somebody asked to cancel the job; None where the claim no longer stands. Writes nothing."""
        with self._db.read() as session:
            return session.scalar(select(JobRow.cancel_requested).where(*_where_held(claim)))

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
                add_event(session, claim.job_id, "progress", data, self._db.now(session))

    def log(self, claim: Claim, message: str, facts: Mapping[str, Any] | None = None) -> None:
        """Add a line to the job's stream, with ``facts`` (JSON-able) beside it. Raises `Fenced` when superseded."""
        with self._db.write() as session:
            _write(session, claim, {"message": message[:2000]})
            event = {**(facts or {}), "message": message[:2000]}
            add_event(session, claim.job_id, "log", event, self._db.now(session))

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
        # A cancel that was asked for before this wins: what was made is not registered.
        self._end(session, claim, "succeeded", values, facts, audited=facts, uncancelled=True)

    def fail(self, claim: Claim, error: PairmarkError) -> None:
        """End the job with an error that a person can act on. Raises `Fenced` when superseded."""
        persist(self._db, lambda session: self._fail(session, claim, error))

    def cancelled(self, claim: Claim) -> None:
        """End the job as cancelled, after its work was stopped. Raises `Fenced` when superseded."""
        persist(self._db, lambda session: self._cancelled(session, claim, "stopped while running"))

    def release(self, claim: Claim, detail: str) -> None:
        """Give the job back to the queue, because the worker was asked to stop. Raises `Fenced` when superseded."""

        persist(self._db, lambda session: self._requeue(session, claim, "released", "given back", detail))

    def lost(self, claim: Claim, detail: str, error: type[PairmarkError] = TrainingFailed) -> None:
        """Give up the attempt through no fault of the job's: it is tried again, up to ``max_attempts`` times, then
        failed with ``error``. Raises `Fenced` when superseded."""
        persist(self._db, lambda session: self._lost(session, claim, detail, error))

    def _silent(self, now: float) -> ColumnElement[bool]:
        """Whose lease is over, or ends later than any that is given by the clock as it is now: it was set back. Of a
        server nothing is known: its clock may be set back under workers of other machines, who renew their leases in a
        moment."""
        furthest = now + 2 * self._settings.lease_s if self._db.is_sqlite else math.inf
        over = or_(JobRow.lease_until < now, JobRow.lease_until > furthest)
        return and_(JobRow.state == "running", over)

    def _requeue_lost(self, session: Session, claimant: str, now: float) -> None:
        # Whoever claims puts right what others left: no process has that for its only work.
        silent_jobs = select(JobRow).where(self._silent(now)).with_for_update(skip_locked=True).limit(100)
        for row in session.scalars(silent_jobs).all():
            # The claim of the silent worker: what ends it is fenced by its attempt number, as if the worker did so
            # itself.
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
                self._lost(session, claim, f"no heartbeat from {row.worker}{how_long}", WorkerSilent)

    def _lost(
        self, session: Session, claim: Claim, detail: str, error: type[PairmarkError] = TrainingFailed
    ) -> None:
        """Queue a lost attempt's job again, or fail it when that happened too often."""
        job_id = claim.job_id
        # Only lost attempts count. Those that were released were the operator's wish, however often.
        earlier = select(func.count()).where(JobAttempt.job_id == job_id, JobAttempt.outcome == "lost")
        lost = 1 + (session.scalar(earlier) or 0)
        if lost >= self._settings.max_attempts:
            last = error(f"{lost} attempts were lost, the last one: {detail}")
            self._fail(session, claim, last, outcome="lost", detail=detail)
            return
        self._requeue(session, claim, "lost", "lost", detail)
        facts = {"attempt": claim.attempt, "reason": detail}
        record_recovery(session, self._db.now(session), "job", f"job:{job_id}", **facts)

    def _requeue(self, session: Session, claim: Claim, outcome: str, verb: str, detail: str) -> None:
        """End the attempt and queue its job again, or raise `Fenced`."""
        note = f"attempt {claim.attempt} was {verb}: {detail}"
        # First, since it is refused where the attempt was superseded: then nothing below may happen.
        _write(session, claim, {**_WAITING, "message": note})
        now = self._db.now(session)
        _close_attempt(session, claim, outcome, detail, now)
        add_event(session, claim.job_id, "log", {"message": note}, now)

    def _fail(
        self,
        session: Session,
        claim: Claim,
        error: PairmarkError,
        *,
        outcome: str | None = None,
        detail: str = "",
    ) -> None:
        note = {"type": f"/problems/{error.slug}", "title": error.title, "detail": error.detail[:4000]}
        self._end(
            session,
            claim,
            "failed",
            {"message": error.detail[:2000], "error": note},
            {"error": note},
            audited={"error": note["type"]},
            outcome=outcome,
            detail=detail or note["detail"],
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
        _close_attempt(session, claim, outcome or state, detail, now)
        add_event(session, job_id, "done", {"state": state, **facts}, now)
        after, tenant = {"state": state, **audited}, tenant_of(claim.model) or None
        record(session, now, "job.end", f"job:{job_id}", after=after, tenant=tenant)


def _runs_here(worker: str) -> bool:
    """Whether a worker of the default name, ``host:pid``, is a process of this machine that runs."""
    host, _, pid = worker.rpartition(":")
    return host == socket.gethostname() and pid.isdecimal() and is_alive(int(pid))


def _where_held(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    """Where a job is held by just this attempt."""
    return JobRow.id == claim.job_id, JobRow.attempt == claim.attempt, JobRow.state == "running"


def _fenced_update(claim: Claim) -> Update:
    """A change of the claim's job that an attempt which was superseded does not make."""
    return update(JobRow).where(*_where_held(claim)).execution_options(synchronize_session=False)


def _write(session: Session, claim: Claim, values: dict[str, Any], *, uncancelled: bool = False) -> None:
    # The condition is part of the change itself, so nothing comes between looking and writing.
    change = _fenced_update(claim).values(**values)
    if uncancelled:
        change = change.where(JobRow.cancel_requested.is_(False))
    # No row: another attempt holds the job, it is over, or a cancel was asked for. The exception rolls the transaction
    # back.
    if not execute_change(session, change):
        raise Fenced(f"attempt {claim.attempt} at job {claim.job_id} is no longer held")


def _taking_update(job_id: str | None, now: float) -> Update:
    """Take a queued job, in one statement: no two claimants get the same. Owners take turns: next is the oldest job of
    the one with the fewest under way, and of those the one whose turn was longest ago."""
    inner, peer = aliased(JobRow), aliased(JobRow)
    same = peer.owner == inner.owner
    under_way = select(func.count()).where(same, peer.state == "running").scalar_subquery()
    turn = select(func.coalesce(func.max(peer.started_at), 0.0)).where(same).scalar_subquery()
    oldest = (
        select(inner.id)
        .where(inner.state == "queued")
        .order_by(under_way, turn, inner.created_at, inner.id)
        .limit(1)
        # PostgreSQL's claimants pass one another by here; those of SQLite write one at a time.
        .with_for_update(skip_locked=True)
    )
    if job_id is not None:
        oldest = oldest.where(inner.id == job_id)
    return (
        update(JobRow)
        # Asked again of the row itself: another claimant may have taken it since it was chosen.
        .where(JobRow.id == oldest.scalar_subquery(), JobRow.state == "queued")
        .values(
            state="running",
            attempt=JobRow.attempt + 1,
            # Of the first attempt. Owners take turns by it, so an attempt that is made again costs its owner no turn.
            started_at=func.coalesce(JobRow.started_at, now),
            progress=0.0,
            stage="starting",
            message="",
        )
        .returning(JobRow)
        .execution_options(synchronize_session=False, populate_existing=True)
    )


def _close_attempt(session: Session, claim: Claim, outcome: str, detail: str, now: float) -> None:
    """End an entry of the job's history."""
    entry = JobAttempt.job_id == claim.job_id, JobAttempt.attempt == claim.attempt
    session.execute(update(JobAttempt).where(*entry).values(outcome=outcome, detail=detail, ended_at=now))


def add_event(session: Session, job_id: str, event: str, data: dict[str, Any], now: float) -> None:
    """Add to a job's stream."""
    session.execute(insert(JobEvent).values(job_id=job_id, at=now, event=event, data=data))


def _mark_worker(session: Session, name: str, job_id: str | None, now: float) -> None:
    """Note that a worker is alive, and the job it runs."""
    seen = {"seen_at": now, "job_id": job_id}
    new = insert_into(session, WorkerRow).values(name=name[:200], started_at=now, **seen)
    session.execute(new.on_conflict_do_update(index_elements=["name"], set_=seen))


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


_log = logging.getLogger("pairmark.jobs")

# Between two writes within a stage, and progress from one event of the stream to the next.
_WRITE_EVERY_S = 0.5
_EVENT_STEP = 0.01


class Progress:
    """Progress of one attempt, whose ``stages`` say where each begins and ends on the job's way from 0 to 1."""

    def __init__(self, leases: Leases, claim: Claim, stages: Mapping[str, tuple[float, float]]) -> None:
        self._leases, self._claim, self._stages = leases, claim, stages
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
            self._leases.log(self._claim, message, facts)
        except NotReady:
            self._away()

    def _write(self, fraction: float, message: str, *, event: bool) -> None:
        self._written_at = time.monotonic()
        if event:
            self._event_at = fraction
        try:
            self._leases.progress(
                self._claim, fraction=fraction, stage=self._stage, message=message, event=event
            )
        except NotReady:
            self._away()

    def _away(self) -> None:
        # Progress is for people; the work goes on while the database is away.
        _log.warning(
            "progress was not written: the database does not answer", extra={"job": self._claim.job_id}
        )
