"""Comparing vectors, in compiled loops.

Sums run in eight lanes, feature j in lane j mod 8, each in order of the features and in float64; products, squares
and absolute differences do not care which side is which. So a score is the same to the last bit in either order, in
a pair or a grid, and with dense or sparse rows (a zero adds nothing to any lane). Dense rows come padded with zeros
to a multiple of eight.
"""

import numpy as np

from pairmark.models.core.compiled import inner_kernel, kernel
from pairmark.models.core.kernels import dot, rows_at, unit_rows

DOT, EUCLIDEAN, MANHATTAN = 0, 1, 2


@inner_kernel
def _apart(a, b, squared):
    """Sum of differences of two padded rows, squared or absolute; one function, since it costs seconds to compile."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for j in range(0, a.shape[0], 8):
        d0 = abs(np.float64(a[j]) - np.float64(b[j]))
        d1 = abs(np.float64(a[j + 1]) - np.float64(b[j + 1]))
        d2 = abs(np.float64(a[j + 2]) - np.float64(b[j + 2]))
        d3 = abs(np.float64(a[j + 3]) - np.float64(b[j + 3]))
        d4 = abs(np.float64(a[j + 4]) - np.float64(b[j + 4]))
        d5 = abs(np.float64(a[j + 5]) - np.float64(b[j + 5]))
        d6 = abs(np.float64(a[j + 6]) - np.float64(b[j + 6]))
        d7 = abs(np.float64(a[j + 7]) - np.float64(b[j + 7]))
        s0 += d0 * d0 if squared else d0
        s1 += d1 * d1 if squared else d1
        s2 += d2 * d2 if squared else d2
        s3 += d3 * d3 if squared else d3
        s4 += d4 * d4 if squared else d4
        s5 += d5 * d5 if squared else d5
        s6 += d6 * d6 if squared else d6
        s7 += d7 * d7 if squared else d7
    return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))


@inner_kernel
def _fold_lanes(lanes):
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))


@inner_kernel
def _score(code, total):
    """The score from a sum over features; no distance is scored 0.0, never -0.0."""
    if code == DOT:
        return total
    return 0.0 - (np.sqrt(total) if code == EUCLIDEAN else total)


@kernel
def score_pair(rows, unit, out):
    """Inner product of two padded rows, divided by their lengths first, in place, where ``unit``: what `unit_rows` and
    `row_products` give, in one call."""
    if unit:
        unit_rows(rows, rows)
    out[0] = dot(rows[0], rows[1])


@kernel
def score_distances(code, a, b, grid, out):
    """As `row_products`, by minus the distance: a kernel of its own, since most models compile the other only."""
    for p in range(out.shape[0]):
        for q in range(out.shape[1]):
            u, v = rows_at(p, q, grid, a, b)
            out[p, q] = _score(code, _apart(u, v, code == EUCLIDEAN))


@inner_kernel
def _sparse(code, ai, av, bi, bv, lanes):
    """Score of two sparse rows: ascending indices and their values."""
    lanes[:] = 0.0
    i = j = 0
    while i < ai.shape[0] or j < bi.shape[0]:
        # A merge of two ascending lists: what one side lacks is 0. Lanes go by the column's number, as
        # for dense rows, so both add up in the same order.
        of_a = ai[i] if i < ai.shape[0] else np.int64(2**62)
        of_b = bi[j] if j < bi.shape[0] else np.int64(2**62)
        column, x, y = min(of_a, of_b), 0.0, 0.0
        if of_a == column:
            x = np.float64(av[i])
            i += 1
        if of_b == column:
            y = np.float64(bv[j])
            j += 1
        if code == DOT:
            lanes[column & 7] += x * y
        else:
            lanes[column & 7] += (x - y) ** 2 if code == EUCLIDEAN else abs(x - y)
    return _score(code, _fold_lanes(lanes))


@kernel
def score_sparse(code, a_starts, a_indices, a_values, b_starts, b_indices, b_values, grid, out):
    """Score of sparse rows: each pair into (n, 1), or with ``grid`` each left with each right row."""
    lanes = np.zeros(8)
    for i in range(out.shape[0]):
        a = slice(a_starts[i], a_starts[i + 1])
        for column in range(out.shape[1]):
            j = column if grid else i
            b = slice(b_starts[j], b_starts[j + 1])
            out[i, column] = _sparse(code, a_indices[a], a_values[a], b_indices[b], b_values[b], lanes)


@kernel
def unit_sparse(starts, indices, values):
    """Divide each sparse row by its length, in place; a row of zeros stays."""
    lanes = np.zeros(8)
    for i in range(starts.shape[0] - 1):
        lanes[:] = 0.0
        for k in range(starts[i], starts[i + 1]):
            lanes[indices[k] & 7] += np.float64(values[k]) ** 2
        length = np.sqrt(_fold_lanes(lanes))
        if length > 0.0:
            for k in range(starts[i], starts[i + 1]):
                values[k] = values[k] / length
