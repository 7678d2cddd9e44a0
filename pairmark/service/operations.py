"""Backups, and the checks of `pairmark doctor`.

A backup is one file with a copy of the database and of every artefact, made while the service runs, and restored into
an empty deployment. The database is copied by its own tool: SQLite's online backup, or ``pg_dump``. `examine` says
whether a deployment's database and artefacts are whole, and its versions in use load.
"""

import fcntl
import os
import secrets
import shutil
import sqlite3
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel
from sqlalchemy import MetaData, delete, exists, inspect, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from pairmark import migrations
from pairmark.models.core.artefact import file_sha256, fsync_path
from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs, all_named_blobs
from pairmark.service.db import Database
from pairmark.service.errors import (
    Conflict,
    CorruptArtefact,
    InvalidInput,
    NotReady,
    PairmarkError,
    StorageFailed,
    storage_errors,
)
from pairmark.service.keys import Keys
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.store.transfer import SignedArchive
from pairmark.service.tables import (
    AliasRow,
    ApiKey,
    BackupRow,
    Base,
    GalleryRow,
    ModelRow,
    ModelVersion,
    SessionRow,
    WorkerRow,
)
from pairmark.version import VERSION

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
    except (PairmarkError, SQLAlchemyError) as error:
        details = [" ".join(str(error).split())[:500]]
    return [
        {"check": check, "status": "failure", "detail": detail, "advice": advice} for detail in details
    ] or [{"check": check, "status": "ok", "detail": whole, "advice": ""}]


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


FORMAT, MADE_BY, DATABASE = "pairmark-backup", "`pairmark backup`", "database"
FORMAT_VERSION = 3
PASSES = 5
"""Over the artefacts, while others delete what the copy of the database names."""
_MOMENTARY = (SessionRow, WorkerRow, BackupRow)
"""Tables of what goes on just now, which no backup holds; who was signed in then may be somebody else by now."""


class BackupManifest(BaseModel):
    """What a backup holds: the hash of the database's copy, and each artefact, which its own hash names, with its
    files. ``damaged``: what could not be copied, and why."""

    format_version: int
    code_version: str
    revision: str
    made_at: float
    kind: str
    database_sha256: str
    blobs: dict[str, list[str]]
    damaged: dict[str, str]


def back_up(db: Database, blobs: Blobs, settings: Settings, target: Path) -> dict[str, Any]:
    """Write a backup that only its owner may read; the service may go on reading and writing meanwhile.

    Each artefact is checked against its hash. Where an import key is set, the
    manifest, which holds every hash, is signed with it.

    Parameters
    ----------
    target : the zip file to write. It appears whole or not at all.

    Returns
    -------
    ``file``, its ``bytes``, the number of ``blobs``, and ``damaged`` artefacts, which could not be copied.

    Raises
    ------
    NotReady
        When PostgreSQL's tools are not installed.
    StorageFailed
        When there is no space, or ``target`` cannot be written.
    """
    db.check_schema()
    with storage_errors(f"writing {target}"), _work_folder(target) as folder:
        copy, part = folder / DATABASE, folder / "backup"
        with SignedArchive(part, FORMAT, MADE_BY, to_write=True) as archive:
            archived: dict[str, list[str]] = {}
            for _ in range(PASSES):
                made_at, keys = (_copy_sqlite if db.is_sqlite else _dump_postgres)(db, copy)
                damaged = _add_blobs(blobs, keys - archived.keys(), archive, archived)
                with db.read() as session:
                    if damaged.keys() <= all_named_blobs(session):
                        break
                # What was deleted meanwhile, a new copy of the database does not name.
            files = {key: archived[key] for key in sorted(keys & archived.keys())}
            archive.add(DATABASE, copy)
            manifest = BackupManifest(
                format_version=FORMAT_VERSION,
                code_version=VERSION,
                revision=migrations.HEAD,
                made_at=made_at,
                kind=kind_of(db),
                database_sha256=file_sha256(copy),
                blobs=files,
                damaged=damaged,
            )
            archive.seal(manifest, settings)
        part.chmod(0o600)
        fsync_path(part)
        part.replace(target)
        fsync_path(target.parent)
    with db.write() as session:
        now = db.now(session)
        record(session, now, "backup.create", "backup", after={"blobs": len(files)})
        session.execute(delete(BackupRow))
        session.add(BackupRow(id=secrets.token_hex(16), finished_at=now))
    return {
        "file": str(target),
        "blobs": len(files),
        "bytes": target.stat().st_size,
        "damaged": damaged,
    }


def kind_of(db: Database) -> str:
    return "sqlite" if db.is_sqlite else "postgresql"


def run_tool(db: Database, *words: str, data: Path | None = None, target: Path | None = None) -> None:
    """Run a program of PostgreSQL on the database; `NotReady` says which package has it.

    Parameters
    ----------
    data, target : files that it reads and writes.
    """
    if shutil.which(words[0]) is None:
        raise NotReady(
            f"{words[0]} is not on the path: install PostgreSQL's client programs (Debian: apt-get install "
            "postgresql-client; macOS: brew install libpq), of the server's version or a newer one"
        )
    url = db.url.set(drivername="postgresql", password=None).render_as_string()
    password = {"PGPASSWORD": str(db.url.password)} if db.url.password else {}
    with open(data or os.devnull, "rb") as source, open(target or os.devnull, "wb") as sink:
        done = subprocess.run(
            [*words, f"--dbname={url}"],
            stdin=source,
            stdout=sink,
            stderr=subprocess.PIPE,
            env={**os.environ, **password},
            check=False,
        )
    if done.returncode != 0:
        reason = " ".join(done.stderr.decode(errors="replace").split())[:500]
        raise StorageFailed(f"{words[0]} failed: {reason}")


@contextmanager
def _work_folder(target: Path) -> Iterator[Path]:
    """A private folder beside ``target``; one that a killed backup left is removed."""
    folder = target.with_name(f".{target.name}.part")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Conflict(f"another backup to {target} is under way") from None
    try:
        for left in folder.iterdir():
            left.unlink()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _copy_sqlite(db: Database, copy: Path) -> tuple[float, set[str]]:
    """Copy the database as of one moment; returns when, and the artefacts that its rows name."""
    with db.read() as session:
        made_at = db.now(session)
    db.copy_to(copy)
    with Database(f"sqlite:///{copy}") as copied, copied.write() as session:
        for table in _MOMENTARY:
            session.execute(delete(table))
        keys = all_named_blobs(session)
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("VACUUM")
    return made_at, keys


def _dump_postgres(db: Database, copy: Path) -> tuple[float, set[str]]:
    without = [f"--exclude-table-data={table.__tablename__}" for table in _MOMENTARY]
    with db.read(one_moment=True, unbounded=True) as session:
        made_at = db.now(session)
        snapshot = session.scalar(text("SELECT pg_export_snapshot()"))
        keys = all_named_blobs(session)
        options = ("--format=custom", "--no-owner", "--no-privileges", f"--snapshot={snapshot}")
        run_tool(db, "pg_dump", *options, *without, target=copy)
    return made_at, keys


def _add_blobs(
    blobs: Blobs, keys: set[str], archive: SignedArchive, archived: dict[str, list[str]]
) -> dict[str, str]:
    """Add artefacts, and to ``archived`` the files of each; returns what was wrong with those that cannot be read."""
    damaged: dict[str, str] = {}
    for key in sorted(keys):
        try:
            folder = blobs.folder(key)
            paths = sorted(path for path in folder.rglob("*") if path.is_file())
            names = [path.relative_to(folder).as_posix() for path in paths]
            for path, name in zip(paths, names, strict=True):
                archive.add(f"blobs/{key}/{name}", path)
            if not names:
                raise FileNotFoundError(folder)
            archived[key] = names
        except PairmarkError as error:
            damaged[key] = error.detail
        except FileNotFoundError:
            damaged[key] = f"blob {key[:12]} was deleted while it was read"
    return damaged


KeyPolicy = Literal["keep", "drop"]


def restore(
    db: Database,
    blobs: Blobs,
    settings: Settings,
    source: Path,
    *,
    keys: KeyPolicy = "drop",
) -> dict[str, Any]:
    """Fill an empty database and artefact store from a backup of the same kind of database.

    Artefacts are stored first, then the database appears as a whole. Console sessions are not restored.

    Parameters
    ----------
    keys : what becomes of API keys that worked when the backup was made. ``drop`` revokes them, since one may have
        been revoked afterwards; ``keep`` leaves them. Where the backup holds no key at all, ``drop`` makes a new admin
        key: without a key, everybody on this machine may use the service.

    Returns
    -------
    The number of ``blobs``; ``missing``, what was damaged when the backup was made; ``unloadable`` versions in use;
    ``revoked_keys``, the id and name of each key that worked in the backup and works no more,
    ``new_key``, shown here only, and ``open``: whether there is no key.

    Raises
    ------
    InvalidInput
        When the file is no backup, one of another version's format, of another kind of database, or one without a good
        signature where an import key is set.
    Conflict
        When the database or the artefact store holds data: nothing was written then.
    CorruptArtefact
        When the file was changed.
    """
    if tarfile.is_tarfile(source):
        raise InvalidInput(
            f"{source} was made by Pairmark 0.2: restore it with Pairmark 0.2.0, then upgrade that deployment "
            "(`pairmark db upgrade`)"
        )
    with SignedArchive(source, FORMAT, MADE_BY, str(source)) as archive:
        manifest, _ = archive.opened(BackupManifest, settings)
        if manifest.format_version > FORMAT_VERSION or manifest.revision not in migrations.revisions():
            raise InvalidInput(
                f"{source} was made by Pairmark {manifest.code_version[:40]}, which is newer than this one: restore it "
                "with that version"
            )
        if manifest.kind != kind_of(db):
            raise InvalidInput(
                f"{source} is a backup of {manifest.kind}, and PAIRMARK_DATABASE_URL names {kind_of(db)}"
            )
        _refuse_data(db, blobs, manifest)
        # 1. Blobs first: a restore that ends early leaves blobs that no row names, and can be asked for again.
        for key, names in manifest.blobs.items():
            _restore_blob(blobs, archive, key, names)
        # A workspace that a killed restore leaves is removed by the next sweep.
        with blobs.workspace() as folder:
            folder.chmod(0o700)
            copy = folder / DATABASE
            if archive.extract(DATABASE, copy) != manifest.database_sha256:
                raise CorruptArtefact(
                    "the backup's database was changed after it was written (sha256 differs)"
                )
            # 2. Then the rows, which appear at once. SQLite's copy is upgraded and its keys are revoked before; on
            # PostgreSQL that follows.
            if db.is_sqlite:
                with Database(f"sqlite:///{copy}") as restored:
                    revoked, new_key = _finish_restore(restored, manifest, keys)
                with (
                    closing(sqlite3.connect(copy)) as read,
                    closing(sqlite3.connect(str(db.url.database))) as to,
                ):
                    read.backup(to)
            else:
                _drop_tables(db)
                options = ("--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges")
                run_tool(db, "pg_restore", "--clean", "--if-exists", *options, data=copy)
                try:
                    revoked, new_key = _finish_restore(db, manifest, keys)
                except CorruptArtefact:
                    _drop_tables(db)
                    raise
    with db.read() as session:
        is_open = not session.scalar(select(exists().where(ApiKey.id.is_not(None))))
    return {
        "blobs": len(manifest.blobs),
        "missing": manifest.damaged,
        "unloadable": dict(unloadable(db, blobs, settings)),
        "revoked_keys": revoked,
        "new_key": new_key,
        "open": is_open,
    }


def _refuse_data(db: Database, blobs: Blobs, manifest: BackupManifest) -> None:
    """`Conflict` where a restore would mix with what is there; artefacts of a restore that ended early are the same."""
    present = inspect(db.engine).get_table_names()
    with db.read() as session:
        for table in Base.metadata.sorted_tables:
            if table.name in present and table.name != "revision":
                columns = [
                    table.columns[name["name"]] for name in inspect(db.engine).get_columns(table.name)
                ][:1]
                if session.execute(select(*columns).limit(1)).first() is not None:
                    raise Conflict(
                        f"the database holds data already (table {table.name}); restore into an empty one: another "
                        "PAIRMARK_DATABASE_URL, or another PAIRMARK_HOME"
                    )
    if {key for key, _ in blobs.ages()} - manifest.blobs.keys():
        place = blobs.root if isinstance(blobs, Blobs) else "PAIRMARK_ARTEFACTS"
        raise Conflict(
            f"the artefact store holds data already ({place}); restore into an empty one: another "
            "PAIRMARK_ARTEFACTS, or another PAIRMARK_HOME"
        )


def _drop_tables(db: Database) -> None:
    """Drop the empty tables, which may be of another revision than the backup's."""
    tables = MetaData()
    with db.schema_change() as connection:
        tables.reflect(connection)
        tables.drop_all(connection)


def _restore_blob(blobs: Blobs, archive: SignedArchive, key: str, names: list[str]) -> None:
    with blobs.workspace() as folder:
        for name in names:
            if PurePosixPath(name).is_absolute() or ".." in name.split("/"):
                raise CorruptArtefact(f"the backup's artefact {key[:12]} names a file outside its folder")
            archive.extract(f"blobs/{key}/{name}", folder / name)
        if blobs.put_folder(folder) != key:
            raise CorruptArtefact(
                f"the backup's artefact {key[:12]} was changed after it was written (sha256 differs)"
            )


def _finish_restore(
    db: Database, manifest: BackupManifest, keys: KeyPolicy
) -> tuple[list[dict[str, str]], str | None]:
    """Upgrade the restored rows and see to keys; returns those that were revoked, and a new one."""
    db.upgrade()
    with db.write() as session:
        # Without a signature nothing but the rows says what a manifest has to name.
        if absent := all_named_blobs(session) - manifest.blobs.keys() - manifest.damaged.keys():
            raise CorruptArtefact(
                f"the backup's manifest was changed after it was written: {len(absent)} artefacts that its database "
                f"names are not in it, such as {min(absent)[:12]}; restore another backup"
            )
        works = ApiKey.revoked_at.is_(None)
        revoked = []
        if keys == "drop":
            rows = session.execute(select(ApiKey.id, ApiKey.name).where(works).order_by(ApiKey.created_at))
            revoked = [{"id": row.id, "name": row.name} for row in rows]
            session.execute(update(ApiKey).where(works).values(revoked_at=time.time()))
        # The rows of revoked keys stay: a database without keys is open to everybody on its machine.
        make_key = keys == "drop" and not session.scalar(select(exists().where(ApiKey.id.is_not(None))))
        after = {"made_at": manifest.made_at, "keys": keys, "revoked_keys": [key["id"] for key in revoked]}
        record(session, db.now(session), "backup.restore", "backup", after=after)
    return revoked, Keys(db).create("restored", ["admin"]).key if make_key else None
