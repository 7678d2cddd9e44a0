"""Candidates for a record: rows that share a key with it which few rows have.

BlockingKeys are whole cells, tokens of texts and names, and conjunctions of two whole cells. A key that more rows have
than a cap
names nobody in particular and is passed over; so the number of candidates is bounded, and what that costs is
measured as
recall: the share of true pairs that are candidates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pairmark.models.core.arrays import Int64
from pairmark.models.records.comparators import Comparators, Prepared
from pairmark.models.records.kernels import blocking as kernels

MAX_FREQUENCY = 50
"""Rows that may have a key."""
_MOST_CONJOINED = 12
_SALT = 0x9E3779B97F4A7C15


class BlockingKeys(NamedTuple):
    """BlockingKeys of rows: ``rows`` (k,) and ``keys`` (k,) int64, by row."""

    rows: Int64
    keys: Int64


class KeyIndex(NamedTuple):
    """Rows by key: ``keys`` (g,) ascending, the rows of each in ``rows`` from ``starts`` (g + 1,)."""

    keys: Int64
    starts: Int64
    rows: Int64


def keys_of(comparators: Comparators, records: Prepared) -> BlockingKeys:
    whole, tokens = comparators.key_fields
    n, cells = records.n, records.cells
    rows: list[Int64] = []
    keys: list[Int64] = []
    everyone = np.arange(n, dtype=np.int64)
    codes = np.empty((len(whole), n), dtype=np.int64)
    has_cell = np.empty((len(whole), n), dtype=np.bool_)
    for place, field in enumerate(whole):
        starts = cells.starts[field * n : (field + 1) * n + 1]
        kernels.hash_cells(cells.chars, starts, field + 1, codes[place])
        has_cell[place] = np.diff(starts) > 0
        rows.append(everyone[has_cell[place]])
        keys.append(codes[place][has_cell[place]])
    for first in range(min(len(whole), _MOST_CONJOINED)):
        for second in range(first + 1, min(len(whole), _MOST_CONJOINED)):
            in_both = has_cell[first] & has_cell[second]
            mixed = codes[first].view(np.uint64) * np.uint64(_SALT) ^ codes[second].view(np.uint64)
            rows.append(everyone[in_both])
            keys.append(mixed.view(np.int64)[in_both])
    for field in tokens:
        own = cells.row_tokens[field * n : (field + 1) * n + 1]
        rows.append(np.repeat(everyone, np.diff(own)))
        salted = cells.hashes[own[0] : own[-1]].view(np.uint64) ^ np.uint64(_SALT * (field + 1) % 2**64)
        keys.append(salted.view(np.int64))
    if not rows:
        return BlockingKeys(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    return BlockingKeys(np.concatenate(rows), np.concatenate(keys))


def index_keys(keys: BlockingKeys, max_frequency: int = MAX_FREQUENCY) -> KeyIndex:
    """Rows by key, without keys that more than ``max_frequency`` rows have."""
    order = np.lexsort((keys.rows, keys.keys))
    by_key, rows = keys.keys[order], keys.rows[order]
    fresh = np.ones(by_key.size, dtype=np.bool_)
    fresh[1:] = (by_key[1:] != by_key[:-1]) | (rows[1:] != rows[:-1])
    by_key, rows = by_key[fresh], rows[fresh]
    distinct, counts = np.unique(by_key, return_counts=True)
    rare = counts <= max_frequency
    return KeyIndex(
        distinct[rare],
        np.concatenate([[0], np.cumsum(counts[rare])]).astype(np.int64),
        rows[np.repeat(rare, counts)],
    )


def candidates(index: KeyIndex, queries: BlockingKeys) -> tuple[Int64, Int64]:
    """Pairs (query row, indexed row) that share a key: two (c,) arrays, ascending, each pair once."""
    at = np.searchsorted(index.keys, queries.keys)
    at[at == index.keys.size] = 0
    hits = np.flatnonzero(index.keys[at] == queries.keys) if index.keys.size else np.empty(0, dtype=np.int64)
    starts, stops = index.starts[at[hits]], index.starts[at[hits] + 1]
    sizes = stops - starts
    left = np.repeat(queries.rows[hits], sizes)
    first = np.repeat(starts - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes) if sizes.size else sizes
    right = index.rows[first + np.arange(left.size)]
    width = int(index.rows.max(initial=0)) + 1
    codes = np.unique(left * width + right)
    return codes // width, codes % width


def candidate_pairs(
    comparators: Comparators, records: Prepared, max_frequency: int = MAX_FREQUENCY
) -> tuple[Int64, Int64]:
    """Pairs of rows of one table that share a key, the lower row first."""
    keys = keys_of(comparators, records)
    left, right = candidates(index_keys(keys, max_frequency), keys)
    ordered = left < right
    return left[ordered], right[ordered]


def recall(candidates_: tuple[Int64, Int64], true: tuple[Int64, Int64]) -> float:
    """Share of true pairs that are among the candidates; 1 where there are none."""
    if not true[0].size:
        return 1.0
    width = int(max(side.max(initial=0) for side in (*candidates_, *true))) + 1
    codes = [np.minimum(a, b) * width + np.maximum(a, b) for a, b in (candidates_, true)]
    return float(np.isin(codes[1], codes[0]).mean())
