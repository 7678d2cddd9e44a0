"""What a row looks like from outside: five numbers, in one pass and a half."""

from __future__ import annotations

import math

import numpy as np

from pairmark.models.core.arrays import Bool, Float32, Float64
from pairmark.models.core.compiled import kernel

N_STATISTICS = 5
_TINY = 1e-30


@kernel
def _statistics(row: Float32, center: Float32, inverse: Float32, out: Float64) -> None:
    """Logs of the largest and of a typical distance from ``center`` in units of ``1 / inverse``, of a typical size in
    the same units, of the norm, and of the spread over features; a NaN is no feature of the row."""
    largest, distance, size, norm, total, n = 0.0, 0.0, 0.0, 0.0, 0.0, 0
    for j in range(row.size):
        x = np.float64(row[j])
        if x == x:
            z = abs(x - center[j]) * inverse[j]
            largest = max(largest, z)
            distance += math.sqrt(z)
            size += math.sqrt(abs(x) * inverse[j])
            norm += x * x
            total += x
            n += 1
    n = max(n, 1)
    mean, spread = total / n, 0.0
    for j in range(row.size):
        x = np.float64(row[j])
        if x == x:
            spread += (x - mean) * (x - mean)
    out[0] = math.log(max(largest, _TINY))
    out[1] = 2 * math.log(max(distance / n, _TINY))
    out[2] = 2 * math.log(max(size / n, _TINY))
    out[3] = math.log(max(math.sqrt(norm), _TINY))
    out[4] = math.log(max(math.sqrt(spread / n), _TINY))


@kernel
def row_statistics(X: Float32, scales: Float32) -> Float64:
    """(n, N_STATISTICS) of dense rows; ``scales`` holds the centers and what distances are multiplied by."""
    out = np.empty((X.shape[0], N_STATISTICS))
    for i in range(X.shape[0]):
        _statistics(X[i], scales[0], scales[1], out[i])
    return out


@kernel
def rows_outside(left: Float32, right: Float32, scales: Float32, ranges: Float64) -> Bool:
    """Whether any statistic of a row is outside its range, left rows first; empty where none of any row is.

    ``ranges`` : (2, N_STATISTICS) least and greatest values.
    """
    n_left, n = left.shape[0], left.shape[0] + right.shape[0]
    flags, seen, n_outside = np.zeros(n, dtype=np.bool_), np.empty(N_STATISTICS), 0
    for i in range(n):
        _statistics(left[i] if i < n_left else right[i - n_left], scales[0], scales[1], seen)
        for k in range(N_STATISTICS):
            if not ranges[0, k] <= seen[k] <= ranges[1, k]:
                flags[i] = True
        n_outside += flags[i]
    return flags if n_outside else flags[:0]
