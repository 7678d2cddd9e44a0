"""Candidates for a record: rows that share a key with it which few rows have.

Keys are whole cells, tokens of texts and names, and conjunctions of two whole cells. A key that more rows have than a
cap names nobody in particular and is passed over; so the number of candidates is bounded, and what that costs is
measured as recall: the share of true pairs that are candidates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Int64
from pairmark.models.records.comparators import Comparators, Prepared
from pairmark.models.records.kernels import blocking as kernels

MAX_FREQUENCY = 50
"""Rows that may have a key."""
_MOST_CONJOINED = 12
_SALT = 0x9E3779B97F4A7C15


class RowKeys(NamedTuple):
    """Keys of rows: (k,) int64 ``keys``, and the row that has each."""

    keys: Int64
    rows: NDArray[np.int32]


class Postings(NamedTuple):
    """Rows by key: ``keys`` (g,) int64 ascending, each one's ``rows`` (p,) int32 from ``starts`` (g + 1,) int64."""

    keys: Int64
    starts: Int64
    rows: NDArray[np.int32]

    @classmethod
    def of(cls, row_keys: RowKeys, max_frequency: int | None = None) -> Postings:
        """Each row once a key; without the keys that more than ``max_frequency`` rows have."""
        order = np.lexsort((row_keys.rows, row_keys.keys))
        keys, rows = row_keys.keys[order], row_keys.rows[order]
        is_first = np.ones(keys.size, dtype=np.bool_)
        is_first[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])
        rows = rows[is_first]
        distinct, counts = np.unique(keys[is_first], return_counts=True)
        if max_frequency is not None:
            is_rare = counts <= max_frequency
            rows, distinct, counts = rows[np.repeat(is_rare, counts)], distinct[is_rare], counts[is_rare]
        return cls(distinct, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), rows)


def blocking_keys(comparators: Comparators, records: Prepared) -> RowKeys:
    """Keys of prepared records, kind of key by kind of key."""
    whole, tokens = comparators.key_fields
    n, cells = records.n, records.cells
    keys, rows = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int32)]
    everyone = np.arange(n, dtype=np.int32)
    codes = np.empty((len(whole), n), dtype=np.int64)
    has_cell = np.empty((len(whole), n), dtype=np.bool_)
    for place, field in enumerate(whole):
        starts = cells.starts[field * n : (field + 1) * n + 1]
        kernels.hash_cells(cells.chars, starts, field + 1, codes[place])
        has_cell[place] = np.diff(starts) > 0
        keys.append(codes[place][has_cell[place]])
        rows.append(everyone[has_cell[place]])
    for first in range(min(len(whole), _MOST_CONJOINED)):
        for second in range(first + 1, min(len(whole), _MOST_CONJOINED)):
            has_both = has_cell[first] & has_cell[second]
            mixed = codes[first].view(np.uint64) * np.uint64(_SALT) ^ codes[second].view(np.uint64)
            keys.append(mixed.view(np.int64)[has_both])
            rows.append(everyone[has_both])
    for field in tokens:
        own = cells.row_tokens[field * n : (field + 1) * n + 1]
        salted = cells.hashes[own[0] : own[-1]].view(np.uint64) ^ np.uint64(_SALT * (field + 1) % 2**64)
        keys.append(salted.view(np.int64))
        rows.append(np.repeat(everyone, np.diff(own)))
    return RowKeys(np.concatenate(keys), np.concatenate(rows))


def candidates(index: Postings, queries: RowKeys) -> tuple[Int64, Int64]:
    """Pairs (query row, indexed row) that share a key: two (c,) arrays, ascending, each pair once."""
    # A key that is not there has no rows: it starts and stops at one place.
    starts, stops = (
        index.starts[np.searchsorted(index.keys, queries.keys, side)] for side in ("left", "right")
    )
    sizes = stops - starts
    left = np.repeat(queries.rows.astype(np.int64), sizes)
    right = index.rows[np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(left.size)]
    width = int(index.rows.max(initial=0)) + 1
    codes = np.unique(left * width + right)
    return codes // width, codes % width


def candidate_pairs(
    comparators: Comparators, records: Prepared, max_frequency: int = MAX_FREQUENCY
) -> tuple[Int64, Int64]:
    """Pairs of rows of one table that share a key, the lower row first."""
    return pairs_within(blocking_keys(comparators, records), max_frequency)


def pairs_within(keys: RowKeys, max_frequency: int) -> tuple[Int64, Int64]:
    """The same of keys."""
    left, right = candidates(Postings.of(keys, max_frequency), keys)
    is_ordered = left < right
    return left[is_ordered], right[is_ordered]


def recall(candidates_: tuple[Int64, Int64], true: tuple[Int64, Int64]) -> float:
    """Share of true pairs that are among the candidates; 1 where there are none."""
    if not true[0].size:
        return 1.0
    width = int(max(side.max(initial=0) for side in (*candidates_, *true))) + 1
    codes = [np.minimum(a, b) * width + np.maximum(a, b) for a, b in (candidates_, true)]
    return float(np.isin(codes[1], codes[0]).mean())
