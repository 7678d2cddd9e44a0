"""Where the work on galleries runs: threads of their own for searches, writes and bulk imports."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from pairmark.service.runtime.places import BatchPlace
from pairmark.service.settings import Settings


class GalleryPlaces:
    """``async with places.search() as place: await place.run(work)``.

    Each method raises `RateLimited`, once the place is entered, when too many are waiting.
    """

    def __init__(self, settings: Settings) -> None:
        # Unlike a batch, one search is short: many may wait for the cores.
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="gallery")
        # Writers wait for the disk, and searches must not wait for them.
        self._writers = ThreadPoolExecutor(4, thread_name_prefix="gallery-write")
        self._most_waiting = settings.max_waiting_searches
        self._waiting = threading.Semaphore(self._most_waiting)
        self._most_imports = settings.max_concurrent_uploads
        self._importers = ThreadPoolExecutor(self._most_imports, thread_name_prefix="gallery-import")
        self._imports = threading.Semaphore(self._most_imports)

    def search(self) -> BatchPlace:
        """For a search."""
        return BatchPlace(self._threads, self._waiting, self._most_waiting)

    def write(self) -> BatchPlace:
        """For writing a few items."""
        return BatchPlace(self._writers, self._waiting, self._most_waiting)

    def bulk_import(self) -> BatchPlace:
        """For one of the few bulk imports at a time."""
        return BatchPlace(self._importers, self._imports, self._most_imports)

    def close(self) -> None:
        """Let threads end."""
        for threads in (self._threads, self._writers, self._importers):
            threads.shutdown(wait=False, cancel_futures=True)
