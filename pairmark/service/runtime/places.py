"""Where work runs: on the event loop, in a thread, or in one of a bounded number of places for long batches."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Self, TypeVar

from pairmark.service.errors import RateLimited
from pairmark.service.runtime.metrics import BATCHES

T = TypeVar("T")
SHORT_S = 0.001
"""Longest that work may hold the event loop; a thread costs a tenth of it."""
MODERATE_S = 0.05
"""Longest that work may take in a thread of its own choice; longer work waits for one of the bounded places."""


class Places:
    """Bounded places for long work, each with a thread: ``async with places() as place: await place.run(work)``.

    Parameters
    ----------
    limit : at most so many are taken or waiting for a thread. beside : other places that share their limit.
    """

    def __init__(self, name: str, threads: int, limit: int, beside: Places | None = None) -> None:
        self.threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self.free: threading.Semaphore = threading.Semaphore(limit) if beside is None else beside.free
        self.limit = limit

    def __call__(self) -> BatchPlace:
        return BatchPlace(self)

    def close(self) -> None:
        """Let threads end."""
        self.threads.shutdown(wait=False, cancel_futures=True)


class BatchPlace:
    """One of the places, held until its work has really ended."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._running: Future[Any] | None = None

    async def __aenter__(self) -> Self:
        return self.enter()

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def enter(self) -> Self:
        """Take the place. `RateLimited` when all are taken."""
        if not self._places.free.acquire(blocking=False):
            raise RateLimited(f"{self._places.limit} long batches are under way already; try again shortly")
        BATCHES.inc()
        return self

    def leave(self) -> None:
        """Give the place back, at once or when its work has ended."""
        if self._running is None or self._running.done():
            self._leave()
        else:
            # The client gave up or time ran out, but a thread cannot be stopped: the place is free when it ends.
            self._running.add_done_callback(self._leave)

    def _leave(self, _: object = None) -> None:
        BATCHES.dec()
        self._places.free.release()

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work in a thread."""
        # In the name of who asked for it.
        future = self._places.threads.submit(copy_context().run, work)
        self._running = future
        return await asyncio.wrap_future(future)


class Lane:
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
