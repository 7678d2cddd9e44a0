"""Scanning rows for those near a query, in compiled loops.

Sums are float32 and in whatever order is fastest on the machine, so they are estimates: `search_forms` knows how far
they can be off, and scores every row that might count once more, exactly.
"""

from __future__ import annotations

import numpy as np

from models.compiled import estimating_kernel, kernel

INNER, SQEUCLIDEAN, MANHATTAN = 0, 1, 2
_STRIP = 64
"""Rows at a time: they stay in the first caches while every query meets them."""


@estimating_kernel
def _inner(a, b):
    total = np.float32(0.0)
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return total


@estimating_kernel
def _squares(a, b):
    total = np.float32(0.0)
    for j in range(a.shape[0]):
        apart = a[j] - b[j]
        total += apart * apart
    return total


@estimating_kernel
def _absolutes(a, b):
    total = np.float32(0.0)
    for j in range(a.shape[0]):
        total += abs(a[j] - b[j])
    return total


@estimating_kernel
def scan(measure, rows, start, stop, queries, out):
    """Each query's inner product with rows ``start:stop``, or minus their distance; ``out`` is (queries, rows)."""
    for first in range(start, stop, _STRIP):
        last = min(first + _STRIP, stop)
        for q in range(queries.shape[0]):
            query, to = queries[q], out[q]
            if measure == INNER:
                for i in range(first, last):
                    to[i - start] = _inner(rows[i], query)
            elif measure == SQEUCLIDEAN:
                for i in range(first, last):
                    to[i - start] = -_squares(rows[i], query)
            else:
                for i in range(first, last):
                    to[i - start] = -_absolutes(rows[i], query)


@kernel
def at_least(values, limit):
    """Where values are at least the limit, or not a number."""
    n = 0
    for i in range(values.shape[0]):
        n += not values[i] < limit
    found = np.empty(n, dtype=np.int64)
    n = 0
    for i in range(values.shape[0]):
        if not values[i] < limit:
            found[n] = i
            n += 1
    return found


@kernel
def longest(rows, start, stop):
    """Greatest Euclidean length of rows ``start:stop``, in float64."""
    most = 0.0
    for i in range(start, stop):
        total = 0.0
        for j in range(rows.shape[1]):
            total += np.float64(rows[i, j]) * np.float64(rows[i, j])
        most = max(most, total)
    return np.sqrt(most)
