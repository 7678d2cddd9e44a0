"""Checks of every table's rows: what refers to nothing, what is not in its form, and how to repair it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sqlalchemy import JSON, Table, and_, func, or_, select, text
from sqlalchemy.orm import Session, aliased

from pairmark.service.datasets.ingest import dataset_out
from pairmark.service.db import Database
from pairmark.service.galleries.identification import evaluation_out
from pairmark.service.jobs.queue import job_out
from pairmark.service.keys.grants import Grants
from pairmark.service.keys.schemas import KeyOut
from pairmark.service.operations.dump import dumped_tables
from pairmark.service.store.repository import lost_calibrations
from pairmark.service.store.views import calibration_out, version_out
from pairmark.service.tables import (
    Alias,
    ApiKey,
    Base,
    CalibrationRow,
    DatasetRow,
    GalleryCalibrationRow,
    GalleryEvaluationRow,
    GalleryItem,
    GalleryProbe,
    GalleryRow,
    JobRow,
    Model,
    ModelVersion,
    damage_of,
)

MOST = 20
"""Damaged rows of one kind that are looked up; there may be more."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
Damage = tuple[str, str]
"""What is wrong, and the repair."""

_RESTORE = "restore a backup, or delete the row: {sql}"


class RowChecks:
    """Looks at every row of the database through the schema and through what shows it."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def damages(self) -> Iterator[Damage]:
        """Each damage that is there, at most `MOST` of a kind."""
        with self._db.snapshot() as session:
            if self._db.is_sqlite:
                yield from _pages(session)
            for table in dumped_tables():
                yield from _dangling(session, table)
            for mapper in sorted(Base.registry.mappers, key=lambda one: str(one.local_table)):
                yield from _forms(session, mapper.class_)
            yield from _references(session)
            yield from _vectors(session)


def _pages(session: Session) -> Iterator[Damage]:
    """SQLite's own check of its pages and indexes."""
    for (line,) in session.execute(text(f"PRAGMA quick_check({MOST})")):
        if line != "ok":
            yield (
                f"the database file is damaged: {str(line)[:200]}",
                "stop the service, keep the file, and restore a backup into another PAIRMARK_HOME",
            )


def _dangling(session: Session, table: Table) -> Iterator[Damage]:
    """Rows whose foreign key names no row."""
    for constraint in sorted(table.foreign_key_constraints, key=lambda one: str(one.name)):
        parent = constraint.referred_table.alias()
        pairs = [(element.parent, parent.c[element.column.name]) for element in constraint.elements]
        key = list(table.primary_key.columns)
        missing = (
            select(*key)
            .outerjoin(parent, and_(*(own == other for own, other in pairs)))
            .where(pairs[0][1].is_(None), *(own.is_not(None) for own, _ in pairs))
        )
        for row in session.execute(missing.limit(MOST)):
            values = dict(row._asdict())
            yield (
                f"{_name(table, values)} refers to a row of {constraint.referred_table.name} that is not there",
                _deletion(table, values),
            )


def _forms(session: Session, kind: type[Base]) -> Iterator[Damage]:
    """Rows whose JSON, hashes or shown form are not as they should be."""
    table: Table = kind.__table__  # type: ignore[assignment]
    shown = _SHOWN.get(kind)
    hashes = [column for column in table.columns if column.name.endswith("sha256")]
    structured = any(isinstance(column.type, JSON) for column in table.columns)
    if shown is None and not structured and not hashes:
        return
    n = 0
    columns = {attribute.key: attribute.columns[0] for attribute in kind.__mapper__.column_attrs}
    # Columns, not objects: loading a damaged row as an object is refused.
    statement = select(*(column.label(name) for name, column in columns.items()))
    for row in session.execute(statement.execution_options(yield_per=500)):
        values = dict(row._mapping)
        reason = damage_of(kind, values) or _bad_hash(hashes, values)
        if reason is None and shown is not None:
            reason = _not_shown(shown, kind, values)
        if reason is not None:
            n += 1
            yield f"{_name(table, values)}: {reason}", _REPAIR.get(kind) or _deletion(table, values)
            if n == MOST:
                return


def _bad_hash(hashes: list[Any], values: Mapping[str, Any]) -> str | None:
    for column in hashes:
        value = values[column.key]
        if value is not None and _SHA256.fullmatch(str(value)) is None:
            return f"{column.name} is no SHA-256"
    return None


def _not_shown(shown: Callable[[Any], object], kind: type[Base], values: dict[str, Any]) -> str | None:
    try:
        shown(kind(**values))
    except Exception as error:
        # Whatever it is: it would come with every request that shows the row.
        return f"cannot be shown: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None


def _shown_key(row: ApiKey) -> None:
    KeyOut.model_validate(row)
    Grants(row.scopes)


_SHOWN: dict[type[Base], Callable[[Any], object]] = {
    ApiKey: _shown_key,
    ModelVersion: lambda row: version_out("-", row, [], []),
    CalibrationRow: lambda row: calibration_out(row, "-"),
    DatasetRow: dataset_out,
    JobRow: lambda row: job_out(row, []),
    GalleryEvaluationRow: evaluation_out,
}
_REPAIR: dict[type[Base], str] = {
    ModelVersion: "promote another version and delete this one, or restore a backup",
}


def _references(session: Session) -> Iterator[Damage]:
    """References that the schema does not enforce."""
    version = aliased(ModelVersion)
    aliases = (
        select(Model.name, Alias.alias, Alias.version)
        .join(Model, Model.id == Alias.model_id)
        .outerjoin(version, and_(version.model_id == Alias.model_id, version.version == Alias.version))
        .where(version.version.is_(None))
    )
    for name, alias, number in session.execute(aliases.limit(MOST)):
        yield (
            f"alias {name}@{alias} points to version {number}, which is not there",
            f"move it to another version: pairmark models promote {name}:VERSION --alias {alias}",
        )
    for name, number, id in lost_calibrations(session):
        yield (
            f"{name}:{number} is decided by calibration {id}, which is not there",
            f"calibrate it again: POST /models/{name}/versions/{number}/calibrations, or restore a backup",
        )
    parent = aliased(CalibrationRow)
    orphans = (
        select(CalibrationRow.id)
        .outerjoin(parent, parent.id == CalibrationRow.parent_id)
        .where(CalibrationRow.parent_id.is_not(None), parent.id.is_(None))
    )
    for (id,) in session.execute(orphans.limit(MOST)):
        yield (
            f"calibration {id} is of subjects, and the calibration that it was drawn from is not there",
            f"delete it: DELETE FROM calibrations WHERE id = '{id}'",
        )


def _versions_of_galleries() -> Any:
    version = aliased(ModelVersion)
    return (
        select(GalleryRow.name, GalleryRow.version)
        .outerjoin(
            version, and_(version.model_id == GalleryRow.model_id, version.version == GalleryRow.version)
        )
        .where(version.version.is_(None))
    )


def _vectors(session: Session) -> Iterator[Damage]:
    """Galleries: versions that are there, vectors of the dimension, metadata that is an object."""
    for name, number in session.execute(_versions_of_galleries().limit(MOST)):
        yield (
            f"gallery {name} is served by version {number} of a model, which is not there",
            f"import that version again or restore a backup; else delete the gallery: DELETE /galleries/{name}",
        )
    item, probe = GalleryItem, GalleryProbe
    for of, id in ((item, item.id), (probe, probe.subject)):
        wrong = (
            select(GalleryRow.name, GalleryRow.dimension, id, func.length(of.vector))
            .join(of, of.gallery_id == GalleryRow.id)
            .where(func.length(of.vector) != 4 * GalleryRow.dimension)
        )
        for gallery, dimension, name, size in session.execute(wrong.limit(MOST)):
            yield (
                f"gallery {gallery}: the vector of {ascii(name)[:100]} has {size} bytes, expected {4 * dimension}",
                f"enrol it again, or erase it: POST /galleries/{gallery}/erase",
            )
    odd = (
        select(GalleryRow.name, item.id)
        .join(item, item.gallery_id == GalleryRow.id)
        .where(item.facts.is_not(None), item.facts.not_like("{%}"))
    )
    for gallery, name in session.execute(odd.limit(MOST)):
        yield (
            f"gallery {gallery}: the metadata of {ascii(name)[:100]} is no JSON object",
            f"enrol it again, or erase it: POST /galleries/{gallery}/erase",
        )
    arrays = GalleryCalibrationRow
    bad = select(arrays.id, GalleryRow.name).join(GalleryRow, GalleryRow.id == arrays.gallery_id)
    bad = bad.where(or_(func.length(arrays.best) % 4 != 0, func.length(arrays.mated) % 4 != 0))
    for calibration_id, gallery in session.execute(bad.limit(MOST)):
        yield (
            f"gallery {gallery}: calibration {calibration_id} does not hold whole numbers of scores",
            f"calibrate it again: POST /galleries/{gallery}/calibrations",
        )


def _name(table: Table, values: Mapping[str, Any]) -> str:
    key = ", ".join(f"{column.name} {str(values[column.key])[:60]!a}" for column in table.primary_key.columns)
    return f"{table.name} ({key})"


def _deletion(table: Table, values: Mapping[str, Any]) -> str:
    where = " AND ".join(
        f"{column.name} = {_literal(values[column.key])}" for column in table.primary_key.columns
    )
    return _RESTORE.format(sql=f"DELETE FROM {table.name} WHERE {where}")


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"
