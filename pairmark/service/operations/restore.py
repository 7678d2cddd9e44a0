"""Restoring a backup into an empty database, and checking that it answers as before."""

from __future__ import annotations

import shutil
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, select, update
from sqlalchemy.orm import Session

from pairmark import migrations
from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs
from pairmark.service.blobs.base import storage_errors
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, CorruptArtefact, InvalidInput
from pairmark.service.galleries import repository
from pairmark.service.galleries.calibration import probe_repository
from pairmark.service.galleries.calibration.kept_probes import erase_probes
from pairmark.service.galleries.items import item_repository
from pairmark.service.galleries.items.rows import ERRORS_SHOWN, id_text
from pairmark.service.operations import dump
from pairmark.service.operations.backup import probe
from pairmark.service.operations.manifest import (
    MANIFEST,
    SIGNATURE,
    BackupManifest,
    ScoreProbe,
    parsed_manifest,
)
from pairmark.service.settings import Settings
from pairmark.service.store.refs import parse_ref
from pairmark.service.store.signing import check_signature
from pairmark.service.store.store import ModelStore
from pairmark.service.store.transfer import MAX_SIGNATURE_BYTES
from pairmark.service.tables import ApiKey

_CLOSE = 1e-5
_MAX_MANIFEST_BYTES = 256 * 1024**2


KeyPolicy = Literal["keep", "drop"]


def restore(
    db: Database,
    blobs: Blobs,
    settings: Settings,
    source: Path,
    *,
    keys: KeyPolicy | None = None,
    last_revocation: float | None = None,
) -> dict[str, Any]:
    """Fill an empty database, of either kind, and its blob storage from a backup.

    All rows appear in one transaction, after every blob is in place. The versions that were in use are then loaded
    and asked the questions that they were asked for the backup. Console sessions are not restored.

    Parameters
    ----------
    keys : what becomes of API keys that worked when the backup was made. ``drop`` revokes them, since one may have
        been revoked afterwards; ``keep`` leaves them. Default: ``keep`` if ``last_revocation`` is not after the
        backup, else ``drop``.
    last_revocation : when a key was last revoked, in seconds since the epoch; None: not stated.

    Returns
    -------
    Counts of ``rows`` and ``blobs``, and the answers: ``same`` to the bit, ``close`` (another CPU may round
    differently), and what was ``missing`` from the backup. ``keys``: what was done, and ``revoked_keys``, the id and
    name of each key that worked in the backup and works no more. ``refused``: the first thousand of ``n_refused`` items
    and probes of galleries whose ids or subjects are not accepted any more; they are not restored.

    Raises
    ------
    InvalidInput
        When the file is no backup, one of a newer version of Pairmark, or one without a good signature where an import
        key is set.
    Conflict
        When the database holds something already.
    CorruptArtefact
        When the file was changed, or a version answers differently.
    """
    with _open(source) as archive, _tar_errors(source):
        manifest = _manifest(archive, source, settings)
        if keys is None:
            covered = last_revocation is not None and last_revocation <= manifest.made_at
            keys = "keep" if covered else "drop"
        present = db.revision()
        if present not in (None, manifest.revision):
            raise Conflict(
                f"the database's tables are of revision {present}, the backup's of {manifest.revision}; "
                "restore into a database without tables"
            )
        db.upgrade(manifest.revision)
        for key, names in manifest.blobs.items():
            _restore_blob(blobs, archive, key, names)
        with db.engine.execution_options(pairmark_write=True).connect() as connection, connection.begin():
            _restore_rows(connection, archive, manifest)
            revoked = _revoke_keys(connection) if keys == "drop" else []
    db.upgrade()
    with db.write() as session:
        now = db.now(session)
        after = {"made_at": manifest.made_at, "keys": keys, "revoked_keys": [key["id"] for key in revoked]}
        record(session, now, "backup.restore", "backup", after=after)
        refused = _refuse_items(session, now)
    same, close = _compared(ModelStore(db, blobs, settings), manifest.probes)
    return {
        "rows": sum(table.rows for table in manifest.tables.values()),
        "blobs": len(manifest.blobs),
        "same": same,
        "close": close,
        "missing": manifest.damaged,
        "keys": keys,
        "revoked_keys": revoked,
        "refused": refused[:ERRORS_SHOWN],
        "n_refused": len(refused),
    }


def _open(source: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(source, mode="r:")
    except tarfile.TarError as error:
        raise InvalidInput(
            f"{source} is not a backup: expected a file that `pairmark backup` wrote"
        ) from error


@contextmanager
def _tar_errors(source: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError) as error:
        raise InvalidInput(f"{source} is not a whole backup: it was cut short or changed") from error


def _manifest(archive: tarfile.TarFile, source: Path, settings: Settings) -> BackupManifest:
    names = archive.getnames()
    if MANIFEST not in names or archive.getmember(MANIFEST).size > _MAX_MANIFEST_BYTES:
        raise InvalidInput(f"{source} is not a whole backup: it holds no {MANIFEST}")
    body = _content(archive, MANIFEST).read()
    signature = None
    if SIGNATURE in names and archive.getmember(SIGNATURE).size <= MAX_SIGNATURE_BYTES:
        signature = _content(archive, SIGNATURE).read().decode("ascii", errors="replace")
    check_signature(body, signature, settings, file=str(source))
    return parsed_manifest(body, str(source))


def _content(archive: tarfile.TarFile, name: str) -> Any:
    try:
        content = archive.extractfile(name)
    except (KeyError, tarfile.TarError) as error:
        raise CorruptArtefact(f"the backup lacks {name}: it is not whole") from error
    if content is None:
        raise CorruptArtefact(f"the backup's {name} is not a plain file")
    return content


def _restore_blob(blobs: Blobs, archive: tarfile.TarFile, key: str, names: list[str]) -> None:
    with blobs.workspace() as folder:
        for name in names:
            path = (folder / name).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise CorruptArtefact(f"the backup's blob {key[:12]} names a file outside its folder")
            with storage_errors("restoring a blob"):
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as stream:
                    shutil.copyfileobj(_content(archive, f"blobs/{key}/{name}"), stream)
        if blobs.put_folder(folder) != key:
            raise CorruptArtefact(
                f"the backup's blob {key[:12]} was changed after it was written (sha256 differs)"
            )


def _restore_rows(connection: Connection, archive: tarfile.TarFile, manifest: BackupManifest) -> None:
    tables = dump.tables_at(connection, newest=manifest.revision == migrations.HEAD)
    for name in manifest.tables:
        if name not in tables:
            raise CorruptArtefact(f"the backup holds a table {name[:50]!r} that its revision does not have")
        if name != "revision" and connection.execute(select(tables[name]).limit(1)).first() is not None:
            raise Conflict(
                "the database holds data already; restore into an empty one: another PAIRMARK_DATABASE_URL, or another "
                "PAIRMARK_HOME"
            )
    # Migrations leave a first row of their own.
    connection.execute(tables["revision"].delete())
    for name, facts in manifest.tables.items():
        dump.read_table(connection, tables[name], facts, _content(archive, f"tables/{name}.jsonl"))
    # Who signed in before the backup may be somebody else by now.
    if "sessions" in tables:
        connection.execute(tables["sessions"].delete())
    dump.continue_sequences(connection, manifest.sequences)


def _revoke_keys(connection: Connection) -> list[dict[str, str]]:
    """Revoke every key that works; returns which. Their rows stay: a database without keys is open to its host."""
    active = ApiKey.revoked_at.is_(None)
    rows = connection.execute(select(ApiKey.id, ApiKey.name).where(active).order_by(ApiKey.created_at))
    revoked = [{"id": row.id, "name": row.name} for row in rows]
    connection.execute(update(ApiKey).where(active).values(revoked_at=time.time()))
    return revoked


def _refuse_items(session: Session, now: float) -> list[dict[str, str]]:
    """Erase items and probes that an upload would be refused; returns which, and why."""
    refused: list[dict[str, str]] = []
    for state in repository.page(session, limit=None):
        ids, n_probes = [], 0
        for id, subject in item_repository.names(session, state.id):
            reason = _refusal(id, "id") or (None if subject is None else _refusal(subject, "subject"))
            if reason is not None:
                ids.append(id)
                refused.append({"gallery": state.name, "id": id, "detail": reason})
        item_repository.erase(session, state, ids, now)
        for subject in probe_repository.subjects(session, state.id):
            reason = _refusal(subject, "subject")
            if reason is not None:
                n_probes += erase_probes(session, state.id, subject)
                refused.append({"gallery": state.name, "subject": subject, "detail": f"probe: {reason}"})
        if ids or n_probes:
            before = {"items": len(ids), "probes": n_probes}
            record(session, now, "gallery.erase", f"gallery:{state.name}", before=before)
    return refused


def _refusal(text: str, field: str) -> str | None:
    try:
        id_text(text, field)
    except InvalidInput as error:
        return error.detail
    return None


def _compared(store: ModelStore, probes: dict[str, ScoreProbe]) -> tuple[list[str], list[str]]:
    same, close = [], []
    for ref, reference in sorted(probes.items()):
        parsed = parse_ref(ref)
        assert parsed.version is not None
        scores = probe(store, parsed.name, parsed.version)
        if scores["sha256"] == reference.sha256:
            same.append(ref)
        elif abs(scores["first"] - reference.first) <= _CLOSE * max(1.0, abs(reference.first)):
            close.append(ref)
        else:
            raise CorruptArtefact(
                f"everything was restored, but {ref} scores {scores['first']:g} where it scored "
                f"{reference.first:g}: do not use it before the cause is known"
            )
    return same, close
