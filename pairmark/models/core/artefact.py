"""Fitted learners on disk: one folder of ``manifest.json`` and plain ``.npy`` arrays.

Nothing in an artefact is code, so nothing that is loaded can run. The manifest names every array with its
dtype, shape and sha256; the artefact's own sha256 is that of the manifest's bytes, so it vouches for all of it.
"""

import errno
import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from mmap import MADV_DONTNEED, mmap
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
MAPPED_BYTES = 1 << 18
OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})
"""Of an `OSError`: as many files are open as may be, which says nothing of the one that was asked for."""
_KINDS_OF_DTYPE = frozenset("biufSU")
_NPY_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class ArtefactError(ValueError):
    """The artefact cannot be read: a file is missing or changed, or the format is not ours."""


class OutdatedModel(ArtefactError):
    """What an earlier version trained, with something that this one no longer has."""


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """What a folder held: the learner's kind, its parameters, its JSON facts and its arrays."""

    kind: str
    params: dict[str, Any]
    meta: dict[str, Any]
    arrays: dict[str, np.ndarray[Any, Any]] = field(repr=False)
    sha256: str = ""


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fsync_path(path: Path) -> None:
    """Flush a file or folder to the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: Path) -> None:
    """Make a folder and its missing parents so that a power cut does not take them away again.

    Flushes up to the first folder that was there before, and at least the folder's own entry.
    """
    absent = [path]
    while not absent[-1].parent.exists():
        absent.append(absent[-1].parent)
    path.mkdir(parents=True, exist_ok=True)
    for folder in absent:
        fsync_path(folder.parent)


def write_artefact(
    path: str | os.PathLike[str],
    *,
    kind: str,
    params: Mapping[str, Any],
    meta: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray[Any, Any]],
) -> str:
    """Write an artefact folder whole or not at all (temporary sibling, fsync, rename).

    Parameters
    ----------
    path : folder to create; an existing artefact there is replaced.
    kind : learner kind, e.g. ``similarity-forest``.
    params, meta : JSON-serialisable.
    arrays : name -> array of numbers or fixed-width strings (no objects).

    Returns
    -------
    sha256 of the manifest, in hex.
    """
    target = Path(path)
    make_folders(target.parent)
    work = target.parent / f".{target.name}.{secrets.token_hex(6)}.tmp"
    work.mkdir()
    try:
        entries = {}
        for name in sorted(arrays):
            if not name.replace("_", "").replace("-", "").replace(".", "").isalnum() or name.startswith("."):
                raise ArtefactError(f"array name {name!r}: use letters, digits, '.', '_' and '-'")
            array = np.ascontiguousarray(arrays[name]).reshape(np.shape(arrays[name]))
            if array.dtype.kind not in _KINDS_OF_DTYPE:
                raise ArtefactError(
                    f"array {name!r} has dtype {array.dtype}; only plain numbers and strings are stored"
                )
            file = work / f"{name}.npy"
            np.save(file, array, allow_pickle=False)
            fsync_path(file)
            entries[name] = {
                "file": file.name,
                "dtype": array.dtype.str,
                "shape": list(array.shape),
                "sha256": file_sha256(file),
            }
        manifest = {
            "format": "pairmark",
            "format_version": FORMAT_VERSION,
            "kind": kind,
            "params": dict(params),
            "meta": dict(meta),
            "arrays": entries,
        }
        body = json.dumps(manifest, indent=1, allow_nan=False).encode()
        (work / MANIFEST).write_bytes(body)
        fsync_path(work / MANIFEST)
        fsync_path(work)
        old = target.parent / f".{target.name}.{secrets.token_hex(6)}.old"
        if target.exists():
            target.rename(old)
        work.rename(target)
        # The old files go only when the new name is safe: a power cut could keep their deletion alone.
        fsync_path(target.parent)
        if old.exists():
            shutil.rmtree(old)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return hashlib.sha256(body).hexdigest()


def read_artefact(path: str | os.PathLike[str], *, verify: bool = True, mmap: bool = True) -> Artefact:
    """Read an artefact folder; arrays are read-only, large ones memory-mapped, unless ``mmap`` is false.

    Raises
    ------
    ArtefactError
        When a file is missing, was changed (``verify``), or the format is newer than this code.
    """
    folder = Path(path)
    try:
        body = (folder / MANIFEST).read_bytes()
    except OSError as error:
        if error.errno in OUT_OF_FILES:
            raise
        raise ArtefactError(f"{folder} holds no {MANIFEST}; expected a folder written by save()") from error
    try:
        manifest = _Manifest.model_validate_json(body)
    except ValidationError as error:
        raise ArtefactError(f"{folder / MANIFEST} is not a Pairmark manifest") from error
    if manifest.format_version > FORMAT_VERSION:
        raise ArtefactError(
            f"{folder} has format version {manifest.format_version}, this code reads up to {FORMAT_VERSION}: upgrade "
            "pairmark"
        )
    return Artefact(
        kind=manifest.kind,
        params=manifest.params,
        meta=manifest.meta,
        arrays={
            name: _read_array(folder, entry, verify=verify, mmap=mmap)
            for name, entry in manifest.arrays.items()
        },
        sha256=hashlib.sha256(body).hexdigest(),
    )


class _Entry(BaseModel):
    """A file of an artefact, as its manifest lists it."""

    model_config = ConfigDict(strict=True)

    file: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str


class _Manifest(BaseModel):
    model_config = ConfigDict(strict=True)

    format: Literal["pairmark"]
    format_version: int
    kind: str
    params: dict[str, Any]
    meta: dict[str, Any]
    arrays: dict[str, _Entry]


def _read_array(folder: Path, entry: _Entry, *, verify: bool, mmap: bool) -> np.ndarray[Any, Any]:
    file = folder / Path(entry.file).name
    try:
        if verify and file_sha256(file) != entry.sha256:
            raise ArtefactError(
                f"{file} was changed after it was saved (sha256 differs): restore it or retrain"
            )
        # The head says how much memory to take: it is believed once it agrees with the file's size.
        with file.open("rb") as stream:
            shape, in_columns, stored = npy_header(stream)
            start = stream.tell()
        matches = shape == entry.shape and stored.str == entry.dtype and stored.kind in _KINDS_OF_DTYPE
        if in_columns or not matches or file.stat().st_size != start + stored.itemsize * math.prod(shape):
            raise ArtefactError(f"{file} does not match its manifest entry: restore it or retrain")
        array = open_array(file) if mmap else np.load(file, allow_pickle=False)
    except (OSError, ValueError, TypeError, OverflowError, MemoryError, EOFError) as error:
        is_out_of_files = isinstance(error, OSError) and error.errno in OUT_OF_FILES
        if is_out_of_files or isinstance(error, ArtefactError):
            raise
        raise ArtefactError(f"{file} cannot be read as an array: restore it or retrain") from error
    return array


def open_array(file: Path) -> np.ndarray[Any, Any]:
    """The array of a ``.npy`` file, read-only: mapped, or read where it is small, because a map holds a descriptor."""
    mode: Literal["r"] | None = "r" if file.stat().st_size > MAPPED_BYTES else None
    array: np.ndarray[Any, Any] = np.load(file, mmap_mode=mode, allow_pickle=False)
    array.setflags(write=False)
    return array


def release_pages(array: Any) -> None:
    """Let go of an array's pages where a file is mapped that is only read: those read count as the process's memory,
    and so do fifteen that Linux maps around each. They stay in the system's cache, from where they are read again.

    What was written to a copy on write is in no file, and would be lost.
    """
    mode = None
    while array is not None and not isinstance(array, mmap):
        mode, array = getattr(array, "mode", None), getattr(array, "base", None)
    if array is not None and mode == "r":
        array.madvise(MADV_DONTNEED)


def npy_header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and dtype of a ``.npy`` file, whose numbers follow; nothing else is read.

    Raises
    ------
    ValueError
        For another version; and whatever else numpy raises for a damaged one.
    """
    version = np.lib.format.read_magic(stream)
    if version not in _NPY_HEADERS:
        raise ValueError(f"the array has .npy version {version}; expected 1.0 or 2.0")
    shape, in_columns, dtype = _NPY_HEADERS[version](stream)
    return shape, in_columns and len(shape) > 1, dtype
