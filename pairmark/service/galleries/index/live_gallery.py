"""A gallery as one process searches it: caught up with the database before every search.

The rows in the database are the truth. Whoever needs a block makes it under the gallery's lock and keeps it in a
folder; the machine's other processes map the same files. What is too young for a block waits in a small tail.

Two locks, always taken in this order: the object's own (threads of this process that need a newer view), and the
disk's (threads and processes of this machine that make or remove blocks). Searches take neither: a view never changes,
and a new one replaces it by one assignment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pairmark.service.caches import BoundedCache
from pairmark.service.db import Database
from pairmark.service.errors import UnknownGallery
from pairmark.service.galleries import repository
from pairmark.service.galleries.index.blocks import GalleryDisk, IndexBlock, make_block, remove
from pairmark.service.galleries.index.cluster_search import ClusterSearch
from pairmark.service.galleries.index.gallery_view import (
    GalleryView,
    OtherSearch,
    Part,
    SubjectViews,
    TailItem,
)
from pairmark.service.galleries.index.worker_blocks import prefix_of
from pairmark.service.galleries.items import item_repository
from pairmark.service.galleries.items.item_repository import Removal
from pairmark.service.galleries.items.metadata import Filter
from pairmark.service.galleries.items.rows import StoredRows, form_of
from pairmark.service.galleries.repository import GalleryState
from pairmark.service.settings import Settings
from pairmark.service.tables import GalleryRow

log = logging.getLogger(__name__)

BLOCK_ROWS = 131_072
"""Rows of a full block; the largest."""
TAIL_ROWS = 2_048
"""Items that may wait for a block."""
DEAD_SHARE = 0.25
"""A block with more dead rows than this is made anew."""


class LiveGallery:
    """One gallery with one model version."""

    def __init__(self, database: Database, disk: GalleryDisk, state: GalleryState, estimator: Any) -> None:
        self._db = database
        self._disk = disk
        self.id = state.id
        self.key = (state.key, state.model_id, state.version)
        self._estimator = estimator
        self._form = form_of(estimator, state.dimension)
        self._dimension = int(estimator.n_features_in_)
        self._lock = threading.Lock()
        self._view: GalleryView | None = None
        self._parts: list[Part] = []
        self._tail: dict[str, TailItem] = {}
        self._seq = 0
        self.blocks = disk.blocks(state.model_id, state.version)
        self.subjects = SubjectViews()

    def at_hand(self, seq: int) -> GalleryView | None:
        """The view, if it holds everything up to ``seq``."""
        view = self._view
        return view if view is not None and view.seq >= seq else None

    def view(self, seq: int) -> GalleryView:
        """A view that holds everything up to ``seq`` at least. `UnknownGallery` when it was deleted meanwhile."""
        view = self.at_hand(seq)
        if view is not None:
            return view
        with self._lock:
            view = self.at_hand(seq)
            if view is None:
                self._catch_up(seq)
                view = self._view = self._new_view()
        return view

    def block_names(self) -> set[str]:
        """What a cluster's workers call the blocks that there are."""
        prefix = prefix_of(*self.key)
        return {f"{prefix}{part.block.low}-{part.block.high}-{part.block.as_of}" for part in self._parts}

    def pending(self, seq: int) -> int:
        """At most how many rows are neither in a view nor in a block."""
        parts = self._parts
        return seq - max(self._seq, parts[-1].block.high if parts else 0)

    def fill(self) -> None:
        """Make blocks of what waits, full ones only: while rows pour in, smaller ones would all be made again."""
        while True:
            with self._lock:
                if self._sync_once(BLOCK_ROWS):
                    return

    # ------------------------------------------------------------ catching up

    def _new_view(self) -> GalleryView:
        return GalleryView(self._estimator, self._seq, tuple(self._parts), dict(self._tail), self._dimension)

    def _catch_up(self, seq: int) -> None:
        # Few new rows go to the tail, without the disk's lock. How many there are is only known with the state that is
        # read, and removals before `floor` are forgotten: then, blocks have to be made or read anew.
        if self._view is not None and len(self._tail) + seq - self._seq <= TAIL_ROWS:
            erased_ids: list[str] | None = None
            with self._db.read(one_moment=True) as session:
                state = self._state(session)
                if state.floor <= self._seq and len(self._tail) + state.seq - self._seq <= TAIL_ROWS:
                    erased_ids = self._refresh(session, state)
                    self._fill_tail(session, state)
            if erased_ids is not None:
                self._purge(erased_ids)
                return
        # In steps, each under the lock for one block at most: an erasure waits for no more than that.
        while not self._sync_once():
            pass

    def _sync_once(self, smallest: int | None = None) -> bool:
        """Open what others made, or make one block; says whether that was all. With ``smallest``, no block of fewer
        rows is made at the end, and what is too young for one is left unseen."""
        with self._disk.lock():
            self._adopt()
            # Removals, rows and the state's number are of one moment: a row replaced meanwhile is neither lost nor
            # twice there.
            with self._db.read(one_moment=True) as session:
                state = self._state(session)
                if state.floor > self._since(state):
                    self._forget()
                erased_ids = self._refresh(session, state)
                gap = self._gap(session, state, TAIL_ROWS + 1 if smallest is None else smallest)
                if gap is not None:
                    block = self._new_block(session, state, *gap, BLOCK_ROWS)
                    self._insert(self._keep(block))
                elif smallest is None:
                    self._fill_tail(session, state)
        # Files of the erased go only now: dropping them takes the lock itself.
        self._purge(erased_ids)
        return gap is None

    def _state(self, session: Any) -> GalleryState:
        state = repository.state_by_id(session, self.id)
        if state is None:
            raise UnknownGallery("the gallery was deleted")
        return state

    def _since(self, state: GalleryState) -> int:
        """After which number removals are to be applied."""
        applied = [part.as_of for part in self._parts]
        return min(applied, default=state.seq) if self._view is None else min([self._seq, *applied])

    def _refresh(self, session: Any, state: GalleryState) -> list[str]:
        """Apply what was removed up to the state; returns the ids of what was erased."""
        erased_ids = self._apply(item_repository.removals(session, self.id, self._since(state)))
        self._parts = [replace(part, as_of=max(part.as_of, state.seq)) for part in self._parts]
        return erased_ids

    def _forget(self) -> None:
        for part in self._parts:
            if part.block.folder is not None:
                remove(part.block.folder)
        self._view, self._parts, self._tail, self._seq = None, [], {}, 0

    def _adopt(self) -> None:
        """Take blocks that others made and that lie between those here."""
        open_folders = {part.block.folder for part in self._parts}
        for block in self.blocks.disjoint_blocks(self._estimator):
            fits = all(block.high <= part.block.low or block.low >= part.block.high for part in self._parts)
            if block.folder not in open_folders and fits:
                self._insert(block)
        last_block_end = self._parts[-1].block.high if self._parts else 0
        for name in [name for name, item in self._tail.items() if item.seq <= last_block_end]:
            del self._tail[name]

    def _insert(self, block: IndexBlock) -> None:
        self._parts.append(Part(block, block.as_of))
        self._parts.sort(key=lambda part: part.block.low)

    def _apply(self, removals: list[Removal]) -> list[str]:
        """Mask what was replaced or deleted; returns the ids of what was erased, as far as they are known here."""
        if not removals:
            return []
        removed_seqs = np.unique(np.array([removal.removed for removal in removals], dtype=np.int64))
        erased_seqs = {removal.removed for removal in removals if removal.is_erasure}
        if erased_seqs:
            # What an erased row once replaced is to go too.
            for removal in sorted(removals, key=lambda removal: -removal.seq):
                if removal.seq in erased_seqs and not removal.is_erasure:
                    erased_seqs.add(removal.removed)
        erased_array = np.array(sorted(erased_seqs), dtype=np.int64)
        erased_ids: set[str] = set()
        for at, part in enumerate(self._parts):
            erased_ids.update(part.block.ids[int(row)] for row in part.block.rows_of(erased_array))
            rows = part.block.rows_of(removed_seqs)
            if rows.size and (part.alive is None or part.alive[rows].any()):
                self._parts[at] = part.without(rows)
        removed_set = set(removed_seqs.tolist())
        for name in [name for name, item in self._tail.items() if item.seq in removed_set]:
            if self._tail[name].seq in erased_seqs:
                erased_ids.add(name)
            del self._tail[name]
        return sorted(erased_ids)

    def _purge(self, erased_ids: list[str]) -> None:
        if erased_ids:
            self._disk.drop_holders(erased_ids)

    def _gap(self, session: Any, state: GalleryState, smallest: int) -> tuple[int, int] | None:
        """The first range that needs a block; the last one does from so many rows on."""
        at = 0
        for part in self._parts:
            if part.block.low > at:
                return at, part.block.low
            at = part.block.high
        n = state.seq - at
        if n >= smallest:
            n = item_repository.count_range(session, self.id, at, state.seq)
        return (at, state.seq) if n >= smallest else None

    def _fill_tail(self, session: Any, state: GalleryState) -> None:
        low = max(self._seq, self._parts[-1].block.high if self._parts else 0)
        for rows in item_repository.read_range(session, state, self._form, low, state.seq):
            for at, name in enumerate(rows.ids):
                self._tail[name] = TailItem(
                    int(rows.seqs[at]), rows.subjects[at], rows.vectors[at], rows.metadata[at]
                )
        self._seq = state.seq

    # ------------------------------------------------------------ making blocks

    def _new_block(self, session: Any, state: GalleryState, low: int, high: int, limit: int) -> IndexBlock:
        """A block of the first ``limit`` rows in (low, high], in memory."""
        parts: list[StoredRows] = []
        n = 0
        for rows in item_repository.read_range(session, state, self._form, low, high):
            parts.append(rows)
            n += len(rows)
            if n >= limit:
                high = int(rows.seqs[-1])
                break
        return make_block(self._estimator, parts, self._dimension, low=low, high=high, as_of=state.seq)

    def _keep(self, block: IndexBlock) -> IndexBlock:
        if not len(block):
            return block
        try:
            return self.blocks.keep(block, self._estimator)
        except (OSError, ValueError) as error:
            log.warning("a gallery's block could not be kept; it stays in memory", exc_info=error)
            return block

    # ------------------------------------------------------------ tidying

    def untidy(self) -> bool:
        """Whether blocks want to be merged, made anew or kept."""
        return self._group() is not None

    def tidy(self) -> bool:
        """Merge small blocks, and make anew those that lost their folder or many rows; searches go on meanwhile. Says
        whether something was done."""
        with self._lock:
            group = self._group()
        if group is None:
            return False
        # 1. Under the disk's lock alone, so that searches go on: take what another process merged, or merge.
        low, high = group[0].block.low, group[-1].block.high
        own_folders = {part.block.folder for part in self._parts}
        merged: IndexBlock | None = None
        misfit = False
        with self._disk.lock():
            for block in self.blocks.disjoint_blocks(self._estimator):
                if block.folder in own_folders or block.high <= low or block.low >= high:
                    continue
                if (block.low, block.high) != (low, high):
                    # Another process cut the gallery up otherwise. Its files are as good as these: they are opened.
                    misfit = True
                merged = block
            if merged is None and not misfit:
                with self._db.read(one_moment=True) as session:
                    state = self._state(session)
                    merged = self._new_block(session, state, low, high, 2**62)
                merged = self._keep(merged)
                if merged.is_on_disk:
                    for part in group:
                        if part.block.folder is not None:
                            remove(part.block.folder)
        # 2. Under the own lock: put the block in the group's place, unless a search changed the parts meanwhile.
        with self._lock:
            if misfit or merged is None:
                self._parts, self._tail, self._seq = [], {}, 0
                self._view, seq = None, self._view.seq if self._view is not None else 0
                self._catch_up(seq)
                self._view = self._new_view()
                return True
            open_blocks = {id(part.block) for part in self._parts}
            if self._view is None or not all(id(part.block) in open_blocks for part in group):
                return False
            neighbours = [part for part in self._parts if not low <= part.block.low < high]
            self._parts = sorted([*neighbours, Part(merged, merged.as_of)], key=lambda part: part.block.low)
            # The block may be newer than the view: both are brought to one moment.
            self._catch_up(max(merged.as_of, self._seq))
            self._view = self._new_view()
        return True

    def _group(self) -> list[Part] | None:
        """Neighbouring parts to make into one block."""
        parts = self._parts
        for part in parts:
            if not part.block.is_on_disk or part.n_alive < (1 - DEAD_SHARE) * len(part.block):
                return [part]
        # As a binary counter: a block is merged with the one before while that is no larger, so that there are few
        # blocks and each row is written a few times only.
        total, first = 0, len(parts)
        for at in range(len(parts) - 1, -1, -1):
            size = parts[at].n_alive
            if total and (size > 2 * total or size + total > BLOCK_ROWS):
                break
            total += size
            first = at
        return parts[first:] if len(parts) - first >= 4 else None


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
            if state is None or key[1:] != (state.model_id, state.version):
                self._live.drop([key])
                self._cluster.settle(prefix_of(*key))
            elif live.at_hand(0) is not None:
                self.in_background(live, partial(live.view, state.seq))


def _log_failure(future: Future[None]) -> None:
    if future.cancelled() or future.exception() is None:
        return
    log.error("a gallery's upkeep failed", exc_info=future.exception())
