"""Content-addressed, immutable folders: what datasets, models and calibrations keep outside the database. They are
added and deleted so that no committed row ever refers to a missing one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pairmark.service.audit.log import record_recovery
from pairmark.service.blobs.local import Blobs
from pairmark.service.db import Database
from pairmark.service.errors import InvalidInput, StorageFailed
from pairmark.service.settings import Settings
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


def all_named_blobs(session: Session) -> set[str]:
    """Every key that some row names."""
    return {key for column in _NAMED for key in session.scalars(select(column)) if key}


GRACE_S = 3600.0
"""How long a blob may wait for the row that names it."""


def hold(session: Session, blobs: Blobs, *keys: str) -> None:
    """Call in the transaction that commits a row naming ``keys``: until it ends nobody deletes them. `StorageFailed`
    when one was deleted since `put_folder`: put it again."""
    lock_blobs(session, exclusive=False)
    for key in keys:
        if not blobs.exists(key):
            raise StorageFailed("the stored data was deleted by someone else meanwhile: try again")


def delete_unused(db: Database, blobs: Blobs, keys: Iterable[str]) -> list[str]:
    """Delete those of ``keys`` that no row names (any more). Call after the rows' deletion is committed. Returns those
    that were deleted."""
    candidates = set(keys)
    if not candidates:
        return []
    with db.write() as session:
        lock_blobs(session, exclusive=True)
        unused = sorted(candidates - all_named_blobs(session))
        for key in unused:
            blobs.delete(key)
    return unused


def collect(db: Database, blobs: Blobs, *, grace_s: float = GRACE_S) -> list[str]:
    """Remove what killed processes left: half-made folders, and blobs that no row has named for ``grace_s``. Returns
    the keys of those blobs."""
    deleted = delete_unused(db, blobs, [key for key, age in blobs.ages() if age >= grace_s])
    sweep_unfinished(db, blobs, deleted)
    return deleted


def sweep_unfinished(db: Database, blobs: Blobs, deleted: Sequence[str] = ()) -> None:
    """Remove only what killed processes left half-made: the cheap part of `collect`."""
    unfinished = blobs.sweep()
    if unfinished or deleted:
        with db.write() as session:
            facts = {"unfinished": unfinished, "blobs": len(deleted)}
            record_recovery(session, db.now(session), "storage", "storage", **facts)


def last_finished(db: Database) -> float | None:
    """When the last backup was made, in seconds since the epoch."""
    with db.read() as session:
        return session.scalar(select(func.max(BackupRow.finished_at)))


__all__ = ["Blobs", "collect", "delete_unused", "hold", "open_blobs"]


def open_blobs(settings: Settings) -> Blobs:
    """The blob storage that the settings name: a folder, or ``s3://bucket/prefix``."""
    address = settings.resolved_artefacts
    if address.startswith("s3://"):
        from pairmark.service.blobs.s3 import S3Blobs

        return S3Blobs(address, cache=settings.home / "cache")
    if "://" in address:
        raise InvalidInput(f"PAIRMARK_ARTEFACTS is {address!r}; expected a folder or s3://bucket/prefix")
    return Blobs(Path(address))
