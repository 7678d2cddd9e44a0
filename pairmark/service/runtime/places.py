"""Where the work of a request runs: on the event loop, in a thread, or in one of the bounded places for batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self, TypeVar

from pairmark.service.shares import BatchPlace

T = TypeVar("T")
SHORT_S = 0.001
"""Longest that work may hold the event loop; a thread costs a tenth of it."""
MODERATE_S = 0.05
"""Longest that work may take in a thread of its own choice; longer work waits for one of the bounded places."""


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
