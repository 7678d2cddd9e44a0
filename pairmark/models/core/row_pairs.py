"""Pairs of rows of one matrix: rows are prepared once, however many pairs they are in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pairmark.models.core.arrays import Float32, Int64

PairsOfRows = Callable[[Int64, Int64], Float32]
"""Scores of pairs of prepared rows, by row numbers."""

_CELLS = 16 * 1024 * 1024
"""Numbers of rows that are prepared at a time."""
_PAIR_CELLS = 8 * 1024 * 1024
_MOST_PAIRS, _LEAST_PAIRS = 65_536, 256

AUC_PAIRS = 1_000_000
"""Most pairs of a kind that an AUC is worked out of."""


def scored_rows(
    prepare: Callable[[Any], PairsOfRows],
    X: Any,
    left: Int64,
    right: Int64,
    on_progress: Callable[[float], None] | None = None,
) -> Float32:
    """Scores of the pairs (X[left], X[right]), some rows and some pairs at a time, which bounds memory.

    Parameters
    ----------
    prepare : rows (m, d) -> scores of pairs of them.
    on_progress : called with the share done, 0 to 1, after each block.
    """
    width = max(1, int(X.shape[1]))
    step = min(_MOST_PAIRS, max(_LEAST_PAIRS, _PAIR_CELLS // width))
    scores = np.empty(left.size, dtype=np.float32)
    for first, last in _parts(left, right, max(1, _CELLS // width), 0, left.size):
        numbers, place = np.unique(np.concatenate([left[first:last], right[first:last]]), return_inverse=True)
        score = prepare(X[numbers])
        a, b = place[: last - first], place[last - first :]
        for start in range(0, last - first, step):
            part = slice(start, start + step)
            scores[first:last][part] = score(a[part], b[part])
            if on_progress is not None:
                on_progress(min(1.0, (first + start + step) / left.size))
    return scores


def _parts(left: Int64, right: Int64, most_rows: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Ranges of pairs that are of so many rows at most, or so few that it does not matter."""
    if last == first:
        return
    fits = 2 * (last - first) <= most_rows or last - first <= _LEAST_PAIRS
    if fits or np.unique(np.concatenate([left[first:last], right[first:last]])).size <= most_rows:
        yield first, last
        return
    middle = (first + last) // 2
    yield from _parts(left, right, most_rows, first, middle)
    yield from _parts(left, right, most_rows, middle, last)


def identity_auc(score: PairsOfRows, codes: Int64) -> float:
    """AUC of scores of pairs of rows with identities 0, 1, ...: of all of them, or of a million of either kind."""
    n = codes.size
    if n * (n - 1) // 2 <= AUC_PAIRS:
        left, right = np.triu_indices(n, 1)
        is_same = codes[left] == codes[right]
        sides = [(left[rows], right[rows]) for rows in (is_same, ~is_same)]
    else:
        random = np.random.default_rng(0)
        order = np.argsort(codes, kind="stable")
        starts, counts = np.searchsorted(codes[order], codes[order]), np.bincount(codes)[codes[order]]
        place = random.choice(n, AUC_PAIRS, p=(counts - 1) / (counts - 1).sum())
        step = place - starts[place] + random.integers(1, counts[place])
        mate = starts[place] + step % counts[place]
        left, right = random.integers(0, n, (2, 2 * AUC_PAIRS))
        apart = np.flatnonzero(codes[left] != codes[right])[:AUC_PAIRS]
        sides = [(order[place], order[mate]), (left[apart], right[apart])]
    same, different = (score(*pairs) for pairs in sides)
    different = np.sort(different)
    below = [np.searchsorted(different, same, side=side).mean() for side in ("left", "right")]
    return float(sum(below) / (2 * different.size))
