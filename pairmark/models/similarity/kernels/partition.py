"""Borders of pair features between pairs, and partitioning segments of pairs in place."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.similarity.kernels.layout import DIFF_SUM, INNER, LEFT, MAX_MIN, RUN

MOST_SORTED = 2_048
"""More values than so many are narrowed down by a grid before they are sorted."""
_SUB_BINS = 1_024


@kernel
def fill_values(column, half, pair_map, rows, start, stop, values):
    """A feature of pairs ``start:stop``: the float32 values that training and scoring both decide on."""
    left, right = rows[0], rows[1]
    n = np.uint64(stop - start)
    first = np.uint64(start)
    if pair_map == DIFF_SUM and half == 0:
        for t in range(n):
            values[t] = abs(column[np.uint64(left[first + t])] - column[np.uint64(right[first + t])])
    elif pair_map != MAX_MIN:
        for t in range(n):
            values[t] = column[np.uint64(left[first + t])] + column[np.uint64(right[first + t])]
    elif half == 0:
        for t in range(n):
            values[t] = max(column[np.uint64(left[first + t])], column[np.uint64(right[first + t])])
    else:
        for t in range(n):
            values[t] = min(column[np.uint64(left[first + t])], column[np.uint64(right[first + t])])


@kernel
def _sort(values, owners, n):
    """Shell sort of the first ``n`` values, their owners along; numba's own sort costs seconds to compile."""
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


@kernel
def _narrowed(pairs, below, totals, costs, values, owners, n):
    """Leave of many values only those around their best border by an even grid; adds those left out to ``below``."""
    weight, n_same = pairs.weight, pairs.n_same
    least_value, most_value = values[0], values[0]
    for q in range(n):
        least_value, most_value = min(least_value, values[q]), max(most_value, values[q])
    if not least_value < most_value:
        return 0
    # Half a bin less, so that the greatest value falls in the last bin whatever is rounded.
    scale = (_SUB_BINS - 0.5) / (np.float64(most_value) - np.float64(least_value))
    counts = np.zeros((2, _SUB_BINS), dtype=np.int64)
    for q in range(n):
        place = np.int64((np.float64(values[q]) - np.float64(least_value)) * scale)
        counts[0 if owners[q] < n_same else 1, place] += weight[owners[q]]
    best, greatest = 0, -1.0
    low_same, low_different = below[0], below[1]
    all_same, all_different = totals[0] / costs[0], totals[1] / costs[1]
    for b in range(_SUB_BINS - 1):
        low_same += counts[0, b]
        low_different += counts[1, b]
        a, c = low_same * costs[0], low_different * costs[1]
        e, g = (all_same - low_same) * costs[0], (all_different - low_different) * costs[1]
        cross = a * totals[1] - c * totals[0]
        gain = cross * cross / max((a + c) * (e + g), 1e-300)
        if gain > greatest:
            best, greatest = b, gain
    # The border lies between the last value of the best bin and the next there is, so empty bins after it are skipped.
    after = best + 1
    while after < _SUB_BINS - 1 and counts[0, after] == 0 and counts[1, after] == 0:
        after += 1
    n_values = 0
    for q in range(n):
        place = np.int64((np.float64(values[q]) - np.float64(least_value)) * scale)
        if best <= place <= after:
            values[n_values], owners[n_values] = values[q], owners[q]
            n_values += 1
    # What lies below the values that stay is known by its weight alone.
    for b in range(best):
        below[0] += counts[0, b]
        below[1] += counts[1, b]
    return n_values


@kernel
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
    below = np.zeros(2)
    run = np.empty(RUN, dtype=np.float32)
    n = 0
    for kind in range(2):
        total = np.int64(0)
        stop = segment[2 * kind + 1]
        for start in range(segment[2 * kind], stop, RUN):
            m = min(RUN, stop - start)
            fill_values(column, half, pair_map, rows, start, start + m, run)
            for t in range(m):
                total += np.int64(weight[start + t]) * np.int64(run[t] <= low)
            for t in range(m):
                # Rarely so: the window is a few steps of the grid.
                if low < run[t] <= high:
                    values[n], owners[n] = run[t], start + t
                    n += 1
        below[kind] = total
    if n > MOST_SORTED:
        n = _narrowed(pairs, below, totals, costs, values, owners, n)
    _sort(values, owners, n)
    border, exists = np.float32(0.0), False
    for q in range(n - 1):
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


@kernel
def total_weight(pairs, start, stop):
    """The weight of pairs ``start:stop``."""
    total = np.int64(0)
    for p in range(start, stop):
        total += pairs.weight[p]
    return total


@kernel
def partition(column, threshold, half, pair_map, pairs, start, stop, spare):
    """Reorder pairs ``start:stop``: features at most the threshold first; returns the border.

    Runs from either end exchange what is on the wrong side of the border; what is left in between, of at most two
    runs, goes through ``spare``, (3, 2 runs) int32.
    """
    rows, weight = pairs.rows, pairs.weight
    left, right = rows[0], rows[1]
    run = np.empty(RUN, dtype=np.float32)
    high, low = np.empty(RUN, dtype=np.uint16), np.empty(RUN, dtype=np.uint16)
    size = np.uint64(RUN)
    n_high, n_low, next_high, next_low = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    # No branch on a comparison of values, here or below: it is a coin toss.
    # Two runs, one at either end: places of values too high in front, and too low at the back, are listed,
    # then exchanged in pairs. The run whose list is used up is done, and the next one is listed.
    while stop - start > 2 * RUN:
        front, back = np.uint64(start), np.uint64(stop - RUN)
        if next_high == n_high:
            fill_values(column, half, pair_map, rows, start, start + RUN, run)
            n_high, next_high = np.uint64(0), np.uint64(0)
            for t in range(size):
                high[n_high] = np.uint16(t)
                n_high += np.uint64(run[t] > threshold)
        if next_low == n_low:
            fill_values(column, half, pair_map, rows, stop - RUN, stop, run)
            n_low, next_low = np.uint64(0), np.uint64(0)
            for t in range(size):
                low[n_low] = np.uint16(t)
                n_low += np.uint64(1) - np.uint64(run[t] > threshold)
        # As many as both lists hold. Rows and weights are moved in loops of their own, each over few lines of memory.
        m = min(n_high - next_high, n_low - next_low)
        for t in range(m):
            p, q = front + np.uint64(high[next_high + t]), back + np.uint64(low[next_low + t])
            left[p], left[q] = left[q], left[p]
            right[p], right[q] = right[q], right[p]
        for t in range(m):
            p, q = front + np.uint64(high[next_high + t]), back + np.uint64(low[next_low + t])
            weight[p], weight[q] = weight[q], weight[p]
        next_high += m
        next_low += m
        if next_high == n_high:
            start += RUN
        if next_low == n_low:
            stop -= RUN

    border, n_spare = np.uint64(start), np.uint64(0)
    spare_left, spare_right = spare[0], spare[1]
    # Written to both places, and only the counts tell which one holds.
    for begin in range(start, stop, RUN):
        n, first = np.uint64(min(RUN, stop - begin)), np.uint64(begin)
        fill_values(column, half, pair_map, rows, begin, begin + np.int64(n), run)
        for t in range(n):
            above = np.uint64(run[t] > threshold)
            i, j = left[first + t], right[first + t]
            spare_left[n_spare], spare_right[n_spare], left[border], right[border] = i, j, i, j
            w = weight[first + t]
            spare[2, n_spare], weight[border] = w, w
            n_spare += above
            border += np.uint64(1) - above
    # What went to the spare rows are the high ones, in order: they follow the border.
    for row in range(rows.shape[0]):
        line, scratch = rows[row], spare[row]
        for q in range(n_spare):
            line[border + q] = scratch[q]
    for q in range(n_spare):
        weight[border + q] = spare[2, q]
    return np.int64(border)


@kernel
def _swap(line, first, second, n):
    """Exchange ``n`` entries from ``first`` on with those from ``second`` on."""
    for t in range(n):
        line[first + t], line[second + t] = line[second + t], line[first + t]


@kernel
def _leaves_in_order(side, leaves):
    """Number the heap's leaves in the order that their pairs lie in; returns how many there are."""
    n_leaves, h = 0, 1
    # A walk of the heap: down to the left as far as it goes, then up past right children and over to the next one.
    while h > 0:
        while side[h] == INNER:
            h *= 2
        leaves[n_leaves] = h
        n_leaves += 1
        while h & 1:
            h >>= 1
        if h > 0:
            h += 1
    return n_leaves


@kernel
def gather_left(heap, pairs, leaves, borders):
    """Bring the pairs of the leaves that go left to the front, either kind; ``borders`` is where the others begin.

    ``leaves`` : (n_heap,) int64, filled with numbers of leaves.
    """
    side, segments = heap.side, heap.segments
    n_leaves = _leaves_in_order(side, leaves)
    for kind in range(2):
        first, last = 0, n_leaves - 1
        start, stop = segments[1, 2 * kind], segments[1, 2 * kind + 1]
        borders[kind] = start
        for q in range(n_leaves):
            if side[leaves[q]] == LEFT:
                borders[kind] += segments[leaves[q], 2 * kind + 1] - segments[leaves[q], 2 * kind]
        # What is to go back, from the front on, for what is to come to the front, from the back on.
        while True:
            while first < last and (
                side[leaves[first]] == LEFT or start >= segments[leaves[first], 2 * kind + 1]
            ):
                first += 1
                start = segments[leaves[first], 2 * kind]
            while first < last and (side[leaves[last]] != LEFT or stop <= segments[leaves[last], 2 * kind]):
                last -= 1
                stop = segments[leaves[last], 2 * kind + 1]
            # The two ends have met: what is in front goes left, all of it.
            if first >= last:
                break
            n = min(segments[leaves[first], 2 * kind + 1] - start, stop - segments[leaves[last], 2 * kind])
            for row in range(pairs.rows.shape[0]):
                _swap(pairs.rows[row], start, stop - n, n)
            _swap(pairs.weight, start, stop - n, n)
            start += n
            stop -= n
