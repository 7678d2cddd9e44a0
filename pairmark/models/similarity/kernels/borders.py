"""The best border between the values of one pair feature, for which bins are too coarse."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.similarity.kernels.layout import DIFF_SUM, LEARNED, MAX_MIN, RUN

MOST_SORTED = 512
"""More values than so many are narrowed down by a grid before they are sorted."""
_SUB_BINS = 1_024


@kernel
def fill_values(column, half, pair_map, rows, start, stop, values):
    """A feature of pairs ``start:stop``: the float32 values that training and scoring both decide on."""
    left, right = rows[0], rows[1]
    n = np.uint64(stop - start)
    first = np.uint64(start)
    if half == LEARNED:
        numbers = rows[2]
        for t in range(n):
            values[t] = column[np.uint64(numbers[first + t])]
    elif pair_map == DIFF_SUM and half == 0:
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
    weight, stride, n_same = pairs.weight, pairs.stride, pairs.n_same
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
        counts[0 if owners[q] < n_same else 1, place] += weight[np.uint64(owners[q]) * stride]
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
def best_border(
    column, half, pair_map, pairs, segment, low, high, totals, costs, lowest, window, most_sorted
):
    """The border of least Gini impurity between the values in ``(low, high]`` of one pair feature.

    Parameters
    ----------
    totals : weights of the segment's same and different pairs, times ``costs``.
    lowest : only a border below this impurity counts.
    most_sorted : more values than so many are narrowed down by a grid before they are sorted.

    Returns
    -------
    the least impurity, the border, whether there is one.
    """
    values, owners = window.values, window.owners
    rows, weight, stride, n_same = pairs.rows, pairs.weight, pairs.stride, pairs.n_same
    below = np.zeros(2)
    run = np.empty(RUN, dtype=np.float32)
    n = 0
    for kind in range(2):
        total = np.int64(0)
        stop = segment[2 * kind + 1]
        for start in range(segment[2 * kind], stop, RUN):
            m = min(RUN, stop - start)
            fill_values(column, half, pair_map, rows, start, start + m, run)
            if stride == 0:
                n_below = np.int64(0)
                for t in range(m):
                    n_below += np.int64(run[t] <= low)
                total += n_below * np.int64(weight[0])
            else:
                for t in range(m):
                    total += np.int64(weight[start + t]) * np.int64(run[t] <= low)
            for t in range(m):
                # Rarely so: the window is a few steps of the grid.
                if low < run[t] <= high:
                    values[n], owners[n] = run[t], start + t
                    n += 1
        below[kind] = total
    if n > most_sorted:
        n = _narrowed(pairs, below, totals, costs, values, owners, n)
    _sort(values, owners, n)
    border, exists = np.float32(0.0), False
    for q in range(n - 1):
        below[0 if owners[q] < n_same else 1] += weight[np.uint64(owners[q]) * stride]
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
