"""Symmetric LeafRank: a cell of a similarity tree is split by a greedy tree of its own."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.similarity.kernels.borders import MOST_SORTED, best_border
from pairmark.models.similarity.kernels.counting import count, lay_out, subtract
from pairmark.models.similarity.kernels.layout import INNER, LEARNED, LEFT, RIGHT
from pairmark.models.similarity.kernels.partition import partition, total_weight
from pairmark.models.similarity.kernels.splitting import best_split, threshold_of

_NODE, _BUFFER, _STATE = range(3)
"""Columns of the stack: a node, its histogram's buffer (-1: none), and the state that it is in."""
_NONE, _FILLED, _TO_COUNT = range(3)
"""No histogram; one that is filled; one to be counted."""


@kernel
def _split_by_values(points, pairs, learned, heap, h, bins, totals, costs, lowest, window, most_sorted):
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
                column, candidate, pair_map, pairs, segment, -np.inf, np.inf, totals, costs, lowest, window,
                most_sorted,
            )  # fmt: skip
            if improves:
                half, feature, threshold = candidate, np.int64(features[k]), border
    for k in range(learned.n_bins.shape[0]):
        lowest, border, improves = best_border(
            learned.values[k], LEARNED, pair_map, pairs, segment,
            -np.inf, np.inf, totals, costs, lowest, window, most_sorted,
        )  # fmt: skip
        if improves:
            half, feature, threshold = LEARNED, k, border
    return half, feature, threshold


@kernel
def _settle(points, pairs, learned, segment, bins, half, place, last_bin, totals, costs, window):
    """Turn a split in bins into one in values: the feature's number and its threshold."""
    if half == LEARNED:
        edges = learned.edges[place]
        # Bins are no finer than their number allows: settle the border among the values around it.
        _, border, exists = best_border(
            learned.values[place], LEARNED, points.pair_map, pairs, segment,
            edges[last_bin - 1] if last_bin > 0 else -np.inf, np.float64(edges[last_bin + 1]),
            totals, costs, np.inf, window, MOST_SORTED,
        )  # fmt: skip
        return place, border if exists else edges[last_bin]
    feature, halvings = np.int64(bins.features[place]), np.int64(bins.shift[place])
    threshold = threshold_of(points, half, feature, last_bin, halvings)
    if halvings > 0 or not points.exact[feature]:
        # Each code is off by up to half a step, which blurs bins: the best border between the values themselves is
        # close to the bins' best, but not the same.
        reach = 2.0 * points.step[feature] * (1 << halvings)
        _, border, exists = best_border(
            points.columns[feature], half, points.pair_map, pairs, segment, threshold - reach, threshold + reach,
            totals, costs, np.inf, window, MOST_SORTED,
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
def grow_leaf_rank(points, pairs, learned, heap, leaf_depth, bins, scratch, sorted_pairs):
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
    n_bins = 0 if sort else lay_out(points, learned, bins, n_pairs)
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
            count(histograms[buffer], n_bins, points, pairs, learned, segments[h], bins)
            if h > 1:
                # The larger child, next on the stack, has its parent's histogram less the smaller one's.
                sibling = stack[top - 1, _BUFFER]
                subtract(histograms[sibling], histograms[buffer], n_bins)
        if splits and not sort:
            half, place, last_bin = best_split(histograms[buffer], bins, learned, sums[h], costs, scratch)
        if splits:
            totals[0], totals[1] = sums[h, 0] * costs[0], sums[h, 1] * costs[1]
            if sort:
                lowest = totals[0] * totals[1] / (totals[0] + totals[1]) * (1.0 - 1e-9)
                half, feature, threshold = _split_by_values(
                    points, pairs, learned, heap, h, bins, totals, costs, lowest, window, sorted_pairs
                )
            elif half >= 0:
                feature, threshold = _settle(
                    points, pairs, learned, segments[h], bins, half, place, last_bin, totals, costs, window
                )
        n_low, n_high = 0, 0
        if half >= 0:
            column = learned.values[feature] if half == LEARNED else points.columns[feature]
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
