"""Pairs of rows of one matrix: rows are prepared once, however many pairs they are in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack

from pairmark.models.core.arrays import Float32, Int64

PairsOfRows = Callable[[Int64, Int64], Float32]
"""Scores of pairs of prepared rows, by row numbers."""

_CELLS = 16 * 1024 * 1024
"""Numbers of rows that are prepared at a time."""
_PAIR_CELLS = 8 * 1024 * 1024
_MOST_PAIRS, _LEAST_PAIRS = 65_536, 256

_MOST_MEANS, _MOST_BESIDE = 200, 500
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
    return _auc(*(score(*pairs) for pairs in sides))


def _auc(same: Float32, different: Float32) -> float:
    different = np.sort(different)
    below = [np.searchsorted(different, same, side=side).mean() for side in ("left", "right")]
    return float(sum(below) / (2 * different.size))


def identity_means(rows: Any, codes: Int64, identities: NDArray[Any]) -> tuple[Any, NDArray[Any]] | None:
    """Means of the rows of the first identities, and these; None where rows are no numbers."""
    if rows.dtype == object:
        return None
    share = (1.0 / np.bincount(codes)[codes]).astype(np.float32)
    shares = csr_array((share, (codes, np.arange(codes.size))), shape=(identities.size, codes.size))
    return shares[:_MOST_MEANS] @ rows, identities[:_MOST_MEANS]


def auc_beside_means(
    prepare: Callable[[Any], PairsOfRows],
    rows: Any,
    labels: NDArray[Any],
    means: Any,
    known: NDArray[Any],
) -> float:
    """AUC of pairs of rows, and of rows and means of known identities."""
    some = np.unique(np.linspace(0, labels.size - 1, _MOST_BESIDE).astype(int))
    stack: Any = vstack if bool(issparse(rows)) else np.vstack
    # Means of sparse rows are sparse, and a learner may take them as dense.
    beside = stack([rows[some], means if issparse(means) == issparse(rows) else means.toarray()])
    beside = beside.tocsr() if stack is vstack else beside.astype(np.float32)
    left, right = np.triu_indices(beside.shape[0], 1)
    left, right = left[left < some.size], right[left < some.size]
    names = np.concatenate([labels[some], known])
    same = names[left] == names[right]
    if same.all() or not same.any():
        raise ValueError(
            "y has no two rows of one identity, nor one that fit saw: use cv=GroupKFold() with groups=y, or "
            "StratifiedKFold for shared classes"
        )
    scores = scored_rows(prepare, beside, left, right)
    return _auc(scores[same], scores[~same])
