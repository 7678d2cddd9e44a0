"""All SQL of models, versions, aliases and calibrations. Nothing here commits."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, delete, func, select, true
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from pairmark.schemas.models import LONGEST_REASON
from pairmark.service.db import among, bump_revision
from pairmark.service.names import VisibleNames, same_tenant, tenant_of
from pairmark.service.tables import (
    AliasChange,
    AliasRow,
    CalibrationLedger,
    CalibrationRow,
    DecisionCount,
    GalleryRow,
    KeptDecision,
    ModelRow,
    ModelVersion,
)


def find_model(session: Session, name: str, *, lock: bool = False) -> ModelRow | None:
    """The model of that name; ``lock``: held until the transaction ends, so that moves and registrations wait."""
    query = select(ModelRow).where(ModelRow.name == name)
    return session.scalar(query.with_for_update() if lock else query)


def ensure_model(session: Session, name: str, now: float) -> ModelRow:
    """The model of that name, made when there is none, locked until the transaction ends."""
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    row = {"id": secrets.token_hex(16), "name": name, "next_version": 1, "created_at": now}
    session.execute(insert(ModelRow).values(row).on_conflict_do_nothing(index_elements=["name"]))
    model = find_model(session, name, lock=True)
    assert model is not None
    return model


def add_version(session: Session, model: ModelRow, new: ModelVersion, now: float) -> ModelVersion:
    """Add a copy of a version that has no number yet: what a lost commit has to repeat stays as it is."""
    number = model.next_version
    model.next_version = number + 1
    own = {"model_id": model.id, "version": number, "calibration_id": None, "created_at": now}
    row = ModelVersion(**{**new.values(), **own})
    session.add(row)
    session.flush()
    return row


def add_calibration(
    session: Session, new: CalibrationRow, now: float, *, model_id: str | None, version: int | None
) -> CalibrationRow:
    """Add a copy of a calibration whose blob is stored, of a version or of scores made elsewhere."""
    own = {"id": secrets.token_hex(16), "model_id": model_id, "version": version, "created_at": now}
    row = CalibrationRow(**{**new.values(), **own})
    session.add(row)
    session.flush()
    enter_ledger(session, row)
    return row


def find_child(session: Session, parent_id: str, subjects: str) -> str | None:
    """The calibration of a class of subjects that was drawn from the same people as its parent."""
    return session.scalar(
        select(CalibrationRow.id).where(
            CalibrationRow.parent_id == parent_id, CalibrationRow.subjects == subjects
        )
    )


def count_children(session: Session, parent_id: str) -> int:
    """Classes of subjects that a calibration was made for."""
    statement = select(func.count()).where(CalibrationRow.parent_id == parent_id)
    return session.scalar(statement) or 0


def version_of_job(session: Session, job_id: str) -> int | None:
    return session.scalar(select(ModelVersion.version).where(ModelVersion.job_id == job_id))


def page_models(
    session: Session,
    *,
    limit: int,
    after: str | None,
    contains: str | None = None,
    names: VisibleNames,
) -> list[ModelRow]:
    """Models that have a version, by name."""
    statement = select(ModelRow).order_by(ModelRow.name).limit(limit)
    statement = statement.where(
        select(ModelVersion.version).where(ModelVersion.model_id == ModelRow.id).exists()
    )
    if after is not None:
        statement = statement.where(ModelRow.name > after)
    statement = statement.where(among(names, ModelRow.name))
    if contains:
        statement = statement.where(ModelRow.name.icontains(contains, autoescape=True))
    return list(session.scalars(statement))


def page_versions(
    session: Session, model_id: str, *, limit: int, before: int | None = None
) -> list[ModelVersion]:
    """Versions of a model, newest first."""
    statement = select(ModelVersion).where(ModelVersion.model_id == model_id)
    if before is not None:
        statement = statement.where(ModelVersion.version < before)
    return list(session.scalars(statement.order_by(ModelVersion.version.desc()).limit(limit)))


def aliases_of(session: Session, model_ids: Sequence[str]) -> dict[str, list[AliasRow]]:
    """Aliases of each model, by name."""
    aliases: dict[str, list[AliasRow]] = {model_id: [] for model_id in model_ids}
    for row in session.scalars(
        select(AliasRow).where(AliasRow.model_id.in_(model_ids)).order_by(AliasRow.alias)
    ):
        aliases[row.model_id].append(row)
    return aliases


def move_alias(
    session: Session,
    model_id: str,
    alias: str,
    version: int,
    *,
    by: str,
    now: float,
    reason: str | None = None,
) -> AliasRow:
    """Point the alias at a version and add to its history. The model's row must be locked."""
    row = session.get(AliasRow, (model_id, alias))
    previous = None if row is None else row.version
    if row is None:
        row = AliasRow(model_id=model_id, alias=alias, version=version, revision=1, updated_at=now)
        session.add(row)
    else:
        row.version, row.revision, row.updated_at = version, row.revision + 1, now
    session.add(
        AliasChange(
            model_id=model_id,
            alias=alias,
            version=version,
            previous=previous,
            by=by[:200],
            at=now,
            reason=reason[:LONGEST_REASON] if reason else None,
        )
    )
    session.flush()
    return row


def alias_changes(
    session: Session, model_id: str, alias: str, *, limit: int, before: int | None
) -> list[AliasChange]:
    """Moves of an alias, newest first."""
    statement = select(AliasChange).where(AliasChange.model_id == model_id, AliasChange.alias == alias)
    if before is not None:
        statement = statement.where(AliasChange.id < before)
    return list(session.scalars(statement.order_by(AliasChange.id.desc()).limit(limit)))


def galleries_using(session: Session, model_id: str, version: int) -> list[str]:
    """Names of galleries that a version serves."""
    statement = select(GalleryRow.name).where(GalleryRow.model_id == model_id, GalleryRow.version == version)
    return list(session.scalars(statement.order_by(GalleryRow.name).limit(101)))


def delete_version(session: Session, model_id: str, version: int) -> None:
    session.execute(
        delete(CalibrationRow).where(CalibrationRow.model_id == model_id, CalibrationRow.version == version)
    )
    session.execute(
        delete(ModelVersion).where(ModelVersion.model_id == model_id, ModelVersion.version == version)
    )


def find_calibration(session: Session, calibration_id: str) -> tuple[CalibrationRow, str | None] | None:
    statement = (
        select(CalibrationRow, ModelRow.name)
        .outerjoin(ModelRow, ModelRow.id == CalibrationRow.model_id)
        .where(CalibrationRow.id == calibration_id)
    )
    row = session.execute(statement).first()
    return None if row is None else (row[0], row[1])


def calibrations_of(
    session: Session, model_id: str, version: int, limit: int, *, of_subjects: bool = False
) -> list[CalibrationRow]:
    """Calibrations of a version, newest first; with those of subjects of several samples only if asked."""
    statement = (
        select(CalibrationRow)
        .where(CalibrationRow.model_id == model_id, CalibrationRow.version == version)
        .where(true() if of_subjects else CalibrationRow.parent_id.is_(None))
        .order_by(CalibrationRow.created_at.desc(), CalibrationRow.id)
        .limit(limit)
    )
    return list(session.scalars(statement))


def page_calibrations(
    session: Session, *, limit: int, after: tuple[float, str] | None, names: VisibleNames
) -> list[tuple[CalibrationRow, str | None]]:
    """Calibrations and their models' names, newest first; of models, or of scores, with these names."""
    statement = (
        select(CalibrationRow, ModelRow.name)
        .outerjoin(ModelRow, ModelRow.id == CalibrationRow.model_id)
        .where(among(names, func.coalesce(ModelRow.name, CalibrationRow.name)))
        .order_by(CalibrationRow.created_at.desc(), CalibrationRow.id)
        .limit(limit)
    )
    if after is not None:
        at, last = after
        statement = statement.where(
            (CalibrationRow.created_at < at)
            | ((CalibrationRow.created_at == at) & (CalibrationRow.id > last))
        )
    return [(row[0], row[1]) for row in session.execute(statement)]


def blobs_of(version: ModelVersion, calibrations: Sequence[CalibrationRow]) -> list[str]:
    keys: list[Any] = [version.artefact, version.report, *(row.blob for row in calibrations)]
    return [key for key in keys if key]


_OF_ALIAS = (AliasRow.model_id == ModelVersion.model_id) & (AliasRow.version == ModelVersion.version)


def versions_in_use(session: Session) -> list[tuple[str, int]]:
    """Names and numbers of versions that an alias holds or a gallery uses, in order."""
    of_gallery = (GalleryRow.model_id == ModelVersion.model_id) & (GalleryRow.version == ModelVersion.version)
    statement = (
        select(ModelRow.name, ModelVersion.version)
        .join(ModelVersion, ModelVersion.model_id == ModelRow.id)
        .where(
            select(AliasRow).where(_OF_ALIAS).exists() | select(GalleryRow).where(of_gallery).exists(),
        )
        .order_by(ModelRow.name, ModelVersion.version)
    )
    return [(row[0], row[1]) for row in session.execute(statement)]


def calibrations_in_use(session: Session, alias: str) -> list[tuple[str, int, float]]:
    """Name, version and time of the calibration of every version that an alias holds."""
    statement = (
        select(ModelRow.name, ModelVersion.version, CalibrationRow.created_at)
        .join(ModelVersion, ModelVersion.model_id == ModelRow.id)
        .join(CalibrationRow, CalibrationRow.id == ModelVersion.calibration_id)
        .join(AliasRow, _OF_ALIAS)
        .where(AliasRow.alias == alias)
    )
    return [(row[0], row[1], row[2]) for row in session.execute(statement)]


def delete_decisions(session: Session, model_id: str) -> None:
    for table in (KeptDecision, DecisionCount):
        session.execute(delete(table).where(table.model_id == model_id))


def enter_ledger(session: Session, row: CalibrationRow) -> None:
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
    return [among(same_tenant(name), CalibrationLedger.model)] if tenant_of(name) else []


def ledger_number(session: Session, calibration_id: str) -> int | None:
    """A calibration's number among those on its dataset version, from 1; None when it is in no ledger."""
    entry = session.get(CalibrationLedger, calibration_id)
    return None if entry is None else entry.number
