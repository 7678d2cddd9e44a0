"""Matchings inside of a list of pairs."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.arrays import Float64, Int32, Int64
from pairmark.models.core.compiled import kernel


@kernel
def list_matchings(
    start: Int64, neighbour: Int32, edge: Int32, order: Int32, uniform: Float64, matched: Int32
) -> None:
    """Fill ``matched`` with edges of matchings, -1 after the last.

    Units are visited in a given order; one that is still free takes one of its free neighbours.

    Parameters
    ----------
    start : (m + 1,) where each unit's neighbours begin.
    neighbour, edge : (2 E,) units, and numbers of the edges to them.
    order : (B, m) units of each matching in the order of their visits.
    uniform : (B, m) numbers in [0, 1), which say which free neighbour is taken.
    matched : (B, m // 2).
    """
    m = start.size - 1
    is_matched = np.empty(m, dtype=np.bool_)
    for b in range(order.shape[0]):
        is_matched[:] = False
        n = 0
        for k in range(m):
            u = order[b, k]
            if is_matched[u]:
                continue
            free = 0
            for at in range(start[u], start[u + 1]):
                if not is_matched[neighbour[at]]:
                    free += 1
            if free == 0:
                continue
            left = int(uniform[b, k] * free)
            for at in range(start[u], start[u + 1]):
                if is_matched[neighbour[at]]:
                    continue
                if left == 0:
                    is_matched[u] = True
                    is_matched[neighbour[at]] = True
                    matched[b, n] = edge[at]
                    n += 1
                    break
                left -= 1
        matched[b, n:] = -1
