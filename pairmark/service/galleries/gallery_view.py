"""A gallery at one moment, and exact search in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.search.index import merge_top_k
from pairmark.service.errors import SearchTooLong
from pairmark.service.galleries.blocks import IndexBlock, Mask, make_block
from pairmark.service.galleries.metadata import Filter, choose
from pairmark.service.galleries.rows import StoredRows
from pairmark.service.runtime.vectors import check_finite

Float32 = NDArray[np.float32]

Key = tuple[str, str]
"""(``subject``, its name), or (``item``, its id) for an item without a subject, which stands for itself."""

QUERIES_AT_A_TIME = 32


def whose(subject: str | None, id: str) -> Key:
    """What an item is part of."""
    return ("item", id) if subject is None else ("subject", subject)


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """A block and which of its rows are still so (None: all), as of ``seen``."""

    block: IndexBlock
    seen: int
    alive: Mask | None = None

    @property
    def n_alive(self) -> int:
        """Rows that are still so."""
        return len(self.block) if self.alive is None else int(np.count_nonzero(self.alive))

    def without(self, rows: NDArray[np.int64]) -> Part:
        """The part without these rows."""
        alive = np.ones(len(self.block), dtype=np.bool_) if self.alive is None else self.alive.copy()
        alive[rows] = False
        return Part(self.block, self.seen, alive)


@dataclass(frozen=True, slots=True)
class TailItem:
    """An item too young for a block."""

    seq: int
    subject: str | None
    vector: Float32
    metadata: str | None


@dataclass(frozen=True, slots=True)
class ItemHit:
    """One item that a search found."""

    id: str
    subject: str | None
    score: float


MaskedParts = Sequence[tuple[Part, Mask | None]]
Search = Callable[[Float32, int], list[list[ItemHit]]]
OtherSearch = Callable[
    [MaskedParts, Float32, int, np.float32 | None, float | None], tuple[list[list[ItemHit]], MaskedParts]
]
"""Blocks with masks, queries, k, the score to beat and a deadline -> the best of those that it searched (nothing, where
it searched none), and the blocks that are left."""


class GalleryView:
    """Blocks and a small tail: everything that was written up to ``seq``. Never changes."""

    def __init__(
        self, estimator: Any, seq: int, parts: tuple[Part, ...], tail: dict[str, TailItem], n_features: int
    ) -> None:
        self.estimator = estimator
        self.seq = seq
        self.parts = parts
        self._tail = tail
        self._n_features = n_features

    @cached_property
    def all_parts(self) -> tuple[Part, ...]:
        """The blocks, and the tail as one."""
        if not self._tail:
            return self.parts
        rows = StoredRows(
            seqs=np.array([item.seq for item in self._tail.values()], dtype=np.int64),
            ids=list(self._tail),
            subjects=[item.subject for item in self._tail.values()],
            vectors=np.stack([item.vector for item in self._tail.values()]),
            metadata=[item.metadata for item in self._tail.values()],
        )
        block = make_block(self.estimator, [rows], self._n_features, low=-1, high=-1, as_of=self.seq)
        return (*self.parts, Part(block, self.seq))

    @cached_property
    def n_items(self) -> int:
        """Items that can be found."""
        return sum(part.n_alive for part in self.parts) + len(self._tail)

    def holds(self, seqs: NDArray[np.int64]) -> Mask:
        """Which of the rows that were written under these numbers can still be found."""
        found = np.zeros(seqs.shape, dtype=np.bool_)
        for part in self.all_parts:
            block = part.block
            if not len(block):
                continue
            at = np.minimum(np.searchsorted(block.seqs, seqs), len(block) - 1)
            here = block.seqs[at] == seqs
            found |= here if part.alive is None else here & part.alive[block.order[at]]
        return found

    def tail_keys(self) -> set[Key]:
        """Whose the items of the tail are."""
        return {whose(item.subject, name) for name, item in self._tail.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of the indexes, mapped or in memory."""
        return sum(int(part.block.index.nbytes) for part in self.all_parts if part.block.index is not None)

    def search(
        self,
        queries: Float32,
        k: int,
        *,
        wanted: Filter = (),
        above: np.float32 | None = None,
        by_subject: bool = False,
        deadline: float | None = None,
        elsewhere: OtherSearch | None = None,
        after: int = 0,
    ) -> list[list[ItemHit]]:
        """The k best items (or subjects, each by its best item) of every query: best first, ties by id.

        Parameters
        ----------
        queries : (q, d) finite float32.
        above : only scores strictly above it.
        by_subject : one item a subject; items without one stand for themselves.
        deadline : monotonic time after which it is given up.
        elsewhere : who searches some of the blocks instead; it must be None with ``after``.
        after : only items that were written under a greater sequence number.
        """
        masks = [self._mask(part, wanted, after) for part in self.all_parts]
        chosen = [
            (part, mask)
            for part, mask in zip(self.all_parts, masks, strict=True)
            if mask is None or mask.any()
        ]
        n = sum(len(part.block) if mask is None else int(np.count_nonzero(mask)) for part, mask in chosen)
        if not n:
            return [[] for _ in queries]

        def best(some: Float32, k: int) -> list[list[ItemHit]]:
            found, left = ([], chosen) if elsewhere is None else elsewhere(chosen, some, k, above, deadline)
            blocks = [(part.block, mask) for part, mask in left]
            here = best_of_blocks(self.estimator, some, k, blocks, above, deadline)
            if not found:
                return here
            both = zip(found, here, strict=True)
            return [sorted([*a, *b], key=lambda hit: (-hit.score, hit.id))[:k] for a, b in both]

        found: list[list[ItemHit]] = []
        for start in range(0, len(queries), QUERIES_AT_A_TIME):
            some = queries[start : start + QUERIES_AT_A_TIME]
            if by_subject:
                found += [_subjects(best, some[at : at + 1], k, n) for at in range(len(some))]
            else:
                found += best(some, min(k, n))
        return found

    def _mask(self, part: Part, wanted: Filter, after: int) -> Mask | None:
        """Which rows may be found; None: all."""
        block = part.block
        if not len(block) or block.seqs[-1] <= after:
            return np.zeros(len(block), dtype=np.bool_)
        mask = choose(block.columns, len(block), wanted)
        if block.seqs[0] <= after:
            young = np.zeros(len(block), dtype=np.bool_)
            young[block.order[np.searchsorted(block.seqs, after, side="right") :]] = True
            mask = young if mask is None else mask & young
        if part.alive is None:
            return mask
        return part.alive if mask is None else mask & part.alive


def _subjects(best: Search, query: Float32, k: int, n: int) -> list[ItemHit]:
    # The best item of every subject that is among the best items is the subject's best: ask for more items until
    # k subjects are among them, or there are no more.
    asked = min(4 * k, n)
    while True:
        items = best(query, asked)[0]
        of: dict[Key, ItemHit] = {}
        for hit in items:
            of.setdefault(whose(hit.subject, hit.id), hit)
        hits = list(of.values())
        if len(hits) >= k or len(items) < asked or asked >= n:
            return hits[:k]
        asked = min(4 * asked, n)


def best_of_blocks(
    estimator: Any,
    queries: Float32,
    k: int,
    blocks: Sequence[tuple[IndexBlock, Mask | None]],
    above: np.float32 | None,
    deadline: float | None,
) -> list[list[ItemHit]]:
    """The k best rows of some blocks together, of each query: best first, ties by id. Masks say which rows may be
    found; None: all."""
    if not blocks:
        return [[] for _ in queries]
    results = []
    best = np.empty((len(queries), 0), dtype=np.float32)
    for block, mask in blocks:
        if deadline is not None and time.monotonic() > deadline:
            raise SearchTooLong("the search took longer than a request may; send fewer queries at a time")
        floor = above
        if best.shape[1] >= k:
            # What is below every query's k-th best so far cannot be among the best; what equals it may, by its id.
            least = np.nextafter(best[:, :k].min(), np.float32(-np.inf), dtype=np.float32)
            floor = least if floor is None else max(floor, least)
        rows, scores = estimator.top_k(queries, block.index, k, allowed=mask, above=floor)
        check_finite(np.where(rows < 0, 0, scores), "score of query", "queries")
        results.append((rows, scores))
        best = -np.sort(-np.concatenate([best, scores], axis=1), axis=1)[:, :k]
    merged = merge_top_k(results, k, [block.ids for block, _ in blocks])
    found = []
    for parts, rows, scores in zip(
        merged.part.tolist(), merged.row.tolist(), merged.score.tolist(), strict=True
    ):
        found.append(
            [
                ItemHit(blocks[at][0].ids[row], blocks[at][0].subject(row), score)
                for at, row, score in zip(parts, rows, scores, strict=True)
                if at >= 0
            ]
        )
    return found
