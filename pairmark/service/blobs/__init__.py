"""Content-addressed, immutable folders: what datasets, models and calibrations keep outside the database. They are
added and deleted so that no committed row ever refers to a missing one."""

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pairmark.models.core.artefact import OUT_OF_FILES, file_sha256, fsync_path, make_folders
from pairmark.service.audit.log import record_recovery
from pairmark.service.db import Database
from pairmark.service.errors import CorruptArtefact, InvalidInput, StorageFailed, storage_errors
from pairmark.service.settings import Settings
from pairmark.service.tables import BackupRow, CalibrationRow, DatasetRow, LinkRow, ModelVersion

_KEY = re.compile(r"[0-9a-f]{64}")


def checked_key(key: str) -> str:
    """The key, if it has the form of one: it becomes part of a path."""
    if not _KEY.fullmatch(key):
        raise CorruptArtefact(f"{key!r} is not a blob key; expected 64 hexadecimal digits")
    return key


def listing(folder: Path) -> dict[str, str]:
    """Relative name -> sha256 of every file under ``folder``."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StorageFailed(f"{path.name} is neither a plain file nor a folder; only those are stored")
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = file_sha256(path)
    if not files:
        raise StorageFailed("an empty folder cannot be stored")
    return files


def listing_key(files: dict[str, str]) -> str:
    """The key of a folder with these files."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


_Signature = tuple[tuple[str, int, int, int], ...]


class Blobs:
    """Immutable folders, each named by the sha256 of what it holds, at ``root/blobs/ab/abcd...``.

    A blob is whole or absent: it appears by one rename. A row that names a blob is committed after the blob is on disk,
    in a session that called `hold`; blobs that no row names are removed by `delete_unused` at once, or by `collect`
    when their writer died.

    Work under way is at ``root/tmp``, each folder locked: the system unlocks it when its process dies, however it dies,
    so what a killed process left can be distinguished from what a live one is writing.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._blobs, self._tmp = self.root / "blobs", self.root / "tmp"
        # Sizes and times of files that were hashed. Two threads may both hash a blob, to the same end.
        self._verified: dict[str, _Signature] = {}
        with storage_errors(f"making {self.root}"):
            make_folders(self._blobs)
            fsync_path(self.root.parent)
            self._tmp.mkdir(exist_ok=True)

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A temporary folder, for `put_folder`; gone when the block ends.

        One left by a killed process is removed by `sweep`.
        """
        with storage_errors("writing temporary files"):
            folder, descriptor = self._locked_folder()
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(descriptor)

    def _locked_folder(self) -> tuple[Path, int]:
        folder = self._tmp / secrets.token_hex(12)
        folder.mkdir()
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.exists():
            return folder, descriptor
        # A sweep took it for abandoned before it was locked.
        os.close(descriptor)
        return self._locked_folder()

    def put_folder(self, folder: Path) -> str:
        """Move a folder of plain files, one of a `workspace` or in it, to where it stays; returns its key. The same
        content gives the same key and is stored once.

        Raises
        ------
        StorageFailed
            When storage is full or refuses; nothing half-made is left.
        """
        key = listing_key(listing(folder))
        target = self._path(key)
        with storage_errors("storing"):
            # Every byte is on disk before the one rename by which the blob appears.
            for path in [*folder.rglob("*"), folder]:
                if path.is_file():
                    path.chmod(0o444)
                fsync_path(path)
            target.parent.mkdir(exist_ok=True)
            fsync_path(self._blobs)
            if not self._is_whole(key):
                Blobs.delete(self, key)
                try:
                    folder.rename(target)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
            # Its age starts anew.
            os.utime(target)
            fsync_path(target.parent)
        return key

    def folder(self, key: str) -> Path:
        """A local folder with the blob's files, read only; hashed once a process, and again when sizes or times change.

        Raises
        ------
        CorruptArtefact
            When the blob is missing or its bytes are not those that were stored.
        """
        folder = self._path(key)
        signature = _signature(folder)
        if not signature:
            raise CorruptArtefact(
                f"blob {key[:12]} is missing from storage: restore it from a backup", blob=key
            )
        if self._verified.get(key) != signature:
            try:
                intact = listing_key(listing(folder)) == key
            except OSError as error:
                if error.errno in OUT_OF_FILES:
                    raise
                intact = False
            if not intact:
                raise CorruptArtefact(
                    f"blob {key[:12]} was changed after it was stored (sha256 differs): restore a backup",
                    blob=key,
                )
            self._verified[key] = signature
        return folder

    def exists(self, key: str) -> bool:
        """Whether a whole blob of that key is stored."""
        return self._path(key).is_dir()

    def delete(self, key: str) -> None:
        """Remove a blob, if it is there. Use `delete_unused`, which asks the database first."""
        self._verified.pop(key, None)
        with self.workspace() as bin_:
            try:
                # Out of sight in one step first: a blob must never be seen half-deleted.
                self._path(key).rename(bin_ / "blob")
            except FileNotFoundError:
                return
            fsync_path(self._path(key).parent)

    def ages(self) -> Iterator[tuple[str, float]]:
        """Every stored key with the seconds since it was last put."""
        now = time.time()
        for folder in sorted(self._blobs.glob("*/*")):
            if _KEY.fullmatch(folder.name):
                try:
                    yield folder.name, now - folder.stat().st_mtime
                except FileNotFoundError:
                    continue

    def sweep(self) -> int:
        """Remove what killed processes left half-made; returns how many. Never touches work under way."""
        swept = 0
        for path in self._tmp.iterdir():
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
                # Earlier versions locked a file beside the folder.
                path.unlink(missing_ok=True)
                swept += 1
            except BlockingIOError:
                pass
            finally:
                os.close(descriptor)
        return swept

    def _path(self, key: str) -> Path:
        return self._blobs / checked_key(key)[:2] / key

    def _is_whole(self, key: str) -> bool:
        try:
            Blobs.folder(self, key)
        except CorruptArtefact:
            return False
        return True


def _signature(folder: Path) -> _Signature:
    files = []
    try:
        for path in sorted(folder.rglob("*")):
            facts = path.lstat()
            if path.is_file():
                files.append((path.name, facts.st_size, facts.st_mtime_ns, facts.st_ino))
    except FileNotFoundError:
        return ()
    return tuple(files)


_NAMED = (DatasetRow.blob, ModelVersion.artefact, ModelVersion.report, CalibrationRow.blob, LinkRow.blob)
_LOCK = 7261948


def lock_blobs(session: Session, *, exclusive: bool) -> None:
    """Until the transaction ends, keep blob deleters out (or, ``exclusive``, everybody).

    SQLite needs no lock of its own: a writing transaction is alone there, once it has begun.
    """
    session.connection()
    if session.get_bind().dialect.name == "postgresql":
        lock = func.pg_advisory_xact_lock if exclusive else func.pg_advisory_xact_lock_shared
        session.execute(select(lock(_LOCK)))


def all_named_blobs(session: Session) -> set[str]:
    """Every key that some row names."""
    return {key for column in _NAMED for key in session.scalars(select(column)) if key}


GRACE_S = 3600.0
"""How long a blob may wait for the row that names it."""


def hold(session: Session, blobs: Blobs, *keys: str) -> None:
    """Call in the transaction that commits a row naming ``keys``: until it ends nobody deletes them. `StorageFailed`
    when one was deleted since `put_folder`: put it again."""
    lock_blobs(session, exclusive=False)
    for key in keys:
        if not blobs.exists(key):
            raise StorageFailed("the stored data was deleted by someone else meanwhile: try again")


def delete_unused(db: Database, blobs: Blobs, keys: Iterable[str]) -> list[str]:
    """Delete those of ``keys`` that no row names (any more). Call after the rows' deletion is committed. Returns those
    that were deleted."""
    candidates = set(keys)
    if not candidates:
        return []
    with db.write() as session:
        lock_blobs(session, exclusive=True)
        unused = sorted(candidates - all_named_blobs(session))
        for key in unused:
            blobs.delete(key)
    return unused


def collect(db: Database, blobs: Blobs, *, grace_s: float = GRACE_S) -> list[str]:
    """Remove what killed processes left: half-made folders, and blobs that no row has named for ``grace_s``. Returns
    the keys of those blobs."""
    deleted = delete_unused(db, blobs, [key for key, age in blobs.ages() if age >= grace_s])
    sweep_unfinished(db, blobs, deleted)
    return deleted


def sweep_unfinished(db: Database, blobs: Blobs, deleted: Sequence[str] = ()) -> None:
    """Remove only what killed processes left half-made: the cheap part of `collect`."""
    unfinished = blobs.sweep()
    if unfinished or deleted:
        with db.write() as session:
            facts = {"unfinished": unfinished, "blobs": len(deleted)}
            record_recovery(session, db.now(session), "storage", "storage", **facts)


def last_finished(db: Database) -> float | None:
    """When the last backup was made, in seconds since the epoch."""
    with db.read() as session:
        return session.scalar(select(func.max(BackupRow.finished_at)))


def open_blobs(settings: Settings) -> Blobs:
    """The blob storage that the settings name: a folder, or ``s3://bucket/prefix``."""
    address = settings.resolved_artefacts
    if address.startswith("s3://"):
        from pairmark.service.blobs.s3 import S3Blobs

        return S3Blobs(address, cache=settings.home / "cache")
    if "://" in address:
        raise InvalidInput(f"PAIRMARK_ARTEFACTS is {address!r}; expected a folder or s3://bucket/prefix")
    return Blobs(Path(address))
