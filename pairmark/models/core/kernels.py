"""Rows and scans of galleries, in compiled loops.

A row's result never depends on the rows beside it, as a matrix product's would: sums run over the inputs in order,
and what the compiler does side by side are different outputs. So one row scores as it does in a batch.

Sums of scans are float32 and in whatever order is fastest on the machine, so they are estimates: `core.search` knows
how far they can be off, and scores every row that might count once more, exactly.
"""

import math

import numpy as np

from pairmark.models.core.compiled import estimating_kernel, inlined_kernel, inner_kernel, kernel

_ROWS = 8
LANES = 8
"""Rows that are multiplied are padded with zeros to a multiple of so many columns."""


@kernel
def add_products(X, weights, out):
    """``out += X weights``, each entry summed in the order of the inputs."""
    # Some rows share each line of the weights that is read, and the inner loop runs side by side over outputs. Several
    # inputs at a time would be more arrays than compilers hold apart: two to four times slower.
    for first in range(0, X.shape[0], _ROWS):
        last = min(first + _ROWS, X.shape[0])
        for i in range(X.shape[1]):
            line = weights[i]
            for p in range(first, last):
                x, target = X[p, i], out[p]
                for j in range(line.shape[0]):
                    target[j] += x * line[j]


@kernel
def broken_lines(X, knots, values, out):
    """Each feature by its own broken line; ``knots`` (d, k) ascending, padded with +inf, constant beyond both ends."""
    k = knots.shape[1]
    for p in range(X.shape[0]):
        for f in range(X.shape[1]):
            value, line = X[p, f], knots[f]
            # As `np.searchsorted`, which takes a third of a second more to compile.
            low, high = 0, k
            while low < high:
                middle = (low + high) >> 1
                if line[middle] > value:
                    high = middle
                else:
                    low = middle + 1
            if low == 0:
                out[p, f] = values[f, 0]
            elif low == k or line[low] == np.inf:
                out[p, f] = values[f, low - 1]
            else:
                start, stop = np.float64(line[low - 1]), np.float64(line[low])
                part = (np.float64(value) - start) / (stop - start)
                below = np.float64(values[f, low - 1])
                out[p, f] = np.float32(below + part * (np.float64(values[f, low]) - below))


@kernel
def unit_lengths(values, length):
    """Rows scaled to a length, in place; rows of zeros stay."""
    for p in range(values.shape[0]):
        row, total = values[p], 0.0
        for j in range(row.shape[0]):
            total += np.float64(row[j]) * np.float64(row[j])
        if total > 0.0:
            factor = length / math.sqrt(total)
            for j in range(row.shape[0]):
                row[j] = np.float32(np.float64(row[j]) * factor)


@kernel
def project_rows(rows, mean, matrix, out):
    """``(rows - mean) @ matrix`` into the first columns of ``out``, summed in float64 in the order of the inputs."""
    d, width = matrix.shape
    sums = np.empty((_ROWS, width))
    # Some rows share each line of the matrix that is read; each keeps sums of its own.
    for start in range(0, rows.shape[0], _ROWS):
        n = min(_ROWS, rows.shape[0] - start)
        sums[:] = 0.0
        for j in range(d):
            line = matrix[j]
            for r in range(n):
                x = np.float64(rows[start + r, j]) - mean[j]
                total = sums[r]
                for k in range(width):
                    total[k] += x * line[k]
        for r in range(n):
            for k in range(width):
                out[start + r, k] = sums[r, k]


@inner_kernel
def dot(a, b):
    """Inner product of two padded rows, in eight lanes in float64."""
    # Eight sums that need not wait for one another, folded in one order: the same bits in any batch.
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for j in range(0, a.shape[0], 8):
        s0 += np.float64(a[j]) * np.float64(b[j])
        s1 += np.float64(a[j + 1]) * np.float64(b[j + 1])
        s2 += np.float64(a[j + 2]) * np.float64(b[j + 2])
        s3 += np.float64(a[j + 3]) * np.float64(b[j + 3])
        s4 += np.float64(a[j + 4]) * np.float64(b[j + 4])
        s5 += np.float64(a[j + 5]) * np.float64(b[j + 5])
        s6 += np.float64(a[j + 6]) * np.float64(b[j + 6])
        s7 += np.float64(a[j + 7]) * np.float64(b[j + 7])
    return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))


@inner_kernel
def rows_at(p, q, grid, a, b):
    """The two rows whose score stands at (p, q): in a grid row p and q, side by side both p, or a side's only row."""
    if grid:
        return a[p], b[q]
    return a[p * np.int64(a.shape[0] > 1)], b[p * np.int64(b.shape[0] > 1)]


@kernel
def row_products(a, b, grid, out):
    """Inner products of padded rows: of all pairs of two sets of rows, (n_a, n_b), or of pairs side by side, (n, 1).

    Side by side, a single row meets all of the other side's.
    """
    for p in range(out.shape[0]):
        for q in range(out.shape[1]):
            u, v = rows_at(p, q, grid, a, b)
            out[p, q] = dot(u, v)


@kernel
def unit_rows(rows, sealed):
    """Divide each padded row by its length, in place; a row of zeros stays.

    ``sealed`` : the same, read-only: `dot` is compiled for one such side.
    """
    for i in range(rows.shape[0]):
        row = rows[i]
        length = np.sqrt(dot(row, sealed[i]))
        if length > 0.0:
            for j in range(row.shape[0]):
                row[j] = row[j] / length


_STRIP = 64
"""Rows at a time: they stay in the first caches while every query meets them."""


# Rows by number and not as slices, which count references: that would cost an inner product as much as it does itself.


@estimating_kernel
def _squares(rows, first, last, query, q, out):
    for i in range(first, last):
        total = np.float32(0.0)
        for j in range(rows.shape[1]):
            difference = rows[i, j] - query[q, j]
            total += difference * difference
        out[q, i] = -total


@estimating_kernel
def _absolutes(rows, first, last, query, q, out):
    for i in range(first, last):
        total = np.float32(0.0)
        for j in range(rows.shape[1]):
            total += abs(rows[i, j] - query[q, j])
        out[q, i] = -total


@estimating_kernel
def scan(rows, absolute, queries, out):
    """Minus each query's squared distance from rows, or the sum of absolute differences; ``out`` is (queries, rows)."""
    # A strip of rows stays in the cache for all queries.
    for first in range(0, rows.shape[0], _STRIP):
        last = min(first + _STRIP, rows.shape[0])
        for q in range(queries.shape[0]):
            if absolute:
                _absolutes(rows, first, last, queries, q, out)
            else:
                _squares(rows, first, last, queries, q, out)


@estimating_kernel
def encode(rows, codes, steps, lengths):
    """Each row as whole numbers of steps from -127 to 127; ``lengths`` : of rows, and of what their codes leave out."""
    half = np.float32(0.5)
    for i in range(rows.shape[0]):
        largest = np.float32(0.0)
        for j in range(rows.shape[1]):
            largest = max(largest, abs(rows[i, j]))
        # Of the smallest numbers the codes leave out all: their 127th is no number of its own.
        step = max(largest / np.float32(127.0), np.float32(1e-37))
        inverse, total, left_out = np.float32(1.0) / step, 0.0, 0.0
        for j in range(rows.shape[1]):
            x = rows[i, j]
            # The conversion cuts toward 0: half a step outward makes it round.
            code = np.int8(x * inverse + (half if x > 0 else -half))
            codes[i, j] = code
            total += np.float64(x) ** 2
            # Of the codes as they are read, by the step, so that it bounds what `inverse` rounded, too.
            left_out += (np.float64(x) - np.float64(code) * np.float64(step)) ** 2
        steps[i], lengths[0, i], lengths[1, i] = step, math.sqrt(total), math.sqrt(left_out)


@estimating_kernel
def scan_codes(codes, steps, queries, out):
    """Each query's inner product with what `encode` made of rows; ``out`` is (queries, rows)."""
    for i in range(codes.shape[0]):
        for q in range(queries.shape[0]):
            total = np.float32(0.0)
            for j in range(codes.shape[1]):
                total += np.float32(codes[i, j]) * queries[q, j]
            out[q, i] = total * steps[i]


# As the functions of Python, each of which numba compiles by itself for each two types.


@inlined_kernel
def smaller(a, b):
    return b if b < a else a


@inlined_kernel
def larger(a, b):
    return b if b > a else a


@inner_kernel
def next_random(state):
    """Splitmix64: advances ``state[0]`` and returns 64 random bits."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
