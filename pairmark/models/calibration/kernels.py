"""Compiled loops of calibration: the unit-level bootstrap, bounds of permanents and matchings, statistics of rows.

Loops of the bootstrap are laid out so that a block of replicates sits in a row. The permanent is bounded from below by
Sinkhorn scaling, for the matching-product bound. What a row looks like from outside are five numbers, in one pass and
a half.
"""

import math

import numpy as np

from pairmark.models.core.arrays import Bool, Float32, Float64, Int32, Int64
from pairmark.models.core.compiled import kernel

N_STATISTICS = 5
# Below it a statistic counts as this, so that its logarithm is a number.
_TINY = 1e-30


@kernel
def dyadic_replicates(
    count: Float64,
    edge_left: Int64,
    edge_right: Int64,
    edge_weight: Float64,
    row_edge: Int64,
    row_weight: Float64,
    row_square: Float64,
    row_cross: Float64,
    stops: Int64,
    rate: Float64,
    variance: Float64,
) -> None:
    """Rate and dyadic-robust variance of every replicate at every stop, in one sweep from the best score
    down.

    A pair of units (i, j) drawn count[i] and count[j] times weighs count[i] * count[j]. With x_e = (a_e - F
    b_e)/B, the variance is sum_i (sum of x_e at i)^2 - sum_e x_e^2 (Fafchamps & Gubert 2007; Aronow, Samii &
    Assenova 2015), not less than half its first term. Sums grow by one row at a time.

    Parameters
    ----------
    count : (m, R) float64 times each unit was drawn.
    edge_left, edge_right, edge_weight : (E,) units of an edge and its total weight b_e.
    row_edge, row_weight : (n,) rows, best score first, and their weights.
    row_square, row_cross : (n,) growth of a_e^2 and of a_e b_e when the row joins.
    stops : (G,) ascending numbers of rows above a threshold.
    rate, variance : (G, R) written.
    """
    m, width = count.shape
    # The denominator: B, sum of b_e^2, and what of b_e meets each unit, all before any score counts.
    total = np.zeros(width)
    sum_bb = np.zeros(width)
    at_unit = np.zeros((m, width))
    for e in range(edge_weight.size):
        i, j, b = edge_left[e], edge_right[e], edge_weight[e]
        for k in range(width):
            product = count[i, k] * count[j, k]
            total[k] += product * b
            sum_bb[k] += product * b * b
            # In each unit's sum the own count is left out, since it multiplies the square of the whole sum below.
            at_unit[i, k] += count[j, k] * b
            at_unit[j, k] += count[i, k] * b
    # sum_i (sum of b_e at i)^2, a unit drawn c times counting c times.
    sum_dd = np.zeros(width)
    for i in range(m):
        for k in range(width):
            sum_dd[k] += count[i, k] * at_unit[i, k] * at_unit[i, k]
    # The numerator, of rows above the stop: sums of a_e (sum_a), a_e^2 (sum_aa), a_e b_e (sum_ab), and over units the
    # squares of a (sum_rr) and its products with b (sum_rd). `above` is what of a_e meets each unit so far.
    above = np.zeros((m, width))
    sum_a = np.zeros(width)
    sum_rr = np.zeros(width)
    sum_rd = np.zeros(width)
    sum_aa = np.zeros(width)
    sum_ab = np.zeros(width)
    row = 0
    for g in range(stops.size):
        while row < stops[g]:
            e, v, vv, vb = row_edge[row], row_weight[row], row_square[row], row_cross[row]
            i, j = edge_left[e], edge_right[e]
            for k in range(width):
                ci, cj = count[i, k], count[j, k]
                product = ci * cj
                sum_a[k] += product * v
                sum_aa[k] += product * vv
                sum_ab[k] += product * vb
                # (x + d)^2 - x^2 = d (2 x + d) at both of the row's units; the other unit's count, cj or ci, is in d.
                sum_rr[k] += product * v * (2.0 * (above[i, k] + above[j, k]) + (ci + cj) * v)
                sum_rd[k] += product * v * (at_unit[i, k] + at_unit[j, k])
                above[i, k] += cj * v
                above[j, k] += ci * v
            row += 1
        for k in range(width):
            f = sum_a[k] / total[k] if total[k] > 0.0 else 0.0
            # x_e = a_e - F b_e, squared out, so that F may change from stop to stop.
            units = sum_rr[k] - 2.0 * f * sum_rd[k] + f * f * sum_dd[k]
            edges = sum_aa[k] - 2.0 * f * sum_ab[k] + f * f * sum_bb[k]
            rate[g, k] = f
            # Leaving out the edges' own squares may go below 0 where few units repeat: half of the first term
            # holds it up.
            variance[g, k] = (
                max(units - edges, 0.5 * units, 0.0) / (total[k] * total[k]) if total[k] > 0.0 else 0.0
            )


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
    # Every (W x)_i of a block has the sum of its x in common: kept by block, so that only entries of A are walked, of
    # which there are few.
    total = np.empty(size.size)
    row_sum = np.empty(n)
    column_sum = np.empty(n)
    # L of the docstring.
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
            # Here too rounding may not bring an entry below 1 - shrink.
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
            # A neighbor is drawn among the free ones: they are counted, then the drawn one is walked to, so that no
            # list is made.
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
