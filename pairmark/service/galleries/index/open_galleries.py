"""The galleries that one process has open: their views, and what keeps these up to date in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from pairmark.service.caches import BoundedCache
from pairmark.service.db import Database
from pairmark.service.errors import UnknownGallery
from pairmark.service.galleries import repository
from pairmark.service.galleries.index.blocks import GalleryDisk
from pairmark.service.galleries.index.cluster_search import ClusterSearch
from pairmark.service.galleries.index.gallery_view import GalleryView, OtherSearch
from pairmark.service.galleries.index.live_gallery import LiveGallery
from pairmark.service.galleries.index.worker_blocks import prefix_of
from pairmark.service.galleries.items.metadata import Filter
from pairmark.service.galleries.repository import GalleryState
from pairmark.service.settings import Settings
from pairmark.service.tables import GalleryRow

log = logging.getLogger(__name__)
OPEN_GALLERIES = 64
"""Galleries (by version) whose views one process keeps."""


class OpenGalleries:
    """Views of galleries by version, the latest used ones.

    Their files are under ``PAIRMARK_HOME/galleries``, where the machine's other processes find them too.
    """

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self.home = settings.home / "galleries"
        self._live: BoundedCache[tuple[str, str, int], LiveGallery] = BoundedCache(OPEN_GALLERIES)
        self._lock = threading.Lock()
        self._upkeep = ThreadPoolExecutor(1, thread_name_prefix="gallery-upkeep")
        self._scheduled: set[int] = set()
        self._closing = threading.Event()
        self._cluster = ClusterSearch(settings)

    def close(self) -> None:
        """End the background's work: a step of it under way is done first, so that nothing uses the database after."""
        self._closing.set()
        self._upkeep.shutdown(wait=True, cancel_futures=True)
        self._cluster.close()

    def disk(self, state: GalleryState | GalleryRow) -> GalleryDisk:
        return GalleryDisk(self.home / state.key)

    def live(self, state: GalleryState, estimator: Any) -> LiveGallery:
        key = (state.key, state.model_id, state.version)
        return self._live.get_or_make(key, lambda: LiveGallery(self._db, self.disk(state), state, estimator))

    def cluster_search(self, state: GalleryState, conditions: Filter, seq: int) -> OtherSearch | None:
        """Who searches blocks of a view for this process, if anybody does: see `ClusterSearch.searching`."""
        return self._cluster.searching(state, conditions, seq)

    def tidy_later(self, live: LiveGallery) -> None:
        """Have blocks merged and kept in the background, if that is needed."""
        if id(live) not in self._scheduled and live.untidy():
            self.in_background(live, lambda: None)

    def measure_later(self, live: LiveGallery, view: GalleryView) -> None:
        """Have the recall of candidates measured in the background, where it was not or much has changed since."""
        if live.recall is None or live.recall.is_old(view):
            self.in_background(live, partial(live.measure_recall, view, self._closing))

    def of(self, key: str) -> list[LiveGallery]:
        """The gallery's views, one a version, as far as there are any."""
        return [live for (gallery_key, *_), live in self._live.entries() if gallery_key == key]

    def in_background(self, live: LiveGallery, work: Callable[[], Any], *, tidy: bool = True) -> None:
        """Do some work on a view unless some is waiting already, then merge and keep its blocks."""
        with self._lock:
            if id(live) in self._scheduled:
                return
            self._scheduled.add(id(live))

        def do() -> None:
            try:
                with self._lock:
                    # From here on, what is asked for needs another turn.
                    self._scheduled.discard(id(live))
                work()
                while tidy and not self._closing.is_set() and live.tidy():
                    pass
                self._cluster.settle(prefix_of(*live.key), live.block_names())
            except UnknownGallery:
                pass

        try:
            self._upkeep.submit(do).add_done_callback(_log_failure)
        except RuntimeError:
            # The process is ending.
            self._scheduled.discard(id(live))

    def forget(self, key: str) -> None:
        self._live.drop([version_key for version_key, _ in self._live.entries() if version_key[0] == key])
        self._cluster.settle(f"pairmark-{key}-")

    def keep_up(self) -> None:
        """See what other processes wrote and erased in the galleries this one has open (blocking)."""
        for key, live in self._live.entries():
            with self._db.read() as session:
                state = repository.state_by_id(session, live.id)
            if state is None or key[1:] not in state.versions:
                self._live.drop([key])
                self._cluster.settle(prefix_of(*key))
            elif live.at_hand(0) is not None:
                self.in_background(live, partial(live.view, state.seq))


def _log_failure(future: Future[None]) -> None:
    if future.cancelled() or future.exception() is None:
        return
    log.error("a gallery's upkeep failed", exc_info=future.exception())
