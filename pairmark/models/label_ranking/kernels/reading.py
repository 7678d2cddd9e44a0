"""What label ranking trees say of rows, in compiled loops."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel

FEW = 16
"""Fewer rows than this are read one at a time in all trees at once."""


@kernel
def leaves_of(X, feature, threshold, left, right, out):
    for q in range(X.shape[0]):
        node = 0
        while feature[node] >= 0:
            node = left[node] if X[q, feature[node]] <= threshold[node] else right[node]
        out[q] = node


@kernel
def _leaves_of_trees(row, roots, feature, threshold, left, right, leaves, active):
    """The leaf in which one row ends in every tree, all trees at once, so that waits for memory overlap."""
    n_active = 0
    for t in range(roots.shape[0]):
        leaves[t] = roots[t]
        if feature[roots[t]] >= 0:
            active[n_active] = t
            n_active += 1
    while n_active > 0:
        still = 0
        for a in range(n_active):
            t = active[a]
            node = leaves[t]
            node = left[node] if row[feature[node]] <= threshold[node] else right[node]
            leaves[t] = node
            # Written always, kept only where the tree goes on: no branch on data.
            active[still] = t
            if feature[node] >= 0:
                still += 1
        n_active = still


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
    sums_by_tree = X.shape[0] < FEW
    slots = roots.shape[0] if sums_by_tree else 0
    leaves, active = np.empty(slots, dtype=np.int64), np.empty(slots, dtype=np.int64)
    for q in range(X.shape[0]):
        if sums_by_tree:
            _leaves_of_trees(X[q], roots, feature, threshold, left, right, leaves, active)
        for t in range(roots.shape[0]):
            if sums_by_tree:
                node = leaves[t]
            else:
                node = roots[t]
                while feature[node] >= 0:
                    node = left[node] if X[q, feature[node]] <= threshold[node] else right[node]
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
            node = roots[t]
            while feature[node] >= 0:
                node = left[node] if X[q, feature[node]] <= threshold[node] else right[node]
            for p in range(member_start[node], member_start[node + 1]):
                r = members[p]
                _vote(positions[r], y[r], np.float64(mass[p]), reach, faint, out[q], weights)
        _shares(out[q], weights)
