"""Bounded places for long work, and where the work of one request runs."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, Self, TypeVar

from prometheus_client import Gauge

from pairmark.service.shares import Seat, Seats, Turn, Turns

T = TypeVar("T")
BATCHES: Final = Gauge("pairmark_batches", "Long batches under way or waiting.", multiprocess_mode="livesum")
NICENESS: Final = 10
"""Of threads for long work, so that short requests come first."""
SHORT_S = 0.001
"""Longest that work may hold the event loop; a thread costs a tenth of it."""
MODERATE_S = 0.05
"""Longest that work may take in a thread of its own choice; longer work waits for one of the bounded places."""


class _Evicted(Exception):
    """A place went to somebody else."""


class Places:
    """Bounded places for long work, each with a thread: ``async with places() as place: await place.run(work)``.

    Parameters
    ----------
    threads : pieces of work at once; an owner who has none under way may have one beyond, up to four times as many.
    limit : at most so many are taken or waiting for a thread. beside : other places that share their limit.
    max_threads : another bound than four times the threads.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        limit: int,
        *,
        beside: Places | None = None,
        max_threads: int | None = None,
    ) -> None:
        max_threads = max_threads or 4 * threads
        self.threads = ThreadPoolExecutor(max_threads, thread_name_prefix=name, initializer=_come_second)
        self.turns = Turns(threads, max_threads)
        refusal = "long batches are under way already; try again shortly"
        self.seats: Seats = Seats(name, limit, refusal) if beside is None else beside.seats

    def __call__(self) -> BatchPlace:
        return BatchPlace(self)

    async def run(self, work: Callable[[], T]) -> T:
        """One piece of work in a place of its own. `RateLimited` when all are taken."""
        async with self() as place:
            return await place.run(work)

    def close(self) -> None:
        """Let threads end."""
        self.threads.shutdown(wait=False, cancel_futures=True)


class BatchPlace:
    """One of the places, held until its work has really ended."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._seat: Seat | None = None
        self._evicted = self._busy = False
        self._running: Future[Any] | None = None

    async def __aenter__(self) -> Self:
        return self.enter()

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def enter(self) -> Self:
        """Take the place. `RateLimited` when all are taken."""
        self._seat = self._places.seats.take(self._evict)
        BATCHES.inc()
        return self

    def _evict(self) -> bool:
        with self._lock:
            if self._busy:
                return False
            self._evicted = True
            waiting = self._running
        if waiting is not None and not waiting.done() and waiting.set_running_or_notify_cancel():
            waiting.set_exception(_Evicted())
        return True

    def leave(self) -> None:
        """Give the place back, at once or when its work has ended."""
        if self._running is None or self._running.done():
            self._leave()
        else:
            # The client gave up or time ran out, but a thread cannot be stopped: the place is free when it ends.
            self._running.add_done_callback(self._leave)

    def _leave(self, _: object = None) -> None:
        BATCHES.dec()
        assert self._seat is not None
        self._places.seats.leave(self._seat)

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work in a thread, when it is its turn. `RateLimited` where the place went to somebody else."""
        future: Future[T] = Future()
        # In the name of who asked for it.
        context, turns, threads = copy_context(), self._places.turns, self._places.threads

        def in_thread(turn: Turn) -> None:
            with self._lock:
                self._busy = not self._evicted and future.set_running_or_notify_cancel()
                is_due = self._busy
            settle: Callable[[], None] | None = None
            try:
                if is_due:
                    settle = partial(future.set_result, context.run(work))
            except BaseException as error:
                settle = partial(future.set_exception, error)
            turns.end(turn)
            # Before the future is done: whoever waits for it may begin the next piece of work here at once.
            self._busy = False
            if settle is not None:
                settle()

        with self._lock:
            if self._evicted:
                raise self._places.seats.refusal()
            self._running = future
        turn = turns.ask(self._seat.owner if self._seat else "", lambda turn: threads.submit(in_thread, turn))
        if turn.at_once:
            threads.submit(in_thread, turn)
        try:
            return await asyncio.wrap_future(future)
        except _Evicted:
            raise self._places.seats.refusal() from None


def _come_second() -> None:
    if hasattr(os, "setpriority"):
        with suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


class RequestWork:
    """Where the work of one request runs: the one place that decides between the event loop and a thread.

    Short work runs on the loop, because a thread costs more than it; work of moderate length in any thread; long work
    in one of the bounded places for batches, and everything after it there too.
    """

    __slots__ = ("_batch_place", "_place")

    def __init__(self, batch_place: Callable[[], BatchPlace]) -> None:
        self._batch_place = batch_place
        self._place: BatchPlace | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._place is not None:
            self._place.leave()

    async def run(self, seconds: float, work: Callable[[], T]) -> T:
        """Do the work, which takes about ``seconds``. `RateLimited` when it is long and every place is taken."""
        if self._place is None:
            if seconds <= SHORT_S:
                return work()
            if seconds <= MODERATE_S:
                return await asyncio.to_thread(work)
            self._place = self._batch_place().enter()
        return await self._place.run(work)
