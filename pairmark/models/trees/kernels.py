"""Trees on features of pairs that may be missing, grown and summed up in compiled loops.

A node is split where ``G^2 / (H + ridge)`` of both sides gains most (Newton boosting: Chen and Guestrin 2016, equation
7). Missing values go to the side where they gain more (the same paper, algorithm 3).
"""

import math

import numpy as np

from pairmark.models.core.compiled import inner_kernel, kernel

BINS = 128
MISSING = BINS - 1
"""Bin of missing values; others are in the bins below."""


@inner_kernel
def _best_border(cells, tried, all_g, all_h, min_weight, ridge, direction):
    """Gain, border and side of missing values of a feature's best split: ``cells[tried]`` (BINS, 2) of sums."""
    missing_g, missing_h = cells[tried, MISSING, 0], cells[tried, MISSING, 1]
    first, last = 0, MISSING - 1
    while first < last and cells[tried, first, 1] == 0.0:
        first += 1
    while last > first and cells[tried, last, 1] == 0.0:
        last -= 1
    whole = all_g * all_g / (all_h + ridge)
    # A gain that is no larger is rounding.
    best, border, missing_low, middle = 1e-9, -1, 1, 0.0
    # Empty bins at either end are no borders.
    low_g, low_h = 0.0, 0.0
    for b in range(first, last):
        low_g += cells[tried, b, 0]
        low_h += cells[tried, b, 1]
        for side in range(2 if missing_h > 0.0 else 1):
            g = low_g + (missing_g if side == 1 else 0.0)
            h = low_h + (missing_h if side == 1 else 0.0)
            if h < min_weight or all_h - h < min_weight:
                continue
            # The value of a side is -G / (H + ridge): where values may not fall, the low side's may not be the larger
            # one.
            if direction * (g / (h + ridge) - (all_g - g) / (all_h - h + ridge)) < 0.0:
                continue
            gain = g * g / (h + ridge) + (all_g - g) * (all_g - g) / (all_h - h + ridge) - whole
            if gain > best:
                best, border, missing_low = gain, b, side
                # Half way between the values of the two sides.
                middle = -0.5 * (g / (h + ridge) + (all_g - g) / (all_h - h + ridge))
    # All that there is against all that is missing.
    if missing_h >= min_weight and all_h - missing_h >= min_weight:
        g, h = all_g - missing_g, all_h - missing_h
        gain = g * g / (h + ridge) + missing_g * missing_g / (missing_h + ridge) - whole
        if gain > best:
            best, border, missing_low = gain, MISSING - 1, 0
    return best, border, missing_low, middle


@kernel
def grow(
    codes,
    g,
    h,
    rows,
    depth,
    min_weight,
    ridge,
    directions,
    columns,
    leaves,
    todo,
    limits,
    cells,
    features,
    bins,
    low_missing,
    children,
    values,
):
    """Grow one tree depth first; returns its number of nodes.

    Parameters
    ----------
    codes : (n, m) uint8. g, h : (n,) float64. rows : (k,) int64 rows of the tree, put in another order.
    depth : most splits on a way. min_weight : least sum of ``h`` of a child.
    directions : (m,) float64, 1 where values may not fall as the feature rises, -1 where they may not rise, else 0: the
        two sides of such a split, and all nodes below, stay on their side of the middle between the two.
    columns : (c,) int64 features that are tried.
    leaves : (n,) float64 becomes the value of the leaf of each of ``rows``.
    features, bins, low_missing : (room,) become the splits, feature -1 at leaves. children : (room,) the low child; the
        high one follows it. values : (room,) float64 ``-G / (H + ridge)`` of every node.
    """
    limits[0, 0], limits[0, 1] = -np.inf, np.inf
    n_tried = columns.shape[0]
    todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3] = 0, 0, rows.shape[0], 0
    n_todo, n_nodes = 1, 1
    while n_todo > 0:
        n_todo -= 1
        node, start, stop, level = todo[n_todo, 0], todo[n_todo, 1], todo[n_todo, 2], todo[n_todo, 3]
        all_g, all_h = 0.0, 0.0
        for k in range(start, stop):
            all_g += g[rows[k]]
            all_h += h[rows[k]]
        lowest, highest = limits[n_todo, 0], limits[n_todo, 1]
        values[node], features[node] = min(max(-all_g / (all_h + ridge), lowest), highest), -1
        # Nodes below write theirs later.
        for k in range(start, stop):
            leaves[rows[k]] = values[node]
        if level >= depth or all_h < 2 * min_weight or n_nodes + 2 > features.shape[0]:
            continue
        for tried in range(n_tried):
            for b in range(BINS):
                cells[tried, b, 0], cells[tried, b, 1] = 0.0, 0.0
        for k in range(start, stop):
            row = rows[k]
            for tried in range(n_tried):
                code = codes[row, columns[tried]]
                cells[tried, code, 0] += g[row]
                cells[tried, code, 1] += h[row]
        best, feature, border, missing_low, middle = 1e-9, -1, 0, 1, 0.0
        for tried in range(n_tried):
            gain, where, side, between = _best_border(
                cells, tried, all_g, all_h, min_weight, ridge, directions[columns[tried]]
            )
            if where >= 0 and gain > best:
                best, feature, border, missing_low, middle = gain, columns[tried], where, side, between
        if feature < 0:
            continue
        first, last = start, stop - 1
        while first <= last:
            code = codes[rows[first], feature]
            # Parted from both ends, which needs no second list; the high side's rows change their order.
            if (missing_low == 1) if code == MISSING else code <= border:
                first += 1
            else:
                rows[first], rows[last] = rows[last], rows[first]
                last -= 1
        features[node], bins[node], low_missing[node], children[node] = feature, border, missing_low, n_nodes
        direction = directions[feature] if border < MISSING - 1 else 0.0
        for side in range(2):
            waiting = n_todo + side
            todo[waiting, 0] = n_nodes + side
            todo[waiting, 1], todo[waiting, 2] = (start, first) if side == 0 else (first, stop)
            todo[waiting, 3] = level + 1
            limits[waiting, 0], limits[waiting, 1] = lowest, highest
            if direction != 0.0:
                # The side that may not be lower begins at the middle, where the other ends.
                limits[waiting, 0 if (direction > 0.0) == (side == 1) else 1] = min(
                    max(middle, lowest), highest
                )
        n_todo += 2
        n_nodes += 2
    return n_nodes


@inner_kernel
def _leaf(row, root, features, thresholds, low_missing, children):
    k = root
    while features[k] >= 0:
        value = row[features[k]]
        low = (low_missing[k] == 1) if np.isnan(value) else value <= thresholds[k]
        k = children[k] + (0 if low else 1)
    return k


_TOGETHER, _ALONE = 4_096, 8
"""Rows that go down the trees together, and so few that each goes by itself."""


@kernel
def score(rows, roots, bias, features, thresholds, low_missing, children, values, out):
    """Chance that the trees' margin over ``bias`` gives: ``out`` (n,) float32.

    Rows are parted at each node, as when trees are grown, so that no step waits for a guess of the way that one row
    takes. Each row adds its trees up in their order, whichever rows are beside it.
    """
    n_trees, room = roots.shape[0], min(rows.shape[0], _TOGETHER)
    sums, order, high = np.empty(room), np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int32)
    # Parts that wait are of different rows, one at least: there are no more of them than rows.
    todo = np.empty((room, 3), dtype=np.int64)
    for start in range(0, rows.shape[0], _TOGETHER):
        columns = np.ascontiguousarray(rows[start : start + _TOGETHER].T)
        size = columns.shape[1]
        sums[:size] = bias
        for t in range(n_trees):
            for p in range(size):
                order[p] = p
            todo[0, 0], todo[0, 1], todo[0, 2] = roots[t], 0, size
            n_todo = 1
            while n_todo > 0:
                n_todo -= 1
                node, first, stop = todo[n_todo, 0], todo[n_todo, 1], todo[n_todo, 2]
                while features[node] >= 0 and stop - first > _ALONE:
                    column, threshold, missing_low = (
                        columns[features[node]],
                        thresholds[node],
                        low_missing[node] == 1,
                    )
                    last, n_high = first, 0
                    for k in range(first, stop):
                        row = order[k]
                        value = column[row]
                        low = np.int64(value <= threshold or (missing_low and np.isnan(value)))
                        # Written to both sides; the place that is not taken is overwritten.
                        order[last], high[n_high] = row, row
                        last += low
                        n_high += 1 - low
                    order[last:stop] = high[:n_high]
                    if n_high > 0:
                        todo[n_todo, 0], todo[n_todo, 1], todo[n_todo, 2] = children[node] + 1, last, stop
                        n_todo += 1
                    node, stop = children[node], last
                for k in range(first, stop):
                    row = order[k]
                    sums[row] += values[
                        _leaf(rows[start + row], node, features, thresholds, low_missing, children)
                    ]
        for p in range(size):
            out[start + p] = 1.0 / (1.0 + math.exp(-sums[p]))
