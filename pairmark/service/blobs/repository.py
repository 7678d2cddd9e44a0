"""Which rows name which blobs, and the lock that keeps naming and deleting apart."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, exists, func, insert, select, update
from sqlalchemy.orm import Session

from pairmark.service.tables import BackupRow, CalibrationRow, DatasetRow, LinkRow, ModelVersion

_NAMED = (DatasetRow.blob, ModelVersion.artefact, ModelVersion.report, CalibrationRow.blob, LinkRow.blob)
_LOCK = 7261948


def lock_blobs(session: Session, *, exclusive: bool) -> None:
    """Until the transaction ends, keep blob deleters out (or, ``exclusive``, everybody).

    SQLite needs no lock of its own: a writing transaction is alone there, once it has begun.
    """
    session.connection()
    if session.get_bind().dialect.name == "postgresql":
        lock = func.pg_advisory_xact_lock if exclusive else func.pg_advisory_xact_lock_shared
        session.execute(select(lock(_LOCK)))


def named_blobs(session: Session, keys: Iterable[str]) -> set[str]:
    """Those of ``keys`` that some row names."""
    ordered = sorted(set(keys))
    names: set[str] = set()
    for start in range(0, len(ordered), 500):
        chunk = ordered[start : start + 500]
        for column in _NAMED:
            names.update(
                key for key in session.scalars(select(column).where(column.in_(chunk))) if key is not None
            )
    return names


def all_named_blobs(session: Session) -> set[str]:
    return {key for column in _NAMED for key in session.scalars(select(column)) if key}


def begin_backup(session: Session, hold: str, now: float, until: float) -> None:
    """Keep every blob until a time."""
    session.execute(insert(BackupRow).values(id=hold, started_at=now, holds_until=until))


def extend_backup(session: Session, hold: str, until: float) -> None:
    """Keep every blob for longer."""
    session.execute(update(BackupRow).where(BackupRow.id == hold).values(holds_until=until))


def finish_backup(session: Session, hold: str, now: float, *, finished: bool) -> None:
    """End the hold; only the newest backup that was finished is remembered."""
    if not finished:
        session.execute(delete(BackupRow).where(BackupRow.id == hold))
        return
    session.execute(update(BackupRow).where(BackupRow.id == hold).values(holds_until=now, finished_at=now))
    session.execute(delete(BackupRow).where(BackupRow.id != hold, BackupRow.holds_until < now))


def last_backup(session: Session) -> float | None:
    """When the last backup was finished."""
    return session.scalar(select(func.max(BackupRow.finished_at)))


def backup_under_way(session: Session, now: float) -> bool:
    return bool(session.scalar(select(exists().where(BackupRow.holds_until > now))))
