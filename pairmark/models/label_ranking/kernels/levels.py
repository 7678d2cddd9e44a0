"""Borders of the cells of one level of a label ranking tree, in compiled loops."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def best_borders(values, order, cell, y, weight, n_cells):
    """Find, for each feature and cell, the border that lowers the squared error most.

    One pass over the rows in a feature's order serves all cells: each has its own running sums of what lies left of
    the border. The squared error is lower by as much as the squared length of the sums, over their weight, is larger.

    Parameters
    ----------
    values : (n, d) features. order : (d, n) rows by each feature. cell : (n,) of each row; -1: of none.
    y, weight : (n, k) targets and (n,) how often each row counts.

    Returns
    -------
    gains, thresholds : (d, n_cells). Gains are -1 where a feature does not vary, and in cells of one ranking only.
    """
    d, k = order.shape[0], y.shape[1]
    gains, thresholds = np.full((d, n_cells), -1.0), np.zeros((d, n_cells), np.float32)
    totals, mass = np.zeros((n_cells, k)), np.zeros(n_cells)
    first, differs = np.full(n_cells, -1), np.zeros(n_cells, np.bool_)
    for r in range(cell.size):
        c = cell[r]
        if c < 0:
            continue
        if first[c] < 0:
            first[c] = r
        mass[c] += weight[r]
        for i in range(k):
            totals[c, i] += weight[r] * y[r, i]
            differs[c] |= y[r, i] != y[first[c], i]
    whole = (totals**2).sum(axis=1) / mass
    for f in range(d):
        sums, left, last = np.zeros((n_cells, k)), np.zeros(n_cells), np.zeros(n_cells, np.float32)
        for r in order[f]:
            c = cell[r]
            if c < 0 or not differs[c]:
                continue
            value = values[r, f]
            # A border lies between two different values.
            if left[c] > 0.0 and value != last[c]:
                left_norm = right_norm = 0.0
                for i in range(k):
                    left_norm += sums[c, i] ** 2
                    right_norm += (totals[c, i] - sums[c, i]) ** 2
                gain = left_norm / left[c] + right_norm / (mass[c] - left[c]) - whole[c]
                if gain > gains[f, c]:
                    gains[f, c] = max(gain, 0.0)
                    middle = np.float32(0.5 * (np.float64(last[c]) + np.float64(value)))
                    # Where no float32 lies between two values, the lower one is the border.
                    thresholds[f, c] = middle if last[c] <= middle < value else last[c]
            for i in range(k):
                sums[c, i] += weight[r] * y[r, i]
            left[c] += weight[r]
            last[c] = value
    return gains, thresholds
