"""Candidates for one record among many: the rows that share most with it, by an inverted index of keys.

Keys are tokens of texts, their trigrams, and whole cells of other columns. A key is worth ``log2(n / rows that have
it)``, trigrams a share of that. A search adds up the worth of shared keys, the rarest keys first, until a budget of
postings is spent; the rows with the largest sums are the candidates, which comparators then score. So the work of a
search is bounded, whatever the gallery holds, and what that costs is measured as recall.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64, NDArray
from pairmark.models.records.comparators import Comparators, Prepared
from pairmark.models.records.kernels import neighbors as kernels
from pairmark.models.records.kernels.tokens import Cells

MAX_SCORED = 2_000
"""Rows up to which all of them are scored."""
N_CANDIDATES = 128
"""Rows that are scored of more."""
MAX_POSTINGS, _ALL_POSTINGS = 300_000, 3_000_000_000
"""Postings that a query reads, over all parts of a gallery; and all queries of a table's pairs, at least 3,000 each."""
N_NEAREST = 10
"""Records that a candidate pair may join each record of a table to, at most."""
_MAX_GRAM_CHARS = 48
_GRAM_SHARE = 0.25
_UNIT = 256.0
"""Worth is counted in whole numbers, so that sums do not depend on their order."""


class Postings(NamedTuple):
    """Rows by key: ``keys`` (g,) int64 ascending, each one's ``rows`` (p,) int32 from ``starts`` (g + 1,) int64."""

    keys: Int64
    starts: Int64
    rows: NDArray[np.int32]

    @classmethod
    def of(cls, keys: Int64, rows: NDArray[np.int32]) -> "Postings":
        """Each row once a key, from (k,) keys and the row that has each."""
        distinct, numbers = np.unique(keys, return_inverse=True)
        n = int(rows.max(initial=-1)) + 1
        codes = distinct_codes(numbers * n + rows)
        starts = np.searchsorted(codes, np.arange(distinct.size + 1) * n)
        return cls(distinct, starts, np.asarray(codes % max(n, 1), dtype=np.int32))


def keys_of(comparators: Comparators, records: Prepared) -> tuple[Int64, NDArray[np.int32]]:
    """Keys of prepared records, row by row, and the row that has each."""
    return cell_keys(records.cells, records.n, comparators.is_text, _MAX_GRAM_CHARS)


def cell_keys(cells: Cells, n: int, is_text: Bool, gram_chars: int) -> tuple[Int64, NDArray[np.int32]]:
    """The same of the cells of ``n`` rows, with trigrams of texts of at most ``gram_chars`` characters."""
    # Each character begins at most one trigram and one token; a whole cell is one key.
    room = 2 * cells.chars.size + cells.starts.size
    keys, rows = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int32)
    tokens = cells.chars, cells.starts, cells.hashes, cells.row_tokens
    size = kernels.neighbor_keys(*tokens, n, is_text, gram_chars, keys, rows)
    return keys[:size], rows[:size]


def nominate(
    keys: Int64,
    parts: Sequence[Postings],
    masks: Sequence[Bool | None],
    sizes: Sequence[int],
    n_candidates: int = N_CANDIDATES,
    max_postings: int = MAX_POSTINGS,
) -> list[tuple[NDArray[np.intp], NDArray[np.int64]]]:
    """Of each part of a gallery the rows that share most with a query, and what they share; best first, ties by row.

    Parameters
    ----------
    keys : of the query, ascending.
    masks : (n,) which rows of each part count; None: all. sizes : rows of each part.
    n_candidates : rows of a part, at most; the gallery's best are among those of its parts.
    """
    places, counts = [], np.zeros(keys.size, dtype=np.int64)
    for part in parts:
        # A key that is not there has no rows: it starts and stops at one place.
        stops = part.starts[np.searchsorted(part.keys, keys, side="right")]
        starts = part.starts[np.searchsorted(part.keys, keys)]
        places.append((starts, stops))
        counts += stops - starts
    order = np.lexsort((keys, counts))
    order = order[counts[order] > 0]
    # The rarest keys first, as many as the budget has postings for.
    order = order[: np.searchsorted(np.cumsum(counts[order]), max_postings, side="right")]
    worth = np.log2((1 + sum(sizes)) / counts[order]) * np.where(keys[order] & 1, _GRAM_SHARE, 1.0)
    weights = np.maximum(np.round(_UNIT * worth), 1).astype(np.uint32)
    nobody, candidates = np.empty(0, dtype=np.bool_), []
    for part, (starts, stops), mask, size in zip(parts, places, masks, sizes, strict=True):
        totals, touched = np.zeros(size, dtype=np.uint32), np.empty(size, dtype=np.int32)
        n = kernels.add_postings(
            part.rows, starts[order], stops[order], weights, nobody if mask is None else mask, totals, touched
        )
        candidates.append(_best(touched[:n], totals, n_candidates))
    return candidates


class RankedKeys(NamedTuple):
    """Keys of rows, by number, those that fewest rows have first: row r has ``ranks[starts[r]:starts[r + 1]]``,
    each once. ``keys`` and ``counts`` are those of the numbers."""

    starts: Int64
    ranks: NDArray[np.int32]
    keys: Int64
    counts: Int64

    @classmethod
    def of(cls, keys: Int64, rows: NDArray[np.int32], n: int) -> "RankedKeys":
        """From (k,) keys and the one of ``n`` rows that has each."""
        distinct, numbers = np.unique(keys, return_inverse=True)
        order = np.argsort(np.bincount(numbers, minlength=distinct.size), kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        codes = distinct_codes(rows.astype(np.int64) * distinct.size + rank[numbers])
        starts = np.searchsorted(codes, np.arange(n + 1) * distinct.size)
        ranks = np.asarray(codes % max(distinct.size, 1), dtype=np.int32)
        return cls(starts, ranks, distinct[order], np.bincount(ranks, minlength=distinct.size))

    @property
    def is_gram(self) -> Bool:
        """Of each key, whether it is a trigram."""
        return (self.keys & 1) > 0

    def nearest(
        self,
        rows: Int64,
        tables: Int64,
        is_alone: Bool,
        n_nearest: int,
        max_postings: int,
        common: float = 1.0,
    ) -> Int64:
        """The rows that share most with each of ``rows``, best first, (r, n_nearest); -1 where there are no more.

        Parameters
        ----------
        tables : (n,) of each row. is_alone : of each table, whether none of its rows is told for another of it.
        max_postings : rows that are looked at for each. common : keys of a larger share of rows say nothing.
        """
        best, n = np.full((rows.size, n_nearest), -1), tables.size
        worth = np.log2((1 + n) / np.maximum(self.counts, 1)) * np.where(self.is_gram, _GRAM_SHARE, 1.0)
        worth = np.maximum(np.round(_UNIT * worth), 1) * (self.counts <= max(common * n, 2))
        by_key = np.repeat(np.arange(n), np.diff(self.starts))[np.argsort(self.ranks, kind="stable")]
        offsets = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)
        queries = rows, max_postings, best, np.zeros_like(best)
        listed = offsets, by_key.astype(np.int32), worth.astype(np.int64)
        kernels.nominate_each(self.starts, self.ranks, *listed, tables, is_alone, *queries)
        return best

    def pairs(
        self, tables: Int64, is_alone: Bool, max_postings: int, common: float = 1.0
    ) -> tuple[Int64, Int64]:
        """Pairs of each row with its `N_NEAREST`, the lower row first, ascending, each once; see `nearest`."""
        n = tables.size
        rows = np.arange(n)
        near = self.nearest(rows, tables, is_alone, N_NEAREST, max_postings, common).ravel()
        rows = np.repeat(rows, N_NEAREST)
        return np.divmod(distinct_codes((np.minimum(near, rows) * n + np.maximum(near, rows))[near >= 0]), n)


def candidate_pairs(
    comparators: Comparators, records: Prepared, n_left: int | None = None
) -> tuple[Int64, Int64]:
    """Pairs of each record with those that share most with it: rows of either side, ascending, each pair once.

    Parameters
    ----------
    n_left : rows of the left table, which come first; None: there is one table, and the lower row is left.
    """
    n = records.n
    keys = RankedKeys.of(*keys_of(comparators, records), n)
    tables = (np.arange(n) >= (n if n_left is None else n_left)).astype(np.int64)
    max_postings = int(np.clip(_ALL_POSTINGS // max(n, 1), 3_000, MAX_POSTINGS))
    return keys.pairs(tables, np.array([n_left is not None] * 2), max_postings)


def distinct_codes(codes: Int64) -> Int64:
    """Codes from 0, ascending and each once: `numpy.unique` hashes them, which takes many times as long."""
    codes = np.sort(codes)
    return codes[np.diff(codes, prepend=-1) > 0]


def _best(touched: Any, totals: Any, n: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    # One number a row, ordered by its sum and then against its place, so that ties are cut the same way every time.
    ranks = (totals[touched].astype(np.int64) << 32) - touched
    if ranks.size > n:
        ranks = np.partition(ranks, ranks.size - n)[ranks.size - n :]
    ranks = -np.sort(-ranks)
    # A rank is the sum times 2^32 less the row, which is below 2^32: rounded up, the sum is back.
    shared = (ranks + ((1 << 32) - 1)) >> 32
    return ((shared << 32) - ranks).astype(np.intp), shared


CONTEXT = ("rivals above", "margin to the best rival", "best rival", "margin to the second rival")
N_CONTEXT = 2 * len(CONTEXT)
_LEAST_CHANCE = 1e-4


def find_rivals(comparators: Comparators, records: Prepared, n_left: int | None) -> tuple[Int64, Int64]:
    """The rows of the pairs of each record with those that share most with it, of one table in both directions.

    Parameters
    ----------
    n_left : rows of the left table, which come first; None: there is one table.
    """
    left, right = candidate_pairs(comparators, records, n_left)
    if n_left is not None:
        return left, right
    return np.concatenate([left, right]), np.concatenate([right, left])


class RivalIndex:
    """Pairs of rows, rivals, with their scores, which are `logits`, by row of ``n``, on the left and on the right:
    ``starts`` (n + 1,), ``others`` and ``scores`` (c,) of each."""

    def __init__(self, rivals: tuple[Int64, Int64], scores: Float64, n: int) -> None:
        self._sides = []
        for own, other in (rivals, rivals[::-1]):
            order = np.argsort(own, kind="stable")
            starts = np.searchsorted(own[order], np.arange(n + 1)).astype(np.int64)
            self._sides.append((starts, other[order], scores[order]))

    def context(self, left: Int64, right: Int64, scores: Float64) -> Float32:
        """Features of pairs among their rivals, (n_pairs, `N_CONTEXT`); their own scores are `logits` too."""
        sides = []
        for side, own, other in zip(self._sides, (left, right), (right, left), strict=True):
            compared = np.empty((left.size, 3))
            kernels.compare_with_rivals(*side, own, other, scores, compared)
            above, best, second = compared.T
            sides.append(np.stack([above, scores - best, best, scores - second], axis=1))
        both = np.stack([np.fmin(*sides), np.fmax(*sides)], axis=2)
        return both.reshape(left.size, N_CONTEXT).astype(np.float32)


def logits(chances: Float32) -> Float64:
    within = np.clip(chances.astype(np.float64), _LEAST_CHANCE, 1 - _LEAST_CHANCE)
    return np.asarray(np.log(within / (1 - within)))
