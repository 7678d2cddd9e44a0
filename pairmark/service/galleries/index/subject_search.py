"""Subjects of a gallery, each compared as a whole by all of its items, at one moment.

Of the rows in blocks a base is made once and kept; what was written or removed since touches few subjects, which are
left out of the base and made anew for every view. So a search costs one pass over the subjects, and an erased item no
longer has a part in its subject's score.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32
from pairmark.models.core.search.index import SearchLimits
from pairmark.models.core.subjects import SampleSets, SubjectIndex
from pairmark.service.errors import TooLarge
from pairmark.service.galleries.index.blocks import IndexBlock
from pairmark.service.galleries.index.gallery_view import GalleryView, Owner, Part, owner_of
from pairmark.service.runtime.vectors import check_finite

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
    """Subjects of some blocks' live rows; of some ``owners`` only."""
    if n > MAX_ITEMS:
        raise TooLarge(
            f"the gallery has {n} items; subjects of at most {MAX_ITEMS} are searched as wholes",
            limit=MAX_ITEMS,
        )
    keys: dict[Owner, int] = {}
    codes, vectors = [], []
    for part in parts:
        block = part.block
        if not len(block):
            continue
        rows = np.arange(len(block)) if part.alive is None else np.flatnonzero(part.alive)
        of_names = [("subject", block.names[at]) for at in range(len(block.names))]
        if owners is not None:
            is_wanted = np.array([key in owners for key in of_names] + [True], dtype=np.bool_)
            # The last place is that of code -1: items that stand for themselves are looked up one by one.
            rows = rows[is_wanted[block.subjects[rows]]]
            rows = np.array([row for row in rows.tolist() if _key(block, row) in owners], dtype=np.intp)
        own = np.asarray(block.subjects)[rows]
        code = np.empty(rows.size, dtype=np.int64)
        place = np.array([keys.setdefault(key, len(keys)) for key in of_names], dtype=np.int64)
        code[own >= 0] = place[own[own >= 0]]
        for at in np.flatnonzero(own < 0).tolist():
            code[at] = keys.setdefault(("item", block.ids[int(rows[at])]), len(keys))
        codes.append(code)
        vectors.append(np.asarray(block.index.vectors[rows], dtype=np.float32))
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


def _key(block: IndexBlock, row: int) -> Owner:
    return owner_of(block.subject(row), block.ids[row])


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
                # Of blocks as they are; what waits in the tail is touched, however much that is.
                touched = view.tail_keys()
            fresh = templates_of(
                view.estimator, aggregation, view.all_parts if touched else (), view.n_items, touched
            )
            subject_view = SubjectView(base=base, touched=frozenset(touched), fresh=fresh)
            self._views[aggregation] = (view, subject_view)
            return subject_view


def _touched(parts: tuple[Part, ...], n_subjects: int, view: GalleryView) -> set[Owner] | None:
    """Subjects that differ from a base made of these parts; None: of too many, or of other blocks."""
    if len(parts) != len(view.parts):
        return None
    touched = view.tail_keys()
    limit = max(TOUCHED, n_subjects // 8)
    for old, new in zip(parts, view.parts, strict=True):
        if old.block is not new.block:
            return None
        if old.alive is not new.alive and new.alive is not None:
            before = np.ones(len(old.block), dtype=np.bool_) if old.alive is None else old.alive
            removed_rows = np.flatnonzero(before & ~new.alive)
            if removed_rows.size > limit:
                return None
            touched.update(_key(new.block, row) for row in removed_rows.tolist())
    return touched if len(touched) <= limit or not n_subjects else None
