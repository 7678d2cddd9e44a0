"""A gallery at one moment, and exact search in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool, Float32
from pairmark.models.core.scores import SampleSets, SubjectIndex
from pairmark.models.core.search import SearchLimits, merge_top_k
from pairmark.service.errors import SearchTooLong, TooLarge
from pairmark.service.galleries.index.segments import Segment, make_segment
from pairmark.service.galleries.items.metadata import Filter, choose
from pairmark.service.galleries.items.rows import Matrix, StoredRows
from pairmark.service.runtime.bodies import check_finite

Owner = tuple[str, str]
"""(``subject``, its name), or (``item``, its id) for an item without a subject, which stands for itself."""

QUERIES_AT_A_TIME = 32


def owner_of(subject: str | None, id: str) -> Owner:
    """What an item is part of."""
    return ("item", id) if subject is None else ("subject", subject)


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """A segment and which of its rows are current (None: all), up to the write with number ``as_of``."""

    segment: Segment
    as_of: int
    alive: Bool | None = None

    @property
    def n_alive(self) -> int:
        return len(self.segment) if self.alive is None else int(np.count_nonzero(self.alive))

    def without(self, rows: NDArray[np.int64]) -> Part:
        if not rows.size or (self.alive is not None and not self.alive[rows].any()):
            return self
        alive = np.ones(len(self.segment), dtype=np.bool_) if self.alive is None else self.alive.copy()
        alive[rows] = False
        return Part(self.segment, self.as_of, alive)


@dataclass(frozen=True, slots=True)
class MemtableItem:
    """An item too young for a segment."""

    seq: int
    subject: str | None
    vector: Matrix
    metadata: str | None


@dataclass(frozen=True, slots=True)
class ItemHit:
    """One item that a search found."""

    id: str
    subject: str | None
    score: float


MaskedParts = Sequence[tuple[Part, Bool | None]]
MaskedSegments = Sequence[tuple[Segment, Bool | None]]
"""Each with which of its rows may be found; None: all."""
Search = Callable[[Matrix, int], list[list[ItemHit]]]
Likeness = Callable[[Segment], Bool | None]
"""Which rows of a segment are like those of the calibration; None: all."""
OtherSearch = Callable[
    [MaskedParts, Matrix, int, np.float32 | None, float | None], tuple[list[list[ItemHit]], MaskedParts]
]
"""Segments with masks, queries, k, the score to beat and a deadline -> the best of those that it searched (nothing,
where it searched none), and the segments that are left."""


class GalleryView:
    """Segments and a memtable: everything that was written up to ``seq``. Never changes."""

    def __init__(
        self,
        estimator: Any,
        seq: int,
        parts: tuple[Part, ...],
        memtable: dict[str, MemtableItem],
        n_features: int,
    ) -> None:
        self.estimator = estimator
        self.seq = seq
        self.parts = parts
        self.memtable = memtable
        self._n_features = n_features

    @cached_property
    def all_parts(self) -> tuple[Part, ...]:
        """The segments, and the memtable as one."""
        if not self.memtable:
            return self.parts
        rows = StoredRows(
            seqs=np.array([item.seq for item in self.memtable.values()], dtype=np.int64),
            ids=list(self.memtable),
            subjects=[item.subject for item in self.memtable.values()],
            vectors=np.stack([item.vector for item in self.memtable.values()]),
            metadata=[item.metadata for item in self.memtable.values()],
        )
        segment = make_segment(self.estimator, [rows], self._n_features, low=-1, high=-1, as_of=self.seq)
        return (*self.parts, Part(segment, self.seq))

    @cached_property
    def n_items(self) -> int:
        return sum(part.n_alive for part in self.parts) + len(self.memtable)

    def holds(self, seqs: NDArray[np.int64]) -> Bool:
        """Which of the rows that were written under these numbers can still be found."""
        present = np.zeros(seqs.shape, dtype=np.bool_)
        for part in self.all_parts:
            segment = part.segment
            if not len(segment):
                continue
            at = np.minimum(np.searchsorted(segment.seqs, seqs), len(segment) - 1)
            here = segment.seqs[at] == seqs
            present |= here if part.alive is None else here & part.alive[segment.order[at]]
        return present

    def memtable_owners(self) -> set[Owner]:
        """Whose the items of the memtable are."""
        return {owner_of(item.subject, name) for name, item in self.memtable.items()}

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
        masks = [self._mask(part, conditions, after, like) for part in self.all_parts]
        parts_to_search = [
            (part, mask)
            for part, mask in zip(self.all_parts, masks, strict=True)
            if mask is None or mask.any()
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
        mask = choose(segment.columns, len(segment), conditions)
        if segment.seqs[0] <= after:
            young = np.zeros(len(segment), dtype=np.bool_)
            young[segment.order[np.searchsorted(segment.seqs, after, side="right") :]] = True
            mask = young if mask is None else mask & young
        alike = None if like is None else like(segment)
        if alike is not None:
            mask = alike if mask is None else mask & alike
        if part.alive is None:
            return mask
        return part.alive if mask is None else mask & part.alive


def _best_subjects(best: Search, query: Matrix, k: int, n: int) -> list[ItemHit]:
    # The best item of every subject that is among the best items is the subject's best: ask for more items until
    # k subjects are among them, or there are no more.
    n_wanted = min(4 * k, n)
    while True:
        items = best(query, n_wanted)[0]
        best_of: dict[Owner, ItemHit] = {}
        for hit in items:
            best_of.setdefault(owner_of(hit.subject, hit.id), hit)
        hits = list(best_of.values())
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
    n_candidates = scores_candidates(estimator)
    n = sum(len(segment) if mask is None else int(np.count_nonzero(mask)) for segment, mask in segments)
    if n_candidates and n > estimator.max_scored:
        hits = []
        for at in range(len(queries)):
            query = queries[at : at + 1]
            candidate_segments = candidates_of(estimator, query, max(n_candidates, k), segments)
            hits += _best_of_rows(estimator, query, k, candidate_segments, above, deadline)
        return hits
    return _best_of_rows(estimator, queries, k, segments, above, deadline)


def scores_candidates(estimator: Any) -> int:
    """How many rows of a large gallery a search scores; 0: all of them."""
    return getattr(estimator, "n_candidates", None) or 0


def candidates_of(
    estimator: Any, query: Matrix, n: int, segments: MaskedSegments
) -> list[tuple[Segment, Bool | None]]:
    """The segments that hold candidates for one record, each with a mask of them: the ``n`` that share most with it,
    ties by id."""
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
            ItemHit(segments[at][0].ids[row], segments[at][0].subject(row), score)
            for at, row, score in zip(parts, rows, scores, strict=True)
            if at >= 0
        ]
        for parts, rows, scores in zip(
            merged.part.tolist(), merged.row.tolist(), merged.score.tolist(), strict=True
        )
    ]


MAX_ITEMS = 4_000_000
"""Items that are held in memory by subject."""
TOUCHED = 2_048
"""So many subjects may differ from the base before it is made anew (or an eighth of all)."""


@dataclass(frozen=True, slots=True)
class SubjectHit:
    """A subject that a search found; an item without a subject is found by its id."""

    subject: str | None
    id: str | None
    items: int
    score: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SubjectTemplates:
    """Subjects in ascending order of their names, prepared for one model's searches."""

    estimator: Any = field(repr=False)
    keys: list[Owner] = field(repr=False)
    counts: NDArray[np.int64] = field(repr=False)
    index: SubjectIndex | None = field(repr=False)

    def best(
        self, queries: SampleSets, k: int, above: np.float32 | None, left_out: Iterable[Owner] = ()
    ) -> list[list[SubjectHit]]:
        if self.index is None:
            return [[] for _ in range(len(queries))]
        allowed = None
        places = {key: at for at, key in enumerate(self.keys)} if left_out else {}
        excluded = [places[key] for key in left_out if key in places]
        if excluded:
            allowed = np.ones(len(self.keys), dtype=np.bool_)
            allowed[excluded] = False
        limits = SearchLimits(min(k, len(self.keys)), allowed, above)
        rows, scores = self.estimator._top_k_subjects(queries, self.index, limits)
        check_finite(np.where(rows < 0, 0, scores), noun="query", what="score", field="queries")
        return [
            [self._hit(row, score) for row, score in zip(query_rows, values, strict=True) if row >= 0]
            for query_rows, values in zip(rows.tolist(), scores.tolist(), strict=True)
        ]

    def _hit(self, row: int, score: float) -> SubjectHit:
        kind, name = self.keys[row]
        n = int(self.counts[row])
        return SubjectHit(name, None, n, score) if kind == "subject" else SubjectHit(None, name, n, score)


def templates_of(
    estimator: Any, aggregation: str, parts: Iterable[Part], n: int, owners: set[Owner] | None = None
) -> SubjectTemplates:
    """Subjects of some segments' live rows; of some ``owners`` only."""
    if n > MAX_ITEMS:
        raise TooLarge(
            f"the gallery has {n} items; subjects of at most {MAX_ITEMS} are searched as wholes",
            limit=MAX_ITEMS,
        )
    keys: dict[Owner, int] = {}
    codes, vectors = [], []
    for part in parts:
        segment = part.segment
        if not len(segment):
            continue
        rows = np.arange(len(segment)) if part.alive is None else np.flatnonzero(part.alive)
        of_names = [("subject", segment.names[at]) for at in range(len(segment.names))]
        if owners is not None:
            is_wanted = np.array([key in owners for key in of_names] + [True], dtype=np.bool_)
            # The last place is that of code -1: items that stand for themselves are looked up one by one.
            rows = rows[is_wanted[segment.subjects[rows]]]
            rows = np.array([row for row in rows.tolist() if _key(segment, row) in owners], dtype=np.intp)
        own = np.asarray(segment.subjects)[rows]
        code = np.empty(rows.size, dtype=np.int64)
        place = np.array([keys.setdefault(key, len(keys)) for key in of_names], dtype=np.int64)
        code[own >= 0] = place[own[own >= 0]]
        for at in np.flatnonzero(own < 0).tolist():
            code[at] = keys.setdefault(("item", segment.ids[int(rows[at])]), len(keys))
        codes.append(code)
        vectors.append(np.asarray(segment.index.vectors[rows], dtype=np.float32))
    code = np.concatenate(codes) if codes else np.empty(0, dtype=np.int64)
    if not code.size:
        return SubjectTemplates(estimator=estimator, keys=[], counts=np.empty(0, dtype=np.int64), index=None)
    # Subjects in order of their names: ties of scores are then ties by name.
    names = list(keys)
    order = sorted(range(len(names)), key=lambda at: (names[at][1], names[at][0]))
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    code = rank[code]
    counts = np.bincount(code, minlength=len(names))
    occurring = np.flatnonzero(counts)
    sets = SampleSets(
        rows=np.concatenate(vectors),
        index=np.argsort(code, kind="stable").astype(np.int64),
        counts=counts[occurring].astype(np.int64),
    )
    return SubjectTemplates(
        estimator=estimator,
        keys=[names[order[at]] for at in occurring.tolist()],
        counts=sets.counts,
        index=estimator._indexed_subjects(sets, aggregation),
    )


def _key(segment: Segment, row: int) -> Owner:
    return owner_of(segment.subject(row), segment.ids[row])


@dataclass(frozen=True, kw_only=True, eq=False)
class SubjectView:
    """Subjects of one view: a base, those that differ from it now, and these as they are now."""

    base: SubjectTemplates
    touched: frozenset[Owner]
    fresh: SubjectTemplates

    def search(self, queries: Float32, k: int, above: np.float32 | None = None) -> list[list[SubjectHit]]:
        """The k best subjects of each query, of one sample: best first, ties by name."""
        sets = SampleSets.of_rows(queries)
        base_hits = self.base.best(sets, k, above, self.touched)
        if not self.touched:
            return base_hits
        fresh = self.fresh.best(sets, k, above)
        return [
            sorted([*a, *b], key=lambda hit: (-hit.score, hit.subject or hit.id or ""))[:k]
            for a, b in zip(base_hits, fresh, strict=True)
        ]


class SubjectViews:
    """The subjects of one gallery with one version, by aggregation; made when they are asked for first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bases: dict[str, tuple[tuple[Part, ...], SubjectTemplates]] = {}
        self._views: dict[str, tuple[GalleryView, SubjectView]] = {}

    def at(self, view: GalleryView, aggregation: str) -> SubjectView:
        with self._lock:
            cached = self._views.get(aggregation)
            if cached is not None and cached[0] is view:
                return cached[1]
            parts, base = self._bases.get(aggregation, ((), None))
            touched = None if base is None else _touched(parts, len(base.keys), view)
            if base is None or touched is None:
                base = templates_of(view.estimator, aggregation, view.parts, view.n_items)
                self._bases[aggregation] = (view.parts, base)
                # Of segments as they are; what waits in the memtable is touched, however much that is.
                touched = view.memtable_owners()
            fresh = templates_of(
                view.estimator, aggregation, view.all_parts if touched else (), view.n_items, touched
            )
            subject_view = SubjectView(base=base, touched=frozenset(touched), fresh=fresh)
            self._views[aggregation] = (view, subject_view)
            return subject_view


def _touched(parts: tuple[Part, ...], n_subjects: int, view: GalleryView) -> set[Owner] | None:
    """Subjects that differ from a base made of these parts; None: of too many, or of other segments."""
    if len(parts) != len(view.parts):
        return None
    touched = view.memtable_owners()
    limit = max(TOUCHED, n_subjects // 8)
    for old, new in zip(parts, view.parts, strict=True):
        if old.segment is not new.segment:
            return None
        if old.alive is not new.alive and new.alive is not None:
            before = np.ones(len(old.segment), dtype=np.bool_) if old.alive is None else old.alive
            removed_rows = np.flatnonzero(before & ~new.alive)
            if removed_rows.size > limit:
                return None
            touched.update(_key(new.segment, row) for row in removed_rows.tolist())
    return touched if len(touched) <= limit or not n_subjects else None
