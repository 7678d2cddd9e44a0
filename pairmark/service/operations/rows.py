"""Checks of every table's rows: what refers to nothing, what is not in its form, and how to repair it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_args

import numpy as np
from sqlalchemy import Table, and_, func, inspect, or_, select, text
from sqlalchemy.orm import Session, aliased
from sqlalchemy.schema import CreateIndex

from pairmark.models.pairs.splits import Protocol
from pairmark.models.registry import spec_of
from pairmark.service.audit.schemas import AuditEntry
from pairmark.service.datasets.ingest import dataset_out
from pairmark.service.db import Database
from pairmark.service.errors import DamagedRow
from pairmark.service.galleries.calibration.identification import evaluation_out
from pairmark.service.galleries.calibration.kept_probes import RECORD
from pairmark.service.galleries.calibration.thresholds import calibration_of
from pairmark.service.galleries.items.item_repository import READ_ROWS, are_objects
from pairmark.service.jobs.queue import job_out
from pairmark.service.keys.grants import Grants
from pairmark.service.keys.repository import stored_quotas
from pairmark.service.keys.schemas import KeyOut
from pairmark.service.operations.dump import dumped_tables
from pairmark.service.store.repository import lost_calibrations
from pairmark.service.store.views import calibration_out, version_out
from pairmark.service.tables import (
    AliasRow,
    ApiKey,
    AuditRow,
    Base,
    CalibrationRow,
    DatasetRow,
    GalleryCalibrationRow,
    GalleryEvaluationRow,
    GalleryItem,
    GalleryProbe,
    GalleryRemoval,
    GalleryRow,
    JobRow,
    ModelRow,
    ModelVersion,
    Revision,
    ServiceSecret,
    SessionRow,
    TenantRow,
    damage_of,
)

MOST = 20
"""Damaged rows of one kind that are looked up; there may be more."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
Damage = tuple[str, str]
"""What is wrong, and the repair."""

_RESTORE = "restore a backup, or delete the row: {sql}"
_NO_TABLE = "restore a backup into another PAIRMARK_HOME"


class DatabaseChecks:
    """Looks at every row of the database through the schema and through what shows it."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def damages(self) -> Iterator[Damage]:
        """Each damage that is there, at most `MOST` of a kind."""
        with self._db.snapshot() as session:
            if self._db.is_sqlite:
                yield from _pages(session)
            schema = list(_schema(session))
            yield from schema
            if any(repair == _NO_TABLE for _, repair in schema):
                return
            for table in (*dumped_tables(), Base.metadata.tables[SessionRow.__tablename__]):
                yield from _dangling(session, table)
            for mapper in sorted(Base.registry.mappers, key=lambda mapper: str(mapper.local_table)):
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


def _schema(session: Session) -> Iterator[Damage]:
    """Tables, columns, indexes and triggers that are not there."""
    there = inspect(session.connection())
    for table in Base.metadata.sorted_tables:
        if not there.has_table(table.name):
            yield f"the table {table.name} is not there", _NO_TABLE
            continue
        missing = {column.name for column in table.columns} - {
            facts["name"] for facts in there.get_columns(table.name)
        }
        if missing:
            yield f"the table {table.name} has no column {', '.join(sorted(missing))}", _NO_TABLE
        names = {facts["name"] for facts in there.get_indexes(table.name)}
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            if index.name not in names:
                statement = str(CreateIndex(index).compile(session.connection())).strip()
                yield f"the index {index.name} is not there", f"make it again: {' '.join(statement.split())}"
    name = "sqlite_master WHERE type = 'trigger' AND name"
    if session.get_bind().dialect.name == "postgresql":
        name = "pg_trigger WHERE tgname"
    if not session.scalar(text(f"SELECT count(*) FROM {name} = 'audit_stays'")):
        yield (
            "the trigger audit_stays is not there: entries of the audit log could be changed",
            f"{_NO_TABLE}, which makes it again",
        )


def _dangling(session: Session, table: Table) -> Iterator[Damage]:
    """Rows whose foreign key names no row."""
    for constraint in sorted(table.foreign_key_constraints, key=lambda constraint: str(constraint.name)):
        parent = constraint.referred_table.alias()
        pairs = [(element.parent, parent.c[element.column.name]) for element in constraint.elements]
        key = list(table.primary_key.columns)
        missing = (
            select(*key)
            .outerjoin(parent, and_(*(own == parent_column for own, parent_column in pairs)))
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
    if kind in _BULK:
        return
    show = _SHOWN.get(kind)
    hashes = [column for column in table.columns if column.name.endswith("sha256")]
    n = 0
    columns = {attribute.key: attribute.columns[0] for attribute in kind.__mapper__.column_attrs}
    # Columns, not objects: loading a damaged row as an object is refused.
    statement = select(*(column.label(name) for name, column in columns.items()))
    for row in session.execute(statement.execution_options(yield_per=500)):
        values = dict(row._mapping)
        reason = damage_of(kind, values) or _bad_hash(hashes, values)
        if reason is None and show is not None:
            reason = _not_shown(show, kind, values)
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


def _not_shown(show: Callable[[Any], object], kind: type[Base], values: dict[str, Any]) -> str | None:
    try:
        show(kind(**values))
    except DamagedRow as error:
        return error.detail.partition("is damaged: ")[2].partition("; `pairmark doctor`")[0]
    except Exception as error:
        # Whatever it is: it would come with every request that shows the row.
        return f"cannot be shown: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None


def _shown_key(row: ApiKey) -> None:
    KeyOut.model_validate(row)
    Grants(row.scopes, row.tenant)


def _shown_version(row: ModelVersion) -> None:
    version_out("-", row, [], [])
    spec_of(row.kind)


def _shown_calibration(row: CalibrationRow) -> None:
    calibration_out(row, "-")
    if row.protocol not in get_args(Protocol):
        raise ValueError(f"protocol {row.protocol!r}, expected one of {', '.join(get_args(Protocol))}")


def _shown_gallery_calibration(row: GalleryCalibrationRow) -> None:
    calibration_of(row)
    int(row.summary["gallery_size"]), list(row.summary["warnings"])
    if int(row.summary["n_probes"]) != len(row.best) // 4:
        raise ValueError(f"{row.summary['n_probes']} probes in its summary, and {len(row.best) // 4} scores")


def _shown_secret(row: ServiceSecret) -> None:
    if len(row.value) != 32:
        raise ValueError(f"{len(row.value)} bytes of secret, expected 32")


_BULK: frozenset[type[Base]] = frozenset({GalleryItem, GalleryProbe, GalleryRemoval})
"""Tables of many rows, which `_vectors` checks within the database."""
_SHOWN: dict[type[Base], Callable[[Any], object]] = {
    ApiKey: _shown_key,
    ModelVersion: _shown_version,
    CalibrationRow: _shown_calibration,
    GalleryCalibrationRow: _shown_gallery_calibration,
    ServiceSecret: _shown_secret,
    AuditRow: AuditEntry.model_validate,
    DatasetRow: dataset_out,
    JobRow: lambda row: job_out(row, []),
    GalleryEvaluationRow: evaluation_out,
    TenantRow: stored_quotas,
}
_REPAIR: dict[type[Base], str] = {
    ModelVersion: "promote another version and delete this one, or restore a backup",
}


def _references(session: Session) -> Iterator[Damage]:
    """References that the schema does not enforce."""
    version = aliased(ModelVersion)
    aliases = (
        select(ModelRow.name, AliasRow.alias, AliasRow.version)
        .join(ModelRow, ModelRow.id == AliasRow.model_id)
        .outerjoin(version, and_(version.model_id == AliasRow.model_id, version.version == AliasRow.version))
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
    if session.scalar(select(func.count()).select_from(Revision)) != 1:
        yield (
            "the table revision has no row or several: other processes do not see changes",
            "stop the service and run: DELETE FROM revision; INSERT INTO revision (id, value) VALUES (1, 1000000)",
        )
    last = func.max(ModelVersion.version)
    counts = (
        select(ModelRow.name, ModelRow.id, ModelRow.next_version, last)
        .join(ModelVersion, ModelVersion.model_id == ModelRow.id)
        .group_by(ModelRow.name, ModelRow.id, ModelRow.next_version)
        .having(last >= ModelRow.next_version)
    )
    for name, id, number, newest in session.execute(counts.limit(MOST)):
        yield (
            f"model {name} has version {newest}, and its next_version is {number}",
            f"UPDATE models SET next_version = {newest + 1} WHERE id = {_literal(id)}",
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
    """Galleries: versions that are there, vectors of the dimension, records and metadata that are objects."""
    for name, number in session.execute(_versions_of_galleries().limit(MOST)):
        yield (
            f"gallery {name} is served by version {number} of a model, which is not there",
            f"import that version again or restore a backup; else delete the gallery: DELETE /galleries/{name}",
        )
    yield from _counts(session)
    item, probe = GalleryItem, GalleryProbe
    repairs = {item: "enrol it again, or erase it: POST /galleries/{}/erase",
               probe: "calibrate it again: POST /galleries/{}/calibrations"}  # fmt: skip
    for of, id in ((item, item.id), (probe, probe.subject)):
        wrong = (
            select(GalleryRow.name, GalleryRow.dimension, id, func.length(of.vector))
            .join(of, of.gallery_id == GalleryRow.id)
            .where(GalleryRow.columns.is_(None), func.length(of.vector) != 4 * GalleryRow.dimension)
        )
        for gallery, dimension, name, size in session.execute(wrong.limit(MOST)):
            yield (
                f"gallery {gallery}: the vector of {ascii(name)[:100]} has {size} bytes, expected {4 * dimension}",
                repairs[of].format(gallery),
            )
        if session.get_bind().dialect.name == "sqlite":
            texts = select(GalleryRow.name, id).join(of, of.gallery_id == GalleryRow.id)
            for gallery, name in session.execute(texts.where(func.typeof(of.vector) != "blob").limit(MOST)):
                yield (
                    f"gallery {gallery}: the vector of {ascii(name)[:100]} is text",
                    repairs[of].format(gallery),
                )
    yield from _items(session)
    arrays = GalleryCalibrationRow
    bad = select(arrays.id, GalleryRow.name).join(GalleryRow, GalleryRow.id == arrays.gallery_id)
    bad = bad.where(or_(func.length(arrays.best) % 4 != 0, func.length(arrays.mated) % 4 != 0))
    for calibration_id, gallery in session.execute(bad.limit(MOST)):
        yield (
            f"gallery {gallery}: calibration {calibration_id} does not hold whole numbers of scores",
            f"calibrate it again: POST /galleries/{gallery}/calibrations",
        )


def _counts(session: Session) -> Iterator[Damage]:
    item, version = GalleryItem, aliased(ModelVersion)
    galleries = (
        select(GalleryRow.name, GalleryRow.dimension, GalleryRow.items, GalleryRow.seq, version.facts,
               select(func.count()).where(item.gallery_id == GalleryRow.id).scalar_subquery(),
               select(func.max(item.seq)).where(item.gallery_id == GalleryRow.id).scalar_subquery())
        .join(version, and_(version.model_id == GalleryRow.model_id, version.version == GalleryRow.version))
        .order_by(GalleryRow.name)
    )  # fmt: skip
    for name, dimension, items, seq, facts, n_items, newest in session.execute(galleries):
        where = f"WHERE name = {_literal(name)}"
        width = facts.get("n_features") if isinstance(facts, dict) else None
        if isinstance(width, int) and width != dimension:
            yield (
                f"gallery {name} has the dimension {dimension}, and its version takes {width}",
                f"UPDATE galleries SET dimension = {width} {where}",
            )
        if items != n_items:
            yield (
                f"gallery {name} counts {items} items, and has {n_items}",
                f"UPDATE galleries SET items = {n_items} {where}",
            )
        if newest is not None and isinstance(seq, int) and seq < newest:
            yield (
                f"gallery {name} has the sequence number {seq}, and an item of {newest}",
                f"stop the service and run: UPDATE galleries SET seq = {newest + 1_000_000} {where}",
            )
    probe, of = GalleryProbe, GalleryCalibrationRow
    n_probes = select(func.count()).where(probe.calibration_id == of.id).scalar_subquery()
    lost = (
        select(of.id, GalleryRow.name, n_probes, func.length(of.kept) / RECORD.itemsize)
        .join(GalleryRow, GalleryRow.id == of.gallery_id)
        .where(of.kept.is_not(None), n_probes * RECORD.itemsize != func.length(of.kept))
    )
    for id, name, n, scores in session.execute(lost.limit(MOST)):
        yield (
            f"gallery {name}: calibration {id} keeps {n} probes, and scores of {scores}",
            f"calibrate it again: POST /galleries/{name}/calibrations",
        )


def _items(session: Session) -> Iterator[Damage]:
    """Vectors that are not finite, and records and metadata that are no JSON objects."""
    item = GalleryItem
    has_records = GalleryRow.columns.is_not(None)
    statement = select(GalleryRow.name, item.id, item.vector, item.facts, has_records).join(
        item, item.gallery_id == GalleryRow.id
    )
    n = 0
    for part in session.execute(statement.execution_options(yield_per=READ_ROWS)).partitions():
        texts = [row[3] for row in part if row[3] is not None]
        texts += [_text(row[2]) for row in part if row[4]]
        if _are_finite(row[2] for row in part if not row[4]) and are_objects(texts):
            continue
        for gallery, name, vector, facts, is_record in part:
            reason = None
            if is_record and not are_objects([_text(vector)]):
                reason = f"the record of {ascii(name)[:100]} is no JSON object"
            elif not is_record and not _are_finite([vector]):
                reason = f"the vector of {ascii(name)[:100]} is not finite"
            elif facts is not None and not are_objects([facts]):
                reason = f"the metadata of {ascii(name)[:100]} is no JSON object"
            if reason is not None:
                yield (
                    f"gallery {gallery}: {reason}",
                    f"enrol it again, or erase it: POST /galleries/{gallery}/erase",
                )
                n += 1
                if n == MOST:
                    return


def _text(body: Any) -> str:
    return body.decode("utf-8", "replace") if isinstance(body, bytes) else ""


def _are_finite(vectors: Iterable[Any]) -> bool:
    bodies = [body for body in vectors if isinstance(body, bytes) and len(body) % 4 == 0]
    return bool(np.isfinite(np.frombuffer(b"".join(bodies), dtype="<f4")).all())


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
