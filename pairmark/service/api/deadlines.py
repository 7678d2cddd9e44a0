"""Deadlines of requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")
LOOK_S = 0.25
"""Seconds between two looks at the requests that are open."""


class Deadlines:
    """Ends requests after ``seconds``: one look at all of them every `LOOK_S`, since a timer for each costs more."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: dict[asyncio.Task[Any], float] = {}
        self._expired: set[asyncio.Task[Any]] = set()
        self._looking = False

    async def run(self, start: float, work: Awaitable[T]) -> T:
        """Await the work, which began at ``start`` of the performance counter, or raise `TimeoutError`."""
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = start
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look)
        try:
            return await work
        except asyncio.CancelledError as error:
            if task in self._expired and task.uncancel() <= 0:
                raise TimeoutError from error
            raise
        finally:
            del self._open[task]
            self._expired.discard(task)

    def _look(self) -> None:
        overdue = time.perf_counter() - self._seconds
        for task, start in self._open.items():
            if start < overdue and task not in self._expired:
                self._expired.add(task)
                task.cancel()
        self._looking = bool(self._open)
        if self._looking:
            asyncio.get_running_loop().call_later(LOOK_S, self._look)
