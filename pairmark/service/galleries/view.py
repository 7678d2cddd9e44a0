"""Exact search in a gallery: some segments with their masks, and a memtable."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool
from pairmark.models.core.search import merge_top_k
from pairmark.service.errors import SearchTooLong
from pairmark.service.galleries.metadata import (
    Filter,
    choose,
)
from pairmark.service.galleries.rows import Matrix, StoredRows
from pairmark.service.galleries.segments import Segment, make_segment
from pairmark.service.runtime.versions import check_finite

QUERIES_AT_A_TIME = 32


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """A segment and which of its rows are current (None: all), up to the write with number ``as_of``."""

    segment: Segment
    as_of: int
    alive: Bool | None = None

    @property
    def n_alive(self) -> int:
        return len(self.segment) if self.alive is None else int(np.count_nonzero(self.alive))

    def rows(self) -> NDArray[np.intp]:
        """The current rows."""
        return np.arange(len(self.segment)) if self.alive is None else np.flatnonzero(self.alive)

    def dead_seqs(self) -> NDArray[np.int64]:
        """Sequence numbers of the rows that were replaced or removed."""
        if self.alive is None:
            return np.empty(0, dtype=np.int64)
        # Numbers ascend and masks go by row: `order` leads from the one to the other.
        return np.ascontiguousarray(self.segment.seqs[~self.alive[self.segment.order]])

    def without(self, seqs: NDArray[np.int64], as_of: int) -> "Part":
        """As of a later write, when the rows that were written under these numbers had gone."""
        rows = self.segment.rows_of(seqs)
        if not rows.size or (self.alive is not None and not self.alive[rows].any()):
            return replace(self, as_of=as_of)
        # A copy: searches under way read the old one.
        alive = np.ones(len(self.segment), dtype=np.bool_) if self.alive is None else self.alive.copy()
        alive[rows] = False
        return Part(self.segment, as_of, alive)


@dataclass(frozen=True, slots=True)
class ItemHit:
    """One item that a search found."""

    id: str
    subject: str | None
    score: float
    missing: bytes | None = None
    """Which columns a record lacks, bools; None for vectors."""


def best_of_subjects(hits: Sequence[ItemHit]) -> list[ItemHit]:
    """The first of each subject; an item without one stands for itself."""
    best: dict[tuple[str, str], ItemHit] = {}
    for hit in hits:
        best.setdefault(("item", hit.id) if hit.subject is None else ("subject", hit.subject), hit)
    return list(best.values())


MaskedParts = Sequence[tuple[Part, Bool | None]]
MaskedSegments = Sequence[tuple[Segment, Bool | None]]
"""Each with which of its rows may be found; None: all."""
Likeness = Callable[[Segment], Bool | None]
"""Which rows of a segment are like those of the calibration; None: all."""
OtherSearch = Callable[
    [MaskedParts, Matrix, int, np.float32 | None, float | None], tuple[list[list[ItemHit]], MaskedParts]
]
"""Segments with masks, queries, k, the score to beat and a deadline -> the best of those that it searched (nothing,
where it searched none), and the segments that are left."""


class GalleryView:
    """Segments and a memtable: everything that was written up to ``seq``. Never changes.

    Attributes
    ----------
    segments : from files that all processes map. memtable : rows that no segment holds yet.
    parts : the segments, and the memtable as one.
    """

    def __init__(self, estimator: Any, seq: int, segments: tuple[Part, ...], memtable: StoredRows) -> None:
        self.estimator = estimator
        self.seq = seq
        self.segments = segments
        self.memtable = memtable
        self.parts = segments
        if len(memtable):
            in_memory = make_segment(estimator, memtable, low=-1, high=-1, as_of=seq)
            self.parts = (*segments, Part(in_memory, seq))
        self.n_items = sum(part.n_alive for part in self.parts)

    def holds(self, seqs: NDArray[np.int64]) -> Bool:
        """Which of the rows that were written under these numbers can still be found."""
        present = np.zeros(seqs.shape, dtype=np.bool_)
        for part in self.parts:
            segment = part.segment
            if not len(segment):
                continue
            at = np.minimum(np.searchsorted(segment.seqs, seqs), len(segment) - 1)
            here = segment.seqs[at] == seqs
            present |= here if part.alive is None else here & part.alive[segment.order[at]]
        return present

    def search(
        self,
        queries: Matrix,
        k: int,
        *,
        conditions: Filter = (),
        above: np.float32 | None = None,
        by_subject: bool = False,
        deadline: float | None = None,
        other_search: OtherSearch | None = None,
        after: int = 0,
        like: Likeness | None = None,
    ) -> list[list[ItemHit]]:
        """The k best items (or subjects, each by its best item) of every query: best first, ties by id.

        Parameters
        ----------
        queries : (q, d) finite float32.
        above : only scores strictly above it.
        by_subject : one item a subject; items without one stand for themselves.
        deadline : monotonic time after which it is given up.
        other_search : who searches some of the segments instead; it must be None with ``after``.
        after : only items that were written under a greater sequence number.
        like : which rows of a segment may be found; None: all.
        """
        # 1. Which rows may be found at all: exact search is over these alone.
        masks = [self._mask(part, conditions, after, like) for part in self.parts]
        parts_to_search = [
            (part, mask) for part, mask in zip(self.parts, masks, strict=True) if mask is None or mask.any()
        ]
        n = sum(
            len(part.segment) if mask is None else int(np.count_nonzero(mask))
            for part, mask in parts_to_search
        )
        if not n:
            return [[] for _ in queries]

        def search_items(batch: Matrix, k: int) -> list[list[ItemHit]]:
            hits, remaining = (
                ([], parts_to_search)
                if other_search is None
                else other_search(parts_to_search, batch, k, above, deadline)
            )
            segments = [(part.segment, mask) for part, mask in remaining]
            local_hits = best_of_segments(self.estimator, batch, k, segments, above, deadline)
            if not hits:
                return local_hits
            pairs = zip(hits, local_hits, strict=True)
            return [sorted([*a, *b], key=lambda hit: (-hit.score, hit.id))[:k] for a, b in pairs]

        # 2. Some queries at a time, so that the deadline is looked at in between.
        hits: list[list[ItemHit]] = []
        for start in range(0, len(queries), QUERIES_AT_A_TIME):
            batch = queries[start : start + QUERIES_AT_A_TIME]
            if by_subject:
                hits += [_best_subjects(search_items, batch[at : at + 1], k, n) for at in range(len(batch))]
            else:
                hits += search_items(batch, min(k, n))
        return hits

    def _mask(self, part: Part, conditions: Filter, after: int, like: Likeness | None) -> Bool | None:
        segment = part.segment
        if not len(segment) or segment.seqs[-1] <= after:
            return np.zeros(len(segment), dtype=np.bool_)
        likeness = None if like is None else like(segment)
        masks = [choose(segment.columns, len(segment), conditions), part.alive, likeness]
        if segment.seqs[0] <= after:
            newer = np.zeros(len(segment), dtype=np.bool_)
            newer[segment.order[np.searchsorted(segment.seqs, after, side="right") :]] = True
            masks.append(newer)
        bounds = [mask for mask in masks if mask is not None]
        return reduce(np.logical_and, bounds) if bounds else None


def _best_subjects(
    best: Callable[[Matrix, int], list[list[ItemHit]]], query: Matrix, k: int, n: int
) -> list[ItemHit]:
    # The best item of every subject that is among the best items is the subject's best: ask for more items until
    # k subjects are among them, or there are no more.
    n_wanted = min(4 * k, n)
    while True:
        items = best(query, n_wanted)[0]
        hits = best_of_subjects(items)
        if len(hits) >= k or len(items) < n_wanted or n_wanted >= n:
            return hits[:k]
        n_wanted = min(4 * n_wanted, n)


def best_of_segments(
    estimator: Any,
    queries: Matrix,
    k: int,
    segments: MaskedSegments,
    above: np.float32 | None,
    deadline: float | None,
) -> list[list[ItemHit]]:
    """The k best rows of some segments together, of each query: best first, ties by id. Masks say which rows may be
    found; None: all. Of many records, a model that compares cells scores the candidates of each query only."""
    n_candidates = estimator.n_candidates
    n = sum(len(segment) if mask is None else int(np.count_nonzero(mask)) for segment, mask in segments)
    if n_candidates and n > estimator.max_scored:
        hits = []
        for at in range(len(queries)):
            query = queries[at : at + 1]
            candidate_segments = candidates_of(estimator, query, max(n_candidates, k), segments)
            hits += _best_of_rows(estimator, query, k, candidate_segments, above, deadline)
        return hits
    return _best_of_rows(estimator, queries, k, segments, above, deadline)


def _missing_cells(segment: Segment, row: int) -> bytes | None:
    vectors = segment.index.vectors
    return vectors[row].tobytes() if vectors.dtype == np.bool_ else None


def candidates_of(
    estimator: Any, query: Matrix, n: int, segments: MaskedSegments
) -> list[tuple[Segment, Bool | None]]:
    """The segments that hold candidates for one record, each with a mask of them: the ``n`` that share most with it,
    ties by id."""
    # Drawn from all segments together, as if they were one.
    indices, masks = [segment.index for segment, _ in segments], [mask for _, mask in segments]
    merged = merge_top_k(
        estimator.candidates(query, n, indices, masks), n, [segment.ids for segment, _ in segments]
    )
    candidate_segments: list[tuple[Segment, Bool | None]] = []
    for at, (segment, _) in enumerate(segments):
        rows = merged.row[0][merged.part[0] == at]
        if rows.size:
            mask = np.zeros(len(segment), dtype=np.bool_)
            mask[rows] = True
            candidate_segments.append((segment, mask))
    return candidate_segments


def _best_of_rows(
    estimator: Any,
    queries: Matrix,
    k: int,
    segments: MaskedSegments,
    above: np.float32 | None,
    deadline: float | None,
) -> list[list[ItemHit]]:
    if not segments:
        return [[] for _ in queries]
    results = []
    best_scores = np.empty((len(queries), 0), dtype=np.float32)
    for segment, mask in segments:
        if deadline is not None and time.monotonic() > deadline:
            raise SearchTooLong("the search took longer than a request may; send fewer queries at a time")
        # What the segments before gave raises the bar for this one.
        floor = above
        if best_scores.shape[1] >= k:
            # What is below every query's k-th best so far cannot be among the best; what equals it may, by its id.
            k_th_best = np.nextafter(best_scores[:, :k].min(), np.float32(-np.inf), dtype=np.float32)
            floor = k_th_best if floor is None else max(floor, k_th_best)
        rows, scores = estimator.top_k(queries, segment.index, k, allowed=mask, above=floor)
        check_finite(np.where(rows < 0, 0, scores), noun="query", what="score", field="queries")
        results.append((rows, scores))
        best_scores = -np.sort(-np.concatenate([best_scores, scores], axis=1), axis=1)[:, :k]
    merged = merge_top_k(results, k, [segment.ids for segment, _ in segments])
    return [
        [
            ItemHit(
                segments[part][0].ids[row],
                segments[part][0].subject(row),
                score,
                _missing_cells(segments[part][0], row),
            )
            for part, row, score in zip(parts, rows, scores, strict=True)
            if part >= 0
        ]
        for parts, rows, scores in zip(
            merged.part.tolist(), merged.row.tolist(), merged.score.tolist(), strict=True
        )
    ]
