"""Disjoint pairs of units, and blocks of units that are listed with each other."""

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


@kernel
def grown_blocks(starts: Int64, ends: Int64, order: Int64, n_blocks: int, capacity: int) -> Int64:
    """The block of each unit: few edges join two blocks, and none has more units than its capacity.

    Units join the block where most of their neighbours are, in the order given (linear deterministic greedy,
    Stanton and Kliot, KDD 2012), then move while that leaves fewer edges between blocks.

    Parameters
    ----------
    starts, ends : (n + 1,), (E,) int64 neighbours of each unit: compressed rows, an edge in both directions.
    order : (n,) int64 every unit once.
    """
    block = np.full(order.size, -1, dtype=np.int64)
    size = np.zeros(n_blocks, dtype=np.int64)
    near = np.zeros(n_blocks, dtype=np.int64)
    # The first turn gives every unit a block; up to eight more move units.
    for turn in range(1 + 8):
        n_moved = 0
        for unit in order:
            near[:] = 0
            for e in range(starts[unit], starts[unit + 1]):
                if block[ends[e]] >= 0:
                    near[block[ends[e]]] += 1
            present = block[unit]
            best = present
            for b in range(n_blocks):
                if size[b] >= capacity:
                    continue
                if turn == 0:
                    # A block counts the less the fuller it is; the emptiest one where no neighbour has a block.
                    if best < 0:
                        best = b
                    gain = near[b] * (capacity - size[b]) - near[best] * (capacity - size[best])
                    if gain > 0 or (gain == 0 and size[b] < size[best]):
                        best = b
                # Strictly more: each move leaves fewer edges between blocks.
                elif near[b] > near[best]:
                    best = b
            if best != present:
                if present >= 0:
                    size[present] -= 1
                size[best] += 1
                block[unit] = best
                n_moved += 1
        if n_moved == 0:
            break
    return block
