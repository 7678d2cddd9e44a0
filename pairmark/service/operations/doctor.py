"""`pairmark doctor`: whether a deployment's database and artefacts are whole, and its versions in use load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.exc import SQLAlchemyError

from pairmark import migrations
from pairmark.service.blobs import Blobs, all_named_blobs
from pairmark.service.db import Database
from pairmark.service.errors import PairmarkError
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.tables import AliasRow, Base, GalleryRow, ModelRow, ModelVersion

_RESTORE = "restore a backup into another PAIRMARK_HOME"


def examine(db: Database, blobs: Blobs, settings: Settings) -> dict[str, Any]:
    """Run every check, each on its own, so that one that fails hides no other.

    Returns
    -------
    ``findings``, at least one for each check, in their order: ``check``, ``status`` (ok or failure), ``detail``, and
    ``advice``, empty when nothing is wrong; and the worst ``status`` of all.
    """
    findings = _run(
        "schema", f"revision {migrations.HEAD}", _schema_problems(db), "follow this and run it again"
    )
    if findings[-1]["status"] == "ok":
        findings += _run("database", "its own integrity check finds nothing", _damaged_rows(db), _RESTORE)
        advice = f"{_RESTORE} and copy the folder from there, or delete the dataset or version"
        whole = "every one is present, with the right checksum"
        findings += _run("artefacts", whole, _damaged_files(db, blobs), advice)
        advice = "train it again from its dataset, or move its aliases to another version"
        problems = (f"{ref}: {reason}" for ref, reason in unloadable(db, blobs, settings))
        findings += _run("versions", "every one in use loads", problems, advice)
    failed = any(finding["status"] == "failure" for finding in findings)
    return {"status": "failure" if failed else "ok", "findings": findings}


def _run(check: str, whole: str, problems: Iterator[str], advice: str) -> list[dict[str, str]]:
    try:
        details = list(problems)
    except PairmarkError as error:
        details = [error.detail]
    except SQLAlchemyError as error:
        details = [" ".join(str(error).split())[:500]]
    failures = [
        {"check": check, "status": "failure", "detail": detail, "advice": advice} for detail in details
    ]
    return failures or [{"check": check, "status": "ok", "detail": whole, "advice": ""}]


def _schema_problems(db: Database) -> Iterator[str]:
    db.check_schema()
    yield from ()


def _damaged_rows(db: Database) -> Iterator[str]:
    with db.read(one_moment=True, unbounded=True) as session:
        if db.is_sqlite:
            yield from (line for line in session.scalars(text("PRAGMA integrity_check")) if line != "ok")
            for table, row, parent, _ in session.execute(text("PRAGMA foreign_key_check")):
                yield f"row {row} of {table} refers to a row of {parent} that is not there"
        # Reading every row finds pages and values that cannot be read.
        for mapper in Base.registry.mappers:
            for _ in session.scalars(select(mapper.class_).execution_options(yield_per=500)):
                pass


def _damaged_files(db: Database, blobs: Blobs) -> Iterator[str]:
    with db.read() as session:
        keys = sorted(all_named_blobs(session))
    for key in keys:
        try:
            blobs.folder(key)
        except PairmarkError as error:
            yield error.detail


def unloadable(db: Database, blobs: Blobs, settings: Settings) -> Iterator[tuple[str, str]]:
    """Versions that an alias holds or a gallery uses and that do not load, or their calibration, with the reason."""
    store = ModelStore(db, blobs, settings)
    held, served = (
        select(table).where(table.model_id == ModelVersion.model_id, table.version == ModelVersion.version)
        for table in (AliasRow, GalleryRow)
    )
    in_use = (
        select(ModelRow.name, ModelVersion.version)
        .join(ModelVersion, ModelVersion.model_id == ModelRow.id)
        .where(held.exists() | served.exists())
        .order_by(ModelRow.name, ModelVersion.version)
    )
    with db.read() as session:
        versions = session.execute(in_use).all()
    for name, version in versions:
        try:
            store.load(name, version)
            calibration = store.version(name, version).calibration_id
            if calibration is not None:
                store.calibrations.load(calibration)
        except PairmarkError as error:
            yield f"{name}:{version}", error.detail
