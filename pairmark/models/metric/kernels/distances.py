"""Comparing vectors, in compiled loops.

Sums run in eight lanes, feature j in lane j mod 8, each in order of the features and in float64; products, squares
and absolute differences do not care which side is which. So a score is the same to the last bit in either order, in
a pair or a grid, and with dense or sparse rows (a zero adds nothing to any lane). Dense rows come padded with zeros
to a multiple of eight.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.core.kernels import dot

LANES = 8
DOT, EUCLIDEAN, SQEUCLIDEAN, MANHATTAN = 0, 1, 2, 3
CHEBYSHEV, MINKOWSKI, CANBERRA, BRAYCURTIS, HAMMING = 4, 5, 6, 7, 8


@kernel
def _squares(a, b):
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for j in range(0, a.shape[0], 8):
        s0 += (np.float64(a[j]) - np.float64(b[j])) ** 2
        s1 += (np.float64(a[j + 1]) - np.float64(b[j + 1])) ** 2
        s2 += (np.float64(a[j + 2]) - np.float64(b[j + 2])) ** 2
        s3 += (np.float64(a[j + 3]) - np.float64(b[j + 3])) ** 2
        s4 += (np.float64(a[j + 4]) - np.float64(b[j + 4])) ** 2
        s5 += (np.float64(a[j + 5]) - np.float64(b[j + 5])) ** 2
        s6 += (np.float64(a[j + 6]) - np.float64(b[j + 6])) ** 2
        s7 += (np.float64(a[j + 7]) - np.float64(b[j + 7])) ** 2
    return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))


@kernel
def _absolutes(a, b):
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for j in range(0, a.shape[0], 8):
        s0 += abs(np.float64(a[j]) - np.float64(b[j]))
        s1 += abs(np.float64(a[j + 1]) - np.float64(b[j + 1]))
        s2 += abs(np.float64(a[j + 2]) - np.float64(b[j + 2]))
        s3 += abs(np.float64(a[j + 3]) - np.float64(b[j + 3]))
        s4 += abs(np.float64(a[j + 4]) - np.float64(b[j + 4]))
        s5 += abs(np.float64(a[j + 5]) - np.float64(b[j + 5]))
        s6 += abs(np.float64(a[j + 6]) - np.float64(b[j + 6]))
        s7 += abs(np.float64(a[j + 7]) - np.float64(b[j + 7]))
    return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))


@kernel
def _term(code, p, scale, x, y):
    """What one feature adds. ``scale`` keeps powers within range: the largest difference."""
    if code == DOT:
        return x * y
    if code in (EUCLIDEAN, SQEUCLIDEAN):
        return (x - y) ** 2
    if code in (MANHATTAN, BRAYCURTIS):
        return abs(x - y)
    if code == MINKOWSKI:
        return (abs(x - y) / scale) ** p
    if code == CANBERRA:
        size = abs(x) + abs(y)
        return abs(x - y) / size if size > 0.0 else 0.0
    return 1.0 if x != y else 0.0  # HAMMING


@kernel
def _folded(lanes):
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))


@kernel
def _score(code, p, scale, total, size, width):
    """The score from a sum of terms; ``size`` is what Bray and Curtis divide by."""
    if code == DOT:
        return total
    if code == EUCLIDEAN:
        return 0.0 - np.sqrt(total)
    if code == BRAYCURTIS:
        return 0.0 - total / size if size > 0.0 else 0.0
    if code == HAMMING:
        return 0.0 - total / width
    if code == CHEBYSHEV:
        return 0.0 - scale
    if code == MINKOWSKI:
        return 0.0 - scale * total ** (1.0 / p)
    return 0.0 - total  # and not -total: no distance is scored 0.0, never -0.0


@kernel
def _dense(code, p, a, b, width, lanes):
    """Score of two padded rows of ``width`` features."""
    if code == DOT:
        return dot(a, b)
    if code in (EUCLIDEAN, SQEUCLIDEAN):
        return _score(code, p, 1.0, _squares(a, b), 0.0, width)
    if code == MANHATTAN:
        return 0.0 - _absolutes(a, b)
    scale, size = 0.0, 0.0
    if code in (CHEBYSHEV, MINKOWSKI):
        for j in range(width):
            scale = max(scale, abs(np.float64(a[j]) - np.float64(b[j])))
        if code == CHEBYSHEV or scale == 0.0:
            return 0.0 - scale
    if code == BRAYCURTIS:
        lanes[:] = 0.0
        for j in range(width):
            lanes[j & 7] += abs(np.float64(a[j])) + abs(np.float64(b[j]))
        size = _folded(lanes)
    lanes[:] = 0.0
    for j in range(width):
        lanes[j & 7] += _term(code, p, scale, np.float64(a[j]), np.float64(b[j]))
    return _score(code, p, scale, _folded(lanes), size, width)


@kernel
def score_pairs(code, p, left, step_left, right, step_right, width, out):
    """Score of each pair of padded rows; a step of 0 keeps a side's only row."""
    lanes = np.zeros(8)
    for i in range(out.shape[0]):
        out[i] = _dense(code, p, left[i * step_left], right[i * step_right], width, lanes)


@kernel
def score_grid(code, p, queries, gallery, width, out):
    """Score of each query with each gallery row, padded."""
    lanes = np.zeros(8)
    for i in range(queries.shape[0]):
        for j in range(gallery.shape[0]):
            out[i, j] = _dense(code, p, queries[i], gallery[j], width, lanes)


@kernel
def _sparse(code, p, ai, av, bi, bv, width, lanes):
    """Score of two sparse rows: ascending indices and their values."""
    scale, size = 0.0, 0.0
    passes = 2 if code in (CHEBYSHEV, MINKOWSKI, BRAYCURTIS) else 1
    # Some metrics need the largest difference, or the sum of sizes, before any term: one pass to prepare.
    for turn in range(passes):
        preparing = turn < passes - 1
        lanes[:] = 0.0
        i = j = 0
        while i < ai.shape[0] or j < bi.shape[0]:
            # A merge of two ascending lists: what one side lacks is 0. Lanes go by the column's number, as
            # for dense rows, so both add up in the same order.
            if j >= bi.shape[0] or (i < ai.shape[0] and ai[i] < bi[j]):
                at, x, y = ai[i], np.float64(av[i]), 0.0
                i += 1
            elif i >= ai.shape[0] or bi[j] < ai[i]:
                at, x, y = bi[j], 0.0, np.float64(bv[j])
                j += 1
            else:
                at, x, y = ai[i], np.float64(av[i]), np.float64(bv[j])
                i += 1
                j += 1
            if not preparing:
                lanes[at & 7] += _term(code, p, scale, x, y)
            elif code == BRAYCURTIS:
                lanes[at & 7] += abs(x) + abs(y)
            else:
                scale = max(scale, abs(x - y))
        if preparing and code == BRAYCURTIS:
            size = _folded(lanes)
        elif preparing and (code == CHEBYSHEV or scale == 0.0):
            return 0.0 - scale
    return _score(code, p, scale, _folded(lanes), size, width)


@kernel
def score_sparse(code, p, a_starts, a_indices, a_values, b_starts, b_indices, b_values, width, grid, out):
    """Score of sparse rows: each pair into (n, 1), or with ``grid`` each left with each right row."""
    lanes = np.zeros(8)
    for i in range(out.shape[0]):
        a = slice(a_starts[i], a_starts[i + 1])
        for column in range(out.shape[1]):
            j = column if grid else i
            b = slice(b_starts[j], b_starts[j + 1])
            out[i, column] = _sparse(
                code, p, a_indices[a], a_values[a], b_indices[b], b_values[b], width, lanes
            )


@kernel
def centre_rows(rows, width):
    """Subtract each row's mean of its ``width`` features, in place."""
    lanes = np.zeros(8)
    for i in range(rows.shape[0]):
        row = rows[i]
        lanes[:] = 0.0
        for j in range(width):
            lanes[j & 7] += np.float64(row[j])
        mean = _folded(lanes) / width
        for j in range(width):
            row[j] = np.float64(row[j]) - mean


@kernel
def unit_sparse(starts, indices, values):
    """Divide each sparse row by its length, in place; a row of zeros stays."""
    lanes = np.zeros(8)
    for i in range(starts.shape[0] - 1):
        lanes[:] = 0.0
        for at in range(starts[i], starts[i + 1]):
            lanes[indices[at] & 7] += np.float64(values[at]) ** 2
        length = np.sqrt(_folded(lanes))
        if length > 0.0:
            for at in range(starts[i], starts[i + 1]):
                values[at] = values[at] / length


@kernel
def whitened(rows, mean, matrix, out):
    """(rows - mean) @ matrix into the first columns of ``out``; a row's result does not depend on the others.

    A matrix product from a library rounds differently for different numbers of rows, which would break the
    symmetry of scores and their agreement between pairs and grids.
    """
    d = matrix.shape[0]
    sums = np.empty((8, d))
    # Eight rows share each line of the matrix that is read; each keeps sums of its own.
    for start in range(0, rows.shape[0], 8):
        n = min(8, rows.shape[0] - start)
        sums[:] = 0.0
        for j in range(d):
            line = matrix[j]
            for r in range(n):
                x = np.float64(rows[start + r, j]) - mean[j]
                total = sums[r]
                for k in range(d):
                    total[k] += x * line[k]
        for r in range(n):
            for k in range(d):
                out[start + r, k] = sums[r, k]
