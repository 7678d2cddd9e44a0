"""What an erasure tells of copies that may outlive it, and the removal of what deleted galleries and killed imports
leave behind."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pairmark.models.registry import spec_of
from pairmark.schemas.galleries import ModelOfGallery
from pairmark.service.audit.log import recovered
from pairmark.service.blobs.local import storage_errors
from pairmark.service.db import Database
from pairmark.service.galleries import repository
from pairmark.service.galleries.index.segments import GalleryDisk
from pairmark.service.names import beside
from pairmark.service.processes import is_alive
from pairmark.service.runtime.catalogue import CatalogueView

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
            pid = folder.name.split("-")[1]
            if not (pid.isdecimal() and is_alive(int(pid))):
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
        elif folder.name in states:
            removed += GalleryDisk(folder).keep_only(states[folder.name])
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


def database_duties(
    removed: int, *, unfinished: str | None, log_empty: bool, sqlite: bool, clustered: bool
) -> tuple[bool, list[str]]:
    """Whether the database's files no longer hold what was erased, and what is still to be done.

    Parameters
    ----------
    removed : items and probes. unfinished : why files of the index hold some still; None where none do.
    log_empty : whether the database's log holds nothing of them any more. clustered : Dask workers search segments too.
    """
    complete = log_empty and unfinished is None
    pending = [
        "other API processes mask it at their next search, and let go of mapped files within 15 seconds"
    ]
    if unfinished is not None:
        pending.append(
            f"files of the index hold it still ({unfinished}): free some space and ask again; searches do not find it "
            "there"
        )
    if clustered:
        pending.append(
            "Dask workers mask it at their next search, and let go of its segment within 15 seconds"
        )
    if not sqlite:
        complete = not removed
        pending.append(
            "PostgreSQL keeps dead rows until vacuum: VACUUM gallery_items, gallery_probes, or wait for autovacuum"
        )
    elif not complete and unfinished is None:
        pending.append(
            "the database's log is in use by a long reader, or its disk is full; it is emptied by the next erasure"
        )
    return complete, pending


def keeping_rows(catalogue: CatalogueView, gallery: str) -> list[ModelOfGallery]:
    """The versions, of the gallery's tenant, whose artefacts hold rows of their training data."""
    return [
        ModelOfGallery(name=entry.name, version=entry.version, kind=entry.kind)
        for model in catalogue.models.values()
        for entry in model.versions.values()
        if _keeps_rows(entry.kind) and entry.name in beside(gallery)
    ]


def _keeps_rows(kind: str) -> bool:
    try:
        return spec_of(kind).keeps_rows
    except KeyError:
        return False
