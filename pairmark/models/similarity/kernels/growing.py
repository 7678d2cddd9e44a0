"""Growing one similarity tree: TreeRank with symmetric LeafRank, in compiled loops.

A set of pairs is a segment ``start, stop, start, stop`` of a `PairTable`: its same pairs, then its different ones.
Weights are integers, so every sum is exact, and neither the order of adding nor that of pairs within a segment matters.

Of the results (see `grow`), ``cells`` has one row a TreeRank cell, ``nodes`` one row a LeafRank node. A child of a node
is another node (>= 0) or a cell, written as ``-1 - cell``.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.core.kernels import next_random
from pairmark.models.similarity.kernels.layout import (
    CELL_DEPTH,
    CELL_DIFFERENT,
    CELL_LEFT,
    CELL_NODE,
    CELL_POSITION,
    CELL_RIGHT,
    CELL_SAME,
    DIFF_SUM,
    INNER,
    LEFT,
    MAX_MIN,
    RIGHT,
)
from pairmark.models.similarity.kernels.partition import (
    best_border,
    gather_left,
    partition,
    total_weight,
)


@kernel
def _coarseness(n_pairs):
    """How many halvings of the grid leave enough bins for so many pairs: empty bins cost time and carry nothing."""
    if n_pairs >= 8192:
        return 0
    return 1 if n_pairs >= 2048 else (2 if n_pairs >= 512 else 3)


@kernel
def lay_out(points, bins, n_pairs):
    """Place the bins of the features tried in a cell of ``n_pairs`` one after the other; returns how many there are."""
    coarser, pair_map = _coarseness(n_pairs), points.pair_map
    size = 0
    for k in range(bins.shift.shape[0]):
        feature = bins.features[k]
        last = points.n_codes[feature] - 1
        # Short grids stay whole: their bins are few already.
        halvings = 0 if last < 64 else coarser
        bins.shift[k] = halvings
        bins.sizes[0, k] = (last >> halvings) + 1
        bins.sizes[1, k] = ((last if pair_map == MAX_MIN else 2 * last) >> halvings) + 1
        for half in range(2):
            bins.starts[half, k] = size
            size += bins.sizes[half, k]
    return size


@kernel
def count(histogram, size, points, pairs, segment, bins):
    """Fill the first ``size`` bins: both pair features of every feature tried, by kind of pair.

    The bins of a pair are first worked out for all features, which the compiler does for many at a time, then
    counted. Unsigned indices: a signed one costs a wrap-around test on each access.
    """
    codes, rows, weight = points.codes, pairs.rows, pairs.weight
    features, shift = bins.features, bins.shift
    n_tried, pair_map = np.uint64(shift.shape[0]), points.pair_map
    first, second = bins.places[0], bins.places[1]
    below, above = bins.starts[0], bins.starts[1]
    for kind in range(2):
        counts = histogram[kind]
        for b in range(size):
            counts[b] = 0
        for p in range(np.uint64(segment[2 * kind]), np.uint64(segment[2 * kind + 1])):
            i, j, w = np.uint64(rows[0, p]), np.uint64(rows[1, p]), weight[p]
            left_row, right_row = codes[i], codes[j]
            if pair_map == DIFF_SUM:
                for k in range(n_tried):
                    f = features[k]
                    a, b = np.int32(left_row[f]), np.int32(right_row[f])
                    first[k] = np.uint32((np.uint32(abs(np.int32(a - b))) >> shift[k]) + below[k])
                    second[k] = np.uint32((np.uint32(np.int32(a + b)) >> shift[k]) + above[k])
            else:
                for k in range(n_tried):
                    f = features[k]
                    a, b = np.uint32(left_row[f]), np.uint32(right_row[f])
                    first[k] = np.uint32((max(a, b) >> shift[k]) + below[k])
                    second[k] = np.uint32((min(a, b) >> shift[k]) + above[k])
            for k in range(n_tried):
                counts[np.uint64(first[k])] += w
                counts[np.uint64(second[k])] += w


@kernel
def subtract(histogram, part, size):
    """Take the first ``size`` bins of one histogram off another's."""
    for kind in range(2):
        for b in range(size):
            histogram[kind, b] -= part[kind, b]


@kernel
def best_split(histogram, bins, sums, costs, scratch):
    """The split of least Gini impurity under the cell's costs.

    With A, C the costs of the same and the different pairs, a, c those of the low side and s = a + c, the impurity
    ``a c / s + (A - a)(C - c) / (A + C - s)`` is ``(A C - gain) / (A + C)``, gain = (a C - c A)^2 / (s (A + C - s)):
    the gain is what is looked for, all of a feature's borders at a time.

    Parameters
    ----------
    sums, costs : (2,), weights of the node's same and different pairs, and the cost of each kind.

    Returns
    -------
    which half of the pair map (0 or 1; -1 when no split lowers the impurity), the feature's place among
    those tried, last bin of the low side.
    """
    same, different = histogram[0], histogram[1]
    same_cost, different_cost = costs[0], costs[1]
    all_same, all_different = np.float64(sums[0]), np.float64(sums[1])
    scale = same_cost * different_cost
    below, under, gains = scratch.low_sums[0], scratch.low_sums[1], scratch.gains
    n_tried = bins.shift.shape[0]
    bits = gains.view(np.int64)
    best_half, best_place, best_bin = -1, -1, -1
    # Below this a gain is the rounding of none.
    best_gain = 1e-9 * (sums[0] * same_cost) * (sums[1] * different_cost)
    for at in range(2 * n_tried):
        k, half = at >> 1, at & 1
        offset, size = np.uint64(bins.starts[half, k]), np.uint64(bins.sizes[half, k])
        if size < 2:
            continue
        # Running sums by themselves: each needs the one before, while the gains below do not, and are worked
        # out for many borders at a time.
        low_same, low_different = np.int32(0), np.int32(0)
        for b in range(size - np.uint64(1)):
            low_same = np.int32(low_same + same[offset + b])
            low_different = np.int32(low_different + different[offset + b])
            below[b], under[b] = low_same, low_different
        for b in range(size - np.uint64(1)):
            s, d = np.float64(below[b]), np.float64(under[b])
            # Exactly 0 where a side is empty, and so is the gain.
            cross = (s * all_different - d * all_same) * scale
            low, high = (
                s * same_cost + d * different_cost,
                (all_same - s) * same_cost + (all_different - d) * different_cost,
            )
            gains[b] = cross * cross / max(low * high, 1e-300)
        # Floats that are not negative are in the order of their bits, whose maximum needs no care for NaN.
        top = np.int64(0)
        for b in range(size - np.uint64(1)):
            top = max(top, bits[b])
        # The first of equal gains: the lowest border, in whatever order the maximum was taken.
        for b in range(size - np.uint64(1)):
            if bits[b] == top:
                if gains[b] > best_gain:
                    best_gain = gains[b]
                    best_half, best_place, best_bin = half, k, np.int64(b)
                break
    return best_half, best_place, best_bin


@kernel
def threshold_of(points, half, feature, last_bin, halvings):
    """The border between a bin of ``2^halvings`` codes and the next, in the feature's units."""
    low, step = points.low[feature], points.step[feature]
    # Codes count steps from `low` for a maximum or minimum, from 2 low for a sum, from 0 for a difference.
    base = low if points.pair_map == MAX_MIN else (2.0 * low if half == 1 else 0.0)
    return np.float32(base + (((last_bin + 1) << halvings) - 0.5) * step) + np.float32(0.0)


_NODE, _BUFFER, _STATE = range(3)
"""Columns of the stack: a node, its histogram's buffer (-1: none), and the state that it is in."""
_NONE, _FILLED, _TO_COUNT = range(3)
"""No histogram; one that is filled; one to be counted."""


@kernel
def _split_by_values(points, pairs, heap, h, bins, totals, costs, lowest, window):
    """The best split of a node by sorting its values: no grid, and cheaper than scanning bins for few pairs.

    Returns
    -------
    half of the pair map (-1: none), feature, threshold.
    """
    half, feature, threshold = -1, 0, np.float32(0.0)
    columns, features, pair_map, segment = points.columns, bins.features, points.pair_map, heap.segments[h]
    for k in range(bins.shift.shape[0]):
        column = columns[features[k]]
        for candidate in range(2):
            lowest, border, improves = best_border(
                column, candidate, pair_map, pairs, segment, -np.inf, np.inf, totals, costs, lowest, window
            )
            if improves:
                half, feature, threshold = candidate, np.int64(features[k]), border
    return half, feature, threshold


@kernel
def _settle(points, pairs, segment, bins, half, place, last_bin, totals, costs, window):
    """Turn a split in bins into one in values: the feature's number and its threshold."""
    feature, halvings = np.int64(bins.features[place]), np.int64(bins.shift[place])
    threshold = threshold_of(points, half, feature, last_bin, halvings)
    if halvings > 0 or not points.exact[feature]:
        # Each code is off by up to half a step, which blurs bins: the best border between the values themselves is
        # close to the bins' best, but not the same.
        reach = 2.0 * points.step[feature] * (1 << halvings)
        _, border, exists = best_border(
            points.columns[feature], half, points.pair_map, pairs, segment, threshold - reach, threshold + reach,
            totals, costs, np.inf, window,
        )  # fmt: skip
        if exists:
            threshold = border
    return feature, threshold


@kernel
def _part_node(column, threshold, half, pair_map, pairs, segment, borders, spare):
    """Part a node's pairs by a threshold; returns how many go to either side."""
    for kind in range(2):
        borders[kind] = partition(
            column, threshold, half, pair_map, pairs, segment[2 * kind], segment[2 * kind + 1], spare
        )
    return (
        borders[0] - segment[0] + borders[1] - segment[2],
        segment[1] - borders[0] + segment[3] - borders[1],
    )


@kernel
def _fill_children(pairs, heap, h, borders):
    """Segments and weights of a split node's children."""
    segments, sums, low = heap.segments, heap.sums, 2 * h
    for kind in range(2):
        start, stop = 2 * kind, 2 * kind + 1
        segments[low, start], segments[low, stop] = segments[h, start], borders[kind]
        segments[low + 1, start], segments[low + 1, stop] = borders[kind], segments[h, stop]
        sums[low, kind] = total_weight(pairs, segments[low, start], segments[low, stop])
        sums[low + 1, kind] = sums[h, kind] - sums[low, kind]


@kernel
def _merge_equal_leaves(side):
    """Nodes whose children go the same way decide nothing."""
    # From the lowest level up, so that merged children merge again.
    for h in range(side.shape[0] // 2 - 1, 0, -1):
        if side[h] == INNER and side[2 * h] == side[2 * h + 1] and side[2 * h] != INNER:
            side[h] = side[2 * h]


@kernel
def grow_leaf_rank(points, pairs, heap, leaf_depth, bins, scratch, sorted_pairs):
    """Split the cell in node 1 of the heap greedily, depth first, and say for each leaf which way it goes.

    ``sorted_pairs`` : cells of at most so many pairs are split by sorting their values.
    """
    side, sums, segments = heap.side, heap.sums, heap.segments
    for h in range(side.shape[0]):
        side[h] = 0
    costs, totals = np.empty(2), np.empty(2)
    # Each kind of pair weighs 1 in all in the cell: the split does not depend on how many there are of either.
    costs[0], costs[1] = 1.0 / sums[1, 0], 1.0 / sums[1, 1]
    borders = np.empty(2, dtype=np.int64)
    histograms, window = scratch.histograms, scratch.window
    free = np.arange(histograms.shape[0])
    stack = np.empty((2 * leaf_depth + 2, 3), dtype=np.int64)
    n_pairs = segments[1, 1] - segments[1, 0] + segments[1, 3] - segments[1, 2]
    sort = n_pairs <= sorted_pairs
    n_bins = 0 if sort else lay_out(points, bins, n_pairs)
    n_free = histograms.shape[0] - 1
    stack[0, _NODE], stack[0, _BUFFER], stack[0, _STATE] = 1, -1, _NONE
    if not sort:
        stack[0, _BUFFER], stack[0, _STATE] = free[n_free], _TO_COUNT
    top = 1
    while top > 0:
        top -= 1
        h, buffer, state = stack[top, _NODE], stack[top, _BUFFER], stack[top, _STATE]
        half, feature, threshold, place, last_bin = -1, 0, np.float32(0.0), -1, -1
        splits = h < (1 << leaf_depth) and sums[h, 0] > 0 and sums[h, 1] > 0
        if state == _TO_COUNT:
            count(histograms[buffer], n_bins, points, pairs, segments[h], bins)
            if h > 1:
                # The larger child, next on the stack, has its parent's histogram less the smaller one's.
                sibling = stack[top - 1, _BUFFER]
                subtract(histograms[sibling], histograms[buffer], n_bins)
        if splits and not sort:
            half, place, last_bin = best_split(histograms[buffer], bins, sums[h], costs, scratch)
        if splits:
            totals[0], totals[1] = sums[h, 0] * costs[0], sums[h, 1] * costs[1]
            if sort:
                lowest = totals[0] * totals[1] / (totals[0] + totals[1]) * (1.0 - 1e-9)
                half, feature, threshold = _split_by_values(
                    points, pairs, heap, h, bins, totals, costs, lowest, window
                )
            elif half >= 0:
                feature, threshold = _settle(
                    points, pairs, segments[h], bins, half, place, last_bin, totals, costs, window
                )
        n_low, n_high = 0, 0
        if half >= 0:
            column = points.columns[feature]
            n_low, n_high = _part_node(
                column, threshold, half, points.pair_map, pairs, segments[h], borders, scratch.spare
            )
        # Values that share a code by rounding can all fall on one side.
        if n_low == 0 or n_high == 0:
            # Kept when the gain alpha-range * F+ - beta-range * F- of the leaf is not negative.
            side[h] = LEFT if sums[h, 0] * sums[1, 1] >= sums[h, 1] * sums[1, 0] else RIGHT
        else:
            side[h] = INNER
            heap.features[h, 0], heap.features[h, 1], heap.thresholds[h] = feature, half, threshold
            _fill_children(pairs, heap, h, borders)
            low = 2 * h
            smaller = low if n_low <= n_high else low + 1
            # The smaller child is counted, and first: the larger one then has the parent's histogram less that.
            stack[top, _NODE], stack[top, _BUFFER], stack[top, _STATE] = 2 * low + 1 - smaller, -1, _NONE
            stack[top + 1, _NODE], stack[top + 1, _BUFFER], stack[top + 1, _STATE] = smaller, -1, _NONE
            if not sort and low < (1 << leaf_depth):
                stack[top, _BUFFER], stack[top, _STATE] = buffer, _FILLED
                n_free -= 1
                stack[top + 1, _BUFFER], stack[top + 1, _STATE] = free[n_free], _TO_COUNT
                buffer = -1
            top += 2
        if buffer >= 0:
            free[n_free] = buffer
            n_free += 1
    _merge_equal_leaves(side)


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
        nodes[n, 0] = heap.features[h, 1] * d + features[heap.features[h, 0]]
        nodes[n, 1] = heap.thresholds[h]
        for above in range(2):
            c = 2 * h + above
            nodes[n, 2 + above] = numbered[c] if side[c] == INNER else -1 - (first_child + side[c] - LEFT)
    return n_nodes


@kernel
def grow(points, features, d, pairs, limits, bins, heap, scratch, cells, seed):
    """Grow a similarity tree (Clemencon & Vogel, "The Similarity TreeRank Algorithm").

    Parameters
    ----------
    points, pairs, limits, bins, heap, scratch : see `layout`; pairs are reordered.
    features : (u,) numbers of the points' features among all ``d``.
    cells : a table with the root.
    seed : uint64, of the draws of features.

    Returns
    -------
    cells : (n_cells, 7) int64, parents before children.
    nodes : (n_nodes, 4) float64: ``half * d + feature``, the threshold, and the
        child for a pair feature at most, or above, it.
    """
    max_depth, leaf_depth = limits.max_depth, limits.leaf_depth
    n_used, n_pairs, n_same = points.codes.shape[1], pairs.rows.shape[1], pairs.n_same
    n_tried = min(limits.n_tried, n_used)
    state = np.empty(1, dtype=np.uint64)
    state[0] = seed
    n_heap = heap.side.shape[0]
    numbered, leaves = np.zeros(n_heap, dtype=np.int32), np.empty(n_heap, dtype=np.int64)
    borders = np.empty(2, dtype=np.int64)
    sorted_pairs = n_pairs if n_pairs <= FEW_PAIRS and n_used <= FEW_FEATURES else EXACT_PAIRS

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
            grow_leaf_rank(points, pairs, heap, leaf_depth, bins, scratch, sorted_pairs)
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
