"""Rate limits: token buckets that the processes of one machine share.

Each bucket is one number in a memory-mapped file, the moment at which it will be full again (the generic cell rate
algorithm), so taking from it reads and writes eight bytes and waits for nobody. Two processes that take in the same
instant may count once; a bucket that was not used lately is dropped for another.
"""

import functools
import mmap
import os
import time
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

from starlette.types import Scope

from pairmark.service.errors import RateLimited, TooLarge

SETS: Final = 8_192
WAYS: Final = 8
"""Buckets are found in a set by their fingerprint; the one that has been full for longest is dropped."""
_BYTES: Final = SETS * WAYS * 16


@dataclass(frozen=True, slots=True)
class Limit:
    """So many tokens at once, and again over time.

    Attributes
    ----------
    name : what ``RateLimit`` fields call it.
    quota : tokens of a full bucket. window_s : seconds in which an empty one is full again.
    policy : the limit as an item of ``RateLimit-Policy``.
    """

    name: str
    quota: float
    window_s: float
    policy: str


@functools.lru_cache(256)
def limit_of(name: str, per_second: float, burst_s: float) -> Limit:
    """The limit of a rate, with so many seconds' worth at once, and at least one token."""
    quota = max(1.0, per_second * burst_s)
    window = quota / per_second
    return Limit(name, quota, window, f'"{name}";q={int(quota)};w={ceil(window)}')


class BucketState(NamedTuple):
    """A bucket after a request: the tokens that remain, whole seconds until it is full, and until there are enough."""

    remaining: int
    full_in_s: int
    wait_s: int


class Rates:
    """The buckets of one machine: processes share ``file``; where it cannot be made, this process counts alone."""

    def __init__(self, file: Path) -> None:
        view = memoryview(_map_file(file))
        self._names = view[: _BYTES // 2].cast("Q")
        self._full_at = view[_BYTES // 2 :].cast("d")

    def draw(self, scope: Scope, bucket: str, limit: Limit, what: str, count: int = 1) -> None:
        """Take tokens of a bucket for a request, whose answer then states what remains (see `rate_fields`).

        `RateLimited` says in ``retry_after`` (whole seconds) when there are enough; `TooLarge`: there never will be.
        ``what`` : what the tokens stand for, for the refusals.
        """
        if count > limit.quota:
            raise TooLarge(
                f"the request has {count} {what}; at most {limit.quota:g} are taken in {limit.window_s:g} s",
                limit=int(limit.quota),
            )
        state = self.take(bucket, limit, count)
        scope.setdefault("pairmark.limits", []).append((limit, state))
        if state.wait_s:
            raise RateLimited(
                f"at most {limit.quota:g} {what} in {limit.window_s:g} s; try again in {state.wait_s} s",
                retry_after=state.wait_s,
            )

    def draw_minute(
        self, scope: Scope, name: str, a_minute: float, what: str, *, part: str = "", count: int = 1
    ) -> None:
        """Take from a budget of the key, which has a minute's worth at once; without keys clients are not
        distinguished. ``part`` : what alone the budget is for."""
        key = scope.get("pairmark.key")
        if key is not None and a_minute:
            limit = limit_of(name, a_minute / 60, 60)
            self.draw(scope, f"{key.id} {name} {part}", limit, f"{what} by this key", count)

    def take(self, bucket: str, limit: Limit, count: int = 1) -> BucketState:
        """Take so many tokens of a bucket, or none where it does not hold them."""
        mark = int.from_bytes(blake2b(bucket.encode(), digest_size=8).digest(), "little") | 1
        places = range(mark % SETS * WAYS, mark % SETS * WAYS + WAYS)
        place = next((place for place in places if self._names[place] == mark), None)
        if place is None:
            place = min(places, key=self._full_at.__getitem__)
        now, step, window = time.time(), limit.window_s / limit.quota, limit.window_s
        # A moment further ahead than a bucket can be empty was written before the clock was set back.
        full_at = self._full_at[place] if self._names[place] == mark else 0.0
        start = full_at if now < full_at <= now + window + 1.0 else now
        end = start + step * count
        wait = end - now - window
        if wait > 1e-9:
            return BucketState(
                int((now + window - start) / step + 1e-6), ceil(start - now), max(1, ceil(wait))
            )
        self._names[place] = mark
        self._full_at[place] = end
        return BucketState(int((now + window - end) / step + 1e-6), ceil(end - now), 0)


def _map_file(file: Path) -> mmap.mmap:
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
