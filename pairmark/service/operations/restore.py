"""Restoring a backup into an empty deployment."""

from __future__ import annotations

import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import ValidationError
from sqlalchemy import MetaData, exists, inspect, select, update

from pairmark import migrations
from pairmark.models.core.artefact import file_sha256
from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs
from pairmark.service.blobs.local import storage_errors
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, CorruptArtefact, InvalidInput
from pairmark.service.keys.keys import Keys
from pairmark.service.operations.backup import (
    DATABASE,
    FORMAT_VERSION,
    MANIFEST,
    SIGNATURE,
    BackupManifest,
    kind_of,
    run_tool,
)
from pairmark.service.operations.doctor import unloadable
from pairmark.service.settings import Settings
from pairmark.service.store.transfer import check_signature
from pairmark.service.tables import ApiKey, Base

_MAX_MANIFEST_BYTES = 256 * 1024**2
_MAX_SIGNATURE_BYTES = 256
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
    with _opened(source) as archive:
        manifest = _manifest(archive, source, settings)
        if manifest.kind != kind_of(db):
            raise InvalidInput(
                f"{source} is a backup of {manifest.kind}, and PAIRMARK_DATABASE_URL names {kind_of(db)}"
            )
        _refuse_data(db, blobs, manifest)
        for key, names in manifest.blobs.items():
            _restore_blob(blobs, archive, key, names)
        with tempfile.TemporaryDirectory(prefix=".restore-", dir=settings.home) as folder:
            copy = Path(folder) / DATABASE
            _extract(archive, DATABASE, copy)
            if file_sha256(copy) != manifest.database_sha256:
                raise CorruptArtefact(
                    "the backup's database was changed after it was written (sha256 differs)"
                )
            if db.is_sqlite:
                restored = Database(f"sqlite:///{copy}")
                revoked, new_key = _finished(restored, manifest, keys)
                restored.dispose()
                with (
                    closing(sqlite3.connect(copy)) as read,
                    closing(sqlite3.connect(str(db.url.database))) as to,
                ):
                    read.backup(to)
            else:
                _drop_tables(db)
                options = ("--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges")
                run_tool(db, "pg_restore", "--clean", "--if-exists", *options, data=copy)
                revoked, new_key = _finished(db, manifest, keys)
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


@contextmanager
def _opened(source: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(source, mode="r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError) as error:
        raise InvalidInput(
            f"{source} is not a whole backup: expected a file that `pairmark backup` wrote"
        ) from error


def _manifest(archive: tarfile.TarFile, source: Path, settings: Settings) -> BackupManifest:
    names = archive.getnames()
    if MANIFEST not in names or archive.getmember(MANIFEST).size > _MAX_MANIFEST_BYTES:
        raise InvalidInput(f"{source} is not a whole backup: it holds no {MANIFEST}")
    body = _content(archive, MANIFEST).read()
    signature = None
    if SIGNATURE in names and archive.getmember(SIGNATURE).size <= _MAX_SIGNATURE_BYTES:
        signature = _content(archive, SIGNATURE).read().decode("ascii", errors="replace")
    check_signature(body, signature, settings, file=str(source))
    if b'"format_version": 1,' in body:
        raise InvalidInput(
            f"{source} was made by Pairmark 0.2: restore it with Pairmark 0.2.0, then upgrade that deployment "
            "(`pairmark db upgrade`)"
        )
    try:
        manifest = BackupManifest.model_validate_json(body)
    except ValidationError as error:
        raise InvalidInput(f"{source} is not a whole backup: its {MANIFEST} is damaged") from error
    if manifest.format_version > FORMAT_VERSION or manifest.revision not in migrations.revisions():
        raise InvalidInput(
            f"{source} was made by Pairmark {manifest.code_version[:40]}, which is newer than this one: restore it "
            "with that version"
        )
    return manifest


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


def _content(archive: tarfile.TarFile, name: str) -> Any:
    try:
        content = archive.extractfile(name)
    except KeyError as error:
        raise CorruptArtefact(f"the backup lacks {name}: it is not whole") from error
    if content is None:
        raise CorruptArtefact(f"the backup's {name} is not a plain file")
    return content


def _extract(archive: tarfile.TarFile, name: str, path: Path) -> None:
    with storage_errors("restoring"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as stream:
            shutil.copyfileobj(_content(archive, name), stream)


def _restore_blob(blobs: Blobs, archive: tarfile.TarFile, key: str, names: list[str]) -> None:
    with blobs.workspace() as folder:
        for name in names:
            if PurePosixPath(name).is_absolute() or ".." in name.split("/"):
                raise CorruptArtefact(f"the backup's artefact {key[:12]} names a file outside its folder")
            _extract(archive, f"blobs/{key}/{name}", folder / name)
        if blobs.put_folder(folder) != key:
            raise CorruptArtefact(
                f"the backup's artefact {key[:12]} was changed after it was written (sha256 differs)"
            )


def _finished(
    db: Database, manifest: BackupManifest, keys: KeyPolicy
) -> tuple[list[dict[str, str]], str | None]:
    """Upgrade the restored rows and see to keys; returns those that were revoked, and a new one."""
    db.upgrade()
    with db.write() as session:
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
