"""Boosted trees on absolute differences of two rows, over a margin that is given, in compiled loops.

Newton boosting of the logistic loss (Friedman 2001; Chen and Guestrin 2016, equations 6 and 7) with trees of one
depth, every node in its place: node k's children are 2 k + 1 and 2 k + 2. A difference does not care which side is
which, so a correction is the same to the last bit in either order.
"""

from __future__ import annotations

import math

import numpy as np

from pairmark.models.core.compiled import kernel

DEPTH = 4
NODES, LEAVES = 2**DEPTH - 1, 2**DEPTH
LANES = 8


@kernel
def code(F, left, right, borders, codes):
    """Bins of pairs' differences: ``borders`` (m, b) ascending, ``codes`` (m, n) uint8, feature by feature."""
    width = borders.shape[1]
    for f in range(F.shape[1]):
        limits = borders[f]
        for p in range(left.shape[0]):
            value = abs(F[left[p], f] - F[right[p], f])
            low, high = 0, width
            while low < high:
                middle = (low + high) >> 1
                if value > limits[middle]:
                    low = middle + 1
                else:
                    high = middle
            codes[f, p] = low


@kernel
def boost(
    codes, n_bins, same, weight, margin, rate, least_hessian, ridge, candidates, features, bins, values
):
    """Grow trees one after the other; ``margin`` (n,) float64 is changed in place.

    Parameters
    ----------
    codes : (m, n) uint8, less than ``n_bins``. same : (n,) bool. weight : (n,) float64.
    candidates : (n_trees, k) int64, the features that each tree tries.
    features, bins : (n_trees, NODES) int32, become the splits: to the right where a code exceeds the bin; nodes that
        are not split send everything left.
    values : (n_trees, LEAVES) float64, become what leaves add.
    """
    n = codes.shape[1]
    g, h = np.empty(n), np.empty(n)
    node = np.empty(n, dtype=np.int64)
    sums = np.zeros((2 ** (DEPTH - 1), n_bins, 2))
    best = np.empty(2 ** (DEPTH - 1))
    totals = np.empty((LEAVES, 2))
    for t in range(candidates.shape[0]):
        for p in range(n):
            chance = 1.0 / (1.0 + math.exp(-margin[p]))
            g[p] = weight[p] * (chance - (1.0 if same[p] else 0.0))
            h[p] = weight[p] * chance * (1.0 - chance)
            node[p] = 0
        for level in range(DEPTH):
            first, width = 2**level - 1, 2**level
            for k in range(width):
                best[k] = 1e-9
                # No code exceeds `n_bins`: unless a split is found, all go left.
                features[t, first + k], bins[t, first + k] = candidates[t, 0], n_bins
            for at in range(candidates.shape[1]):
                f = candidates[t, at]
                column = codes[f]
                sums[:width] = 0.0
                for p in range(n):
                    cell = sums[node[p], column[p]]
                    cell[0] += g[p]
                    cell[1] += h[p]
                for k in range(width):
                    all_g, all_h = 0.0, 0.0
                    for b in range(n_bins):
                        all_g += sums[k, b, 0]
                        all_h += sums[k, b, 1]
                    low_g, low_h = 0.0, 0.0
                    for b in range(n_bins - 1):
                        low_g += sums[k, b, 0]
                        low_h += sums[k, b, 1]
                        high_g, high_h = all_g - low_g, all_h - low_h
                        if low_h < least_hessian or high_h < least_hessian:
                            continue
                        gain = (
                            low_g * low_g / (low_h + ridge)
                            + high_g * high_g / (high_h + ridge)
                            - all_g * all_g / (all_h + ridge)
                        )
                        if gain > best[k]:
                            best[k] = gain
                            features[t, first + k], bins[t, first + k] = f, b
            for p in range(n):
                at = first + node[p]
                # Within a level nodes count from 0; the children of node k are 2 k and 2 k + 1 of the next.
                node[p] = 2 * node[p] + np.int64(np.int64(codes[features[t, at], p]) > bins[t, at])
        totals[:] = 0.0
        for p in range(n):
            totals[node[p], 0] += g[p]
            totals[node[p], 1] += h[p]
        for k in range(LEAVES):
            values[t, k] = -rate * totals[k, 0] / (totals[k, 1] + ridge)
        for p in range(n):
            margin[p] += values[t, node[p]]


@kernel
def corrections(a, step_a, b, step_b, features, thresholds, values, bound, out):
    """Add each pair's sum of leaves, held within ``bound``, to ``out`` (n,) float64.

    Parameters
    ----------
    a, b : (n or 1, m) float32 rows. features : (T, NODES) int32. thresholds : (T, NODES) float32. values : (T, LEAVES).
    """
    differences = np.empty(a.shape[1], dtype=np.float32)
    for p in range(out.shape[0]):
        left, right = a[p * step_a], b[p * step_b]
        for f in range(differences.shape[0]):
            differences[f] = abs(left[f] - right[f])
        total = 0.0
        for t in range(features.shape[0]):
            k = 0
            for _ in range(DEPTH):
                # Nodes of all levels count on: children of k are 2 k + 1 and 2 k + 2, and leaves follow the
                # last node.
                k = 2 * k + 1 + np.int64(differences[features[t, k]] > thresholds[t, k])
            total += values[t, k - NODES]
        out[p] += min(max(total, -bound), bound)


@kernel
def square_corrections(rows, features, thresholds, values, bound, marks, out):
    """Corrections of all pairs of rows above the diagonal by the first ``marks`` trees: ``out`` (n_marks, n, n)."""
    n, m = rows.shape
    differences = np.zeros((LANES, m), dtype=np.float32)
    node = np.empty(LANES, dtype=np.int64)
    total = np.empty(LANES)
    for i in range(n):
        for first in range(i + 1, n, LANES):
            # Several pairs walk down a tree together: one alone would wait for memory at every node.
            width = min(LANES, n - first)
            for lane in range(width):
                for f in range(m):
                    differences[lane, f] = abs(rows[i, f] - rows[first + lane, f])
            total[:] = 0.0
            t = 0
            for at in range(marks.shape[0]):
                while t < marks[at]:
                    node[:] = 0
                    for _ in range(DEPTH):
                        # All lanes, also those beyond the last pair, whose sums nobody reads: a fixed number
                        # unrolls.
                        for lane in range(LANES):
                            k = node[lane]
                            node[lane] = (
                                2 * k + 1 + np.int64(differences[lane, features[t, k]] > thresholds[t, k])
                            )
                    for lane in range(LANES):
                        total[lane] += values[t, node[lane] - NODES]
                    t += 1
                for lane in range(width):
                    out[at, i, first + lane] = min(max(total[lane], -bound), bound)
