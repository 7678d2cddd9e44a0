"""Which rows name which blobs, and the lock that keeps naming and deleting apart."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pairmark.service.tables import CalibrationRow, DatasetRow, ModelVersion

_NAMED = (DatasetRow.blob, ModelVersion.artefact, ModelVersion.report, CalibrationRow.blob)
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
    wanted = sorted(set(keys))
    named: set[str] = set()
    for start in range(0, len(wanted), 500):
        chunk = wanted[start : start + 500]
        for column in _NAMED:
            named.update(
                key for key in session.scalars(select(column).where(column.in_(chunk))) if key is not None
            )
    return named
