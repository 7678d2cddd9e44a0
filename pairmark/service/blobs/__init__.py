"""Content-addressed, immutable folders: what datasets, models and calibrations keep outside the database. They are
added and deleted so that no committed row ever refers to a missing one. In a bucket of S3 with ``pairmark[s3]``."""

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
                    # Another process stored the same content meanwhile.
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
                # Had at once: nobody alive works in it.
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
# Of PostgreSQL's advisory locks, the one of blobs.
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
        # With the lock, no row that names one of them can be committed between this look and the deletion.
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
        return S3Blobs(address, cache=settings.home / "cache")
    if "://" in address:
        raise InvalidInput(f"PAIRMARK_ARTEFACTS is {address!r}; expected a folder or s3://bucket/prefix")
    return Blobs(Path(address))


CACHE_BYTES = 20 * 1024**3
"""Copies not used for ten minutes go, oldest first, when they take more than this."""
_IN_USE_S = 600.0
_MISSING = {"404", "NoSuchKey", "NotFound"}


class S3Blobs(Blobs):
    """Blobs at ``s3://bucket/prefix/abcd.../file``; ``abcd....json`` lists the files and is written last.

    Credentials, region and endpoint come from where boto3 finds them (``AWS_*`` variables, profiles, roles).

    Parameters
    ----------
    address : ``s3://bucket/prefix``.
    cache : folder for local copies, which are checked like local blobs.
    """

    def __init__(self, address: str, cache: Path) -> None:
        bucket, _, prefix = address.removeprefix("s3://").partition("/")
        if not bucket:
            raise InvalidInput(
                f"PAIRMARK_ARTEFACTS is {address!r}; expected s3://bucket or s3://bucket/prefix"
            )
        super().__init__(cache)
        self._client: Any = _client()
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._fetching = threading.Lock()

    def put_folder(self, folder: Path) -> str:
        key = super().put_folder(folder)
        folder = super().folder(key)
        files = listing(folder)
        with _s3_errors("storing a blob"):
            # The manifest is written last: where it is, so are all files.
            if self._manifest(key) is None:
                for name in files:
                    self._client.upload_file(str(folder / name), self._bucket, self._object(key, name))
            # Written again for a known blob too: that starts its age anew.
            self._client.put_object(
                Bucket=self._bucket,
                Key=self._object(key),
                Body=json.dumps(files, sort_keys=True).encode(),
                ContentType="application/json",
            )
        self._shrink_cache()
        return key

    def folder(self, key: str) -> Path:
        checked_key(key)
        if not self._is_whole(key):
            with self._fetching:
                if not self._is_whole(key):
                    # Asked again above: another thread may have fetched it while this one waited for the lock.
                    self._fetch(key)
                    self._shrink_cache()
        return super().folder(key)

    def exists(self, key: str) -> bool:
        with _s3_errors("looking for a blob"):
            return self._manifest(checked_key(key)) is not None

    def delete(self, key: str) -> None:
        checked_key(key)
        with _s3_errors("deleting a blob"):
            # The manifest goes first, so that a blob is never seen half-deleted.
            self._client.delete_object(Bucket=self._bucket, Key=self._object(key))
            for page in self._pages(f"{self._prefix}{key}/"):
                for entry in page.get("Contents", []):
                    self._client.delete_object(Bucket=self._bucket, Key=entry["Key"])
        super().delete(key)

    def ages(self) -> Iterator[tuple[str, float]]:
        """See `Blobs.ages`. Blobs whose upload or deletion was cut short are among them."""
        ages: dict[str, float] = {}
        with _s3_errors("listing blobs"):
            for page in self._pages(self._prefix):
                for entry in page.get("Contents", []):
                    name = entry["Key"].removeprefix(self._prefix).partition("/")[0].removesuffix(".json")
                    if len(name) == 64:
                        age = time.time() - entry["LastModified"].timestamp()
                        # The newest of its objects counts: an upload that goes on is young.
                        ages[name] = min(age, ages.get(name, age))
        yield from sorted(ages.items())

    def _object(self, key: str, name: str | None = None) -> str:
        return f"{self._prefix}{key}.json" if name is None else f"{self._prefix}{key}/{name}"

    def _pages(self, prefix: str) -> Any:
        return self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)

    def _manifest(self, key: str) -> dict[str, str] | None:
        from botocore.exceptions import ClientError

        try:
            body = self._client.get_object(Bucket=self._bucket, Key=self._object(key))["Body"].read()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _MISSING:
                return None
            raise
        try:
            files = json.loads(body)
            whole = isinstance(files, dict) and listing_key(files) == key
        except ValueError:
            whole = False
        return files if whole else None

    def _fetch(self, key: str) -> None:
        with _s3_errors("reading a blob"):
            files = self._manifest(key)
            if files is None:
                raise CorruptArtefact(
                    f"blob {key[:12]} is missing from S3: restore it from a backup", blob=key
                )
            with self.workspace() as folder:
                for name in files:
                    target = folder / name
                    if not target.resolve().is_relative_to(folder.resolve()):
                        raise CorruptArtefact(f"blob {key[:12]} names a file outside its folder", blob=key)
                    with storage_errors("copying a blob from S3"):
                        target.parent.mkdir(parents=True, exist_ok=True)
                        self._client.download_file(self._bucket, self._object(key, name), str(target))
                if listing(folder) != files:
                    raise CorruptArtefact(
                        f"blob {key[:12]} was changed on S3 (sha256 differs): restore it from a backup",
                        blob=key,
                    )
                super().put_folder(folder)

    def _shrink_cache(self) -> None:
        sizes = {
            (age, key): sum(path.stat().st_size for path in self._path(key).rglob("*") if path.is_file())
            for key, age in super().ages()
        }
        excess = sum(sizes.values()) - CACHE_BYTES
        for age, key in sorted(sizes, reverse=True):
            if excess <= 0 or age < _IN_USE_S:
                return
            super().delete(key)
            excess -= sizes[age, key]


def _client() -> Any:
    try:
        import boto3
    except ImportError as error:
        raise InvalidInput("S3 needs boto3: pip install 'pairmark[s3]'") from error
    return boto3.client("s3")


def download(address: str, path: Path) -> None:
    """Copy an object, ``s3://bucket/key``, to a file."""
    client, place = _client(), _place(address)
    with _s3_errors(f"reading {address}"):
        client.download_file(*place, str(path))


def upload(path: Path, address: str) -> None:
    """Copy a file to an object, ``s3://bucket/key``."""
    client, place = _client(), _place(address)
    with _s3_errors(f"writing {address}"):
        client.upload_file(str(path), *place)


def _place(address: str) -> tuple[str, str]:
    bucket, _, key = address.removeprefix("s3://").partition("/")
    if not bucket or not key:
        raise InvalidInput(f"{address} names no object; expected s3://bucket/key")
    return bucket, key


@contextmanager
def _s3_errors(doing: str) -> Iterator[None]:
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, Boto3Error, ClientError) as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise StorageFailed(
            f"S3 failed while {doing} ({reason}); check the bucket, its region, your rights and the network"
        ) from error
