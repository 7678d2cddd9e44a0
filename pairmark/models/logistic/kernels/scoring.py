"""Weighted differences and products of pairs of rows, in compiled loops.

Sums run in float64 over features in their order, and each term is the same whichever row is left. So a score is the
same to the last bit in either order, in a pair or a grid. A row comes with two numbers: ``tails[i, 0]``, which turns
its product with another row into one of plain features, and ``tails[i, 1]``, its size.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel

LANES = 8


@kernel
def unit_dense(X, rarity, out, tails):
    """Rows weighed by rarity and scaled to length one, (n, width) padded; tails as above."""
    d = X.shape[1]
    for i in range(X.shape[0]):
        plain = weighted = size = 0.0
        for j in range(d):
            x = np.float64(X[i, j])
            plain += x * x
            weighted += (rarity[j] * x) ** 2
            size += abs(x)
        plain, weighted = np.sqrt(plain), np.sqrt(weighted)
        if weighted > 0.0:
            for j in range(d):
                out[i, j] = np.float32(rarity[j] * np.float64(X[i, j]) / weighted)
            tails[i, 0], tails[i, 1] = weighted / plain, size / plain


@kernel
def unit_sparse(starts, columns, values, rarity, out, tails):
    """The same of CSR rows: new values, in place of the old."""
    for i in range(starts.shape[0] - 1):
        plain = weighted = size = 0.0
        for k in range(starts[i], starts[i + 1]):
            x = np.float64(values[k])
            plain += x * x
            weighted += (rarity[columns[k]] * x) ** 2
            size += abs(x)
        plain, weighted = np.sqrt(plain), np.sqrt(weighted)
        for k in range(starts[i], starts[i + 1]):
            out[k] = (
                np.float32(rarity[columns[k]] * np.float64(values[k]) / weighted) if weighted > 0.0 else 0.0
            )
        if weighted > 0.0:
            tails[i, 0], tails[i, 1] = weighted / plain, size / plain


@kernel
def standard_dense(X, centre, scale, limit, out, tails):
    """Rows centred and scaled feature by feature, each value held within ``limit``."""
    for i in range(X.shape[0]):
        total = 0.0
        for j in range(X.shape[1]):
            value = (np.float64(X[i, j]) - centre[j]) * scale[j]
            value = min(max(value, -limit), limit)
            out[i, j] = np.float32(value)
            total += value * value
        length = np.sqrt(total)
        tails[i, 0] = 1.0 / length if length > 0.0 else 0.0
        tails[i, 1] = length


@kernel
def _dense(a, b, ta, tb, weights, plain, of):
    """``of``: intercept, then the weights of products, plain products, the smaller and the larger size."""
    # Four lanes of each sum; widths are padded with zeros, which add nothing.
    apart0 = apart1 = apart2 = apart3 = 0.0
    both0 = both1 = both2 = both3 = 0.0
    also0 = also1 = also2 = also3 = 0.0
    for j in range(0, a.shape[0], 4):
        x, y = np.float64(a[j]), np.float64(b[j])
        apart0 += weights[j] * abs(x - y)
        both0 += x * y
        also0 += plain[j] * (x * y)
        x, y = np.float64(a[j + 1]), np.float64(b[j + 1])
        apart1 += weights[j + 1] * abs(x - y)
        both1 += x * y
        also1 += plain[j + 1] * (x * y)
        x, y = np.float64(a[j + 2]), np.float64(b[j + 2])
        apart2 += weights[j + 2] * abs(x - y)
        both2 += x * y
        also2 += plain[j + 2] * (x * y)
        x, y = np.float64(a[j + 3]), np.float64(b[j + 3])
        apart3 += weights[j + 3] * abs(x - y)
        both3 += x * y
        also3 += plain[j + 3] * (x * y)
    differences = (apart0 + apart1) + (apart2 + apart3)
    product = (both0 + both1) + (both2 + both3)
    also = ((also0 + also1) + (also2 + also3)) * (ta[0] * tb[0])
    small, large = min(ta[1], tb[1]), max(ta[1], tb[1])
    return of[0] + differences + of[1] * product + of[2] * also + (of[3] * small + of[4] * large)


@kernel
def _sparse(columns_a, a, columns_b, b, ta, tb, weights, plain, of):
    differences = product = also = 0.0
    i = j = 0
    while i < columns_a.shape[0] or j < columns_b.shape[0]:
        of_a = columns_a[i] if i < columns_a.shape[0] else np.int64(2**62)
        of_b = columns_b[j] if j < columns_b.shape[0] else np.int64(2**62)
        if of_a == of_b:
            x, y = np.float64(a[i]), np.float64(b[j])
            differences += weights[of_a] * abs(x - y)
            product += x * y
            also += plain[of_a] * (x * y)
            i += 1
            j += 1
        elif of_a < of_b:
            differences += weights[of_a] * abs(np.float64(a[i]))
            i += 1
        else:
            differences += weights[of_b] * abs(np.float64(b[j]))
            j += 1
    also *= ta[0] * tb[0]
    small, large = min(ta[1], tb[1]), max(ta[1], tb[1])
    return of[0] + differences + of[1] * product + of[2] * also + (of[3] * small + of[4] * large)


@kernel
def score_dense(a, ta, b, tb, grid, weights, plain, of, out):
    """Scores of pairs, or of all pairs of two sets of rows, into ``out`` (n_a, n_b) or (n, 1).

    In pairs, a side of a single row meets all of the other's.
    """
    step_a, step_b = np.int64(a.shape[0] > 1), np.int64(b.shape[0] > 1)
    for p in range(out.shape[0]):
        for q in range(out.shape[1]):
            i, j = (p, q) if grid else (p * step_a, p * step_b)
            out[p, q] = np.float32(_dense(a[i], b[j], ta[i], tb[j], weights, plain, of))


@kernel
def score_sparse(sa, ca, va, ta, sb, cb, vb, tb, grid, weights, plain, of, out):
    """The same of CSR rows (starts, ascending columns, values)."""
    step_a, step_b = np.int64(sa.shape[0] > 2), np.int64(sb.shape[0] > 2)
    for p in range(out.shape[0]):
        for q in range(out.shape[1]):
            i, j = (p, q) if grid else (p * step_a, p * step_b)
            left, right = slice(sa[i], sa[i + 1]), slice(sb[j], sb[j + 1])
            out[p, q] = np.float32(
                _sparse(ca[left], va[left], cb[right], vb[right], ta[i], tb[j], weights, plain, of)
            )
