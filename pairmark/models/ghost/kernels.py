"""Compiled loops of GHOST: distances, the slaves of the dual decomposition, sets of three points, paths.

Distances of two rows are symmetric to the last bit: every loop runs over the features in their order, in float64, and
each term does not care which row comes first.
"""

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.core.kernels import rows_at

# Codes of distances, of which those from `JACCARD` on are of boolean rows, and of features of three points.
EUCLIDEAN, MINKOWSKI, CITYBLOCK, CHEBYSHEV, BRAYCURTIS = 0, 1, 2, 3, 4
COSINE, CORRELATION, KENDALL, HAMMING = 5, 6, 7, 8
JACCARD, MATCHING, YULE, DICE, KULSINSKI, RUSSELLRAO = 20, 21, 22, 23, 24, 25
PERIMETER, AREA, ECCENTRICITY, HUB, CLIQUES, RESILIENCE = 0, 1, 2, 3, 4, 5
HUB_LIMIT = 16.0
"""A detour over the centre counts at most this many times the direct path: two points may lie on each other."""


@kernel
def _weighted_distance(a, b, columns, weights):
    total = 0.0
    for j in range(columns.shape[0]):
        i = columns[j]
        total += weights[j] * abs(np.float64(a[i]) - np.float64(b[i]))
    return total


@kernel
def add_weighted_distances(A, B, grid, columns, weights, out):
    """Add sums of weighted feature distances, of every row of A with every row of B, to ``out`` (n_a, n_b).

    Without ``grid`` of pairs of rows, (n, 1), in which a side's only row meets all of the other's.
    """
    for p in range(out.shape[0]):
        for q in range(out.shape[1]):
            a, b = rows_at(p, q, grid, A, B)
            out[p, q] += _weighted_distance(a, b, columns, weights)


@kernel
def _from_counts(code, joint, left, right, width):
    """Distances of boolean rows: true in both, in the left only, in the right only. As `scipy.spatial.distance`."""
    joint_absent = width - joint - left - right
    n_differing = left + right
    if code == MATCHING:
        return n_differing / width
    if code == JACCARD:
        return n_differing / (joint + n_differing) if joint + n_differing > 0.0 else 0.0
    if code == DICE:
        return n_differing / (2.0 * joint + n_differing) if joint + n_differing > 0.0 else 0.0
    if code == YULE:
        half = left * right
        return 2.0 * half / (joint * joint_absent + half) if half > 0.0 else 0.0
    if code == KULSINSKI:
        return (n_differing - joint + width) / (n_differing + width)
    return (width - joint) / width  # RUSSELLRAO


@kernel
def _angle(a, b, centred):
    """1 - cosine (of the rows minus their means when centred); rows without direction: 0 if equal, else 1."""
    width = a.shape[0]
    mean_a = mean_b = 0.0
    if centred:
        for i in range(width):
            mean_a += np.float64(a[i])
            mean_b += np.float64(b[i])
        mean_a /= width
        mean_b /= width
    product = size_a = size_b = top_a = top_b = 0.0
    equal = True
    for i in range(width):
        x, y = np.float64(a[i]), np.float64(b[i])
        equal = equal and x == y
        top_a, top_b = max(top_a, abs(x)), max(top_b, abs(y))
        x -= mean_a
        y -= mean_b
        product += x * y
        size_a += x * x
        size_b += y * y
    # Two equal rows are at 0 even where neither has a direction; sums could leave rounding instead.
    if equal:
        return 0.0
    # What is left of a constant row after centring is rounding, not direction.
    if size_a <= width * (1e-12 * top_a) ** 2 or size_b <= width * (1e-12 * top_b) ** 2:
        return 1.0
    return max(0.0, 1.0 - product / (np.sqrt(size_a) * np.sqrt(size_b)))


@kernel
def _kendall(a, b):
    """1 - Kendall's tau-b of two rows; a row of equal numbers: 0 from itself, else 1."""
    score = ties_a = ties_b = 0.0
    width = a.shape[0]
    equal = True
    for i in range(width):
        equal = equal and a[i] == b[i]
        for j in range(i):
            # Each pair of features votes once: +1 where both rows order it alike, -1 where they disagree, 0 for ties.
            x, y = a[i] - a[j], b[i] - b[j]
            score += np.sign(x) * np.sign(y)
            ties_a += 1.0 if x != 0 else 0.0
            ties_b += 1.0 if y != 0 else 0.0
    if equal:
        return 0.0
    if ties_a == 0.0 or ties_b == 0.0:
        return 1.0
    return max(0.0, 1.0 - score / (np.sqrt(ties_a) * np.sqrt(ties_b)))


@kernel
def _distance(code, p, a, b):
    width = a.shape[0]
    if code >= JACCARD:
        joint = left = right = 0.0
        for i in range(width):
            joint += a[i] * b[i]
            left += a[i] * (1.0 - b[i])
            right += (1.0 - a[i]) * b[i]
        return _from_counts(code, joint, left, right, np.float64(width))
    if code in (COSINE, CORRELATION):
        return _angle(a, b, code == CORRELATION)
    if code == KENDALL:
        return _kendall(a, b)
    total = size = top = 0.0
    for i in range(width):
        x, y = np.float64(a[i]), np.float64(b[i])
        gap = abs(x - y)
        top = max(top, gap)
        if code == EUCLIDEAN:
            total += gap * gap
        elif code == MINKOWSKI:
            total += gap**p
        elif code == HAMMING:
            total += 1.0 if x != y else 0.0
        else:
            total += gap
            size += abs(x) + abs(y)
    if code == EUCLIDEAN:
        return np.sqrt(total)
    if code == MINKOWSKI:
        return total ** (1.0 / p)
    if code == CHEBYSHEV:
        return top
    if code == BRAYCURTIS:
        return total / size if size > 0.0 else 0.0
    if code == HAMMING:
        return total / width
    return total  # CITYBLOCK


@kernel
def distances(code, power, A, B, grid, out):
    """A named distance of rows, as `add_weighted_distances` pairs them."""
    for p in range(out.shape[0]):
        for q in range(out.shape[1]):
            a, b = rows_at(p, q, grid, A, B)
            out[p, q] = _distance(code, power, a, b)


@kernel
def _add_feature(target, column, weight, point):
    for q in range(target.shape[0]):
        target[q] += weight * abs(column[q] - point)


@kernel
def learning_costs(columns, weights, matrices, matrix_weights, out):
    """d[p, q] of all pairs of one training set, float32.

    ``columns`` is the transposed (K, n) table of scaled features, so that the inner loop runs over points and
    vectorises; ``matrices`` is (K2, n, n).
    """
    n = out.shape[0]
    for p in range(n):
        # Only the upper triangle is summed, which halves the work; it is mirrored below.
        row = out[p, p:]
        row[:] = 0.0
        for i in range(weights.shape[0]):
            if weights[i] > 0.0:
                _add_feature(row, columns[i, p:], weights[i], columns[i, p])
    # Mirrored before the matrices are added: d from sets of points need not be symmetric.
    for p in range(n):
        for q in range(p):
            out[p, q] = out[q, p]
    for j in range(matrices.shape[0]):
        if matrix_weights[j] > 0.0:
            for p in range(n):
                out[p] += matrix_weights[j] * matrices[j, p]


@kernel
def feature_gaps(columns, truth, exemplars, out):
    """Sum over points of each feature's distance to the true exemplar minus that to the chosen one."""
    for i in range(columns.shape[0]):
        column = columns[i]
        total = 0.0
        for p in range(column.shape[0]):
            value = column[p]
            total += abs(value - column[truth[p]]) - abs(value - column[exemplars[p]])
        out[i] = total


@kernel
def solve_points(costs, multipliers, exemplars, votes):
    """Minimise every point-wise slave; returns the sum of their minima (Lemma 1 as derived in docs/ghost.md).

    Parameters
    ----------
    costs : (n, n), potential of p choosing q; its diagonal is the potential of q being an exemplar.
    multipliers : (n, n), lambda of point p for exemplar q.
    exemplars : (n,) filled with each point's exemplar.
    votes : (n,) raised by the slaves that hold q to be an exemplar.
    """
    n = costs.shape[0]
    share = 1.0 / (n + 1)
    own_costs = np.empty(n, dtype=np.float64)
    for q in range(n):
        # What q costs as an exemplar is shared out evenly among its n + 1 slaves: one a point, and its cluster's.
        own_costs[q] = costs[q, q] * share
    total = 0.0
    for p in range(n):
        lowest, best, free = np.inf, 0, 0.0
        for q in range(n):
            # theta: what this slave pays to hold q open. Where that is negative it opens q whatever p
            # chooses, so that choosing q then costs p no more than costs[p, q].
            theta = own_costs[q] + multipliers[p, q]
            if q == p:
                value = theta
            else:
                value = costs[p, q] + max(theta, 0.0)
                if theta < 0.0:
                    free += theta
                    votes[q] += 1
            if value < lowest:
                lowest, best = value, q
        exemplars[p] = best
        # Those below 0 have been counted already.
        if best == p or own_costs[best] + multipliers[p, best] >= 0.0:
            votes[best] += 1
        total += free + lowest
    return total


@kernel
def move_points(costs, multipliers, exemplars, votes, step):
    """A subgradient step up the dual for the points' multipliers, projected on sum = 0 (with `solve_clusters`')."""
    n = costs.shape[0]
    share = 1.0 / (n + 1)
    for p in range(n):
        best = exemplars[p]
        for q in range(n):
            # The slave's own answer, read off again as `solve_points` gave it, minus the mean of all slaves'
            # answers: the sum over slaves stays 0.
            is_open = q == best or (q != p and costs[q, q] * share + multipliers[p, q] < 0.0)
            multipliers[p, q] += step * ((1.0 if is_open else 0.0) - votes[q] * share)


@kernel
def solve_clusters(costs, multipliers, clusters, extra, no_center, is_exemplar):
    """Minimise every cluster-wise slave; returns the sum of their minima (Lemma 2 as derived in docs/ghost.md).

    Parameters
    ----------
    multipliers : (n,), lambda of each q's own cluster.
    extra, no_center : (n_clusters,), what an exemplar beyond the first earns, and what having none earns.
    is_exemplar : (n,) filled: whether the slave of q's cluster holds q to be an exemplar.
    """
    n, n_clusters = costs.shape[0], extra.shape[0]
    share = 1.0 / (n + 1)
    gains = np.zeros(n_clusters)
    for q in range(n):
        c = clusters[q]
        # Opening q costs its share and multiplier and, but for the first, earns `extra`: each q for which that
        # is below 0 is opened.
        gains[c] += min(costs[q, q] * share + multipliers[q] - extra[c], 0.0)
    total = 0.0
    for c in range(n_clusters):
        # The first exemplar earns nothing, hence + extra. The other choice is no exemplar at all, which earns `none`.
        total += min(gains[c] + extra[c], -no_center[c])
    for q in range(n):
        c = clusters[q]
        pays = gains[c] + extra[c] < -no_center[c]
        is_exemplar[q] = pays and costs[q, q] * share + multipliers[q] < extra[c]
    return total


@kernel
def _of_three(code, pq, pr, qr, top):
    """A feature of p, r and the center q by what lies between every two: distances, or 0 and 1 for edges."""
    total = pq + pr + qr
    if code == PERIMETER:
        return total
    if code == AREA:
        # Heron's formula. Of three points on a line rounding may bring it below 0.
        half = total / 2.0
        return np.sqrt(max(0.0, half * ((half - pq) * (half - pr) * (half - qr))))
    if code == ECCENTRICITY:
        return max(pq, max(pr, qr))
    if code == HUB:
        return min(HUB_LIMIT, (pq + qr) / max(pr, 1e-12))
    # Of three points, all edges make a clique of three and any edge one of two.
    if code == CLIQUES:
        return max(0.0, top - (3.0 if total == 3.0 else 2.0 if total > 0.0 else 1.0))
    # RESILIENCE: one point holds a path of three together; of a clique all but one must go.
    return 3.0 - max(0.0, total - 1.0)


@kernel
def sets_of_three(code, PQ, PR, QR, p_ids, q_ids, r_ids, first, q_class, top, mode, out):
    """A feature of {p, r, q}, over the companions r of q's class: mean (mode 0), least (1), most (2).

    Parameters
    ----------
    PQ, PR, QR : what lies between the points, distances or 0/1 for edges.
    p_ids, q_ids, r_ids : numbers of the points, so that no point is its own companion.
    first : (n_classes + 1,) where each class's companions begin.
    top : the largest degree of the graph, for cliques.
    out : (n_p, n_q) filled; 0 where q's class has no companion.
    """
    for p in range(PQ.shape[0]):
        for q in range(PQ.shape[1]):
            out[p, q] = 0.0
            if p_ids[p] == q_ids[q]:
                continue
            # No feature is below 0, from where the greatest may start.
            total, n_sets, lowest, highest = 0.0, 0, np.inf, 0.0
            for r in range(first[q_class[q]], first[q_class[q] + 1]):
                if r_ids[r] == p_ids[p] or r_ids[r] == q_ids[q]:
                    continue
                value = _of_three(code, np.float64(PQ[p, q]), np.float64(PR[p, r]), np.float64(QR[q, r]), top)
                total += value
                n_sets += 1
                lowest, highest = min(lowest, value), max(highest, value)
            if n_sets > 0:
                out[p, q] = total / n_sets if mode == 0 else (lowest if mode == 1 else highest)


@kernel
def _between(paths, farthest, a_places, a_lengths, b_places, b_lengths, direct):
    # Over one linked point of each side, or, where either would count the other among its nearest, directly.
    shortest = farthest
    for i in range(a_places.shape[0]):
        for j in range(b_places.shape[0]):
            # The two ends are added first, so that either order of the points gives the same bits.
            ends = np.float64(a_lengths[i]) + np.float64(b_lengths[j])
            shortest = min(shortest, ends + np.float64(paths[a_places[i], b_places[j]]))
    reach = max(a_lengths.max(), b_lengths.max())
    return min(shortest, direct) if direct <= np.float64(reach) else shortest


@kernel
def paths_between(paths, farthest, a_places, a_lengths, b_places, b_lengths, grid, direct, out):
    """Shortest paths between new points, ``direct`` their distances: all of one side with all of the other, (n_a, n_b).

    Without ``grid`` of pairs, (n, 1), in which a side's only point meets all of the other's.
    """
    # A side's only point is met at every step: its own step is 0.
    step_a, step_b = np.int64(a_places.shape[0] > 1), np.int64(b_places.shape[0] > 1)
    for p in range(out.shape[0]):
        for q in range(out.shape[1]):
            i, j = (p, q) if grid else (p * step_a, p * step_b)
            out[p, q] = _between(
                paths, farthest, a_places[i], a_lengths[i], b_places[j], b_lengths[j], direct[p, q]
            )
