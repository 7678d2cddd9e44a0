"""Loops of the unit-level bootstrap. Everything is laid out so that a block of replicates sits in a row."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.core.compiled import kernel


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
