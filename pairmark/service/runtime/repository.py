"""SQL that reads which versions are served."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from pairmark.service.tables import AliasRow, CalibrationRow, ModelRow, ModelVersion, Revision


def revision(session: Session) -> int:
    """How many changes there have been."""
    return int(session.scalar(select(Revision.value)) or 0)


def models(session: Session) -> list[Row[str, str, bool | None, Any, Any]]:
    """(id, name, allow_asymptotic, reviews, rates) of every model."""
    columns = ModelRow.id, ModelRow.name, ModelRow.allow_asymptotic, ModelRow.reviews, ModelRow.rates
    return list(session.execute(select(*columns).order_by(ModelRow.name)))


def versions(session: Session) -> list[Row[Any]]:
    """(model_id, name, version, kind, capabilities, calibration_id, artefact_sha256) of every version."""
    of = ModelVersion
    columns = (
        of.model_id,
        ModelRow.name,
        of.version,
        of.kind,
        of.capabilities,
        of.calibration_id,
        of.artefact_sha256,
    )
    return list(session.execute(select(*columns).join(ModelRow).order_by(of.model_id, of.version)))


def moved(session: Session) -> list[Row[str, str | None]]:
    """(id, what has moved) of calibrations whose inputs have."""
    return list(
        session.execute(
            select(CalibrationRow.id, CalibrationRow.moved).where(CalibrationRow.moved.is_not(None))
        )
    )


def aliases(session: Session) -> list[Row[str, str, int]]:
    """(model_id, alias, version) of every alias."""
    return list(session.execute(select(AliasRow.model_id, AliasRow.alias, AliasRow.version)))
