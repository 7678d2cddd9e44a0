"""Classes from explicit pairs: rows that same pairs join."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairmark.models.core.base import Float32
from pairmark.models.core.inputs import checked_same
from pairmark.models.pairs.splits import joined_groups


def classes_of_pairs(
    a: Float32, b: Float32, same: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[Float32, NDArray[np.int64]]:
    """Distinct rows of some pairs and the class of each: groups that same pairs join, directly or in a chain.

    Raises
    ------
    ValueError
        When lengths differ, weights are no weights, a kind of pair is missing, or all rows are joined into one.
    """
    n = a.shape[0]
    if n != b.shape[0]:
        raise ValueError(f"left has {n} rows and right {b.shape[0]}: expected one of each a pair")
    flags, weight = checked_same(same, n), np.ones(n)
    if sample_weight is not None:
        weight = np.asarray(sample_weight, dtype=np.float64)
        if weight.shape != (n,):
            raise ValueError(f"sample_weight has shape {weight.shape}; expected ({n},), one number a pair")
        if not np.isfinite(weight).all() or (weight < 0).any():
            raise ValueError("sample_weight: expected finite numbers >= 0, some of them positive")
    used = weight > 0
    for kind, there in (("same", flags), ("different", ~flags)):
        if not (used & there).any():
            raise ValueError(f"pairs of positive weight hold no {kind} pair: expected some of each")
    both = np.concatenate([a[used], b[used]])
    _, first, point = np.unique(both, axis=0, return_index=True, return_inverse=True)
    point = point.ravel()
    m = int(used.sum())
    left, right, joined = point[:m], point[m:], flags[used]
    n_groups, group = joined_groups(first.size, left[joined], right[joined])
    if n_groups < 2:
        raise ValueError(
            "same pairs join all rows into one class: expected rows that are different; correct the labels, or leave "
            "weak pairs out"
        )
    # In the order in which rows first occur, so that ties between neighbours do not depend on their values.
    order = np.argsort(first, kind="stable")
    return both[first[order]], group[order].astype(np.int64)
