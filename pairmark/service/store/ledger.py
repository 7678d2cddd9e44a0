"""SQL of the ledger: which versions were calibrated on which dataset version, and what was asked of them.

Entries outlive versions: a version that was deleted was looked at all the same. Nothing here commits.
"""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pairmark.service.db import bump_revision
from pairmark.service.store.schemas import LedgerEntry, LedgerOut
from pairmark.service.tables import CalibrationLedger, CalibrationRow, Model

MOST_RATES = 200
"""Different rates of one version that are noted."""


def enter(session: Session, row: CalibrationRow) -> int | None:
    """Give a new calibration the next number of its dataset version; None for scores made elsewhere."""
    if row.dataset_sha256 is None or row.model_id is None or row.version is None:
        return None
    # Whoever else enters one waits here until this transaction ends.
    bump_revision(session)
    table = CalibrationLedger
    last = session.scalar(select(func.max(table.number)).where(table.dataset_sha256 == row.dataset_sha256))
    model = session.get_one(Model, row.model_id)
    entry = table(
        dataset_sha256=row.dataset_sha256,
        number=(last or 0) + 1,
        calibration_id=row.id,
        model=model.name,
        version=row.version,
        rates=[],
        created_at=row.created_at,
    )
    session.add(entry)
    session.flush()
    return entry.number


def number_of(session: Session, calibration_id: str) -> int | None:
    """A calibration's number among those of its dataset version, from 1; None when it is in no ledger."""
    table = CalibrationLedger
    return session.scalar(select(table.number).where(table.calibration_id == calibration_id))


def asked(session: Session, calibration_id: str, rate: float) -> None:
    """Note that an operating point of a calibration was asked for at a rate."""
    table = CalibrationLedger
    entry = session.scalar(select(table).where(table.calibration_id == calibration_id).with_for_update())
    if entry is not None and rate not in entry.rates and len(entry.rates) < MOST_RATES:
        entry.rates = sorted([*entry.rates, rate])


def ledger(session: Session, dataset: str, sha256: str) -> LedgerOut:
    """The ledger of a dataset version."""
    table = CalibrationLedger
    rows = session.scalars(select(table).where(table.dataset_sha256 == sha256).order_by(table.number)).all()
    return LedgerOut(
        dataset=dataset,
        dataset_sha256=sha256,
        candidates=len(rows),
        versions=[
            LedgerEntry.model_validate({**row.values(), "calibrated_at": row.created_at}) for row in rows
        ],
    )
