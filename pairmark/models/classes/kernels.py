"""Extremely randomized trees of classes (Geurts, Ernst and Wehenkel 2006), in compiled loops."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.core.kernels import next_random


@kernel
def grow(X, codes, n_tried, state, feature, threshold, children, shares, n_shared):
    """Grow one tree to its end; returns how many nodes it has, and how many rows of ``shares`` are taken by then.

    A node draws features until ``n_tried`` of them vary in it, for each a threshold between its least and greatest
    value, and splits by the one whose sides are purest (Gini).

    Parameters
    ----------
    X : (n, d). codes : (n,) classes 0 to k - 1. state : (1,) uint64, of the draws.
    feature, threshold, children : (2 n,) of each node, written: -1 at a leaf, whose row of ``shares`` is its child; the
        low child of others, for values at most the threshold, and the high one after it.
    shares : (rows, k), shares of the classes in leaves: those of pure ones first, the rest from row ``n_shared`` on.
    """
    n, d = X.shape
    k = shares.shape[1]
    rows, columns = np.arange(n), np.arange(d)
    start, stop = np.zeros(2 * n, dtype=np.int64), np.zeros(2 * n, dtype=np.int64)
    stop[0], n_nodes, node = n, 1, 0
    counts, below = np.zeros(k), np.zeros(k)
    while node < n_nodes:
        first, last = start[node], stop[node]
        counts[:] = 0
        for i in range(first, last):
            counts[codes[rows[i]]] += 1
        best, best_feature, best_border = -1.0, -1, np.float32(0)
        tried, left = 0, d if counts.max() < last - first else 0
        while left > 0 and tried < n_tried:
            # Those drawn go to the end: each comes once.
            place = np.int64((next_random(state) >> np.uint64(11)) % np.uint64(left))
            left -= 1
            f = columns[place]
            columns[place], columns[left] = columns[left], f
            low = high = X[rows[first], f]
            for i in range(first + 1, last):
                low, high = min(low, X[rows[i], f]), max(high, X[rows[i], f])
            if not low < high:
                continue
            tried += 1
            share = np.float64(next_random(state) >> np.uint64(11)) / 9007199254740992.0
            border = np.float32(low + share * (np.float64(high) - low))
            if not border < high:
                border = low
            below[:], n_below = 0, 0
            for i in range(first, last):
                if X[rows[i], f] <= border:
                    below[codes[rows[i]]] += 1
                    n_below += 1
            purity = (below**2).sum() / n_below + ((counts - below) ** 2).sum() / (last - first - n_below)
            if purity > best:
                best, best_feature, best_border = purity, f, border
        feature[node], threshold[node] = best_feature, best_border
        if best_feature < 0:
            # Pure, or of rows that nothing tells apart.
            children[node] = counts.argmax()
            if counts.max() < last - first:
                children[node], n_shared = n_shared, n_shared + 1
                shares[children[node]] = counts / (last - first)
        else:
            middle = first
            for i in range(first, last):
                if X[rows[i], best_feature] <= best_border:
                    rows[i], rows[middle] = rows[middle], rows[i]
                    middle += 1
            children[node] = n_nodes
            start[n_nodes], stop[n_nodes], start[n_nodes + 1], stop[n_nodes + 1] = first, middle, middle, last
            n_nodes += 2
        node += 1
    return n_nodes, n_shared


@kernel
def mean_shares(X, roots, feature, threshold, children, shares, out):
    """Mean shares (n, k) of the leaves that rows come to, over the trees; ``out`` holds zeros before."""
    for i in range(X.shape[0]):
        for root in roots:
            node = root
            while feature[node] >= 0:
                node = children[node] + np.int64(X[i, feature[node]] > threshold[node])
            out[i] += shares[children[node]]
        out[i] /= roots.shape[0]
