"""Growing one similarity tree: TreeRank with symmetric LeafRank, in compiled loops.

A set of pairs is a segment ``start, stop, start, stop`` of a `PairTable`: its same pairs, then its different ones.
Weights are integers, so every sum is exact, and neither the order of adding nor that of pairs within a segment matters.

Of the results (see `grow`), ``cells`` has one row a TreeRank cell, ``nodes`` one row a LeafRank node. A child of a node
is another node (>= 0) or a cell, written as ``-1 - cell``.

What these kernels cost to compile is most of a first fit, so: only `grow` can be called from Python, NumPy allocates
all memory, and counters are int64 from the start, since a literal 0 would be one more type to compile for.
"""

import numpy as np

from pairmark.models.core.compiled import inlined_kernel, inner_kernel, kernel
from pairmark.models.core.kernels import larger, next_random, smaller
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
    N_CELLS,
    N_NODES,
    N_TODO,
    RIGHT,
    RUN,
    TODO_CELL,
)
from pairmark.models.similarity.kernels.scoring import pair_value

MOST_SORTED = 8_192
"""Among more values than so many the border between two bins is good enough."""


@inner_kernel
def fill_values(column, half, pair_map, rows, start, stop, values):
    """A feature of pairs ``start:stop``: the float32 values that training and scoring both decide on."""
    left, right = rows[0], rows[1]
    # Unsigned, as in `count`: a signed index costs a test for counting from the end.
    n = np.uint64(stop - start)
    first = np.uint64(start)
    for t in range(n):
        a, b = column[np.uint64(left[first + t])], column[np.uint64(right[first + t])]
        values[t] = pair_value(a, b, half, pair_map)


@inner_kernel
def _sort(values, owners, n):
    """Shell sort of the first ``n`` values, their owners along; numba's own sort costs seconds to compile."""
    # Gaps of 1, 4, 13, 40, ... (Knuth).
    gap = 1
    while 3 * gap + 1 < n:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            value, owner, q = values[i], owners[i], i
            while q >= gap and values[q - gap] > value:
                values[q], owners[q] = values[q - gap], owners[q - gap]
                q -= gap
            values[q], owners[q] = value, owner
        gap //= 3


@inner_kernel
def best_border(column, half, pair_map, pairs, segment, low, high, totals, costs, lowest, window):
    """The border of least Gini impurity between the values in ``(low, high]`` of one pair feature.

    Parameters
    ----------
    totals : weights of the segment's same and different pairs, times ``costs``.
    lowest : only a border below this impurity counts.

    Returns
    -------
    the least impurity, the border, whether there is one.
    """
    values, owners = window.values, window.owners
    rows, weight, n_same = pairs.rows, pairs.weight, pairs.n_same
    below, run = window.below, window.run
    n = np.int64(0)
    for kind in range(2):
        # What is at most `low` lies below every border of the window: it is summed, not sorted.
        total = np.int64(0)
        stop = segment[2 * kind + 1]
        for start in range(segment[2 * kind], stop, RUN):
            m = smaller(RUN, stop - start)
            fill_values(column, half, pair_map, rows, start, start + m, run)
            for t in range(m):
                total += np.int64(weight[start + t]) * np.int64(run[t] <= low)
            for t in range(m):
                # Rarely so: the window is a few steps of the grid.
                if low < run[t] <= high:
                    values[n], owners[n] = run[t], start + t
                    n += 1
        below[kind] = total
    border, exists = np.float32(0.0), False
    if n > MOST_SORTED:
        return lowest, border, exists
    _sort(values, owners, n)
    for q in range(n - 1):
        # Same pairs come first in the table, and stay there as it is parted: a pair's number says its kind.
        below[0 if owners[q] < n_same else 1] += weight[owners[q]]
        if values[q] == values[q + 1]:
            continue
        a, c = below[0] * costs[0], below[1] * costs[1]
        e, g = totals[0] - a, totals[1] - c
        # The impurity a c / (a + c) + e g / (e + g) as one fraction: compared without a division.
        above, under = a * c * (e + g) + e * g * (a + c), (a + c) * (e + g)
        if above < lowest * under:
            lowest, exists = above / under, True
            middle = np.float32(0.5 * (np.float64(values[q]) + np.float64(values[q + 1])))
            # Where no float lies between, the lower value itself is the border.
            border = middle if values[q] <= middle < values[q + 1] else values[q]
    # Adding +0.0 rids it of a negative zero, which scoring's integer order would tell from zero.
    return lowest, border + np.float32(0.0), exists


@inner_kernel
def _part_node(column, threshold, half, pair_map, pairs, heap, h, scratch):
    """Part a node's pairs by a threshold, those at most the threshold first, and fill its children's segments and
    weights; returns how many pairs go to either side."""
    segments, sums, low, high = heap.segments, heap.sums, 2 * h, 2 * h + 1
    rows, weight, run, spare = pairs.rows, pairs.weight, scratch.window.run, scratch.spare
    left, right = rows[0], rows[1]
    for kind in range(2):
        start, stop = segments[h, 2 * kind], segments[h, 2 * kind + 1]
        border, n_spare, low_weight = np.uint64(start), np.uint64(0), np.int64(0)
        # No branch on a comparison of values, which is a coin toss: pairs are written to both places, and only the
        # counts tell which one holds.
        for begin in range(start, stop, RUN):
            n, first = np.uint64(smaller(RUN, stop - begin)), np.uint64(begin)
            fill_values(column, half, pair_map, rows, begin, begin + np.int64(n), run)
            for t in range(n):
                above = np.uint64(run[t] > threshold)
                # Read before it is written over: `border` never passes the pair that is looked at.
                i, j, w = left[first + t], right[first + t], weight[first + t]
                spare[0, n_spare], spare[1, n_spare], spare[2, n_spare] = i, j, w
                left[border], right[border], weight[border] = i, j, w
                n_spare += above
                border += np.uint64(1) - above
                low_weight += np.int64(w) * (np.int64(1) - np.int64(above))
        # Those above the threshold follow, in their order.
        for q in range(n_spare):
            left[border + q], right[border + q] = spare[0, q], spare[1, q]
            weight[border + q] = spare[2, q]
        middle = np.int64(border)
        segments[low, 2 * kind], segments[low, 2 * kind + 1] = start, middle
        segments[high, 2 * kind], segments[high, 2 * kind + 1] = middle, stop
        sums[low, kind], sums[high, kind] = low_weight, sums[h, kind] - low_weight
    n_low = segments[low, 1] - segments[low, 0] + segments[low, 3] - segments[low, 2]
    n_high = segments[high, 1] - segments[high, 0] + segments[high, 3] - segments[high, 2]
    return n_low, n_high


@inner_kernel
def _gather_left(heap, pairs, borders, left_weights, spare):
    """Bring the pairs of the leaves that go left to the front, either kind.

    ``borders``, ``left_weights`` : (2,) become where the others begin, and what the pairs in front weigh.
    """
    side, segments, rows, weight = heap.side, heap.segments, pairs.rows, pairs.weight
    for kind in range(2):
        start, stop = segments[1, 2 * kind], segments[1, 2 * kind + 1]
        # Leaves that go left fill the space from its front, the others from its end: together they fill it.
        front, back = np.uint64(0), np.uint64(stop - start)
        left_weights[kind] = 0
        for h in range(2, side.shape[0]):
            # Below a node that was merged nothing counts.
            if side[h] < LEFT or side[h >> 1] != INNER:
                continue
            first, n = (
                np.uint64(segments[h, 2 * kind]),
                np.uint64(segments[h, 2 * kind + 1] - segments[h, 2 * kind]),
            )
            if side[h] == LEFT:
                left_weights[kind] += heap.sums[h, kind]
                slot = front
                front += n
            else:
                back -= n
                slot = back
            for t in range(n):
                spare[0, slot + t], spare[1, slot + t] = (
                    rows[0, first + t],
                    rows[1, first + t],
                )
                spare[2, slot + t] = weight[first + t]
        begin = np.uint64(start)
        for t in range(np.uint64(stop - start)):
            rows[0, begin + t], rows[1, begin + t], weight[begin + t] = spare[0, t], spare[1, t], spare[2, t]
        borders[kind] = start + np.int64(front)


@inner_kernel
def lay_out(points, bins, n_pairs):
    """Place the bins of the features tried in a cell of ``n_pairs`` one after the other; returns how many there are."""
    # Halvings of the grid that leave enough bins for so many pairs: empty bins cost time and carry nothing.
    coarser = np.int64(n_pairs < 8192) + np.int64(n_pairs < 2048) + np.int64(n_pairs < 512)
    pair_map, size = points.pair_map, np.int64(0)
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


@inner_kernel
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
                    first[k] = np.uint32((larger(a, b) >> shift[k]) + below[k])
                    second[k] = np.uint32((smaller(a, b) >> shift[k]) + above[k])
            for k in range(n_tried):
                counts[np.uint64(first[k])] += w
                counts[np.uint64(second[k])] += w


@inner_kernel
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
    below_same, below_different, gains = scratch.low_sums[0], scratch.low_sums[1], scratch.gains
    n_tried = bins.shift.shape[0]
    bits = scratch.gain_bits
    best_half, best_place, best_bin = np.int64(-1), np.int64(-1), np.int64(-1)
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
            below_same[b], below_different[b] = low_same, low_different
        for b in range(size - np.uint64(1)):
            s, d = np.float64(below_same[b]), np.float64(below_different[b])
            # Exactly 0 where a side is empty, and so is the gain.
            cross = (s * all_different - d * all_same) * scale
            low, high = (
                s * same_cost + d * different_cost,
                (all_same - s) * same_cost + (all_different - d) * different_cost,
            )
            gains[b] = cross * cross / larger(low * high, 1e-300)
        # Floats that are not negative are in the order of their bits, whose maximum needs no care for NaN.
        top = np.int64(0)
        for b in range(size - np.uint64(1)):
            top = larger(top, bits[b])
        # The first of equal gains: the lowest border, in whatever order the maximum was taken.
        for b in range(size - np.uint64(1)):
            if bits[b] == top:
                if gains[b] > best_gain:
                    best_gain = gains[b]
                    best_half, best_place, best_bin = half, k, np.int64(b)
                break
    return best_half, best_place, best_bin


_NODE, _LEVEL, _BUFFER = range(3)
"""Columns of the stack: a node, its level, and its histogram's buffer: one of the node's own level is to be counted,
one of a level above holds what the parent had."""


@inlined_kernel
def _split_by_values(points, pairs, heap, h, bins, totals, costs, lowest, window):
    """The best split of a node by sorting its values: no grid, and cheaper than scanning bins for few pairs.

    Returns
    -------
    half of the pair map (-1: none), feature, threshold.
    """
    half, feature, threshold = np.int64(-1), np.int64(0), np.float32(0.0)
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


@inlined_kernel
def _settle(points, pairs, segment, bins, half, place, last_bin, totals, costs, window):
    """Turn a split in bins into one in values: the feature's number and its threshold."""
    feature, halvings = np.int64(bins.features[place]), np.int64(bins.shift[place])
    low, step = points.low[feature], points.step[feature]
    # Codes count steps from `low` for a maximum or minimum, from 2 low for a sum, from 0 for a difference.
    base = low if points.pair_map == MAX_MIN else (2.0 * low if half == 1 else 0.0)
    threshold = np.float32(base + (((last_bin + 1) << halvings) - 0.5) * step) + np.float32(0.0)
    if halvings > 0 or not points.exact[feature]:
        # Each code is off by up to half a step, which blurs bins: the best border between the values themselves is
        # close to the bins' best, but not the same.
        reach = 2.0 * step * (1 << halvings)
        _, border, exists = best_border(
            points.columns[feature], half, points.pair_map, pairs, segment, threshold - reach, threshold + reach,
            totals, costs, np.inf, window,
        )  # fmt: skip
        if exists:
            threshold = border
    return feature, threshold


@inlined_kernel
def grow_leaf_rank(points, pairs, heap, leaf_depth, bins, scratch, sorted_pairs):
    """Split the cell in node 1 of the heap greedily, depth first, and say for each leaf which way it goes.

    ``sorted_pairs`` : cells of at most so many pairs are split by sorting their values.
    """
    side, sums, segments = heap.side, heap.sums, heap.segments
    for h in range(side.shape[0]):
        side[h] = 0
    costs, totals = scratch.costs[0], scratch.costs[1]
    # Each kind of pair weighs 1 in all in the cell: the split does not depend on how many there are of either.
    costs[0], costs[1] = 1.0 / sums[1, 0], 1.0 / sums[1, 1]
    histograms, window, stack = scratch.histograms, scratch.window, scratch.stack
    n_pairs = segments[1, 1] - segments[1, 0] + segments[1, 3] - segments[1, 2]
    sort = n_pairs <= sorted_pairs
    n_bins = np.int64(0) if sort else lay_out(points, bins, n_pairs)
    stack[0, _NODE], stack[0, _LEVEL], stack[0, _BUFFER] = 1, 0, 0
    top = np.int64(1)
    while top > 0:
        top -= 1
        h, level, buffer = stack[top, _NODE], stack[top, _LEVEL], stack[top, _BUFFER]
        half, feature, threshold = np.int64(-1), np.int64(0), np.float32(0.0)
        if level < leaf_depth and level == buffer and not sort:
            count(histograms[buffer], n_bins, points, pairs, segments[h], bins)
            if h > 1:
                # The larger child, next on the stack, has its parent's histogram less the smaller one's.
                larger, smaller = histograms[stack[top - 1, _BUFFER]], histograms[buffer]
                for kind in range(2):
                    for b in range(n_bins):
                        larger[kind, b] -= smaller[kind, b]
        if level < leaf_depth and sums[h, 0] > 0 and sums[h, 1] > 0:
            totals[0], totals[1] = sums[h, 0] * costs[0], sums[h, 1] * costs[1]
            if sort:
                # The impurity of the node as it is, less a share far above rounding: a split has to be better than
                # none.
                lowest = totals[0] * totals[1] / (totals[0] + totals[1]) * (1.0 - 1e-9)
                half, feature, threshold = _split_by_values(
                    points, pairs, heap, h, bins, totals, costs, lowest, window
                )
            else:
                half, place, last_bin = best_split(histograms[buffer], bins, sums[h], costs, scratch)
                if half >= 0:
                    feature, threshold = _settle(
                        points, pairs, segments[h], bins, half, place, last_bin, totals, costs, window
                    )
        n_low, n_high = np.int64(0), np.int64(0)
        if half >= 0:
            n_low, n_high = _part_node(
                points.columns[feature], threshold, half, points.pair_map, pairs, heap, h, scratch
            )
        # Values that share a code by rounding can all fall on one side.
        if n_low == 0 or n_high == 0:
            # Kept when the gain alpha-range * F+ - beta-range * F- of the leaf is not negative.
            side[h] = LEFT if sums[h, 0] * sums[1, 1] >= sums[h, 1] * sums[1, 0] else RIGHT
            continue
        side[h] = INNER
        heap.features[h, 0], heap.features[h, 1], heap.thresholds[h] = feature, half, threshold
        smaller_child = 2 * h + np.int64(n_low > n_high)
        # The smaller child is counted, and first: the larger one then has the parent's histogram less that. All that is
        # below the smaller one is done before the larger one's turn, so no two need the buffer of one level at a time.
        stack[top, _NODE], stack[top, _LEVEL], stack[top, _BUFFER] = (
            4 * h + 1 - smaller_child,
            level + 1,
            buffer,
        )
        top += 1
        stack[top, _NODE], stack[top, _LEVEL], stack[top, _BUFFER] = smaller_child, level + 1, level + 1
        top += 1
    # Nodes whose children go the same way decide nothing. From the lowest level up: merged children merge again.
    for h in range(side.shape[0] // 2 - 1, 0, -1):
        if side[h] == INNER and side[2 * h] == side[2 * h + 1] and side[2 * h] != INNER:
            side[h] = side[2 * h]


EXACT_PAIRS = 48
"""Cells of at most so many pairs are split by sorting their values: no grid, and cheaper than scanning its bins."""
FEW_PAIRS, FEW_FEATURES = 2_048, 8
"""Trees of at most so many pairs of rows of at most so many features are split so throughout. Sorting them takes
moments, and where much of the data lies in a box narrower than a bin, no other feature or pair makes up for it."""


@inner_kernel
def _draw_first(features, n_first, state):
    """Bring a uniformly drawn subset of ``features`` to its first ``n_first`` places."""
    # The first steps of a shuffle by Fisher and Yates.
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


@inner_kernel
def _write_nodes(nodes, n_nodes, numbered, heap, features, d, first_child):
    """Number a cell's nodes level by level and write them; returns how many nodes there are then."""
    # In two passes: a node names its children by their numbers, which are given level by level.
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
def grow(points, features, d, pairs, limits, bins, heap, scratch, cells, nodes, counts, state):
    """Grow a similarity tree (Clemencon & Vogel, "The Similarity TreeRank Algorithm") until it is done or a table full.

    Parameters
    ----------
    points, pairs, limits, bins, heap, scratch : see `layout`; pairs are reordered.
    features : (u,) numbers of the points' features among all ``d``.
    cells : (space, 7) int64, parents before children; the root is there.
    nodes : (space, 4) float64: ``half * d + feature``, the threshold, and the child for a pair feature at most, or
        above, it: 32-bit numbers, all exact.
    counts : (3,) int64, how far the tree is: cells to split, cells, nodes. The first call splits the root; further ones
        with longer tables go on where a table was full.
    state : (1,) uint64, of the draws of features.
    """
    max_depth, leaf_depth = limits.max_depth, limits.leaf_depth
    n_used, n_pairs = points.codes.shape[1], pairs.rows.shape[1]
    n_tried = smaller(limits.n_tried, n_used)
    n_heap, borders, left = heap.side.shape[0], scratch.borders, scratch.left
    sorted_pairs = n_pairs if n_pairs <= FEW_PAIRS and n_used <= FEW_FEATURES else EXACT_PAIRS

    n_todo, n_cells, n_nodes, todo = counts[N_TODO], counts[N_CELLS], counts[N_NODES], scratch.todo
    while n_todo > 0 and n_cells + 2 <= cells.shape[0] and n_nodes + n_heap <= nodes.shape[0]:
        n_todo -= 1
        cell = todo[n_todo, TODO_CELL]
        segment, sums, depth = heap.segments[1], heap.sums[1], cells[cell, CELL_DEPTH]
        for k in range(4):
            segment[k] = todo[n_todo, 1 + k]
        sums[0], sums[1] = cells[cell, CELL_SAME], cells[cell, CELL_DIFFERENT]
        left[0], left[1] = 0, 0
        if depth < max_depth and sums[0] > 0 and sums[1] > 0 and n_tried > 0:
            if n_tried < n_used:
                _draw_first(bins.features, n_tried, state)
            grow_leaf_rank(points, pairs, heap, leaf_depth, bins, scratch, sorted_pairs)
            if heap.side[1] == INNER:
                _gather_left(heap, pairs, borders, left, scratch.spare)
        # Where the left child gets no greater share of the same pairs than of the different ones, the cell
        # stays a leaf.
        if left[0] * sums[1] <= left[1] * sums[0]:
            continue

        for right in range(2):
            child = n_cells + right
            cells[child, CELL_DEPTH] = depth + 1
            cells[child, CELL_NODE], cells[child, CELL_LEFT], cells[child, CELL_RIGHT] = -1, -1, -1
            cells[child, CELL_POSITION] = 2 * cells[cell, CELL_POSITION] + right
            cells[child, CELL_SAME] = sums[0] - left[0] if right else left[0]
            cells[child, CELL_DIFFERENT] = sums[1] - left[1] if right else left[1]
            cells[cell, CELL_LEFT + right] = child
            # The left child goes on top: cells are grown from left to right.
            line = todo[n_todo + 1 - right]
            line[TODO_CELL] = child
            for kind in range(2):
                line[1 + 2 * kind] = borders[kind] if right else segment[2 * kind]
                line[2 + 2 * kind] = segment[2 * kind + 1] if right else borders[kind]
        n_todo += 2
        cells[cell, CELL_NODE] = n_nodes
        n_nodes = _write_nodes(nodes, n_nodes, scratch.numbered, heap, features, d, n_cells)
        n_cells += 2
    counts[N_TODO], counts[N_CELLS], counts[N_NODES] = n_todo, n_cells, n_nodes
