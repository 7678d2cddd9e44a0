"""Polls the database once for all event streams of a process."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from pairmark.service.errors import PairmarkError

LOOK_S = 0.5
log = logging.getLogger("pairmark.events")


class EventWatch:
    """Wakes the streams whose jobs have new events. Nothing is asked while no stream is open.

    ``changed`` : number of the last event seen -> the newest number, and the jobs with events since.
    """

    def __init__(self, changes: Callable[[int], Awaitable[tuple[int, set[str]]]]) -> None:
        self._changes = changes
        self._streams: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._watching: asyncio.Task[None] | None = None

    @contextmanager
    def following(self, job_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the job may have something new."""
        news = asyncio.Event()
        self._streams[job_id].add(news)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            yield news
        finally:
            self._streams[job_id].discard(news)
            if not self._streams[job_id]:
                del self._streams[job_id]

    def wake_all(self) -> None:
        """Wake every stream, e.g. because the service ends."""
        for streams in self._streams.values():
            for news in streams:
                news.set()

    async def _watch(self) -> None:
        last = -1
        while self._streams:
            try:
                last, jobs = await self._changes(last)
            except PairmarkError as error:
                # The streams ask for themselves now and then, and end when the database stays away.
                log.info("events cannot be watched just now", extra={"reason": error.detail})
                jobs = set()
            for job_id in jobs & self._streams.keys():
                for news in self._streams[job_id]:
                    news.set()
            await asyncio.sleep(LOOK_S)
