"""Labels that scores make doubtful."""

import numpy as np

from pairmark.models.core.arrays import ArrayLike, Int64

TOLD = 20
"""Suspects of each kind that are listed."""
_RARE = 0.05


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
    couples, couple_of_pair, counts = np.unique(
        np.sort(owners[~is_same], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    means = np.bincount(couple_of_pair.ravel(), weights=values[~is_same], minlength=counts.size) / counts
    doubtful = np.flatnonzero(means > typical_same)
    double = couples[doubtful[np.argsort(-means[doubtful], kind="stable")]]
    sides, places, n_pairs = np.unique(ends[is_same], return_inverse=True, return_counts=True)
    best = np.full(sides.size, -np.inf)
    np.maximum.at(best, places.ravel(), np.repeat(values[is_same], 2))
    wrong = np.flatnonzero((n_pairs >= 2) & (best < float(np.quantile(values[~is_same], 1 - _RARE))))
    if wrong.size > _RARE * sides.size:
        wrong = wrong[:0]
    return double.astype(np.int64), sides[wrong[np.argsort(best[wrong], kind="stable")]].astype(np.int64)
