"""What deleted galleries, earlier versions and killed imports leave behind, and its removal."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pairmark.service.audit.recovery import recovered
from pairmark.service.blobs.base import storage_errors
from pairmark.service.db import Database
from pairmark.service.galleries import repository
from pairmark.service.galleries.blocks import GalleryDisk

ERASED_AT_A_TIME = 20_000


def sweep(db: Database, home: Path) -> None:
    """Remove what deleted galleries, earlier versions and killed imports left behind (blocking)."""
    # Before the rows: a gallery has a row before it has a folder, so a folder without a row is nobody's.
    folders = list(home.iterdir()) if home.exists() else []
    with db.read() as session:
        orphan_ids = repository.orphans(session)
        states = {state.key: state for state in repository.page(session, limit=None)}
    for number in orphan_ids:
        remove_rows(db, number)
    if orphan_ids:
        db.truncate_log()
    removed = 0
    for folder in folders:
        if folder.name.startswith("import-"):
            if not _alive(folder.name.split("-")[1]):
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
        elif folder.name in states:
            removed += GalleryDisk(folder).keep_only(states[folder.name].versions)
        else:
            GalleryDisk(folder).drop()
            removed += 1
    if orphan_ids or removed:
        with db.write() as session:
            facts = {"galleries": len(orphan_ids), "folders": removed}
            recovered(session, db.now(session), "galleries", "gallery", **facts)


def remove_rows(db: Database, gallery_id: int) -> None:
    # Piece by piece, so that other writers are let in between.
    while True:
        with db.write() as session:
            if not repository.remove_orphans(session, gallery_id, ERASED_AT_A_TIME):
                return


@contextmanager
def workspace(home: Path) -> Iterator[Path]:
    """A folder for one import; `sweep` removes those of killed processes."""
    folder = home / f"import-{os.getpid()}-{secrets.token_hex(8)}"
    try:
        with storage_errors("writing temporary files"):
            folder.mkdir(parents=True, mode=0o700)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass
    return True
