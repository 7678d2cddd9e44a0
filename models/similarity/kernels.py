"""Growing one similarity tree: TreeRank with symmetric LeafRank, in compiled loops.

Pairs are kept as row numbers, same and different pairs apart, and parted in place as cells are split. Histograms of
pair features are counted from byte codes, never from a written-out pair matrix. All weights are integers, so every
sum is exact and no order of adding matters.

Layout of the results (see `grow`): ``cells`` has one row a TreeRank cell, ``nodes`` one row a LeafRank node. A
child of a node is another node (>= 0) or a cell, written as ``-1 - cell``.
"""

from __future__ import annotations

import numpy as np

from models.compiled import kernel

CELL_DEPTH, CELL_POSITION, CELL_NODE, CELL_SAME, CELL_DIFFERENT, CELL_LEFT, CELL_RIGHT, CELL_FIELDS = range(8)
DIFF_SUM, MAX_MIN = 0, 1
EXACT_PAIRS = 48
"""Cells of at most so many pairs are split by sorting their values: no grid, and cheaper than scanning its bins."""
_INNER, _LEFT, _RIGHT = 1, 2, 3


@kernel
def _next_random(state):
    """Splitmix64: advances ``state[0]`` and returns 64 random bits."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def _shuffle_first(features, n_first, state):
    """Bring a uniformly drawn subset of ``features`` to its first ``n_first`` places."""
    n = features.shape[0]
    for i in range(n_first):
        j = i + np.int64(_next_random(state) % np.uint64(n - i))
        features[i], features[j] = features[j], features[i]


@kernel
def _count(
    histogram, codes, left, right, weight, start, stop, tried, n_tried, bases, shift, pair_map, places
):
    """Add pairs ``start:stop`` to the histogram of both pair features of every feature tried.

    The bins of a pair are first worked out for all features, which the compiler does for many at a time, then
    counted. ``places`` is room for them. Unsigned indices: a signed one costs a wrap-around test on each access.
    """
    n_tried = np.uint64(n_tried)
    first, second = places[0], places[1]
    below, above = bases[0], bases[1]
    whole = n_tried == np.uint64(codes.shape[1])
    for p in range(np.uint64(start), np.uint64(stop)):
        i, j, w = np.uint64(left[p]), np.uint64(right[p]), weight[p]
        row, other = codes[i], codes[j]
        if whole and pair_map == DIFF_SUM:
            for k in range(n_tried):
                a, b = np.int32(row[k]), np.int32(other[k])
                first[k] = np.uint32((np.uint32(abs(np.int32(a - b))) >> shift[k]) + below[k])
                second[k] = np.uint32((np.uint32(np.int32(a + b)) >> shift[k]) + above[k])
        elif pair_map == DIFF_SUM:
            for k in range(n_tried):
                f = tried[k]
                a, b = np.int32(row[f]), np.int32(other[f])
                first[k] = np.uint32((np.uint32(abs(np.int32(a - b))) >> shift[k]) + below[k])
                second[k] = np.uint32((np.uint32(np.int32(a + b)) >> shift[k]) + above[k])
        else:
            for k in range(n_tried):
                f = tried[k]
                a, b = np.uint32(row[f]), np.uint32(other[f])
                first[k] = np.uint32((max(a, b) >> shift[k]) + below[k])
                second[k] = np.uint32((min(a, b) >> shift[k]) + above[k])
        for k in range(n_tried):
            histogram[np.uint64(first[k])] += w
            histogram[np.uint64(second[k])] += w


@kernel
def _best_split(same, different, n_tried, bases, n_bins, n_same, n_different, same_cost, different_cost):
    """The split of least Gini impurity under the cell's costs.

    Returns
    -------
    which pair feature's half (0 or 1; -1 when no split lowers the impurity), the feature's place among those tried,
    last bin of the low side.
    """
    a_all, b_all = n_same * same_cost, n_different * different_cost
    least = a_all * b_all / (a_all + b_all) * (1.0 - 1e-9)
    best_half, best_place, best_bin = -1, -1, -1
    for k in range(n_tried):
        for half in range(2):
            offset = np.int64(bases[half, k])
            low_same, low_different = np.int64(0), np.int64(0)
            for b in range(n_bins[half, k] - 1):
                s, d = same[offset + b], different[offset + b]
                if s == 0 and d == 0:
                    continue
                low_same += s
                low_different += d
                if low_same == n_same and low_different == n_different:
                    break
                a, c = low_same * same_cost, low_different * different_cost
                e, g = a_all - a, b_all - c
                low, high = a + c, e + g
                # Compared without dividing: divisions would be most of the scan.
                above = a * c * high + e * g * low
                below = low * high
                if above < least * below:
                    least = above / below
                    best_half, best_place, best_bin = half, k, b
    return best_half, best_place, best_bin


@kernel
def _value(a, b, half, pair_map):
    """A pair feature: the float32 value that training and scoring both decide on."""
    if pair_map == DIFF_SUM:
        return abs(a - b) if half == 0 else a + b
    return max(a, b) if half == 0 else min(a, b)


@kernel
def _best_exact_split(
    columns, features, n_features, pair_map, same_left, same_right, same_weight, s0, s1,
    other_left, other_right, other_weight, o0, o1, n_same, n_different, same_cost, different_cost,
):  # fmt: skip
    """As `_best_split`, over every border between the values of at most `EXACT_PAIRS` pairs; gives the threshold."""
    n_s = s1 - s0
    n = n_s + o1 - o0
    values = np.empty(n, dtype=np.float32)
    order = np.empty(n, dtype=np.int64)
    a_all, b_all = n_same * same_cost, n_different * different_cost
    least = a_all * b_all / (a_all + b_all) * (1.0 - 1e-9)
    best_half, best_feature, best_threshold = -1, -1, np.float32(0.0)
    for k in range(n_features):
        f = np.int64(features[k])
        column = columns[f]
        for half in range(2):
            for p in range(n_s):
                values[p] = _value(column[same_left[s0 + p]], column[same_right[s0 + p]], half, pair_map)
            for p in range(n - n_s):
                values[n_s + p] = _value(
                    column[other_left[o0 + p]], column[other_right[o0 + p]], half, pair_map
                )
            for p in range(n):
                value, q = values[p], p
                while q > 0 and values[order[q - 1]] > value:
                    order[q] = order[q - 1]
                    q -= 1
                order[q] = p
            low_same, low_different = np.int64(0), np.int64(0)
            for q in range(n - 1):
                p = order[q]
                if p < n_s:
                    low_same += same_weight[s0 + p]
                else:
                    low_different += other_weight[o0 + p - n_s]
                at, after = values[p], values[order[q + 1]]
                if at == after:
                    continue
                a, c = low_same * same_cost, low_different * different_cost
                e, g = a_all - a, b_all - c
                low, high = a + c, e + g
                above, below = a * c * high + e * g * low, low * high
                if above < least * below:
                    least = above / below
                    middle = np.float32(0.5 * (np.float64(at) + np.float64(after)))
                    best_half, best_feature = half, f
                    best_threshold = (middle if at <= middle < after else at) + np.float32(0.0)
    return best_half, best_feature, best_threshold


@kernel
def _near(column, half, pair_map, left, right, weight, start, stop, low, high, values, weights, n):
    """Append values in ``(low, high]`` and their weights; returns how many there are, and the weight at most low."""
    below = np.int64(0)
    for p in range(start, stop):
        value = _value(column[left[p]], column[right[p]], half, pair_map)
        if value <= low:
            below += weight[p]
        elif value <= high:
            values[n], weights[n] = value, weight[p]
            n += 1
    return n, below


@kernel
def _refined(
    threshold, reach, column, half, pair_map, same_left, same_right, same_weight, s0, s1,
    other_left, other_right, other_weight, o0, o1, a_all, b_all, same_cost, different_cost,
):  # fmt: skip
    """The best border between the values themselves near a border between bins.

    The codes of two values are each off by up to half a step, so bins are blurred; their best border is close to
    the best one, not it.
    """
    values = np.empty(s1 - s0 + o1 - o0, dtype=np.float32)
    weights = np.empty(values.shape[0], dtype=np.int64)
    low, high = np.float64(threshold) - reach, np.float64(threshold) + reach
    n_same, low_same = _near(
        column, half, pair_map, same_left, same_right, same_weight, s0, s1, low, high, values, weights, 0
    )
    n, low_different = _near(
        column,
        half,
        pair_map,
        other_left,
        other_right,
        other_weight,
        o0,
        o1,
        low,
        high,
        values,
        weights,
        n_same,
    )
    order = np.argsort(values[:n])
    least, best = np.inf, threshold
    for q in range(n - 1):
        p = order[q]
        if p < n_same:
            low_same += weights[p]
        else:
            low_different += weights[p]
        at, after = values[p], values[order[q + 1]]
        if at == after:
            continue
        a, c = low_same * same_cost, low_different * different_cost
        e, g = a_all - a, b_all - c
        impurity = a * c / (a + c) + e * g / (e + g)
        if impurity < least:
            least = impurity
            middle = np.float32(0.5 * (np.float64(at) + np.float64(after)))
            best = (middle if at <= middle < after else at) + np.float32(0.0)
    return best


@kernel
def _part(column, threshold, half, pair_map, left, right, weight, start, stop, spare):
    """Stable in-place parting of pairs ``start:stop``: features at most the threshold first; returns the border."""
    kept, moved = start, 0
    for p in range(start, stop):
        i, j, w = left[p], right[p], weight[p]
        if _value(column[i], column[j], half, pair_map) > threshold:
            spare[0, moved], spare[1, moved], spare[2, moved] = i, j, w
            moved += 1
        else:
            left[kept], right[kept], weight[kept] = i, j, w
            kept += 1
    for q in range(moved):
        left[kept + q], right[kept + q], weight[kept + q] = spare[0, q], spare[1, q], spare[2, q]
    return kept


@kernel
def _gather_leaves(segments, state, first, left, right, weight, spare):
    """Bring the pairs of the kept leaves to the front of the cell; returns how many pairs they are.

    ``segments[h, first]`` and ``segments[h, first + 1]`` bound the pairs of LeafRank node h.
    """
    stack = np.empty(64, dtype=np.int64)
    written, kept = 0, 0
    for side in (_LEFT, _RIGHT):
        stack[0] = 1
        top = 1
        while top > 0:
            top -= 1
            h = stack[top]
            if state[h] == _INNER:
                stack[top], stack[top + 1] = 2 * h + 1, 2 * h
                top += 2
            elif state[h] == side:
                for p in range(segments[h, first], segments[h, first + 1]):
                    spare[0, written], spare[1, written], spare[2, written] = left[p], right[p], weight[p]
                    written += 1
        if side == _LEFT:
            kept = written
    start = segments[1, first]
    for q in range(written):
        left[start + q], right[start + q], weight[start + q] = spare[0, q], spare[1, q], spare[2, q]
    return kept


@kernel
def _total(weight, start, stop):
    total = np.int64(0)
    for p in range(start, stop):
        total += weight[p]
    return total


@kernel
def _threshold(half, bin_, shift, pair_map, low, step):
    """The border between a bin of ``2^shift`` codes and the next, in the feature's units."""
    base = 2.0 * low if half == 1 else 0.0
    if pair_map == MAX_MIN:
        base = low
    # Adding +0.0 rids the result of a negative zero, which scoring's integer order would tell from zero.
    return np.float32(base + (((bin_ + 1) << shift) - 0.5) * step) + np.float32(0.0)


@kernel
def _coarseness(n_pairs):
    """How many halvings of the grid leave enough bins for so many pairs: empty bins cost time and tell nothing."""
    if n_pairs >= 8192:
        return 0
    return 1 if n_pairs >= 2048 else (2 if n_pairs >= 512 else 3)


@kernel
def _lay_out(n_codes, coarser, pair_map, tried, n_tried, shift, n_bins, bases):
    """Place the bins of the features tried one after the other; returns how many there are."""
    size = 0
    for k in range(n_tried):
        last = n_codes[tried[k]] - 1
        halvings = 0 if last < 64 else coarser
        shift[k] = halvings
        n_bins[0, k] = (last >> halvings) + 1
        n_bins[1, k] = ((2 * last if pair_map == DIFF_SUM else last) >> halvings) + 1
        for half in range(2):
            bases[half, k] = size
            size += n_bins[half, k]
    return size


@kernel
def grow(
    codes, columns, low, step, n_codes, exact_grid, used, d, pair_map,
    same_left, same_right, same_weight, other_left, other_right, other_weight,
    max_depth, leaf_depth, n_tried, seed,
):  # fmt: skip
    """Grow a similarity tree (Clemencon & Vogel, "The Similarity TreeRank Algorithm").

    Parameters
    ----------
    codes : (n, u) uint8 and ``columns`` : (u, n) float32, the same rows coded and as they are.
    low, step, n_codes, exact_grid : the grid, (u,) each.
    used : (u,) numbers of those features among all ``d``.
    same_*, other_* : rows and integer weights of pairs of one identity and of two; reordered in place.
    n_tried : features drawn for each cell; each brings its two pair features.
    seed : uint64, of the draws of features.

    Returns
    -------
    cells : (n_cells, 7) int64, parents before children.
    node_feature : (n_nodes,) int32, ``half * d + feature``; node_threshold : float32; node_low, node_high : int32
        child for a pair feature at most, or above, the threshold.
    """
    n_used = codes.shape[1]
    tried = np.arange(n_used).astype(np.uint64)
    n_tried = min(n_tried, n_used)
    state = np.array([seed], dtype=np.uint64)
    shift = np.zeros(n_tried, dtype=np.uint32)
    n_bins = np.zeros((2, n_tried), dtype=np.int64)
    bases = np.zeros((2, n_tried), dtype=np.uint32)
    places = np.empty((2, n_tried), dtype=np.uint32)
    # The most bins that any draw of features can take.
    widest = 3 * n_codes.max() if n_used > 0 else 0

    # LeafRank's nodes, as a heap with its root at 1.
    n_heap = 2 << leaf_depth
    side = np.zeros(n_heap, dtype=np.int64)
    segments = np.zeros((n_heap, 4), dtype=np.int64)
    sums = np.zeros((n_heap, 2), dtype=np.int64)
    split_feature = np.zeros(n_heap, dtype=np.int32)
    split_threshold = np.zeros(n_heap, dtype=np.float32)
    numbered = np.zeros(n_heap, dtype=np.int32)
    heap_stack = np.empty((n_heap, 2), dtype=np.int64)
    # A smaller child is counted into a buffer of its own, the larger one is its parent's less that.
    histograms = np.empty((leaf_depth + 1, 2, n_tried * widest), dtype=np.int32)
    free = np.empty(leaf_depth + 1, dtype=np.int64)

    spare = np.empty((3, max(same_left.shape[0], other_left.shape[0])), dtype=np.int32)
    cells = np.empty((64, CELL_FIELDS), dtype=np.int64)
    node_feature = np.empty(64, dtype=np.int32)
    node_threshold = np.empty(64, dtype=np.float32)
    node_low, node_high = np.empty(64, dtype=np.int32), np.empty(64, dtype=np.int32)
    n_nodes = 0

    todo = np.empty((max_depth + 2, 5), dtype=np.int64)
    todo[0] = np.array([0, 0, same_left.shape[0], 0, other_left.shape[0]])
    n_todo = 1
    cells[0] = np.array([0, 0, -1, _total(same_weight, 0, same_left.shape[0]),
                         _total(other_weight, 0, other_left.shape[0]), -1, -1])  # fmt: skip
    n_cells = 1
    while n_todo > 0:
        n_todo -= 1
        cell = todo[n_todo, 0]
        n_same, n_other = cells[cell, CELL_SAME], cells[cell, CELL_DIFFERENT]
        if cells[cell, CELL_DEPTH] >= max_depth or n_same == 0 or n_other == 0 or n_tried == 0:
            continue
        same_cost, other_cost = 1.0 / n_same, 1.0 / n_other
        if n_tried < n_used:
            _shuffle_first(tried, n_tried, state)
            # In order of number, so that gathers of codes run forward.
            tried[:n_tried].sort()

        # LeafRank: greedy, depth first.
        side[:] = 0
        for column in range(4):
            segments[1, column] = todo[n_todo, 1 + column]
        sums[1, 0], sums[1, 1] = n_same, n_other
        n_pairs = segments[1, 1] - segments[1, 0] + segments[1, 3] - segments[1, 2]
        exact = n_pairs <= EXACT_PAIRS
        n_free, buffer = 0, -1
        if not exact:
            coarser = _coarseness(n_pairs)
            size = _lay_out(n_codes, coarser, pair_map, tried, n_tried, shift, n_bins, bases)
            for b in range(leaf_depth):
                free[b] = b
            n_free, buffer = leaf_depth, leaf_depth
            histograms[buffer, :, :size] = 0
            _count(histograms[buffer, 0], codes, same_left, same_right, same_weight, segments[1, 0], segments[1, 1],
                   tried, n_tried, bases, shift, pair_map, places)  # fmt: skip
            _count(histograms[buffer, 1], codes, other_left, other_right, other_weight, segments[1, 2], segments[1, 3],
                   tried, n_tried, bases, shift, pair_map, places)  # fmt: skip
        heap_stack[0, 0], heap_stack[0, 1] = 1, buffer
        top = 1
        while top > 0:
            top -= 1
            h, buffer = heap_stack[top, 0], heap_stack[top, 1]
            inner = h < (1 << leaf_depth) and sums[h, 0] > 0 and sums[h, 1] > 0
            if inner and exact:
                half, f, threshold = _best_exact_split(
                    columns, tried, n_tried, pair_map,
                    same_left, same_right, same_weight, segments[h, 0], segments[h, 1],
                    other_left, other_right, other_weight, segments[h, 2], segments[h, 3],
                    sums[h, 0], sums[h, 1], same_cost, other_cost,
                )  # fmt: skip
                inner = half >= 0
            elif inner:
                half, place, b = _best_split(
                    histograms[buffer, 0], histograms[buffer, 1], n_tried, bases, n_bins,
                    sums[h, 0], sums[h, 1], same_cost, other_cost,
                )  # fmt: skip
                inner = half >= 0
                if inner:
                    f = np.int64(tried[place])
                    halvings = np.int64(shift[place])
                    threshold = _threshold(half, b, halvings, pair_map, low[f], step[f])
                    if halvings > 0 or not exact_grid[f]:
                        threshold = _refined(
                            threshold, 2.0 * step[f] * (1 << halvings), columns[f], half, pair_map,
                            same_left, same_right, same_weight, segments[h, 0], segments[h, 1],
                            other_left, other_right, other_weight, segments[h, 2], segments[h, 3],
                            sums[h, 0] * same_cost, sums[h, 1] * other_cost, same_cost, other_cost,
                        )  # fmt: skip
            if inner:
                border_same = _part(columns[f], threshold, half, pair_map, same_left, same_right, same_weight,
                                    segments[h, 0], segments[h, 1], spare)  # fmt: skip
                border_other = _part(columns[f], threshold, half, pair_map, other_left, other_right, other_weight,
                                     segments[h, 2], segments[h, 3], spare)  # fmt: skip
                n_low = border_same - segments[h, 0] + border_other - segments[h, 2]
                n_high = segments[h, 1] - border_same + segments[h, 3] - border_other
                # Values that share a code by rounding can all fall on one side.
                inner = n_low > 0 and n_high > 0
            if not inner:
                # Kept when the gain alpha-range * F+ - beta-range * F- of the leaf is not negative.
                side[h] = _LEFT if sums[h, 0] * n_other >= sums[h, 1] * n_same else _RIGHT
                if buffer >= 0:
                    free[n_free] = buffer
                    n_free += 1
                continue
            side[h] = _INNER
            split_feature[h], split_threshold[h] = half * d + used[f], threshold
            c = 2 * h
            segments[c, 0], segments[c, 1] = segments[h, 0], border_same
            segments[c, 2], segments[c, 3] = segments[h, 2], border_other
            segments[c + 1, 0], segments[c + 1, 1] = border_same, segments[h, 1]
            segments[c + 1, 2], segments[c + 1, 3] = border_other, segments[h, 3]
            sums[c, 0] = _total(same_weight, segments[c, 0], segments[c, 1])
            sums[c, 1] = _total(other_weight, segments[c, 2], segments[c, 3])
            sums[c + 1, 0], sums[c + 1, 1] = sums[h, 0] - sums[c, 0], sums[h, 1] - sums[c, 1]
            if exact or c >= (1 << leaf_depth):
                # Nothing of the children needs counting: they are sorted, or leaves.
                if buffer >= 0:
                    free[n_free] = buffer
                    n_free += 1
                heap_stack[top, 0], heap_stack[top, 1] = c + 1, -1
                heap_stack[top + 1, 0], heap_stack[top + 1, 1] = c, -1
                top += 2
                continue
            smaller = c if n_low <= n_high else c + 1
            n_free -= 1
            other = free[n_free]
            histograms[other, :, :size] = 0
            _count(histograms[other, 0], codes, same_left, same_right, same_weight, segments[smaller, 0],
                   segments[smaller, 1], tried, n_tried, bases, shift, pair_map, places)  # fmt: skip
            _count(histograms[other, 1], codes, other_left, other_right, other_weight, segments[smaller, 2],
                   segments[smaller, 3], tried, n_tried, bases, shift, pair_map, places)  # fmt: skip
            histograms[buffer, :, :size] -= histograms[other, :, :size]
            heap_stack[top, 0], heap_stack[top, 1] = 4 * h + 1 - smaller, buffer
            heap_stack[top + 1, 0], heap_stack[top + 1, 1] = smaller, other
            top += 2

        # Nodes whose children go the same way decide nothing.
        for h in range((1 << leaf_depth) - 1, 0, -1):
            if side[h] == _INNER and side[2 * h] == side[2 * h + 1] and side[2 * h] != _INNER:
                side[h] = side[2 * h]
        if side[1] != _INNER:
            continue

        kept_same = _gather_leaves(segments, side, 0, same_left, same_right, same_weight, spare)
        kept_other = _gather_leaves(segments, side, 2, other_left, other_right, other_weight, spare)
        border_same, border_other = segments[1, 0] + kept_same, segments[1, 2] + kept_other
        left_same = _total(same_weight, segments[1, 0], border_same)
        left_other = _total(other_weight, segments[1, 2], border_other)
        if left_same * n_other <= left_other * n_same:
            continue
        if n_cells + 2 > cells.shape[0]:
            grown = np.empty((2 * cells.shape[0], CELL_FIELDS), dtype=np.int64)
            grown[:n_cells] = cells[:n_cells]
            cells = grown
        depth, position = cells[cell, CELL_DEPTH] + 1, 2 * cells[cell, CELL_POSITION]
        a, b = n_cells, n_cells + 1
        cells[a] = np.array([depth, position, -1, left_same, left_other, -1, -1])
        cells[b] = np.array([depth, position + 1, -1, n_same - left_same, n_other - left_other, -1, -1])
        n_cells += 2
        cells[cell, CELL_LEFT], cells[cell, CELL_RIGHT], cells[cell, CELL_NODE] = a, b, n_nodes
        todo[n_todo] = np.array([b, border_same, segments[1, 1], border_other, segments[1, 3]])
        todo[n_todo + 1] = np.array([a, segments[1, 0], border_same, segments[1, 2], border_other])
        n_todo += 2

        # Number the nodes level by level, then write them.
        while n_nodes + n_heap > node_feature.shape[0]:
            node_feature = np.concatenate((node_feature, np.empty_like(node_feature)))
            node_threshold = np.concatenate((node_threshold, np.empty_like(node_threshold)))
            node_low = np.concatenate((node_low, np.empty_like(node_low)))
            node_high = np.concatenate((node_high, np.empty_like(node_high)))
        reachable = n_nodes
        for h in range(1, 1 << leaf_depth):
            if h > 1 and (side[h >> 1] != _INNER or numbered[h >> 1] < 0):
                numbered[h] = -1
            elif side[h] == _INNER:
                numbered[h] = reachable
                reachable += 1
            else:
                numbered[h] = -1
        for h in range(1, 1 << leaf_depth):
            if numbered[h] < 0:
                continue
            n = numbered[h]
            node_feature[n], node_threshold[n] = split_feature[h], split_threshold[h]
            for child in range(2):
                c = 2 * h + child
                target = numbered[c] if side[c] == _INNER else (-1 - a if side[c] == _LEFT else -1 - b)
                if child == 0:
                    node_low[n] = target
                else:
                    node_high[n] = target
        n_nodes = reachable
    return (
        cells[:n_cells, :7].copy(),
        node_feature[:n_nodes].copy(),
        node_threshold[:n_nodes].copy(),
        node_low[:n_nodes].copy(),
        node_high[:n_nodes].copy(),
    )
