"""Finds doubtful rows: near-duplicates, one person under two names, wrong labels.

A promise counts people. Somebody who is in the data under two names makes different pairs that are the same person, a
wrong label makes both kinds of pairs wrong, and near-duplicate rows say less than their number. Nothing here proves a
mistake, so nothing is removed: people see the list and decide.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.core.arrays import Float64, Int64

NEAR = 0.02
"""Rows nearer than this share of the median distance of random rows are near-duplicates."""
MAX_ROWS = 200_000
"""Rows that are compared; of more, as many at random."""
TOLD = 20
"""Suspects of each kind that are listed."""
_PROJECTIONS, _TABLES, _CELL, _NEIGHBOURS = 8, 6, 0.25, 3
_DIFFERENCES, _FEW_DIFFERENCES, _MANY = 4_096, 256, 2**26
"""Random pairs of rows that say what distance is typical: fewer of rows of many numbers."""
_RARE = 0.05
_AT_A_TIME = 4_194_304
"""Numbers of rows that are compared at a time."""


def near_duplicates(X: Any, y: ArrayLike | None = None) -> tuple[Int64, Int64]:
    """Pairs of rows nearer than `NEAR` of the median distance: some, not all, of each cluster of equal rows.

    Those of two labels, (n, 2) by row, and those of one label, or of rows without labels.

    Rows that fall into one cell of a grid of random projections are compared with their neighbours there; six such
    grids find nine of ten near-duplicates, and every pair of equal rows.

    Parameters
    ----------
    X : (n, d) finite numbers; a memory-mapped array is read in pieces.
    y : (n,) labels as codes.
    """
    rng = np.random.default_rng(0)
    n, d = X.shape
    rows = np.arange(n) if n <= MAX_ROWS else np.sort(rng.choice(n, MAX_ROWS, replace=False))
    empty = np.empty((0, 2), dtype=np.int64)
    if rows.size < 2:
        return empty, empty
    sample = rng.integers(rows.size, size=(2, min(_DIFFERENCES, max(_FEW_DIFFERENCES, _MANY // d))))
    sample = sample[:, sample[0] != sample[1]]
    typical = float(np.median(_distances(X, rows[sample[0]], rows[sample[1]])))
    if typical <= 0:
        # Most rows are equal: there is nothing to tell apart, and no suspicion to voice.
        return empty, empty
    directions = rng.standard_normal((d, _PROJECTIONS * _TABLES))
    step = max(1, _AT_A_TIME // d)
    projected = np.concatenate(
        [
            np.asarray(X[rows[at : at + step]], dtype=np.float64) @ directions
            for at in range(0, rows.size, step)
        ]
    )
    deviations = projected.std(axis=0)
    deviations[deviations == 0] = 1.0
    cells = np.floor(projected / (_CELL * deviations) + rng.random(projected.shape[1])).astype(np.int64)
    weights = rng.integers(1, 2**62, size=_PROJECTIONS, dtype=np.int64) | 1
    blocks: list[Int64] = []
    for table in range(_TABLES):
        table_cells = cells[:, table * _PROJECTIONS : (table + 1) * _PROJECTIONS]
        key = (table_cells * weights).sum(axis=1)
        order = np.argsort(key, kind="stable")
        for step in range(1, _NEIGHBOURS + 1):
            together = key[order[step:]] == key[order[:-step]]
            blocks.append(np.stack([order[:-step][together], order[step:][together]], axis=1))
    # One number for each pair: rows of two are sorted many times slower.
    left, right = np.sort(np.concatenate(blocks), axis=1).T
    pairs = rows[np.stack(np.divmod(np.unique(left * rows.size + right), rows.size), axis=1)]
    pairs = pairs[_distances(X, pairs[:, 0], pairs[:, 1]) <= NEAR * typical]
    if y is None:
        return empty, pairs
    codes = np.asarray(y)
    across = codes[pairs[:, 0]] != codes[pairs[:, 1]]
    return pairs[across], pairs[~across]


def _distances(X: Any, left: Int64, right: Int64) -> Float64:
    step = max(1, _AT_A_TIME // X.shape[1])
    distances = np.empty(left.size)
    for at in range(0, left.size, step):
        part = slice(at, at + step)
        a, b = (np.asarray(X[rows[part]], dtype=np.float64) for rows in (left, right))
        distances[part] = np.sqrt(((a - b) ** 2).sum(axis=1))
    return distances


def suspects(
    scores: ArrayLike, same: ArrayLike, rows: ArrayLike, identities: ArrayLike
) -> tuple[Int64, Int64]:
    """Codes of pairs of identities, (n, 2), and rows, (m,), that scored pairs make doubtful, most doubtful first.

    Two identities are doubtful when the mean of their pairs is above the median score of same pairs. A row is doubtful
    when it is in at least two same pairs and even their best is below what one in twenty different pairs scores; where
    more than one row in twenty is, the scores cannot tell, and no row is called doubtful.

    Parameters
    ----------
    scores : (n,) finite. same : (n,) 0 or 1. rows : (n, 2) row of each side. identities : (n, 2) code of each side.
    """
    values, is_same = np.asarray(scores, dtype=np.float64), np.asarray(same).astype(np.bool_)
    ends, owners = np.asarray(rows), np.asarray(identities)
    no_pairs = np.empty((0, 2), np.int64), np.empty(0, np.int64)
    if is_same.all() or not is_same.any():
        return no_pairs
    typical_same, typical_different = float(np.median(values[is_same])), float(np.median(values[~is_same]))
    if typical_same <= typical_different:
        return no_pairs
    couples, of, counts = np.unique(
        np.sort(owners[~is_same], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    means = np.bincount(of.ravel(), weights=values[~is_same], minlength=counts.size) / counts
    doubtful = np.flatnonzero(means > typical_same)
    double = couples[doubtful[np.argsort(-means[doubtful], kind="stable")]]
    sides, at = np.unique(ends[is_same], return_inverse=True)
    at = at.reshape(-1, 2)
    best = np.full(sides.size, -np.inf)
    n_pairs = np.zeros(sides.size, dtype=np.int64)
    for side in range(2):
        np.maximum.at(best, at[:, side], values[is_same])
        n_pairs += np.bincount(at[:, side], minlength=sides.size)
    wrong = np.flatnonzero((n_pairs >= 2) & (best < float(np.quantile(values[~is_same], 1 - _RARE))))
    if wrong.size > _RARE * sides.size:
        wrong = wrong[:0]
    labels = sides[wrong[np.argsort(best[wrong], kind="stable")]]
    return double.astype(np.int64), labels.astype(np.int64)
