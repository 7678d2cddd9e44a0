"""Kemeny's consensus, in compiled loops."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def _exact(before, labels, order):
    """The cheapest order of ``labels`` by dynamic programming over subsets; ties by the earlier label first."""
    m = labels.shape[0]
    full = (1 << m) - 1
    cost = np.full(full + 1, np.inf)
    cost[full] = 0.0
    # cost[s]: of ordering whatever is not in s, once s stands in front. Filled from full sets down.
    for s in range(full - 1, -1, -1):
        for a in range(m):
            if s & (1 << a):
                continue
            step = 0.0
            for b in range(m):
                if b != a and not s & (1 << b):
                    step += before[labels[b], labels[a]]
            cost[s] = min(cost[s], step + cost[s | (1 << a)])
    s = 0
    for place in range(m):
        for a in range(m):
            if s & (1 << a):
                continue
            step = 0.0
            for b in range(m):
                if b != a and not s & (1 << b):
                    step += before[labels[b], labels[a]]
            if step + cost[s | (1 << a)] <= cost[s]:
                order[place] = labels[a]
                s |= 1 << a
                break


@kernel
def _improve(before, order):
    """Move single labels to where they cost least until no move helps."""
    m = order.shape[0]
    improves = True
    while improves:
        improves = False
        for p in range(m):
            label = order[p]
            # A move has to gain more than rounding, or two might take turns forever.
            best, best_at = -1e-9, p
            change = 0.0
            for q in range(p - 1, -1, -1):
                # The label passes one more neighbour: that pair's cost changes by what spoke for the old
                # order less what speaks for the new.
                change += before[order[q], label] - before[label, order[q]]
                if change < best:
                    best, best_at = change, q
            change = 0.0
            for q in range(p + 1, m):
                change += before[label, order[q]] - before[order[q], label]
                if change < best:
                    best, best_at = change, q
            if best_at < p:
                for q in range(p, best_at, -1):
                    order[q] = order[q - 1]
            else:
                for q in range(p, best_at):
                    order[q] = order[q + 1]
            if best_at != p:
                order[best_at] = label
                improves = True


@kernel
def kemeny_positions(before, exact_to, out):
    """Kemeny positions of each row.

    Labels are first ordered by their wins. A group in front whose members all beat all others stays in front in
    every optimal order, so the groups are ordered one by one: exactly up to ``exact_to`` labels, else by local search.

    Parameters
    ----------
    before : (n, k, k) how much speaks for the first label before the second.
    exact_to : largest group ordered exactly.
    out : (n, k) positions.
    """
    n, k = before.shape[0], before.shape[1]
    wins = np.zeros(k)
    order = np.zeros(k, np.int64)
    for r in range(n):
        for i in range(k):
            wins[i] = 0.0
            order[i] = i
            for j in range(k):
                if i != j:
                    if before[r, i, j] > before[r, j, i]:
                        wins[i] += 1.0
                    elif before[r, i, j] == before[r, j, i]:
                        wins[i] += 0.5
        for p in range(1, k):
            label, q = order[p], p
            while q > 0 and wins[order[q - 1]] < wins[label]:
                order[q] = order[q - 1]
                q -= 1
            order[q] = label
        begin = 0
        sum_wins = 0.0
        for p in range(k):
            sum_wins += wins[order[p]]
            # The first p + 1 labels win (p + 1) p / 2 times among themselves. Only if each beats all the k -
            # p - 1 others do the wins add up to this much more, and no label behind can come before them.
            if sum_wins == (p + 1) * p / 2 + (p + 1) * (k - p - 1):
                size = p + 1 - begin
                if 1 < size <= exact_to:
                    _exact(before[r], np.sort(order[begin : p + 1]), order[begin : p + 1])
                elif size > exact_to:
                    _improve(before[r], order[begin : p + 1])
                begin = p + 1
        for p in range(k):
            out[r, order[p]] = p
