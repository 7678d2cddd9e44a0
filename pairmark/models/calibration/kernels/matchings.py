"""A lower bound on permanents by Sinkhorn scaling, for the matching-product bound."""

from __future__ import annotations

import math

import numpy as np

from pairmark.models.core.arrays import Float64, Int32, Int64
from pairmark.models.core.compiled import kernel


@kernel
def log_mean_product(
    rows: Int32,
    columns: Int32,
    weight: Float64,
    n_entries: int,
    block: Int32,
    size: Int64,
    shrink: float,
    scale: Float64,
) -> float:
    """A lower bound of the sum over blocks of log(per(W) / N!), W = 1 - shrink A being the N x N matrix of a block.

    van der Waerden's theorem in Gurvits' form: per(W) / N! >= cap(W) / N^N with cap(W) = inf of prod_i (W x)_i /
    prod_j x_j over x > 0. Any x gives a lower bound of the capacity: log of that ratio is convex in log x with gradient
    c - 1, c the column sums after the rows are scaled to 1, and log x can be moved by a constant to within L = -log(1 -
    shrink) of the minimiser, since entries lie in [1 - shrink, 1]. So sum |c - 1| L is subtracted.

    Parameters
    ----------
    rows, columns, weight : the first ``n_entries`` are the non-zero entries of A (repeated ones add up, to at most 1);
        rows and columns are numbered through all blocks.
    block : (n,) of each row, and of each column.
    size : N of each block; it has as many rows as columns.
    scale : (n_columns,) positive, of a range of at most 1 / (1 - shrink) in each block; the start, and left as the
        last.
    """
    n = block.size
    total = np.empty(size.size)
    row_sum = np.empty(n)
    column_sum = np.empty(n)
    per_imbalance = -math.log(1.0 - shrink)
    # log of N^-N, of all blocks.
    base = 0.0
    for b in range(size.size):
        base -= size[b] * math.log(size[b])
    # Alternate scaling of columns and rows; each round gives a bound of its own, and the best one is kept.
    best = -np.inf
    for _ in range(100):
        total[:] = 0.0
        for j in range(n):
            total[block[j]] += scale[j]
        row_sum[:] = 0.0
        for e in range(n_entries):
            row_sum[rows[e]] += weight[e] * scale[columns[e]]
        # Rows: log of (W x)_i with W = 1 - shrink A, so (W x)_i = sum x - shrink (A x)_i. `row_sum` becomes
        # the scaling that brings each row's sum to 1.
        value = base
        for i in range(n):
            # Rounding may not bring an entry below 1 - shrink.
            block_total = total[block[i]]
            s = block_total - shrink * min(row_sum[i], block_total)
            value += math.log(s)
            row_sum[i] = 1.0 / s
        for j in range(n):
            value -= math.log(scale[j])
        total[:] = 0.0
        for i in range(n):
            total[block[i]] += row_sum[i]
        column_sum[:] = 0.0
        for e in range(n_entries):
            column_sum[columns[e]] += weight[e] * row_sum[rows[e]]
        # Columns of the scaled matrix: how far their sums c are from 1 bounds how far the value is from the
        # minimum; then each is brought to 1.
        imbalance = 0.0
        for j in range(n):
            block_total = total[block[j]]
            t = block_total - shrink * min(column_sum[j], block_total)
            imbalance += abs(scale[j] * t - 1.0)
            scale[j] = 1.0 / t
        # 1e-12 a row is far more than rounding takes.
        bound = value - imbalance * per_imbalance - 1e-12 * n
        if bound > best:
            best = bound
        if imbalance * per_imbalance < 1e-3:
            break
    return best


@kernel
def list_matchings(
    start: Int64, neighbour: Int32, edge: Int32, order: Int32, uniform: Float64, matched: Int32
) -> None:
    """Fill ``matched`` with edges of matchings, -1 after the last.

    Units are visited in a given order; one that is still free takes one of its free neighbours.

    Parameters
    ----------
    start : (m + 1,) where each unit's neighbours begin.
    neighbour, edge : (2 E,) units, and numbers of the edges to them.
    order : (B, m) units of each matching in the order of their visits.
    uniform : (B, m) numbers in [0, 1), which say which free neighbour is taken.
    matched : (B, m // 2).
    """
    m = start.size - 1
    is_matched = np.empty(m, dtype=np.bool_)
    for b in range(order.shape[0]):
        is_matched[:] = False
        n = 0
        for k in range(m):
            u = order[b, k]
            if is_matched[u]:
                continue
            free = 0
            for place in range(start[u], start[u + 1]):
                if not is_matched[neighbour[place]]:
                    free += 1
            if free == 0:
                continue
            left = int(uniform[b, k] * free)
            for place in range(start[u], start[u + 1]):
                if is_matched[neighbour[place]]:
                    continue
                if left == 0:
                    is_matched[u] = True
                    is_matched[neighbour[place]] = True
                    matched[b, n] = edge[place]
                    n += 1
                    break
                left -= 1
        matched[b, n:] = -1
