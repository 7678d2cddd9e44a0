"""LeafRank by boosting, in compiled loops: a cell is split by a sum of stumps on the features of pairs.

Gentle AdaBoost (Friedman, Hastie & Tibshirani, "Additive logistic regression", 2000, algorithm 4): each round fits one
stump to the labels +1 (same) and -1 (different) by weighted least squares, adds it, and weighs every pair by
``exp(-label x sum)``. The least squares stump is the one of least Gini impurity, as other trees split too.

Sums run over pairs in their order, in float64, and scoring adds a node's steps up in the order of training, so
the cells that were counted are the cells that score.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel

BINS = 64
"""Most bins of a feature in a cell; a power of two, for the search in `code`."""
SAMPLED = 512
"""Most pairs of either kind that settle a feature's bins."""
BLOCK = 256
"""Pairs that are scored at a time."""
MANY = 32
"""Nodes that at least so many pairs of a block meet sum up for all of it, at about the cost of so many pairs alone."""


@kernel
def _sort(values, n):
    """Shell sort of the first ``n`` values; numba's own sort costs seconds to compile."""
    gap = 1
    while 3 * gap + 1 < n:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            value, q = values[i], i
            while q >= gap and values[q - gap] > value:
                values[q] = values[q - gap]
                q -= gap
            values[q] = value
        gap //= 3


@kernel
def _borders(f, n_same, k, buffer, values, out):
    """Borders of the bins of feature ``k``: halfway between values that are even quantiles of either kind of pair.

    All borders between distinct values where there are few. Returns how many; a value is in the bin of the first
    border that it does not exceed.
    """
    n_found = 0
    for kind in range(2):
        start, stop = (0, n_same) if kind == 0 else (n_same, f.shape[0])
        n_sampled = min(stop - start, SAMPLED)
        for i in range(n_sampled):
            buffer[i] = f[start + (stop - start) * i // n_sampled, k]
        _sort(buffer, n_sampled)
        distinct = np.int64(n_sampled > 0)
        for i in range(1, n_sampled):
            distinct += np.int64(buffer[i] != buffer[i - 1])
        if distinct <= BINS // 2:
            for i in range(n_sampled):
                if i == 0 or buffer[i] != buffer[i - 1]:
                    values[n_found] = buffer[i]
                    n_found += 1
        else:
            for q in range(BINS // 2):
                values[n_found] = buffer[(n_sampled - 1) * q // (BINS // 2 - 1)]
                n_found += 1
    _sort(values, n_found)
    n = 0
    for i in range(n_found - 1):
        if values[i] < values[i + 1]:
            middle = np.float32(0.5 * (np.float64(values[i]) + np.float64(values[i + 1])))
            # Where no float lies between, the lower value itself is the border.
            out[n] = middle if values[i] <= middle < values[i + 1] else values[i]
            n += 1
    return n


@kernel
def code(f, n_same, borders, n_borders, codes):
    """Bins of the features of pairs, same ones first: ``f`` (n, m) float32 to ``codes`` (n, m) uint8.

    ``borders`` (m, `BINS`) float32 and ``n_borders`` (m,) int64 become the borders between a feature's bins.
    """
    buffer, values = np.empty(SAMPLED, dtype=np.float32), np.empty(BINS, dtype=np.float32)
    for k in range(f.shape[1]):
        n_borders[k] = _borders(f, n_same, k, buffer, values, borders[k])
        for b in range(n_borders[k], BINS):
            borders[k, b] = np.inf
    m = np.uint64(f.shape[1])
    for p in range(np.uint64(f.shape[0])):
        for k in range(m):
            value, limits = f[p, k], borders[k]
            # Steps that depend on data are taken by arithmetic: a branch would be guessed wrong half the time.
            at, step = np.uint64(0), np.uint64(BINS // 2)
            while step > 0:
                at += step * np.uint64(value > limits[at + step - np.uint64(1)])
                step >>= np.uint64(1)
            codes[p, k] = at


@kernel
def boost(codes, n_same, n_borders, weight, n_rounds, rate, features, borders_chosen, steps):
    """Fit stumps one after the other.

    Parameters
    ----------
    codes : (n, m) uint8, same pairs first. n_borders : (m,) int64.
    weight : (n,) float64, changed in place.
    rate : what part of each stump is added.
    features, borders_chosen : (n_rounds,) int64, become the features and the borders' numbers.
    steps : (n_rounds, 2) float64, become what each stump adds at or below its border, and above it.

    Returns
    -------
    how many stumps there are: fewer where none lowers the error any more.
    """
    n, m = codes.shape
    counts = np.empty((2, m, n_borders.max() + 1))
    totals = np.zeros(2)
    for p in range(n):
        totals[0 if p < n_same else 1] += weight[p]
    for round_ in range(n_rounds):
        total = totals[0] + totals[1]
        for p in range(n):
            weight[p] /= total
        counts[:] = 0.0
        for kind in range(2):
            start, stop = (0, n_same) if kind == 0 else (n_same, n)
            sums_of_kind = counts[kind]
            for p in range(start, stop):
                w = weight[p]
                for k in range(m):
                    sums_of_kind[k, codes[p, k]] += w
        all_same, all_other = totals[0] / total, totals[1] / total
        # The impurity a c / (a + c) of the whole, whose weights sum to 1, less far more than rounding: a
        # stump has to lower it.
        lowest = all_same * all_other * (1.0 - 1e-9)
        best, border = -1, 0
        low_same, low_other = 0.0, 0.0
        for k in range(m):
            a, c = 0.0, 0.0
            for b in range(n_borders[k]):
                if counts[0, k, b] == 0.0 and counts[1, k, b] == 0.0:
                    continue
                a += counts[0, k, b]
                c += counts[1, k, b]
                e, g = all_same - a, all_other - c
                # Weights below and above the border: a, e of same pairs, c, g of different ones.
                low, high = a + c, e + g
                # Above rounding: nothing is left on the high side otherwise.
                if high > 1e-12 and low > 1e-12 and a * c * high + e * g * low < lowest * (low * high):
                    lowest = (a * c * high + e * g * low) / (low * high)
                    best, border, low_same, low_other = k, b, a, c
        if best < 0:
            return round_
        high_same, high_other = max(all_same - low_same, 0.0), max(all_other - low_other, 0.0)
        features[round_], borders_chosen[round_] = best, border
        # The least squares value of labels +1 and -1 on either side: the weighted mean.
        steps[round_, 0] = rate * (low_same - low_other) / (low_same + low_other)
        steps[round_, 1] = rate * (high_same - high_other) / (high_same + high_other)
        totals[:] = 0.0
        for kind in range(2):
            start, stop = (0, n_same) if kind == 0 else (n_same, n)
            sign = -1.0 if kind == 0 else 1.0
            below, above = np.exp(sign * steps[round_, 0]), np.exp(sign * steps[round_, 1])
            for p in range(start, stop):
                weight[p] *= above if codes[p, best] > border else below
                totals[kind] += weight[p]
    return n_rounds


@kernel
def sums_of_stumps(f, features, thresholds, steps, out):
    """Sum of the steps whose features are above their thresholds: ``f`` (n, m) float32, ``out`` (n,) float64."""
    for p in range(f.shape[0]):
        total = 0.0
        for s in range(features.shape[0]):
            total += np.float64(steps[s]) * np.float64(f[p, features[s]] > thresholds[s])
        out[p] = total


@kernel
def _sum_of_row(row, features, thresholds, steps, start, stop):
    """Sum of the steps ``start:stop`` whose features are above their thresholds, of one pair."""
    total = 0.0
    for s in range(start, stop):
        total += np.float64(steps[s]) * np.float64(row[features[s]] > thresholds[s])
    return total


@kernel
def _sums_of_block(columns, features, thresholds, steps, start, stop, totals):
    """The same of a whole block of pairs at a time: ``columns`` (m, `BLOCK` and more), ``totals`` (`BLOCK`,) float64.

    Each pair's sum is made in the same order, so it is the same to the bit.
    """
    n = np.uint64(BLOCK)
    for p in range(n):
        totals[p] = 0.0
    for s in range(start, stop):
        column, threshold, step = columns[features[s]], thresholds[s], np.float64(steps[s])
        for p in range(n):
            totals[p] += step if column[p] > threshold else 0.0


@kernel
def score_by_stumps(
    f, children, limits, node_starts, stump_starts, features, thresholds, steps, values, value_starts, out
):
    """Sum of leaf values over trees whose nodes test sums of stumps, tree by tree in order.

    Nodes that many pairs of a block meet sum up for the whole block at a time, feature by feature, which is several
    times faster a pair than one pair after the other.

    Parameters
    ----------
    f : (n, m) float32, all features of pairs.
    children : (n_nodes, 2), of low and high; ``limits`` : (n_nodes,) float32, what a node's sum is held against.
    node_starts : (n_trees + 1,). stump_starts : (n_nodes + 1,), into ``features``, ``thresholds``, ``steps``.
    values : leaf values; tree t has those from ``value_starts[t]``, children from its node count on are its leaves.
    out : (n,) float64.
    """
    m = f.shape[1]
    # Lines of a power of two bytes would meet in few places of the cache.
    columns = np.zeros((m if f.shape[0] >= MANY else 0, BLOCK + 16), dtype=np.float32)
    totals = np.zeros(BLOCK)
    members, highs = np.empty(BLOCK, dtype=np.uint32), np.empty(BLOCK, dtype=np.uint32)
    todo = np.empty((BLOCK + 1, 3), dtype=np.int64)
    for first in range(0, f.shape[0], BLOCK):
        n = min(BLOCK, f.shape[0] - first)
        if n >= MANY:
            for p in range(n):
                for k in range(m):
                    columns[k, p] = f[first + p, k]
        out[first : first + n] = 0.0
        for t in range(node_starts.shape[0] - 1):
            base, n_nodes = node_starts[t], node_starts[t + 1] - node_starts[t]
            for p in range(n):
                members[p] = p
            todo[0, 0], todo[0, 1], todo[0, 2] = 0, 0, n
            n_todo = 1
            while n_todo > 0:
                n_todo -= 1
                at, start, stop = todo[n_todo, 0], todo[n_todo, 1], todo[n_todo, 2]
                if at >= n_nodes:
                    value = values[value_starts[t] + at - n_nodes]
                    for q in range(start, stop):
                        out[first + np.int64(members[q])] += value
                    continue
                node = base + at
                begin, end = stump_starts[node], stump_starts[node + 1]
                if stop - start >= MANY:
                    _sums_of_block(columns, features, thresholds, steps, begin, end, totals)
                else:
                    for q in range(start, stop):
                        p = np.int64(members[q])
                        totals[p] = _sum_of_row(f[first + p], features, thresholds, steps, begin, end)
                # Both places are written and one of them counts: a branch would be guessed wrong half the time.
                limit, lower, higher = np.float64(limits[node]), np.uint64(start), np.uint64(0)
                for q in range(start, stop):
                    p = members[q]
                    high = np.uint64(totals[p] > limit)
                    members[lower], highs[higher] = p, p
                    lower += np.uint64(1) - high
                    higher += high
                middle = np.int64(lower)
                for q in range(middle, stop):
                    members[q] = highs[q - middle]
                if middle < stop:
                    todo[n_todo, 0], todo[n_todo, 1], todo[n_todo, 2] = children[node, 1], middle, stop
                    n_todo += 1
                if start < middle:
                    todo[n_todo, 0], todo[n_todo, 1], todo[n_todo, 2] = children[node, 0], start, middle
                    n_todo += 1
