"""Counts of all pairs from histograms of the rows, class by class, in compiled loops."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel

_CODES = 256
_AT_A_TIME = 16
"""Features counted in one go over a class, so that their histograms stay in the nearest cache."""


@kernel
def in_order(codes, order, out):
    """Rows of ``codes`` in an order: as indexing gives them, sooner."""
    width = np.uint64(codes.shape[1])
    for i in range(order.shape[0]):
        row, to = codes[order[i]], out[i]
        for k in range(width):
            to[k] = row[k]


@kernel
def histograms(rows, out):
    """Fill ``out``, (u, 256) float64, with how many of the rows (m, u) uint8 have each code of each feature."""
    buffer = np.empty((_AT_A_TIME, _CODES), dtype=np.uint32)
    for begin in range(0, rows.shape[1], _AT_A_TIME):
        width = min(_AT_A_TIME, rows.shape[1] - begin)
        # Whole numbers, exact up to 2^32 rows of a class; float64 only in the sum.
        buffer[:] = 0
        first = np.uint64(begin)
        for i in range(rows.shape[0]):
            row = rows[i]
            for k in range(np.uint64(width)):
                buffer[k, np.uint64(row[first + k])] += np.uint32(1)
        for k in range(width):
            for t in range(_CODES):
                out[begin + k, t] = buffer[k, t]


@kernel
def add_one_by_one(codes, borders, classes, max_min, counts):
    """Add the pairs within each of some classes to ``counts`` (2, u, bins), by half of the pair map, feature and bin.

    Parameters
    ----------
    codes : (n, u) uint8, class by class. borders : (classes + 1,) rows where each begins, and n.
    """
    for q in range(classes.shape[0]):
        rows = codes[borders[classes[q]] : borders[classes[q] + 1]]
        for k in range(rows.shape[1]):
            first, second = counts[0, k], counts[1, k]
            for i in range(rows.shape[0]):
                a = np.int64(rows[i, k])
                # Each pair once: j before i.
                for j in range(i):
                    b = np.int64(rows[j, k])
                    first[max(a, b) if max_min else abs(a - b)] += 1.0
                    second[min(a, b) if max_min else a + b] += 1.0


@kernel
def add_extremes(histogram, n, counts):
    """Add the pairs among ``n`` rows of a histogram (u, 256) to ``counts`` (2, u, 256), by maximum and by minimum."""
    for k in range(histogram.shape[0]):
        below = 0.0
        for t in range(_CODES):
            h = histogram[k, t]
            within = 0.5 * h * (h - 1.0)
            # The greater of a pair is t: the other one is smaller, or also t.
            counts[0, k, t] += h * below + within
            below += h
            counts[1, k, t] += h * (n - below) + within


@kernel
def add_products(histogram, counts):
    """Add the pairs among rows of a histogram (u, 256) to ``counts`` (2, u, 511), by difference and sum."""
    for k in range(histogram.shape[0]):
        differences, summed = counts[0, k], counts[1, k]
        for t in range(_CODES):
            h = histogram[k, t]
            differences[0] += 0.5 * h * (h - 1.0)
            summed[2 * t] += 0.5 * h * (h - 1.0)
            if h > 0:
                # Pairs of codes t and t + 1 + u: their difference is 1 + u and their sum 2 t + 1 + u.
                its_apart, its_summed, beside = differences[1:], summed[2 * t + 1 :], histogram[k, t + 1 :]
                for u in range(beside.shape[0]):
                    product = h * beside[u]
                    its_apart[u] += product
                    its_summed[u] += product
