"""Rate limits: token buckets that the processes of one machine share.

Each bucket is one number in a memory-mapped file, the moment at which it will be full again (the generic cell rate
algorithm), so taking from it reads and writes eight bytes and waits for nobody. Two processes that take in the same
instant may count once; a bucket that was not used lately is dropped for another.
"""

from __future__ import annotations

import mmap
import os
import time
from hashlib import blake2b
from math import ceil
from pathlib import Path
from typing import Final

from pairmark.service.errors import RateLimited

SETS: Final = 8_192
WAYS: Final = 8
"""Buckets are found in a set by their fingerprint; the one that has been full for longest is dropped."""
MOST_KNOWN: Final = 4_096
"""Names whose places a process remembers."""
_BYTES: Final = SETS * WAYS * 16


class Rates:
    """The buckets of one machine: processes share ``file``; where it cannot be made, this process counts alone."""

    def __init__(self, file: Path) -> None:
        self._known: dict[str, tuple[int, int]] = {}
        self._map = _mapped(file)
        view = memoryview(self._map)
        self._names = view[: _BYTES // 2].cast("Q")
        self._full_at = view[_BYTES // 2 :].cast("d")

    def take(self, name: str, per_second: float, burst: float, said: str) -> None:
        """Take one token of a bucket, or raise `RateLimited` with ``retry_after`` in whole seconds.

        ``burst`` : tokens that it holds when full. ``said`` : what is limited, for the refusal.
        """
        mark, at = self._known.get(name, (0, 0))
        if not mark or self._names[at] != mark:
            mark, at = self._found(name)
        now, step = time.time(), 1.0 / per_second
        # A moment further ahead than a bucket can be empty was written before the clock was set back.
        full_at = self._full_at[at] if self._names[at] == mark else 0.0
        start = full_at if now < full_at <= now + step * burst + 1.0 else now
        wait = start + step - now - step * burst
        if wait > 1e-9:
            seconds = max(1, ceil(wait))
            raise RateLimited(f"{said}; try again in {seconds} s", retry_after=seconds)
        self._names[at] = mark
        self._full_at[at] = start + step

    def _found(self, name: str) -> tuple[int, int]:
        """The fingerprint of a bucket and its place, which is remembered: looking costs more than taking."""
        mark = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") | 1
        found = mark, self._place(mark, mark % SETS * WAYS)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[name] = found
        return found

    def _place(self, mark: int, first: int) -> int:
        places = range(first, first + WAYS)
        for at in places:
            if self._names[at] == mark:
                return at
        return min(places, key=self._full_at.__getitem__)


def _mapped(file: Path) -> mmap.mmap:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, _BYTES)
            return mmap.mmap(descriptor, _BYTES)
        finally:
            os.close(descriptor)
    except OSError:
        return mmap.mmap(-1, _BYTES)
