"""Candidates for one record among many: the rows that share most with it, by an inverted index of keys.

Keys are tokens of texts, their trigrams, and whole cells of other columns. A key is worth ``log2(n / rows that have
it)``, trigrams a share of that. A search adds up the worth of shared keys, the rarest keys first, until a budget of
postings is spent; the rows with the largest sums are the candidates, which comparators then score. So the work of a
search is bounded, whatever the gallery holds, and what that costs is measured as recall.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool, Int64
from pairmark.models.records.blocking import Postings, RowKeys
from pairmark.models.records.comparators import Comparators, Prepared
from pairmark.models.records.kernels import blocking as kernels

MAX_SCORED = 2_000
"""Rows up to which all of them are scored."""
N_CANDIDATES = 128
"""Rows that are scored of more."""
MAX_POSTINGS = 300_000
"""Postings that a query reads, over all parts of a gallery."""
_MAX_GRAM_CHARS = 48
_GRAM_SHARE = 0.25
_UNIT = 256.0
"""Worth is counted in whole numbers, so that sums do not depend on their order."""


def _keys_of(comparators: Comparators, records: Prepared) -> RowKeys:
    """Keys of prepared records, row by row."""
    whole, texts = comparators.key_fields
    is_text = np.zeros(len(whole), dtype=np.bool_)
    is_text[texts] = True
    cells, n = records.cells, records.n
    # Each character begins at most one trigram and one token; a whole cell is one key.
    n_chars = int(cells.starts[len(whole) * n]) if whole else 0
    room = 2 * n_chars + len(whole) * n
    keys, rows = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int32)
    size = kernels.neighbour_keys(
        cells.chars, cells.starts, cells.hashes, cells.row_tokens, n, is_text, _MAX_GRAM_CHARS, keys, rows
    )
    return RowKeys(keys[:size], rows[:size])


def index_neighbours(comparators: Comparators, records: Prepared) -> Postings:
    return Postings.of(_keys_of(comparators, records))


def query_keys(comparators: Comparators, record: Prepared) -> Int64:
    """Different keys of one prepared record, ascending."""
    return np.unique(_keys_of(comparators, record).keys)


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
    order = order[: np.searchsorted(np.cumsum(counts[order]), max_postings, side="right")]
    worth = np.log2((1 + sum(sizes)) / counts[order]) * np.where(keys[order] & 1, _GRAM_SHARE, 1.0)
    weights = np.maximum(np.round(_UNIT * worth), 1).astype(np.uint32)
    nobody = np.empty(0, dtype=np.bool_)
    candidates = []
    for part, (starts, stops), mask, size in zip(parts, places, masks, sizes, strict=True):
        totals, touched = np.zeros(size, dtype=np.uint32), np.empty(size, dtype=np.int32)
        n = kernels.add_postings(
            part.rows, starts[order], stops[order], weights, nobody if mask is None else mask, totals, touched
        )
        candidates.append(_best(touched[:n], totals, n_candidates))
    return candidates


def nominate_each(
    comparators: Comparators, records: Prepared, queries: slice, rows: slice, n_candidates: int
) -> tuple[Int64, Int64]:
    """For each of some records the others that share most with it: (c,) rows of either, by query.

    Parameters
    ----------
    queries, rows : parts of the records, without steps.
    """
    keys, owners = _keys_of(comparators, records)
    of_rows = (owners >= rows.start) & (owners < rows.stop)
    postings = Postings.of(RowKeys(keys[of_rows], owners[of_rows] - np.int32(rows.start)))
    starts = np.searchsorted(owners, np.arange(records.n + 1))
    nominations = []
    for query in range(queries.start, queries.stop):
        own = np.unique(keys[starts[query] : starts[query + 1]])
        [(nominated, _)] = nominate(own, [postings], [None], [rows.stop - rows.start], n_candidates)
        nominations.append(nominated)
    sizes = [nominated.size for nominated in nominations]
    owner = np.repeat(np.arange(queries.start, queries.stop), sizes)
    neighbour = np.concatenate(nominations) if nominations else owner
    return owner.astype(np.int64), (neighbour + rows.start).astype(np.int64)


def _best(touched: Any, totals: Any, n: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    # One number a row, ordered by its sum and then against its place, so that ties are cut the same way every time.
    ranks = (totals[touched].astype(np.int64) << 32) - touched
    if ranks.size > n:
        ranks = np.partition(ranks, ranks.size - n)[ranks.size - n :]
    ranks = -np.sort(-ranks)
    shared = (ranks + ((1 << 32) - 1)) >> 32
    return ((shared << 32) - ranks).astype(np.intp), shared
