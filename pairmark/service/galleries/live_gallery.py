"""A gallery as one process searches it: a log-structured merge tree over the rows in the database.

The rows are the truth, and a write is over once they are committed under the gallery's next sequence numbers. A view is
a snapshot at one sequence number: *segments* (immutable, mapped from a folder that all processes of the machine share),
masks of their rows that were replaced or erased since, and a *memtable* of the rows that no segment holds yet.

- Read path: `LiveGallery.view` brings the view up to a sequence number, then the view is searched. Few new rows go to
  the memtable (`_advance`); else segments are opened, or made of the rows (`_load`). Whoever wrote few rows through
  this process has done that already, where somebody searched since the write before.
- Recovery: `_load` in a process that has no view. What is damaged is removed, what is missing is made from the rows.
- Compaction: `compact` merges small segments and makes anew those that lost many rows or their folder.

Two locks, always taken in this order: the object's own (threads of this process that need a newer view), and the
disk's (threads and processes of this machine that make or remove segments). Searches take neither: a view never
changes, and a new one replaces it by one assignment.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.service.caches import BoundedCache
from pairmark.service.db import Database
from pairmark.service.errors import UnknownGallery
from pairmark.service.galleries import repository
from pairmark.service.galleries.cluster import ClusterSearch, prefix_of, task_of
from pairmark.service.galleries.rows import StoredRows, form_of
from pairmark.service.galleries.segments import GalleryDisk, Segment, make_segment
from pairmark.service.galleries.view import GalleryView, Part
from pairmark.service.settings import Settings
from pairmark.service.tables import GalleryRow

log = logging.getLogger(__name__)

SEGMENT_ROWS = 131_072
"""Rows of a full segment; the largest."""
MEMTABLE_ROWS = 2_048
"""Rows that a memtable holds at most."""
DEAD_SHARE = 0.25
"""A segment with more dead rows than this is made anew."""


class LiveGallery:
    """One gallery with one model version."""

    def __init__(self, database: Database, disk: GalleryDisk, state: GalleryRow, estimator: Any) -> None:
        self._db = database
        self.disk = disk
        self.id = state.id
        self.key = (state.key, state.model_id, state.version)
        self._estimator = estimator
        self._form = form_of(estimator, state.dimension)
        self._dimension = int(estimator.n_features_in_)
        self._lock = threading.Lock()
        self._view: GalleryView | None = None
        self._parts: list[Part] = []
        self._is_searched = False

    # ------------------------------------------------------------ reading

    def cached(self, seq: int) -> GalleryView | None:
        """The view, if it holds everything up to ``seq``."""
        view = self._view
        # Read once, above: another thread may put a newer one there at any time.
        return view if view is not None and view.seq >= seq else None

    def view(self, seq: int) -> GalleryView:
        """A view that holds everything up to ``seq`` at least. `UnknownGallery` when it was deleted meanwhile."""
        view = self.cached(seq) or self.catch_up(seq)
        self._is_searched = True
        return view

    def follow(self, seq: int) -> None:
        """Take in what was just written, if it is little, so that the next search need not. `UnknownGallery` when the
        gallery was deleted meanwhile."""
        # Without a search since, it can wait: many writes are then taken in together.
        if self._is_searched and self.pending(seq) <= MEMTABLE_ROWS:
            self._is_searched = False
            self.catch_up(seq)

    def catch_up(self, seq: int) -> GalleryView:
        """As `view`, where nobody searches."""
        with self._lock:
            # Whoever had the lock before may have made the view that is wanted.
            return self.cached(seq) or self._advance() or self._load()

    def _advance(self) -> GalleryView | None:
        """Take newer rows into the memtable; None: they are too many, or the view is too old to learn what was
        removed."""
        view = self._view
        if view is None:
            return None
        # 1. What happened since the view, at one moment.
        with self._db.read(one_moment=True) as session:
            state = self._state(session)
            # What was removed up to `floor` is no longer listed.
            if state.floor > view.seq or len(view.memtable) + state.seq - view.seq > MEMTABLE_ROWS:
                return None
            removals = repository.removals(session, self.id, view.seq)
            new_rows = list(repository.read_range(session, state, self._form, view.seq, state.seq))
        # 2. Mask what was removed, and add what was written.
        removed_seqs, erased_ids = _removed_rows(removals, view.parts)
        self._parts = [part.without(removed_seqs, state.seq) for part in view.segments]
        self._view = self._new_view(state.seq, [view.memtable.without(removed_seqs), *new_rows])
        # 3. Files that hold erased rows go. What is mapped of them stays masked until compaction makes it anew.
        self.disk.remove_segments_with(erased_ids)
        return self._view

    def _load(self) -> GalleryView:
        """A view of the segments that there are, after those that are missing were made."""
        # In steps, each under the disk's lock for one segment at most: an erasure waits for no more than that.
        while (view := self._load_step()) is None:
            pass
        return view

    def _load_step(self) -> GalleryView | None:
        """Open the segments that there are, then make the first one that is missing or, if none is, a view."""
        view = None
        with self.disk.lock():
            # 1. Segments that any process of the machine made; masks of those that were open already are kept.
            part_of = {id(part.segment): part for part in self._parts}
            segments = self.disk.open_segments(self._estimator, [part.segment for part in self._parts])
            self._parts = [part_of.get(id(segment), Part(segment, segment.as_of)) for segment in segments]
            # Removals, rows and the state's number are of one moment: a row replaced meanwhile is neither lost nor
            # twice there.
            with self._db.read(one_moment=True) as session:
                state = self._state(session)
                # 2. Mask what was removed since the oldest of them.
                since = min([part.as_of for part in self._parts], default=state.seq)
                if since < state.floor:
                    # What was removed is no longer listed, so that these can only be made anew.
                    for part in self._parts:
                        part.segment.remove()
                    self._parts = []
                removals = repository.removals(session, self.id, since)
                removed_seqs, erased_ids = _removed_rows(removals, self._parts)
                self._parts = [part.without(removed_seqs, state.seq) for part in self._parts]
                # 3. Make the first segment that is missing; the newest rows need none while they are few.
                low, high = self._first_gap(state.seq)
                is_newest = high == state.seq
                if is_newest and repository.count_range(session, self.id, low, high) <= MEMTABLE_ROWS:
                    newest_rows = list(repository.read_range(session, state, self._form, low, high))
                    view = self._view = self._new_view(state.seq, newest_rows)
                else:
                    segment = self._written(self._new_segment(session, state, low, high, SEGMENT_ROWS))
                    parts = [*self._parts, Part(segment, segment.as_of)]
                    self._parts = sorted(parts, key=lambda part: part.segment.low)
        # Not before the disk's lock is free: this takes it.
        self.disk.remove_segments_with(erased_ids)
        return view

    def _new_view(self, seq: int, memtable_rows: list[StoredRows]) -> GalleryView:
        memtable = StoredRows.sorted(memtable_rows, self._dimension)
        return GalleryView(self._estimator, seq, tuple(self._parts), memtable)

    def _state(self, session: Any) -> GalleryRow:
        state = repository.gallery(session, self.id)
        if state is None:
            raise UnknownGallery("the gallery was deleted")
        return state

    def _first_gap(self, seq: int) -> tuple[int, int]:
        """The first range of sequence numbers without a segment; the last one is up to the newest number."""
        end = 0
        for part in self._parts:
            if part.segment.low > end:
                return end, part.segment.low
            end = part.segment.high
        return end, seq

    # ------------------------------------------------------------ segments

    def segment_names(self) -> set[str]:
        """What a cluster's workers call the segments that there are."""
        return {task_of(self.key, part.segment) for part in self._parts}

    def pending(self, seq: int) -> int:
        """At most how many rows are neither in the view nor in a segment."""
        parts, view = self._parts, self._view
        return seq - max(0 if view is None else view.seq, parts[-1].segment.high if parts else 0)

    def _new_segment(self, session: Any, state: GalleryRow, low: int, high: int, limit: int) -> Segment:
        """A segment of the first ``limit`` rows in (low, high], in memory."""
        parts: list[StoredRows] = []
        n = 0
        for rows in repository.read_range(session, state, self._form, low, high):
            parts.append(rows)
            n += len(rows)
            if n >= limit:
                # The range ends with the last row that was taken: what follows is the next segment's.
                high = int(rows.seqs[-1])
                break
        rows = StoredRows.sorted(parts, self._dimension)
        return make_segment(self._estimator, rows, low=low, high=high, as_of=state.seq)

    def _written(self, segment: Segment) -> Segment:
        """The segment, mapped from where it was written; in memory where it cannot be, or has no rows."""
        if not len(segment):
            return segment
        try:
            return self.disk.write(segment, self._estimator)
        except (OSError, ValueError) as error:
            log.warning("a gallery's segment could not be written; it stays in memory", exc_info=error)
            return segment

    # ------------------------------------------------------------ compaction

    def needs_compaction(self) -> bool:
        """Whether segments want to be merged, made anew or written."""
        return self._next_merge(self._parts) is not None

    def compact(self) -> bool:
        """Merge small segments, and make anew those that lost their folder or many rows; searches go on meanwhile. Says
        whether something was done."""
        to_merge = self._next_merge(self._parts)
        if to_merge is None:
            return False
        # 1. Under the disk's lock alone, so that searches go on: make one segment of their rows, unless another process
        # did, and remove those that it replaces. A process killed in between leaves both: the larger one counts.
        low, high = to_merge[0].low, to_merge[-1].high
        with self.disk.lock():
            opened = [part.segment for part in self._parts]
            if all(segment in opened for segment in self.disk.open_segments(self._estimator, opened)):
                with self._db.read(one_moment=True) as session:
                    merged = self._new_segment(session, self._state(session), low, high, 2**62)
                # Not written, on a full disk say: the small segments stay.
                if not self._written(merged).is_on_disk:
                    return False
                for segment in to_merge:
                    segment.remove()
        # 2. Under the own lock: open what there is now.
        with self._lock:
            self._parts = [part for part in self._parts if part.segment not in to_merge]
            self._load()
        return True

    @staticmethod
    def _next_merge(parts: list[Part]) -> list[Segment] | None:
        """Neighboring segments to make into one; None: compaction is not needed."""
        for part in parts:
            if not part.segment.is_on_disk or part.n_alive < (1 - DEAD_SHARE) * len(part.segment):
                return [part.segment]
        # As a binary counter: a segment is merged with the one before while that is no larger, so that there are few
        # segments and each row is written a few times only.
        total, first = 0, len(parts)
        for place in range(len(parts) - 1, -1, -1):
            size = parts[place].n_alive
            if total and (size > 2 * total or size + total > SEGMENT_ROWS):
                break
            total += size
            first = place
        return [part.segment for part in parts[first:]] if len(parts) - first >= 4 else None


def _removed_rows(removals: NDArray[np.int64], parts: Sequence[Part]) -> tuple[NDArray[np.int64], list[str]]:
    """The numbers of rows that were replaced or erased, and the ids of the erased ones, as far as they are known
    here."""
    _, removed, is_erased = removals.T
    erased = set(removed[is_erased > 0].tolist())
    if not erased:
        return removed, []
    # What an erased row once replaced is to go too.
    # The newest first, so that a row replaced again and again is followed to its beginning.
    for seq, replaced, _ in reversed(removals.tolist()):
        if seq in erased:
            erased.add(replaced)
    seqs = np.array(sorted(erased), dtype=np.int64)
    return removed, sorted(
        {part.segment.ids[row] for part in parts for row in part.segment.rows_of(seqs).tolist()}
    )


@contextmanager
def _upkeep() -> Iterator[None]:
    """Log what fails of work that nobody waits for."""
    try:
        yield
    except UnknownGallery:
        pass
    except Exception:
        log.exception("a gallery's upkeep failed")


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
        self.cluster = ClusterSearch(settings)

    def close(self) -> None:
        """End the background's work: a step of it under way is done first, so that nothing uses the database after."""
        self._closing.set()
        self._upkeep.shutdown(wait=True, cancel_futures=True)
        self.cluster.close()

    def disk(self, state: GalleryRow) -> GalleryDisk:
        return GalleryDisk(self.home / state.key, f"{state.model_id}-{state.version}")

    def live(self, state: GalleryRow, estimator: Any) -> LiveGallery:
        key = (state.key, state.model_id, state.version)
        return self._live.get_or_make(key, lambda: LiveGallery(self._db, self.disk(state), state, estimator))

    def of(self, key: str) -> list[LiveGallery]:
        """The gallery's views, one a version, as far as there are any."""
        return [live for (gallery_key, *_), live in self._live.entries() if gallery_key == key]

    def in_background(self, live: LiveGallery, seq: int) -> None:
        """Bring a view up to a sequence number and compact its segments, unless that is waiting already."""
        with self._lock:
            if id(live) in self._scheduled:
                return
            self._scheduled.add(id(live))
        try:
            self._upkeep.submit(self._work, live, seq)
        except RuntimeError:
            # The process is ending.
            self._scheduled.discard(id(live))

    def _work(self, live: LiveGallery, seq: int) -> None:
        with self._lock:
            # From here on, what is asked for needs another turn.
            self._scheduled.discard(id(live))
        with _upkeep():
            live.catch_up(seq)
            while not self._closing.is_set() and live.compact():
                pass
            self.cluster.settle(prefix_of(*live.key), live.segment_names())

    def follow(self, live: LiveGallery, seq: int) -> None:
        """`LiveGallery.follow`, whose failure is none of the write's: the next search meets it."""
        with _upkeep():
            live.follow(seq)

    def evict(self, key: str) -> None:
        self._live.drop([version_key for version_key, _ in self._live.entries() if version_key[0] == key])
        self.cluster.settle(f"pairmark-{key}-")

    def keep_up(self) -> None:
        """See what other processes wrote and erased in the galleries this one has open (blocking)."""
        for key, live in self._live.entries():
            with self._db.read() as session:
                state = repository.gallery(session, live.id)
            if state is None or key[1:] != (state.model_id, state.version):
                self._live.drop([key])
                self.cluster.settle(prefix_of(*key))
            # Without a view nothing is out of date: the next search makes one.
            elif live.cached(0) is not None:
                self.in_background(live, state.seq)
