"""Growing and reading label ranking trees, in compiled loops."""

import numpy as np

from pairmark.models.core.compiled import inner_kernel, kernel


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
                    # Rounding may bring a gain below 0; -1 says that there is no border.
                    gains[f, c] = max(gain, 0.0)
                    middle = np.float32(0.5 * (np.float64(last[c]) + np.float64(value)))
                    # Where no float32 lies between two values, the lower one is the border.
                    thresholds[f, c] = middle if last[c] <= middle < value else last[c]
            for i in range(k):
                sums[c, i] += weight[r] * y[r, i]
            left[c] += weight[r]
            last[c] = value
    return gains, thresholds


@inner_kernel
def _leaf(X, q, node, feature, threshold, left, right):
    while feature[node] >= 0:
        node = left[node] if X[q, feature[node]] <= threshold[node] else right[node]
    return node


@kernel
def leaves_of(X, feature, threshold, left, right, out):
    for q in range(X.shape[0]):
        out[q] = _leaf(X, q, 0, feature, threshold, left, right)


@kernel
def mean_targets(X, roots, feature, threshold, left, right, member_start, members, mass, y, out):
    """Mean over trees of the mean target in the leaf of each row.

    Parameters
    ----------
    member_start : (n_nodes + 1,) where each leaf's members begin. members : training rows. mass : their weights,
        which sum to one in a leaf.
    y : (n, k) targets.
    out : (n_rows, k) means.
    """
    k = y.shape[1]
    for q in range(X.shape[0]):
        for t in range(roots.shape[0]):
            node = _leaf(X, q, roots[t], feature, threshold, left, right)
            for p in range(member_start[node], member_start[node + 1]):
                w, r = mass[p], members[p]
                for c in range(k):
                    out[q, c] += w * y[r, c]
        for c in range(k):
            out[q, c] /= roots.shape[0]


@kernel
def _vote(row, y, w, reach, faint, votes, weights):
    """One training row's votes with weight ``w``: where it shows both labels by their order, else faintly."""
    k = row.shape[0]
    for i in range(k):
        a = row[i]
        for j in range(i + 1, k):
            b = row[j]
            if a < b:
                votes[i, j] += w
                weights[i, j] += w
            elif a > b:
                weights[i, j] += w
            elif a == b:
                votes[i, j] += 0.5 * w
                weights[i, j] += w
            # NaN fails all three comparisons: at least one of the labels is absent.
            else:
                votes[i, j] += faint * w * min(1.0, max(0.0, 0.5 + (y[j] - y[i]) / (2.0 * reach)))
                weights[i, j] += faint * w


@kernel
def _shares(votes, weights):
    """Votes to shares of the weights, in place; the second half mirrors the first."""
    k = votes.shape[0]
    for i in range(k):
        for j in range(i + 1, k):
            share = votes[i, j] / weights[i, j] if weights[i, j] > 0.0 else 0.5
            # Rounding may carry a sum of shares just beyond the whole.
            share = min(1.0, max(0.0, share))
            votes[i, j], votes[j, i] = share, 1.0 - share
            weights[i, j] = 0.0


@kernel
def pair_votes(
    X,
    roots,
    feature,
    threshold,
    left,
    right,
    member_start,
    members,
    mass,
    positions,
    y,
    reach,
    faint,
    skip,
    out,
):
    """Votes of the training rows in the leaves: of each pair of labels, the share that puts the first before.

    A training row that shows both labels votes by their order (half each when tied). One that does not votes by
    its completed targets: ``1/2 + (y_j - y_i) / (2 reach)``, within 0 and 1, with a weight of ``faint``.

    Parameters
    ----------
    positions : (n, k) float32, NaN = absent. y : (n, k) completed targets, larger = later.
    reach : difference of targets that counts as certain.
    skip : (n_trees, n_rows) trees not to be asked about a row (out of bag estimates), or (0, 0).
    out : (n_rows, k, k), the diagonal stays 0.

    Other parameters as in `mean_targets`.
    """
    weights = np.zeros(out.shape[1:])
    for q in range(X.shape[0]):
        for t in range(roots.shape[0]):
            if skip.shape[0] > 0 and skip[t, q]:
                continue
            node = _leaf(X, q, roots[t], feature, threshold, left, right)
            for p in range(member_start[node], member_start[node + 1]):
                r = members[p]
                _vote(positions[r], y[r], np.float64(mass[p]), reach, faint, out[q], weights)
        _shares(out[q], weights)
