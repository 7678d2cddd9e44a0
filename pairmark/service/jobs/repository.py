"""All SQL of jobs. Nothing here commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, exists, func, insert, or_, select, tuple_, update
from sqlalchemy.orm import Session, aliased

from pairmark.service.db import among, touched
from pairmark.service.names import EVERY_NAME, VisibleNames
from pairmark.service.tables import JobAttempt, JobEvent, JobRow, WorkerRow

_SUBMIT_LOCK = 7261949


def lock_submissions(session: Session) -> None:
    """Let one submission in at a time, so that the queue's bound holds and a key makes one job. SQLite's writers wait
    for one another."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(_SUBMIT_LOCK)))


def by_idempotency_key(session: Session, key: str) -> JobRow | None:
    return session.scalar(select(JobRow).where(JobRow.idempotency_key == key))


def count_queued_by_owner(session: Session) -> dict[str, int]:
    query = select(JobRow.owner, func.count()).where(JobRow.state == "queued").group_by(JobRow.owner)
    return {row[0]: row[1] for row in session.execute(query)}


def oldest_queued(session: Session) -> float | None:
    return session.scalar(select(func.min(JobRow.created_at)).where(JobRow.state == "queued"))


def count_by_state(session: Session) -> dict[str, int]:
    rows = session.execute(select(JobRow.state, func.count()).group_by(JobRow.state)).all()
    return {row[0]: row[1] for row in rows}


def find(session: Session, job_id: str) -> JobRow | None:
    return session.get(JobRow, job_id)


def attempts_of(session: Session, job_ids: Sequence[str]) -> dict[str, list[JobAttempt]]:
    """Attempts of each job, in order."""
    attempts: dict[str, list[JobAttempt]] = {job_id: [] for job_id in job_ids}
    statement = select(JobAttempt).where(JobAttempt.job_id.in_(job_ids)).order_by(JobAttempt.attempt)
    for row in session.scalars(statement):
        attempts[row.job_id].append(row)
    return attempts


def page(
    session: Session,
    *,
    limit: int,
    after: tuple[float, str] | None,
    state: str | None,
    models: VisibleNames = EVERY_NAME,
) -> list[JobRow]:
    """Jobs, newest first, after a (created_at, id) mark."""
    statement = select(JobRow).order_by(JobRow.created_at.desc(), JobRow.id.desc()).limit(limit)
    if after is not None:
        statement = statement.where(tuple_(JobRow.created_at, JobRow.id) < after)
    if state is not None:
        statement = statement.where(JobRow.state == state)
    return list(session.scalars(statement.where(among(models, JobRow.model))))


def _silent(now: float, furthest: float) -> ColumnElement[bool]:
    """Whose lease is over, or ends later than any that is given now: the clock was set back."""
    over = or_(JobRow.lease_until < now, JobRow.lease_until > furthest)
    return and_(JobRow.state == "running", over)


def any_claimable(session: Session, now: float, furthest: float, job_id: str | None) -> bool:
    """Whether a claim could find something: a cheap look before taking the write lock."""
    condition = or_(JobRow.state == "queued", _silent(now, furthest))
    if job_id is not None:
        condition = and_(condition, JobRow.id == job_id)
    return bool(session.scalar(select(exists().where(condition))))


def expired_jobs(session: Session, now: float, furthest: float) -> list[JobRow]:
    """Running jobs whose worker fell silent, locked against other claimants."""
    statement = select(JobRow).where(_silent(now, furthest)).with_for_update(skip_locked=True).limit(100)
    return list(session.scalars(statement))


def count_lost(session: Session, job_id: str) -> int:
    """Attempts at a job that ended in silence."""
    statement = select(func.count()).where(JobAttempt.job_id == job_id, JobAttempt.outcome == "lost")
    return session.scalar(statement) or 0


def claim(
    session: Session, *, worker: str, now: float, lease_until: float, job_id: str | None
) -> JobRow | None:
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
        .with_for_update(skip_locked=True)
    )
    if job_id is not None:
        oldest = oldest.where(inner.id == job_id)
    statement = (
        update(JobRow)
        .where(JobRow.id == oldest.scalar_subquery(), JobRow.state == "queued")
        .values(
            state="running",
            attempt=JobRow.attempt + 1,
            worker=worker,
            lease_until=lease_until,
            started_at=func.coalesce(JobRow.started_at, now),
            progress=0.0,
            stage="starting",
            message="",
        )
        .returning(JobRow)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    return session.scalar(statement)


def open_attempt(session: Session, job_id: str, attempt: int, worker: str, now: float) -> None:
    """Begin an entry of the job's history."""
    session.execute(
        insert(JobAttempt).values(job_id=job_id, attempt=attempt, worker=worker, started_at=now, detail="")
    )


def close_attempt(
    session: Session, job_id: str, attempt: int, *, outcome: str, detail: str, now: float
) -> None:
    """End an entry of the job's history."""
    session.execute(
        update(JobAttempt)
        .where(JobAttempt.job_id == job_id, JobAttempt.attempt == attempt)
        .values(outcome=outcome, detail=detail, ended_at=now)
    )


def write_fenced(
    session: Session, job_id: str, attempt: int, values: dict[str, Any], *, uncancelled: bool = False
) -> bool:
    """Write to a running job if this attempt still holds it; says whether it did."""
    statement = update(JobRow).where(
        JobRow.id == job_id, JobRow.attempt == attempt, JobRow.state == "running"
    )
    if uncancelled:
        statement = statement.where(JobRow.cancel_requested.is_(False))
    statement = statement.values(**values).execution_options(synchronize_session=False)
    return bool(touched(session, statement))


def lock_job(session: Session, job_id: str) -> JobRow | None:
    """The job of that id, locked until the transaction ends."""
    return session.scalar(select(JobRow).where(JobRow.id == job_id).with_for_update())


def add_event(session: Session, job_id: str, event: str, data: dict[str, Any], now: float) -> None:
    session.execute(insert(JobEvent).values(job_id=job_id, at=now, event=event, data=data))


def events_after(session: Session, job_id: str, after: int, limit: int) -> list[JobEvent]:
    """Events with a larger id than ``after``, in order."""
    statement = (
        select(JobEvent)
        .where(JobEvent.job_id == job_id, JobEvent.id > after)
        .order_by(JobEvent.id)
        .limit(limit)
    )
    return list(session.scalars(statement))


def thin_progress(session: Session, job_id: str) -> None:
    """Drop the progress events of earlier attempts: log events say what was lost."""
    session.execute(delete(JobEvent).where(JobEvent.job_id == job_id, JobEvent.event == "progress"))


def mark_worker(session: Session, name: str, job_id: str | None, now: float) -> None:
    """Note that a worker is alive, and the job it runs."""
    statement = update(WorkerRow).where(WorkerRow.name == name).values(seen_at=now, job_id=job_id)
    if not touched(session, statement):
        session.execute(insert(WorkerRow).values(name=name, started_at=now, seen_at=now, job_id=job_id))


def remove_worker(session: Session, name: str) -> None:
    session.execute(delete(WorkerRow).where(WorkerRow.name == name))


def remove_workers_before(session: Session, before: float) -> None:
    """Remove workers not seen since ``before``."""
    session.execute(delete(WorkerRow).where(WorkerRow.seen_at < before))


def workers_since(session: Session, since: float) -> list[WorkerRow]:
    """Workers seen at or after ``since``."""
    statement = select(WorkerRow).where(WorkerRow.seen_at >= since).order_by(WorkerRow.name)
    return list(session.scalars(statement))
