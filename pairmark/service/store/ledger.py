"""SQL of the ledger: which versions were calibrated on one dataset version, within one tenant.

Entries outlive versions: a version that was deleted was looked at all the same. Nothing here commits.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from pairmark.schemas.models import LedgerEntry, LedgerOut
from pairmark.service.db import among, bump_revision
from pairmark.service.names import beside, tenant_of
from pairmark.service.tables import CalibrationLedger, CalibrationRow, ModelRow


def enter(session: Session, row: CalibrationRow) -> None:
    """Give a version's new calibration the next number of its dataset version."""
    if row.dataset_sha256 is None or row.model_id is None:
        return
    # Whoever else enters one waits here until this transaction ends.
    bump_revision(session)
    table, name = CalibrationLedger, session.get_one(ModelRow, row.model_id).name
    last = select(func.max(table.number)).where(table.dataset_sha256 == row.dataset_sha256, *_of_tenant(name))
    entry = table(
        calibration_id=row.id,
        number=(session.scalar(last) or 0) + 1,
        dataset_sha256=row.dataset_sha256,
        model=name,
        version=row.version,
        created_at=row.created_at,
    )
    session.add(entry)
    session.flush()


def _of_tenant(name: str) -> list[ColumnElement[bool]]:
    """What limits entries to those of the name's tenant."""
    return [among(beside(name), CalibrationLedger.model)] if tenant_of(name) else []


def number_of(session: Session, calibration_id: str) -> int | None:
    """A calibration's number among those on its dataset version, from 1; None when it is in no ledger."""
    entry = session.get(CalibrationLedger, calibration_id)
    return None if entry is None else entry.number


def ledger(session: Session, dataset: str, sha256: str) -> LedgerOut:
    """The ledger of a dataset version, of its tenant."""
    table = CalibrationLedger
    rows = session.scalars(
        select(table)
        .where(table.dataset_sha256 == sha256, *_of_tenant(dataset))
        .order_by(table.number, table.created_at)
    ).all()
    return LedgerOut(
        dataset=dataset,
        dataset_sha256=sha256,
        candidates=len(rows),
        versions=[
            LedgerEntry.model_validate({**row.values(), "calibrated_at": row.created_at}) for row in rows
        ],
    )
