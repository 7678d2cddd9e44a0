"""Disjoint pairs of units."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.arrays import Int64
from pairmark.models.core.compiled import kernel


@kernel
def greedy_matching(edges: Int64, order: Int64, n_units: int) -> Int64:
    """Numbers of the edges that a walk along ``order`` can take without meeting a unit twice.

    Parameters
    ----------
    edges : (E, 2) int64 unit codes below ``n_units``.
    order : (E,) int64 the walk.
    """
    # Invariant: the units of the edges taken so far are exactly those that are marked.
    is_matched = np.zeros(n_units, dtype=np.bool_)
    matching = np.empty(order.size, dtype=np.int64)
    n = 0
    for k in range(order.size):
        e = order[k]
        i, j = edges[e, 0], edges[e, 1]
        if i != j and not is_matched[i] and not is_matched[j]:
            is_matched[i] = True
            is_matched[j] = True
            matching[n] = e
            n += 1
    return matching[:n].copy()
