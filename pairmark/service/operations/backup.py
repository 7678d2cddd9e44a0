"""Backups: one file with every row and every blob, taken while the service runs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from pairmark import migrations
from pairmark.models.registry import sample_rows
from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs
from pairmark.service.blobs.base import storage_errors
from pairmark.service.blobs.holds import hold_all
from pairmark.service.blobs.repository import all_named_blobs
from pairmark.service.db import Database
from pairmark.service.errors import PairmarkError
from pairmark.service.operations import dump
from pairmark.service.operations.manifest import FORMAT, FORMAT_VERSION, MANIFEST, SIGNATURE
from pairmark.service.settings import Settings
from pairmark.service.store import repository as store_repository
from pairmark.service.store.signing import signature_of
from pairmark.service.store.store import ModelStore
from pairmark.version import VERSION

_POINTS = 4


def back_up(db: Database, blobs: Blobs, settings: Settings, target: Path) -> dict[str, Any]:
    """Write a backup; the service may go on reading and writing meanwhile.

    Rows come from one snapshot of the database. Blobs are held until they are copied, each is checked against its
    key, and the versions in use are loaded and asked, so that `restore` can compare. Where an import key is set, the
    manifest, which holds the hash of everything else, is signed with it. Sessions are left out.

    Parameters
    ----------
    target : the tar file to write. It appears whole or not at all.

    Returns
    -------
    What was written: counts of ``rows`` and ``blobs``, ``bytes``, the ``versions`` that were asked, and ``damaged``
    blobs, which could not be kept.

    Raises
    ------
    StorageFailed
        When there is no space, or ``target`` cannot be written.
    """
    db.check_schema()
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    with storage_errors(f"writing {target}"):
        target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with hold_all(db), storage_errors(f"writing {target}"):
            with part.open("xb") as stream, tarfile.open(fileobj=stream, mode="w") as archive:
                manifest = _write(db, blobs, settings, archive)
                body = json.dumps(manifest, indent=1).encode()
                _add_bytes(archive, MANIFEST, body)
                if settings.import_key_file is not None:
                    _add_bytes(archive, SIGNATURE, signature_of(body, settings.import_key_file).encode())
            # The archive is closed before it is flushed: closing writes its end.
            _flush(part)
            part.replace(target)
            _flush(target.parent)
    finally:
        part.unlink(missing_ok=True)
    with db.write() as session:
        record(session, db.now(session), "backup.create", "backup", after={"blobs": len(manifest["blobs"])})
    return {
        "file": str(target),
        "rows": sum(table["rows"] for table in manifest["tables"].values()),
        "blobs": len(manifest["blobs"]),
        "bytes": target.stat().st_size,
        "versions": sorted(manifest["probes"]),
        "damaged": manifest["damaged"],
    }


def _write(db: Database, blobs: Blobs, settings: Settings, archive: tarfile.TarFile) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="pairmark-backup-") as scratch, db.snapshot() as session:
        made_at = db.now(session)
        for table in dump.dumped_tables():
            path = Path(scratch) / table.name
            tables[table.name] = dump.write_table(session, table, path)
            archive.add(path, f"tables/{table.name}.jsonl")
            path.unlink()
        sequences = dump.sequences(session)
        keys = sorted(all_named_blobs(session))
        versions = store_repository.versions_in_use(session)
    files, damaged = _copied(blobs, keys, archive)
    store = ModelStore(db, blobs, settings)
    probes = {}
    for name, version in versions:
        try:
            probes[f"{name}:{version}"] = probe(store, name, version)
        except PairmarkError as error:
            damaged[f"{name}:{version}"] = error.detail
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "code_version": VERSION,
        "revision": migrations.HEAD,
        "made_at": made_at,
        "database": "sqlite" if db.is_sqlite else "postgresql",
        "tables": tables,
        "sequences": sequences,
        "blobs": files,
        "probes": probes,
        "damaged": damaged,
    }


def _copied(
    blobs: Blobs, keys: list[str], archive: tarfile.TarFile
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Add every blob; returns the files of each, and what was wrong with those that cannot be read."""
    files: dict[str, list[str]] = {}
    damaged: dict[str, str] = {}
    for key in keys:
        try:
            folder = blobs.folder(key)
        except PairmarkError as error:
            damaged[key] = error.detail
            continue
        names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        for name in names:
            archive.add(folder / name, f"blobs/{key}/{name}")
        files[key] = names
    return files, damaged


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _flush(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def probe(store: ModelStore, name: str, version: int) -> dict[str, Any]:
    """Load a version and have it answer for points that are always the same: ``sha256`` of the answer's bytes, and
    ``first``, its first number."""
    estimator = store.load(name, version)
    rows = sample_rows(estimator, 2 * _POINTS)
    left, right = rows[:_POINTS], rows[_POINTS:]
    if hasattr(estimator, "pair_score"):
        answer = estimator.pair_score(left, right)
    elif hasattr(estimator, "predict_proba"):
        answer = estimator.predict_proba(left)
    else:
        answer = estimator.predict(left)
    numbers = np.ascontiguousarray(answer)
    return {
        "sha256": hashlib.sha256(numbers.tobytes()).hexdigest(),
        "first": float(np.asarray(numbers, dtype=np.float64).flat[0]),
    }
