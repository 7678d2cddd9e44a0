"""Weighted differences and products of pairs of rows, in compiled loops.

Sums run in float64 over features in their order, and each term is the same whichever row is left. So a score is the
same to the last bit in either order, in a pair or a grid. A row comes with two numbers: ``tails[i, 0]``, which turns
its product with another row into one of plain features, and ``tails[i, 1]``, its size.
"""

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def _score(columns_a, a, columns_b, b, ta, tb, weights, plain, coefficients):
    """``coefficients``: intercept, then the weights of products, plain products, the smaller and the larger size."""
    total = coefficients[0] + (coefficients[3] * min(ta[1], tb[1]) + coefficients[4] * max(ta[1], tb[1]))
    lengths = coefficients[2] * (ta[0] * tb[0])
    i = j = 0
    while i < columns_a.shape[0] or j < columns_b.shape[0]:
        of_a = columns_a[i] if i < columns_a.shape[0] else np.int64(2**62)
        of_b = columns_b[j] if j < columns_b.shape[0] else np.int64(2**62)
        x = y = 0.0
        column = min(of_a, of_b)
        if of_a == column:
            x = np.float64(a[i])
            i += 1
        if of_b == column:
            y = np.float64(b[j])
            j += 1
        total += weights[column] * abs(x - y) + (coefficients[1] + lengths * plain[column]) * (x * y)
    return total


@kernel
def score_pairs(sa, ca, va, ta, sb, cb, vb, tb, weights, plain, coefficients, out):
    """Scores of pairs of CSR rows (starts, ascending columns, values) into ``out`` (n, 1), or of all pairs of two sets.

    In pairs, a side of a single row meets all of the other's; all pairs go into (n_a, n_b).
    """
    step_a, step_b = np.int64(ta.shape[0] > 1), np.int64(tb.shape[0] > 1)
    for p in range(out.shape[0]):
        for q in range(out.shape[1]):
            i, j = (p, q) if out.shape[1] > 1 else (p * step_a, p * step_b)
            left, right = slice(sa[i], sa[i + 1]), slice(sb[j], sb[j + 1])
            out[p, q] = np.float32(
                _score(ca[left], va[left], cb[right], vb[right], ta[i], tb[j], weights, plain, coefficients)
            )
