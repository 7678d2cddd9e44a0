"""Histograms of pair features, counted from byte codes and never from a written-out pair matrix."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.similarity.kernels.layout import DIFF_SUM, MAX_MIN


@kernel
def _coarseness(n_pairs):
    """How many halvings of the grid leave enough bins for so many pairs: empty bins cost time and carry nothing."""
    if n_pairs >= 8192:
        return 0
    return 1 if n_pairs >= 2048 else (2 if n_pairs >= 512 else 3)


@kernel
def n_learned_bins(learned):
    total = np.int64(0)
    for k in range(learned.n_bins.shape[0]):
        total += learned.n_bins[k]
    return total


@kernel
def lay_out(points, learned, bins, n_pairs):
    """Place the bins of the features tried in a cell of ``n_pairs`` one after the other; returns how many there are.

    Learned features come last.
    """
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
    for k in range(learned.n_bins.shape[0]):
        bins.learned_starts[k] = size
        size += learned.n_bins[k]
    return size


@kernel
def count(histogram, size, points, pairs, learned, segment, bins):
    """Fill the first ``size`` bins: both pair features of every feature tried, and all learned ones, by kind of pair.

    The bins of a pair are first worked out for all features, which the compiler does for many at a time, then
    counted. Unsigned indices: a signed one costs a wrap-around test on each access.
    """
    codes, rows, weight, stride = points.codes, pairs.rows, pairs.weight, pairs.stride
    own_codes, own_bases, features, shift = learned.codes, bins.learned_starts, bins.features, bins.shift
    n_tried, pair_map = np.uint64(shift.shape[0]), points.pair_map
    first, second = bins.places[0], bins.places[1]
    below, above = bins.starts[0], bins.starts[1]
    for kind in range(2):
        counts = histogram[kind]
        for b in range(size):
            counts[b] = 0
        for p in range(np.uint64(segment[2 * kind]), np.uint64(segment[2 * kind + 1])):
            i, j, w = np.uint64(rows[0, p]), np.uint64(rows[1, p]), weight[p * stride]
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
            # Learned features have a code of their own for each pair, which stands at its number.
            for k in range(own_codes.shape[1]):
                counts[own_bases[k] + np.int64(own_codes[rows[2, p], k])] += w


@kernel
def subtract(histogram, part, size):
    """Take the first ``size`` bins of one histogram off another's."""
    for kind in range(2):
        for b in range(size):
            histogram[kind, b] -= part[kind, b]
