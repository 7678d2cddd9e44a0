"""Checkpoints of a long fit on disk, so that a killed fit continues where it stopped.

A caller opens `keeping` around the fit, with a folder that outlives it; a learner asks `checkpoints_of` for a place
under a key that names everything its parts depend on, and leaves finished parts there. Without a folder nothing is
kept. Parts are plain arrays: reading one back runs no code, and a part that was cut short is made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]

_folder: ContextVar[Path | None] = ContextVar("pairmark_checkpoints", default=None)


@contextmanager
def keeping(folder: Path) -> Iterator[None]:
    """Keep finished parts of fits made inside the block, in this thread, in that folder."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


class Checkpoints:
    """Finished parts under one key; its methods may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, name: str) -> dict[str, NDArray[Any]] | None:
        """A part, or None where it is missing or not whole."""
        try:
            with (
                (self._folder / f"{name}.npz").open("rb") as file,
                np.load(file, allow_pickle=False) as archive,
            ):
                return {key: archive[key] for key in archive.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            return None

    def store(self, name: str, arrays: Arrays) -> None:
        """Keep a part, whole or not at all. A full disk costs the checkpoint, not the fit."""
        part = self._folder / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.npz"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._folder / f"{name}.npz")
        except OSError:
            part.unlink(missing_ok=True)


def checkpoints_of(settings: Mapping[str, Any], *arrays: NDArray[Any] | None) -> Checkpoints | None:
    """The checkpoints of a fit, by its JSON-able settings and its data; None when nobody keeps checkpoints."""
    folder = _folder.get()
    if folder is None:
        return None
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for array in arrays:
        if array is None:
            digest.update(b"none")
            continue
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return Checkpoints(folder / digest.hexdigest()[:32])


def kept_seed() -> int | None:
    """A seed that stays the same for every fit with this folder; None when nobody keeps checkpoints."""
    folder = _folder.get()
    if folder is None:
        return None
    checkpoints = Checkpoints(folder)
    arrays = checkpoints.load("seed")
    if arrays is None:
        checkpoints.store("seed", {"seed": np.array(secrets.randbits(32), dtype=np.int64)})
        arrays = checkpoints.load("seed")
    return None if arrays is None else int(arrays["seed"])
