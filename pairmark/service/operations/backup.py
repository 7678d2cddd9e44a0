"""Backups: one file with a copy of the database and of every artefact, made while the service runs.

The database is copied by its own tool: SQLite's online backup, or ``pg_dump``.
"""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import sqlite3
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sqlalchemy import delete, text

from pairmark import migrations
from pairmark.models.core.artefact import file_sha256, fsync_path
from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs
from pairmark.service.blobs.collect import hold_all
from pairmark.service.blobs.local import storage_errors
from pairmark.service.blobs.repository import all_named_blobs
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, NotReady, PairmarkError, StorageFailed
from pairmark.service.settings import Settings
from pairmark.service.store.transfer import signature_of
from pairmark.service.tables import BackupRow, SessionRow, WorkerRow
from pairmark.version import VERSION

MANIFEST, SIGNATURE, DATABASE = "pairmark-backup.json", "pairmark-backup.sig", "database"
FORMAT_VERSION = 2
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

    Artefacts are held until they are copied, and each is checked against its hash. Where an import key is set, the
    manifest, which holds every hash, is signed with it.

    Parameters
    ----------
    target : the tar file to write. It appears whole or not at all.

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
    with storage_errors(f"writing {target}"), _work_folder(target) as folder, hold_all(db):
        copy, part = folder / DATABASE, folder / "backup"
        made_at, keys = (_copy_sqlite if db.is_sqlite else _dump_postgres)(db, copy)
        with tarfile.open(part, mode="w") as archive:
            archive.add(copy, DATABASE)
            files, damaged = _copied(blobs, keys, archive)
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
            body = manifest.model_dump_json(indent=1).encode()
            _add_bytes(archive, MANIFEST, body)
            if settings.import_key_file is not None:
                _add_bytes(archive, SIGNATURE, signature_of(body, settings.import_key_file).encode())
        part.chmod(0o600)
        fsync_path(part)
        part.replace(target)
        fsync_path(target.parent)
    with db.write() as session:
        record(session, db.now(session), "backup.create", "backup", after={"blobs": len(files)})
    return {
        "file": str(target),
        "blobs": len(files),
        "bytes": target.stat().st_size,
        "damaged": damaged,
    }


def kind_of(db: Database) -> str:
    return "sqlite" if db.is_sqlite else "postgresql"


def run_tool(db: Database, *words: str, data: Path | None = None, into: Path | None = None) -> None:
    """Run a program of PostgreSQL on the database; `NotReady` says which package has it.

    Parameters
    ----------
    data, into : files that it reads and writes.
    """
    if shutil.which(words[0]) is None:
        raise NotReady(
            f"{words[0]} is not on the path: install PostgreSQL's client programs (Debian: apt-get install "
            "postgresql-client; macOS: brew install libpq), of the server's version or a newer one"
        )
    url = db.url.set(drivername="postgresql", password=None).render_as_string()
    password = {"PGPASSWORD": str(db.url.password)} if db.url.password else {}
    with open(data or os.devnull, "rb") as source, open(into or os.devnull, "wb") as sink:
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
    copied = Database(f"sqlite:///{copy}")
    try:
        with copied.write() as session:
            for table in _MOMENTARY:
                session.execute(delete(table))
            keys = all_named_blobs(session)
    finally:
        copied.dispose()
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("VACUUM")
    return made_at, keys


def _dump_postgres(db: Database, copy: Path) -> tuple[float, set[str]]:
    without = [f"--exclude-table-data={table.__tablename__}" for table in _MOMENTARY]
    with db.snapshot() as session:
        made_at = db.now(session)
        snapshot = session.scalar(text("SELECT pg_export_snapshot()"))
        keys = all_named_blobs(session)
        options = ("--format=custom", "--no-owner", "--no-privileges", f"--snapshot={snapshot}")
        run_tool(db, "pg_dump", *options, *without, into=copy)
    return made_at, keys


def _copied(
    blobs: Blobs, keys: set[str], archive: tarfile.TarFile
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Add every artefact; returns the files of each, and what was wrong with those that cannot be read."""
    files: dict[str, list[str]] = {}
    damaged: dict[str, str] = {}
    for key in sorted(keys):
        try:
            folder = blobs.folder(key)
        except PairmarkError as error:
            damaged[key] = error.detail
            continue
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files[key] = [path.relative_to(folder).as_posix() for path in paths]
        for path, name in zip(paths, files[key], strict=True):
            archive.add(path, f"blobs/{key}/{name}")
    return files, damaged


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
