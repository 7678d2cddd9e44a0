"""A gallery's folder on this machine: blocks by model version, and the lock that their makers hold."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pairmark.service.galleries.blocks import BlockFolder, remove


class GalleryDisk:
    """Where all of one gallery's blocks are kept.

    Parameters
    ----------
    path : a folder of the gallery's own, named by its key: another database's galleries have others.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep out every other thread and process of this machine that makes or removes blocks of the gallery."""
        self.path.mkdir(parents=True, exist_ok=True)
        number = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            yield
        finally:
            os.close(number)

    def blocks(self, model_id: str, version: int) -> BlockFolder:
        """The blocks of one version."""
        return BlockFolder(self.path / f"{model_id}-{version}")

    def drop_holders(self, ids: list[str]) -> int:
        """Remove the blocks, of whatever version, that hold one of these ids, alive or replaced."""
        if not self.path.exists():
            return 0
        with self.lock():
            return sum(BlockFolder(folder).drop_holders(ids) for folder in self._versions())

    def keep_only(self, versions: set[tuple[str, int]]) -> int:
        """Remove blocks of versions that no longer serve the gallery; returns of how many."""
        named = {f"{model_id}-{version}" for model_id, version in versions}
        if not any(folder.name not in named for folder in self._versions()):
            return 0
        with self.lock():
            others = [folder for folder in self._versions() if folder.name not in named]
            for folder in others:
                remove(folder)
        return len(others)

    def drop(self) -> None:
        """Remove everything."""
        if self.path.exists():
            with self.lock():
                shutil.rmtree(self.path, ignore_errors=True)

    def _versions(self) -> list[Path]:
        try:
            return [path for path in self.path.iterdir() if path.is_dir()]
        except FileNotFoundError:
            return []
