"""What a power cut may leave of a folder: recorded while code writes in it, replayed state by state.

``kill -9`` loses nothing that was written, since the kernel still holds it. A power cut loses whatever was not flushed:

- a file's bytes are safe as they were at its last ``fsync``; later ones may be there, be missing or be half there;
- a folder's entries (creations, renames, deletions) are safe as they were at the folder's last ``fsync``; of later
  changes any first few may be there, in each folder independently of the others.

`PowerCuts` follows ``os.fsync``, ``os.rename`` and the like, and after each of them makes every state that these
rules allow, once.
"""

from __future__ import annotations

import itertools
import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FOLLOWED = ("fsync", "rename", "replace", "mkdir", "unlink", "remove", "rmdir", "link", "truncate")
Listing = dict[str, int]
Check = Callable[[Path], None]
MOST_STATES_AT_ONCE = 400


class PowerCuts:
    """Follows one folder; everything in it at the start is taken to be on the disk.

    Parameters
    ----------
    root : the folder to follow.
    states : where states are made, outside ``root``.
    check : called with a state's folder; raises when something is lost that must not be.
    """

    def __init__(self, root: Path, states: Path, check: Check) -> None:
        self.root, self.states, self.check = root, states, check
        self.made = 0
        self._busy = False
        self._seen: set[int] = set()
        self._random = random.Random(0)
        self._ids: dict[int, int] = {}
        self._here: set[int] = set()
        self._next = 0
        self._folders: dict[int, Listing] = {}
        self._files: dict[int, bytes] = {}
        self._look()
        self._top = self._ids[root.stat().st_ino]
        self._safe_bytes = dict(self._files)
        # Every state of a folder's entries since it was last flushed; the first one is safe.
        self._histories: dict[int, list[Listing]] = {ino: [now] for ino, now in self._folders.items()}

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow what the block does."""
        with pytest.MonkeyPatch.context() as patch:
            for name in FOLLOWED:
                patch.setattr(os, name, self._followed(name, getattr(os, name)))
            yield

    def _followed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def follow(*arguments: Any, **options: Any) -> Any:
            if self._busy:
                return call(*arguments, **options)
            # Writes since the last step are pending from here on.
            self._step(None)
            answer = call(*arguments, **options)
            self._step(os.fstat(arguments[0]).st_ino if name == "fsync" else None)
            return answer

        return follow

    def cut_now(self) -> None:
        """Replay everything once more: more was acknowledged, so more must hold."""
        self._seen.clear()
        self._step(None)

    def _step(self, flushed: int | None) -> None:
        self._busy = True
        try:
            self._look()
            flushed = None if flushed is None else self._ids.get(flushed)
            for ino, now in self._folders.items():
                history = self._histories.setdefault(ino, [{}])
                if history[-1] != now:
                    history.append(now)
            if flushed in self._folders:
                self._histories[flushed] = [self._folders[flushed]]
            elif flushed in self._files:
                self._safe_bytes[flushed] = self._files[flushed]
            self._replay()
        finally:
            self._busy = False

    def _look(self) -> None:
        """Read the folder. What is gone is remembered: its deletion may be what a power cut takes back."""
        found: set[int] = set()
        for at, _, _ in os.walk(self.root):
            listing: Listing = {}
            for entry in os.scandir(at):
                one = self._id(entry.inode(), found)
                listing[entry.name] = one
                if entry.is_file(follow_symlinks=False):
                    self._files[one] = Path(entry.path).read_bytes()
            self._folders[self._id(os.stat(at).st_ino, found)] = listing
        self._here = found

    def _id(self, inode: int, found: set[int]) -> int:
        """A number of a file's own; the system gives an inode's number again once its file is gone."""
        if inode not in self._here and inode not in found:
            self._next += 1
            self._ids[inode] = self._next
        found.add(inode)
        return self._ids[inode]

    def _replay(self) -> None:
        pending = {ino: history for ino, history in self._histories.items() if len(history) > 1}
        choices = [[(ino, listing) for listing in history] for ino, history in pending.items()]
        combinations = list(itertools.islice(itertools.product(*choices), 50_000))
        if len(combinations) > MOST_STATES_AT_ONCE:
            combinations = self._random.sample(combinations, MOST_STATES_AT_ONCE)
        for chosen in combinations:
            listings = {ino: history[0] for ino, history in self._histories.items()} | dict(chosen)
            for data in ("missing", "half", "there"):
                state = tuple(self._state(self._top, listings, data, ()))
                if hash(state) not in self._seen:
                    self._seen.add(hash(state))
                    self._make(state)

    def _state(
        self, ino: int, listings: dict[int, Listing], data: str, inside: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], bytes | None]]:
        for name, child in sorted(listings[ino].items()):
            path = (*inside, name)
            if child in listings:
                yield path, None
                yield from self._state(child, listings, data, path)
            elif child in self._files:
                yield path, self._bytes(child, data)

    def _bytes(self, ino: int, data: str) -> bytes:
        now, safe = self._files[ino], self._safe_bytes.get(ino, b"")
        if data == "there" or now == safe:
            return now
        return safe if data == "missing" else now[: len(now) // 2] + bytes(len(now) - len(now) // 2)

    def _make(self, state: tuple[tuple[tuple[str, ...], bytes | None], ...]) -> None:
        folder = self.states / f"{self.made}"
        folder.mkdir(parents=True)
        self.made += 1
        for path, content in state:
            target = folder.joinpath(*path)
            if content is None:
                target.mkdir()
            else:
                target.write_bytes(content)
        self.check(folder)
        # A check may have cleaned up itself.
        for at, folders, files in os.walk(folder, topdown=False):
            for name in files:
                os.chmod(os.path.join(at, name), stat.S_IWUSR | stat.S_IRUSR)
                os.unlink(os.path.join(at, name))
            for name in folders:
                os.rmdir(os.path.join(at, name))
        os.rmdir(folder)
