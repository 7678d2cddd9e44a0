"""A gallery as one process searches it: caught up with the database before every search.

The rows in the database are the truth. Whoever needs a block makes it under the gallery's lock and keeps it in a
folder; the machine's other processes map the same files. What is too young for a block waits in a small tail.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Any

import numpy as np

from pairmark.service.db import Database
from pairmark.service.errors import UnknownGallery
from pairmark.service.galleries import item_repository, repository
from pairmark.service.galleries.blocks import GalleryDisk, IndexBlock, make_block, remove
from pairmark.service.galleries.gallery_view import GalleryView, Part, TailItem
from pairmark.service.galleries.item_repository import Removal
from pairmark.service.galleries.repository import State
from pairmark.service.galleries.rows import StoredRows
from pairmark.service.galleries.subject_search import SubjectViews
from pairmark.service.galleries.worker_blocks import prefix_of

log = logging.getLogger(__name__)

BLOCK_ROWS = 131_072
"""Rows of a full block; the largest."""
TAIL_ROWS = 2_048
"""Items that may wait for a block."""
DEAD_SHARE = 0.25
"""A block with more dead rows than this is made anew."""


class LiveGallery:
    """One gallery with one model version."""

    def __init__(self, database: Database, disk: GalleryDisk, state: State, estimator: Any) -> None:
        self._db = database
        self._disk = disk
        self.id = self._id = state.id
        self.key = (state.key, state.model_id, state.version)
        self._dimension = state.dimension
        self._estimator = estimator
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
        found = self.at_hand(seq)
        if found is not None:
            return found
        with self._lock:
            found = self.at_hand(seq)
            if found is None:
                self._catch_up(seq)
                found = self._view = self._made()
        return found

    def block_names(self) -> set[str]:
        """What a cluster's workers call the blocks that there are."""
        prefix = prefix_of(*self.key)
        return {f"{prefix}{one.block.low}-{one.block.high}-{one.block.as_of}" for one in self._parts}

    def pending(self, seq: int) -> int:
        """At most how many rows are neither in a view nor in a block."""
        parts = self._parts
        return seq - max(self._seq, parts[-1].block.high if parts else 0)

    def fill(self) -> None:
        """Make blocks of what waits, full ones only: while rows pour in, smaller ones would all be made again."""
        while True:
            with self._lock:
                if self._step(BLOCK_ROWS):
                    return

    # ------------------------------------------------------------ catching up

    def _made(self) -> GalleryView:
        return GalleryView(self._estimator, self._seq, tuple(self._parts), dict(self._tail), self._dimension)

    def _catch_up(self, seq: int) -> None:
        if self._view is not None and len(self._tail) + seq - self._seq <= TAIL_ROWS:
            erased: list[str] | None = None
            with self._db.read(one_moment=True) as session:
                state = self._state(session)
                if state.floor <= self._seq and len(self._tail) + state.seq - self._seq <= TAIL_ROWS:
                    erased = self._refresh(session, state)
                    self._fill_tail(session, state)
            if erased is not None:
                self._purge(erased)
                return
        # In steps, each under the lock for one block at most: an erasure waits for no more than that.
        while not self._step():
            pass

    def _step(self, least: int | None = None) -> bool:
        """Open what others made, or make one block; says whether that was all. With ``least``, no block of fewer rows
        is made at the end, and what is too young for one is left unseen."""
        with self._disk.lock():
            self._adopt()
            with self._db.read(one_moment=True) as session:
                state = self._state(session)
                if state.floor > self._since(state):
                    self._forget()
                erased = self._refresh(session, state)
                gap = self._gap(session, state, TAIL_ROWS + 1 if least is None else least)
                if gap is not None:
                    block = self._built(session, state, *gap, BLOCK_ROWS)
                    self._insert(self._keep(block))
                elif least is None:
                    self._fill_tail(session, state)
        self._purge(erased)
        return gap is None

    def _state(self, session: Any) -> State:
        state = repository.state_by_id(session, self._id)
        if state is None:
            raise UnknownGallery("the gallery was deleted")
        return state

    def _since(self, state: State) -> int:
        """After which number removals are to be applied."""
        seen = [part.seen for part in self._parts]
        return min(seen, default=state.seq) if self._view is None else min([self._seq, *seen])

    def _refresh(self, session: Any, state: State) -> list[str]:
        """Apply what was removed up to the state; returns the ids of what was erased."""
        erased = self._apply(item_repository.removals(session, self._id, self._since(state)))
        self._parts = [replace(part, seen=max(part.seen, state.seq)) for part in self._parts]
        return erased

    def _forget(self) -> None:
        for part in self._parts:
            if part.block.folder is not None:
                remove(part.block.folder)
        self._view, self._parts, self._tail, self._seq = None, [], {}, 0

    def _adopt(self) -> None:
        """Take blocks that others made and that lie where nothing is sealed here."""
        known = {part.block.folder for part in self._parts}
        for block in self.blocks.stored(self._estimator):
            fits = all(block.high <= part.block.low or block.low >= part.block.high for part in self._parts)
            if block.folder not in known and fits:
                self._insert(block)
        sealed = self._parts[-1].block.high if self._parts else 0
        for name in [name for name, item in self._tail.items() if item.seq <= sealed]:
            del self._tail[name]

    def _insert(self, block: IndexBlock) -> None:
        self._parts.append(Part(block, block.as_of))
        self._parts.sort(key=lambda part: part.block.low)

    def _apply(self, removals: list[Removal]) -> list[str]:
        """Mask what was replaced or deleted; returns the ids of what was erased, as far as they are known here."""
        if not removals:
            return []
        gone = np.unique(np.array([one.removed for one in removals], dtype=np.int64))
        erased = {one.removed for one in removals if one.erased}
        if erased:
            # What an erased row once replaced is to go too.
            for one in sorted(removals, key=lambda one: -one.seq):
                if one.seq in erased and not one.erased:
                    erased.add(one.removed)
        wanted = np.array(sorted(erased), dtype=np.int64)
        names: set[str] = set()
        for at, part in enumerate(self._parts):
            names.update(part.block.ids[int(row)] for row in part.block.rows_of(wanted))
            rows = part.block.rows_of(gone)
            if rows.size and (part.alive is None or part.alive[rows].any()):
                self._parts[at] = part.without(rows)
        dead = set(gone.tolist())
        for name in [name for name, item in self._tail.items() if item.seq in dead]:
            if self._tail[name].seq in erased:
                names.add(name)
            del self._tail[name]
        return sorted(names)

    def _purge(self, erased: list[str]) -> None:
        if erased:
            self._disk.drop_holders(erased)

    def _gap(self, session: Any, state: State, least: int) -> tuple[int, int] | None:
        """The first range that needs a block; the last one does from so many rows on."""
        at = 0
        for part in self._parts:
            if part.block.low > at:
                return at, part.block.low
            at = part.block.high
        n = state.seq - at
        if n >= least:
            n = item_repository.count_range(session, self._id, at, state.seq)
        return (at, state.seq) if n >= least else None

    def _fill_tail(self, session: Any, state: State) -> None:
        low = max(self._seq, self._parts[-1].block.high if self._parts else 0)
        for rows in item_repository.read_range(session, state, low, state.seq):
            for at, name in enumerate(rows.ids):
                self._tail[name] = TailItem(
                    int(rows.seqs[at]), rows.subjects[at], rows.vectors[at], rows.metadata[at]
                )
        self._seq = state.seq

    # ------------------------------------------------------------ making blocks

    def _built(self, session: Any, state: State, low: int, high: int, limit: int) -> IndexBlock:
        """A block of the first ``limit`` rows in (low, high], in memory."""
        parts: list[StoredRows] = []
        n = 0
        for rows in item_repository.read_range(session, state, low, high):
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
        low, high = group[0].block.low, group[-1].block.high
        own = {part.block.folder for part in self._parts}
        made: IndexBlock | None = None
        misfit = False
        with self._disk.lock():
            for block in self.blocks.stored(self._estimator):
                if block.folder in own or block.high <= low or block.low >= high:
                    continue
                if (block.low, block.high) != (low, high):
                    # Another process cut the gallery up otherwise. Its files are as good as these: they are opened.
                    misfit = True
                made = block
            if made is None and not misfit:
                with self._db.read(one_moment=True) as session:
                    state = self._state(session)
                    made = self._built(session, state, low, high, 2**62)
                made = self._keep(made)
                if made.kept:
                    for part in group:
                        if part.block.folder is not None:
                            remove(part.block.folder)
        with self._lock:
            if misfit or made is None:
                self._parts, self._tail, self._seq = [], {}, 0
                self._view, seq = None, self._view.seq if self._view is not None else 0
                self._catch_up(seq)
                self._view = self._made()
                return True
            there = {id(part.block) for part in self._parts}
            if self._view is None or not all(id(part.block) in there for part in group):
                return False
            kept = [part for part in self._parts if not low <= part.block.low < high]
            self._parts = sorted([*kept, Part(made, made.as_of)], key=lambda part: part.block.low)
            # The block may be newer than the view: both are brought to one moment.
            self._catch_up(max(made.as_of, self._seq))
            self._view = self._made()
        return True

    def _group(self) -> list[Part] | None:
        """Neighbouring parts to make into one block."""
        parts = self._parts
        for part in parts:
            if not part.block.kept or part.n_alive < (1 - DEAD_SHARE) * len(part.block):
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
