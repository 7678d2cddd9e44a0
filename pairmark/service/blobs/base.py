"""What blob storage is."""

from __future__ import annotations

import errno
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from pairmark.models.core.artefact import file_sha256
from pairmark.service.errors import CorruptArtefact, StorageFailed

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_KEY = re.compile(r"[0-9a-f]{64}")


class Blobs(ABC):
    """Immutable folders, each named by the sha256 of what it holds.

    A blob is whole or absent: it appears by one rename (or, on S3, by its manifest, written last). A row that
    names a blob is committed after the blob is on disk, in a session that called `hold`; blobs that no row
    names are removed by `delete_unused` at once, or by `collect` when their writer died.
    """

    @abstractmethod
    def workspace(self) -> AbstractContextManager[Path]:
        """A temporary folder that `put_folder` takes without copying; gone when the block ends.

        One left by a killed process is removed by `sweep`.
        """

    @abstractmethod
    def put_folder(self, path: Path) -> str:
        """Store a folder's files and return its key. The same content gives the same key and is stored once.

        Parameters
        ----------
        path : a folder of plain files. Left as it is, unless it came from `workspace`: then it is moved.

        Raises
        ------
        StorageFailed
            When storage is full or refuses; nothing half-made is left.
        """

    @abstractmethod
    def folder(self, key: str) -> Path:
        """A local folder with the blob's files, every one checked against the key. Read only.

        Raises
        ------
        CorruptArtefact
            When the blob is missing or its bytes are not those that were stored.
        """

    @abstractmethod
    def exists(self, key: str) -> bool:
        """Whether a whole blob of that key is stored."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove a blob, if it is there. Use `delete_unused`, which asks the database first."""

    @abstractmethod
    def ages(self) -> Iterator[tuple[str, float]]:
        """Every stored key with the seconds since it was last put."""

    @abstractmethod
    def sweep(self) -> int:
        """Remove what killed processes left half-made; returns how many. Never touches work under way."""


def size_of(blobs: Blobs, *keys: str | None) -> int:
    return sum(
        path.stat().st_size for key in keys if key for path in blobs.folder(key).rglob("*") if path.is_file()
    )


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


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Tell an `OSError` while writing as `StorageFailed`: a full disk in words that a person can act on."""
    try:
        yield
    except OSError as error:
        # NumPy raises one without a number when a disk takes a part of an array only.
        if error.errno in _FULL or (error.errno is None and "requested and" in str(error)):
            raise StorageFailed(f"no space left while {doing}: free some space and try again") from error
        reason = error.strerror or type(error).__name__
        raise StorageFailed(f"the file system failed while {doing}: {reason}") from error
