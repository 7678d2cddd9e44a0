"""Random matchings inside of a list of pairs, drawn towards those that matter."""

from __future__ import annotations

import math

import numpy as np

from pairmark.models.core.arrays import Float64, Int32, Int64
from pairmark.models.core.compiled import kernel


@kernel
def draw_matchings(
    start: Int64,
    neighbour: Int32,
    edge: Int32,
    weight: Float64,
    order: Int32,
    uniform: Float64,
    matched: Int32,
    log_ratio: Float64,
) -> None:
    """Fill ``matched`` with edges of matchings, -1 after the last, and ``log_ratio`` with log P0 / Q of each.

    Units are visited in a given order; one that is still free takes one of its free neighbours: under P0 each with the
    same probability, as drawn (Q) in proportion to the edge's weight.

    Parameters
    ----------
    start : (m + 1,) where each unit's neighbours begin.
    neighbour, edge : (2 E,) units, and numbers of the edges to them.
    weight : (E,) positive.
    order : (B, m) units of each draw in the order of their visits.
    uniform : (B, m) numbers in [0, 1).
    matched : (B, m // 2). log_ratio : (B,).
    """
    m = start.size - 1
    is_matched = np.empty(m, dtype=np.bool_)
    for b in range(order.shape[0]):
        is_matched[:] = False
        n = 0
        ratio = 0.0
        for k in range(m):
            u = order[b, k]
            if is_matched[u]:
                continue
            # How many neighbours are free, and their weight in all.
            free = 0
            total = 0.0
            for at in range(start[u], start[u + 1]):
                if not is_matched[neighbour[at]]:
                    free += 1
                    total += weight[edge[at]]
            if free == 0:
                continue
            # The neighbour in whose share of the total weight the uniform number falls; the last free one
            # where rounding leaves none.
            remainder = uniform[b, k] * total
            pick = -1
            for at in range(start[u], start[u + 1]):
                if not is_matched[neighbour[at]]:
                    pick = at
                    remainder -= weight[edge[at]]
                    if remainder < 0:
                        break
            # P0 chooses with 1 / free, Q with weight / total.
            ratio += math.log(total / (free * weight[edge[pick]]))
            is_matched[u] = True
            is_matched[neighbour[pick]] = True
            matched[b, n] = edge[pick]
            n += 1
        matched[b, n:] = -1
        log_ratio[b] = ratio
