"""Extremely randomized trees of classes (Geurts, Ernst and Wehenkel 2006), in compiled loops."""

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.core.kernels import next_random


@kernel
def grow(X, codes, n_classes, n_tried, state, feature, threshold, children):
    """Grow one tree to its end; returns how many nodes it has.

    A node draws features until ``n_tried`` of them vary in it, for each a threshold between its least and greatest
    value, and splits by the one whose sides are purest (Gini).

    Parameters
    ----------
    X : (n, d). codes : (n,) classes 0 to k - 1. state : (1,) uint64, of the draws.
    feature, threshold, children : (2 n,) of each node, written: -1 at a leaf, whose child is its class; of others the
        low child, for values at most the threshold, before the high one.
    """
    n, d = X.shape
    rows, columns = np.arange(n), np.arange(d)
    start, stop = np.zeros(2 * n, dtype=np.int64), np.zeros(2 * n, dtype=np.int64)
    stop[0], n_nodes, node = n, 1, 0
    counts, below = np.zeros(n_classes), np.zeros(n_classes)
    # Breadth first: nodes are numbered as they are made, and split in that order. The rows of each lie side by side.
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
            # 53 random bits over 2^53: below 1.
            share = np.float64(next_random(state) >> np.uint64(11)) / 9007199254740992.0
            border = np.float32(low + share * (np.float64(high) - low))
            # Rounded to float32 it may reach the greatest value, which would leave nothing above.
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
            # Pure, or of rows that nothing tells apart: one of them, so that over many trees each class has its share.
            draw = np.int64((next_random(state) >> np.uint64(11)) % np.uint64(last - first))
            children[node] = codes[rows[first + draw]]
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
    return n_nodes


@kernel
def grow_forest(X, codes, n_classes, n_tried, states, roots, feature, threshold, children):
    """See `grow`: a tree for each of the states, (t,), end to end from ``roots``, (t,), on; returns how many nodes."""
    end = 0
    for t in range(states.size):
        roots[t] = end
        size = grow(
            X, codes, n_classes, n_tried, states[t : t + 1], feature[end:], threshold[end:], children[end:]
        )
        for node in range(end, end + size):
            if feature[node] >= 0:
                children[node] += end
        end += size
    return end


@kernel
def add_votes(X, roots, feature, threshold, children, votes):
    """Add to (n, k) numbers of trees by the class of the leaf that rows come to."""
    for i in range(X.shape[0]):
        for root in roots:
            node = root
            while feature[node] >= 0:
                node = children[node] + np.int64(X[i, feature[node]] > threshold[node])
            votes[i, children[node]] += 1
