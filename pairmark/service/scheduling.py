"""Fair shares: who asks, the slots and the rates that one owner may take, bounded places for long work, where a
request's work runs.

An owner is a tenant, or a key of no tenant."""

import asyncio
import math
import mmap
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar
from weakref import WeakValueDictionary

from prometheus_client import Gauge
from starlette.types import Scope

from pairmark.service.errors import RateLimited, TooLarge

OWNERS = 4
"""So many owners may take all of their slots at once."""
BEGUN_AT_ONCE = 2
"""So many requests of one owner begin in one pass of the event loop, of `LIGHT_BYTES` each, about a quarter of a
millisecond's work: whoever else asks waits for some passes. A longer one counts for several."""
LIGHT_BYTES = 8 * 1024
_OWNER: ContextVar[str] = ContextVar("pairmark_owner", default="")


def current_owner() -> str:
    """Who asks in this thread or task: ``tenant NAME`` or ``key ID``; empty: who needs no key."""
    return _OWNER.get()


def set_owner(owner: str) -> None:
    """Do what follows in this task in the name of ``owner``."""
    _OWNER.set(owner)


class Slots:
    """Slots of each owner, and `OWNERS` times as many in all."""

    def __init__(self, name: str, limit: int, refusal: str) -> None:
        self.limit = limit
        self._name, self._refusal = name, refusal
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, owner: str) -> None:
        """Take a slot. `RateLimited` when there is none to be had."""
        # Threads of the event loop and of handlers come here; the look and the count are one step.
        with self._lock:
            if self._taken[owner] >= self.limit or self._taken.total() >= OWNERS * self.limit:
                raise RateLimited(f"{self.limit} {self._refusal}", spent=(self._name, self.limit))
            self._taken[owner] += 1

    def leave(self, owner: str) -> None:
        """Give a slot back."""
        with self._lock:
            self._taken[owner] -= 1
            # Owners come and go for as long as the process runs.
            if not self._taken[owner]:
                del self._taken[owner]

    @contextmanager
    def slot(self) -> Iterator[None]:
        """A slot of who asks, for the block."""
        owner = current_owner()
        self.take(owner)
        try:
            yield
        finally:
            self.leave(owner)


class Turns:
    """Lets requests of other owners come between those of one that sends many at once.

    A short request runs on the event loop, which looks for new ones only after all that have arrived: of one owner
    `BEGUN_AT_ONCE` begin in each pass of the loop, the others wait for the next ones, first come, first served.
    """

    def __init__(self) -> None:
        self._begun: dict[str, int] = {}
        self._waiting: dict[str, deque[tuple[asyncio.Future[None], int]]] = {}
        self._is_due = False

    def begin(self, owner: str, n_bytes: int = 0) -> asyncio.Future[None] | None:
        """What a request of the owner has to wait for until it is its turn; None: it is now."""
        begun, weight = self._begun.get(owner, 0), 1 + n_bytes // LIGHT_BYTES
        if begun < BEGUN_AT_ONCE:
            self._begun[owner] = begun + weight
            # The loop calls `_pass` once all that have arrived were looked at. Where nobody begins as many, it need
            # not.
            if begun + weight >= BEGUN_AT_ONCE and not self._is_due:
                self._call_pass()
            return None
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append((turn, weight))
        return turn

    def _call_pass(self) -> None:
        self._is_due = True
        asyncio.get_running_loop().call_soon(self._pass)

    def _pass(self) -> None:
        self._is_due = False
        self._begun.clear()
        for owner, waiting in list(self._waiting.items()):
            begun = 0
            while waiting and begun < BEGUN_AT_ONCE:
                turn, weight = waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
                    begun += weight
            # Who comes while others wait stands behind them.
            self._begun[owner] = BEGUN_AT_ONCE
            if not waiting:
                del self._waiting[owner]
        if self._begun:
            self._call_pass()


T = TypeVar("T")


class OwnerTurns:
    """So many pieces of work of each owner at a time: ``async with turns():``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # One that nobody holds or waits for is gone: owners come and go for as long as the process runs.
        self._turns = WeakValueDictionary[str, asyncio.Semaphore]()

    def __call__(self) -> asyncio.Semaphore:
        """The turns of who asks."""
        return self._turns.setdefault(current_owner(), asyncio.Semaphore(self._limit))

    async def run(self, work: Callable[[], T]) -> T:
        """The work in a thread, in a turn that ends with the thread: also where nobody waits for it any more."""
        turn = self()
        await turn.acquire()
        thread = asyncio.ensure_future(asyncio.to_thread(work))
        thread.add_done_callback(lambda _: turn.release())
        return await asyncio.shield(thread)


BATCHES: Final = Gauge("pairmark_batches", "Long batches under way or waiting.", multiprocess_mode="livesum")
NICENESS: Final = 10
"""Of threads for long work, so that short requests come first."""
SHORT_S = 0.001
"""Longest that work may hold the event loop; a thread costs a tenth of it."""
MODERATE_S = 0.05
"""Longest that work may take in a thread of its own choice; longer work waits for one of the bounded places."""


class Places:
    """Bounded places for long work, each with a thread: ``with places() as place: await place.run(seconds, work)``.

    Parameters
    ----------
    threads : pieces of work of one owner at once; of all together at most ``max_threads``, by default four times as
        many.
    limit : an owner's places that are taken or wait for a thread. shares_with : other places that share their limit.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        limit: int,
        *,
        shares_with: "Places | None" = None,
        max_threads: int | None = None,
    ) -> None:
        self.threads = ThreadPoolExecutor(
            max_threads or 4 * threads, thread_name_prefix=name, initializer=lower_priority
        )
        self._turns = OwnerTurns(threads)
        refusal = "long batches are under way already; try again shortly"
        self.slots: Slots = Slots(name, limit, refusal) if shares_with is None else shares_with.slots

    def __call__(self) -> "RequestWork":
        """A place that is taken now, for the block. `RateLimited` when all are."""
        work = RequestWork(self)
        work.take()
        return work

    async def run(self, work: Callable[[], T]) -> T:
        """One piece of work in a place of its own. `RateLimited` when all are taken."""
        with self() as place:
            return await place.run(math.inf, work)

    async def run_in_turn(self, work: Callable[[], T]) -> Future[T]:
        """The work, under way in a thread, once it is the turn of who asks."""
        # The turn goes back from the thread that did the work: also where nobody waits for it any more.
        turn, loop = self._turns(), asyncio.get_running_loop()
        await turn.acquire()
        # In the name of who asked for it.
        future = self.threads.submit(copy_context().run, work)

        def end(_: object) -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(turn.release)

        future.add_done_callback(end)
        return future

    def close(self) -> None:
        """Let threads end."""
        self.threads.shutdown(wait=False, cancel_futures=True)


def lower_priority() -> None:
    """Let this thread come behind those that answer short requests."""
    if hasattr(os, "setpriority"):
        with suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


class RequestWork:
    """Where the work of one request runs: the one place that decides between the event loop and a thread.

    Short work runs on the loop, because a thread costs more than it; work of moderate length in any thread; long work
    in one of the bounded places for batches, and everything after it there too. The place is held until its work has
    really ended.
    """

    __slots__ = ("_owner", "_places", "_running")

    def __init__(self, places: Places) -> None:
        self._places = places
        self._owner: str | None = None
        """Whose place is taken; None: none is."""
        self._running: Future[Any] | None = None

    def take(self) -> None:
        """Take a place, where there is none yet. `RateLimited` when all are taken."""
        if self._owner is None:
            owner = current_owner()
            self._places.slots.take(owner)
            self._owner = owner
            BATCHES.inc()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._owner is None:
            return
        if self._running is None:
            self._leave(self._owner)
        else:
            # The client gave up or time ran out, but a thread cannot be stopped: the place is free when it ends.
            self._running.add_done_callback(partial(self._leave, self._owner))

    def _leave(self, owner: str, _: object = None) -> None:
        BATCHES.dec()
        self._places.slots.leave(owner)

    async def run(self, seconds: float, work: Callable[[], T]) -> T:
        """Do the work, which takes about ``seconds``. `RateLimited` when it is long and every place is taken."""
        if self._owner is None:
            if seconds <= SHORT_S:
                return work()
            if seconds <= MODERATE_S:
                return await asyncio.to_thread(work)
            self.take()
        self._running = await self._places.run_in_turn(work)
        return await asyncio.wrap_future(self._running)


SETS: Final = 8_192
WAYS: Final = 8
"""Buckets are found in a set by their fingerprint; the one that has been full for longest is dropped."""
_BYTES: Final = SETS * WAYS * 16


class Limit(NamedTuple):
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


@lru_cache(256)
def limit_of(name: str, per_second: float, burst_s: float) -> Limit:
    """The limit of a rate, with so many seconds' worth at once, and at least one token."""
    quota = max(1.0, per_second * burst_s)
    window = quota / per_second
    return Limit(name, quota, window, f'"{name}";q={int(quota)};w={math.ceil(window)}')


class BucketState(NamedTuple):
    """A bucket after a request: the tokens that remain, whole seconds until it is full, and until there are enough."""

    remaining: int
    full_in_s: int
    wait_s: int


class Rates:
    """Token buckets that the processes of one machine share in ``file``; where it cannot be made, this process counts
    alone.

    Each bucket is one number in a memory-mapped file, the moment at which it will be full again (the generic cell rate
    algorithm), so taking from it reads and writes eight bytes and waits for nobody. Two processes that take in the same
    instant may count once; a bucket that was not used lately is dropped for another.
    """

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
        # Odd, so that none is 0, which stands in an empty place.
        mark = int.from_bytes(blake2b(bucket.encode(), digest_size=8).digest(), "little") | 1
        # The bit that is always set chooses no set.
        first = (mark >> 1) % SETS * WAYS
        places = range(first, first + WAYS)
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
                int((now + window - start) / step + 1e-6), math.ceil(start - now), max(1, math.ceil(wait))
            )
        self._names[place] = mark
        self._full_at[place] = end
        return BucketState(int((now + window - end) / step + 1e-6), math.ceil(end - now), 0)


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
