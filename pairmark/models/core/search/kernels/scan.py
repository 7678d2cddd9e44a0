"""Scanning rows for those near a query, in compiled loops.

Sums are float32 and in whatever order is fastest on the machine, so they are estimates: `search.forms` knows how far
they can be off, and scores every row that might count once more, exactly.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import estimating_kernel, kernel

INNER, SQEUCLIDEAN, MANHATTAN = 0, 1, 2
_STRIP = 64
"""Rows at a time: they stay in the first caches while every query meets them."""


# Rows by number and not as slices, which count references: that would cost an inner product as much as it does itself.


@estimating_kernel
def _inner(rows, first, last, query, at, out, start):
    for i in range(first, last):
        total = np.float32(0.0)
        for j in range(rows.shape[1]):
            total += rows[i, j] * query[at, j]
        out[at, i - start] = total


@estimating_kernel
def _squares(rows, first, last, query, at, out, start):
    for i in range(first, last):
        total = np.float32(0.0)
        for j in range(rows.shape[1]):
            difference = rows[i, j] - query[at, j]
            total += difference * difference
        out[at, i - start] = -total


@estimating_kernel
def _absolutes(rows, first, last, query, at, out, start):
    for i in range(first, last):
        total = np.float32(0.0)
        for j in range(rows.shape[1]):
            total += abs(rows[i, j] - query[at, j])
        out[at, i - start] = -total


@estimating_kernel
def scan(measure, rows, start, stop, queries, out):
    """Each query's inner product with rows ``start:stop``, or minus their distance; ``out`` is (queries, rows)."""
    # A strip of rows stays in the cache for all queries.
    for first in range(start, stop, _STRIP):
        last = min(first + _STRIP, stop)
        for q in range(queries.shape[0]):
            if measure == INNER:
                _inner(rows, first, last, queries, q, out, start)
            elif measure == SQEUCLIDEAN:
                _squares(rows, first, last, queries, q, out, start)
            else:
                _absolutes(rows, first, last, queries, q, out, start)


@kernel
def at_least(values, limit):
    """Where values are at least the limit, or not a number."""
    n = 0
    for i in range(values.shape[0]):
        n += not values[i] < limit
    places = np.empty(n, dtype=np.int64)
    n = 0
    for i in range(values.shape[0]):
        if not values[i] < limit:
            places[n] = i
            n += 1
    return places


@kernel
def longest(rows, start, stop):
    """Greatest Euclidean length of rows ``start:stop``, in float64."""
    greatest = 0.0
    for i in range(start, stop):
        total = 0.0
        for j in range(rows.shape[1]):
            total += np.float64(rows[i, j]) * np.float64(rows[i, j])
        greatest = max(greatest, total)
    return np.sqrt(greatest)
