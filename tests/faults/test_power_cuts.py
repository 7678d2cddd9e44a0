"""What a power cut must not take away is on the disk before it is acknowledged."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from pairmark.service.blobs import Blobs
from pairmark.service.db import Database


def test_a_blob_is_flushed_with_its_folder_before_its_key_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: set[int] = set()
    flush = os.fsync

    def fsync(descriptor: int) -> None:
        flushed.add(os.fstat(descriptor).st_ino)
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    blobs = Blobs(tmp_path / "artefacts")
    with blobs.workspace() as folder:
        (folder / "a.npy").write_bytes(b"one" * 50)
        (folder / "in").mkdir()
        (folder / "in" / "b.json").write_bytes(b"{}")
        key = blobs.put_folder(folder)
    stored = blobs.folder(key)
    for path in (stored, *stored.rglob("*"), *list(stored.parents)[:2]):
        assert path.stat().st_ino in flushed, path


def test_sqlite_flushes_every_commit(new_database: Callable[..., str]) -> None:
    database = Database(new_database("sqlite"))
    with database.read() as session:
        # 2: FULL, which SQLite documents to keep what was committed through a power cut, in WAL mode too.
        assert session.execute(text("PRAGMA synchronous")).scalar_one() == 2
    database.dispose()
