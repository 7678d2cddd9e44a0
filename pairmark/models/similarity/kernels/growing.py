"""Growing one similarity tree: TreeRank with symmetric LeafRank, in compiled loops.

A set of pairs is a segment ``start, stop, start, stop`` of a `PairTable`: its same pairs, then its different ones.
Weights are integers, so every sum is exact, and neither the order of adding nor that of pairs within a segment matters.

Of the results (see `grow`), ``cells`` has one row a TreeRank cell, ``nodes`` one row a LeafRank node. A child of a node
is another node (>= 0) or a cell, written as ``-1 - cell``.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.core.kernels.random import next_random
from pairmark.models.similarity.kernels.counting import n_learned_bins
from pairmark.models.similarity.kernels.greedy_split import grow_leaf_rank
from pairmark.models.similarity.kernels.layout import (
    CELL_DEPTH,
    CELL_DIFFERENT,
    CELL_FIELDS,
    CELL_LEFT,
    CELL_NODE,
    CELL_POSITION,
    CELL_RIGHT,
    CELL_SAME,
    INNER,
    LEARNED,
    LEFT,
    RUN,
    Bins,
    Heap,
    Scratch,
    Window,
)
from pairmark.models.similarity.kernels.partition import gather_left, total_weight

EXACT_PAIRS = 48
"""Cells of at most so many pairs are split by sorting their values: no grid, and cheaper than scanning its bins."""
FEW_PAIRS, FEW_FEATURES = 2_048, 8
"""Trees of at most so many pairs of rows of at most so many features are split so throughout. Sorting them takes
moments, and where much of the data lies in a box narrower than a bin, no other feature or pair makes up for it."""
_TODO_CELL, _TODO_FIELDS = 0, 5
"""Columns of the list of cells to split: the cell, and its segment (1 to 4)."""


@kernel
def _draw_first(features, n_first, state):
    """Bring a uniformly drawn subset of ``features`` to its first ``n_first`` places, in order of number."""
    n = features.shape[0]
    for i in range(n_first):
        j = i + np.int64(next_random(state) % np.uint64(n - i))
        features[i], features[j] = features[j], features[i]
    # In order, so that gathers of codes run forward.
    for i in range(1, n_first):
        feature, q = features[i], i
        while q > 0 and features[q - 1] > feature:
            features[q] = features[q - 1]
            q -= 1
        features[q] = feature


@kernel
def _longer(table):
    """The table with space for twice as many rows."""
    longer = np.empty((2 * table.shape[0], table.shape[1]), dtype=table.dtype)
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            longer[row, column] = table[row, column]
    return longer


@kernel
def _new_bins(n_used, n_tried, n_learned):
    features = np.empty(n_used, dtype=np.uint64)
    for k in range(n_used):
        features[k] = k
    return Bins(
        features,
        np.zeros(n_tried, dtype=np.uint32),
        np.zeros((2, n_tried), dtype=np.int64),
        np.zeros((2, n_tried), dtype=np.uint32),
        np.zeros(n_learned, dtype=np.int64),
        np.empty((2, n_tried), dtype=np.uint32),
    )


@kernel
def _new_heap(leaf_depth):
    n_heap = 2 << leaf_depth
    return Heap(
        np.zeros(n_heap, dtype=np.int64),
        np.zeros((n_heap, 4), dtype=np.int64),
        np.zeros((n_heap, 2), dtype=np.int64),
        np.zeros((n_heap, 2), dtype=np.int64),
        np.zeros(n_heap, dtype=np.float32),
    )


@kernel
def _new_scratch(points, learned, leaf_depth, n_tried, n_pairs):
    """Memory for any draw of features."""
    # Bins of both halves of one feature: differences and sums, or maxima and minima.
    widest = 0
    for k in range(points.n_codes.shape[0]):
        widest = max(widest, 3 * points.n_codes[k])
    longest = widest
    for k in range(learned.n_bins.shape[0]):
        longest = max(longest, learned.n_bins[k])
    return Scratch(
        # Every level of LeafRank but its root keeps one for a sibling to come.
        np.empty((leaf_depth, 2, n_tried * widest + n_learned_bins(learned)), dtype=np.int32),
        np.empty((2, longest), dtype=np.int32),
        np.empty(longest, dtype=np.float64),
        Window(np.empty(n_pairs, dtype=np.float32), np.empty(n_pairs, dtype=np.int32)),
        np.empty((4, 2 * RUN), dtype=np.int32),
    )


@kernel
def _fill_cells(cells, cell, n_cells, heap, left_same, left_other):
    """Write the two children of a split cell."""
    sums = heap.sums
    for right in range(2):
        child = n_cells + right
        cells[child, CELL_DEPTH] = cells[cell, CELL_DEPTH] + 1
        cells[child, CELL_NODE], cells[child, CELL_LEFT], cells[child, CELL_RIGHT] = -1, -1, -1
        cells[child, CELL_POSITION] = 2 * cells[cell, CELL_POSITION] + right
        cells[child, CELL_SAME] = sums[1, 0] - left_same if right else left_same
        cells[child, CELL_DIFFERENT] = sums[1, 1] - left_other if right else left_other
        cells[cell, CELL_LEFT + right] = child


@kernel
def _push_children(todo, n_todo, n_cells, segment, borders):
    """Put both children of a cell on the list; the left one goes on top: cells are grown from left to right."""
    for right in range(2):
        line = todo[n_todo + 1 - right]
        line[_TODO_CELL] = n_cells + right
        for kind in range(2):
            line[1 + 2 * kind] = borders[kind] if right else segment[2 * kind]
            line[2 + 2 * kind] = segment[2 * kind + 1] if right else borders[kind]


@kernel
def _write_nodes(nodes, n_nodes, numbered, heap, features, d, first_child):
    """Number a cell's nodes level by level and write them; returns how many nodes there are then."""
    side, half_heap = heap.side, heap.side.shape[0] // 2
    for h in range(1, half_heap):
        numbered[h] = -1
        if side[h] == INNER and (h == 1 or side[h >> 1] == INNER):
            numbered[h] = n_nodes
            n_nodes += 1
    for h in range(1, half_heap):
        n = numbered[h]
        if n < 0:
            continue
        if heap.features[h, 1] == LEARNED:
            nodes[n, 0] = 2 * d + heap.features[h, 0]
        else:
            nodes[n, 0] = heap.features[h, 1] * d + features[heap.features[h, 0]]
        nodes[n, 1] = heap.thresholds[h]
        for above in range(2):
            c = 2 * h + above
            nodes[n, 2 + above] = numbered[c] if side[c] == INNER else -1 - (first_child + side[c] - LEFT)
    return n_nodes


@kernel
def _root(pairs):
    """A table of cells that holds the root."""
    cells = np.empty((64, CELL_FIELDS), dtype=np.int64)
    cells[0, CELL_DEPTH], cells[0, CELL_POSITION], cells[0, CELL_NODE] = 0, 0, -1
    cells[0, CELL_LEFT], cells[0, CELL_RIGHT] = -1, -1
    cells[0, CELL_SAME] = total_weight(pairs, 0, pairs.n_same)
    cells[0, CELL_DIFFERENT] = total_weight(pairs, pairs.n_same, pairs.rows.shape[1])
    return cells


@kernel
def grow(points, features, d, pairs, learned, limits, seed):
    """Grow a similarity tree (Clemencon & Vogel, "The Similarity TreeRank Algorithm").

    Parameters
    ----------
    points, pairs, learned, limits : see `layout`; pairs are reordered.
    features : (u,) numbers of the points' features among all ``d``.
    seed : uint64, of the draws of features.

    Returns
    -------
    cells : (n_cells, 7) int64, parents before children.
    nodes : (n_nodes, 4) float64: ``half * d + feature`` (``2 d`` + number for a learned one), the threshold, and the
        child for a pair feature at most, or above, it.
    """
    max_depth, leaf_depth = limits.max_depth, limits.leaf_depth
    n_used, n_pairs, n_same = points.codes.shape[1], pairs.rows.shape[1], pairs.n_same
    n_tried = min(limits.n_tried, n_used)
    state = np.empty(1, dtype=np.uint64)
    state[0] = seed
    bins, heap = _new_bins(n_used, n_tried, learned.n_bins.shape[0]), _new_heap(leaf_depth)
    scratch = _new_scratch(points, learned, leaf_depth, n_tried, n_pairs)
    n_heap = heap.side.shape[0]
    numbered, leaves = np.zeros(n_heap, dtype=np.int32), np.empty(n_heap, dtype=np.int64)
    borders = np.empty(2, dtype=np.int64)
    sorted_pairs = n_pairs if n_pairs <= FEW_PAIRS and n_used <= FEW_FEATURES else EXACT_PAIRS

    cells = _root(pairs)
    # Feature, threshold, low and high child: 32-bit numbers, all exact in float64.
    nodes = np.empty((64, 4), dtype=np.float64)
    n_cells, n_nodes, n_todo = 1, 0, 1
    todo = np.empty((max_depth + 2, _TODO_FIELDS), dtype=np.int64)
    todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3], todo[0, 4] = 0, 0, n_same, n_same, n_pairs
    while n_todo > 0:
        n_todo -= 1
        cell = todo[n_todo, _TODO_CELL]
        segment, sums, depth = heap.segments[1], heap.sums[1], cells[cell, CELL_DEPTH]
        for k in range(4):
            segment[k] = todo[n_todo, 1 + k]
        sums[0], sums[1] = cells[cell, CELL_SAME], cells[cell, CELL_DIFFERENT]
        left_same, left_other = np.int64(0), np.int64(0)
        if depth < max_depth and sums[0] > 0 and sums[1] > 0 and n_tried > 0:
            if n_tried < n_used:
                _draw_first(bins.features, n_tried, state)
            grow_leaf_rank(points, pairs, learned, heap, leaf_depth, bins, scratch, sorted_pairs)
            if heap.side[1] == INNER:
                gather_left(heap, pairs, leaves, borders)
                left_same = total_weight(pairs, segment[0], borders[0])
                left_other = total_weight(pairs, segment[2], borders[1])
        # Where the left child gets no greater share of the same pairs than of the different ones, the cell
        # stays a leaf.
        if left_same * sums[1] <= left_other * sums[0]:
            continue

        if n_cells + 2 > cells.shape[0]:
            cells = _longer(cells)
        _fill_cells(cells, cell, n_cells, heap, left_same, left_other)
        _push_children(todo, n_todo, n_cells, segment, borders)
        n_todo += 2
        cells[cell, CELL_NODE] = n_nodes
        while n_nodes + n_heap > nodes.shape[0]:
            nodes = _longer(nodes)
        n_nodes = _write_nodes(nodes, n_nodes, numbered, heap, features, d, n_cells)
        n_cells += 2
    return cells[:n_cells], nodes[:n_nodes]
