"""Clustering by the learned energy: the exemplars that cost least, found by dual decomposition and local moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.ghost.kernels import energy as kernels

MAX_ROWS = 4_096
"""More than a dense table of distances should have are refused."""
_FEW_TO_CLUSTER = 100
"""Withheld rows that suffice to choose the price of a cluster."""
MOST_CLUSTERED = 400
"""Rows that are looked at for it."""


@dataclass(frozen=True, kw_only=True)
class Clustering:
    """An assignment and how good it can at most be.

    Attributes
    ----------
    labels : (n,) row of each row's exemplar.
    energy : equation 2's, the exemplars' price included.
    bound : no assignment costs less (the best dual value met).
    """

    labels: Int64
    energy: float
    bound: float


PRICES = np.geomspace(0.005, 0.64, 15)
"""Shares of (rows x mean distance) that one more exemplar may cost: from many clusters to one."""


def price_rows(n: int, withheld: Int64, seed: int) -> Int64:
    """Rows that the price is chosen on: withheld ones; where they are few, the rows learned from take part too."""
    rows = withheld if withheld.size >= _FEW_TO_CLUSTER else np.arange(n)
    if rows.size > MOST_CLUSTERED:
        rows = np.sort(np.random.default_rng([seed, 97]).choice(rows, MOST_CLUSTERED, replace=False))
    return rows


def best_price(distances: Float64, codes: Int64) -> float:
    """The share of `PRICES` whose clusters agree best with the classes, by the adjusted Rand index.

    Each share is judged with its neighbours on the path (weights 1, 2, 1), since one clustering of few rows is noisy.

    Parameters
    ----------
    distances : (n, n) learned distances between rows that the weights were not learned from.
    codes : (n,) their classes.
    """
    from sklearn.metrics import adjusted_rand_score

    scale = float(distances.mean()) * codes.size
    scores = np.array(
        [adjusted_rand_score(codes, cluster(distances, share * scale).labels) for share in PRICES]
    )
    padded = np.concatenate([scores[:1], scores, scores[-1:]])
    return float(PRICES[int((padded[:-2] + 2.0 * scores + padded[2:]).argmax())])


def cluster(distances: Float64, price: float, *, max_iter: int = 300) -> Clustering:
    """Minimise sum of d[p, exemplar of p] + price * number of exemplars.

    The slaves are those of learning without Delta; their multipliers follow Polyak's step towards the best
    assignment read off them, which is then improved by opening, closing and swapping exemplars while that helps.

    Parameters
    ----------
    distances : (n, n), >= 0; its diagonal is what an exemplar costs beyond the price.
    """
    if not (np.isfinite(price) and price >= 0):
        raise ValueError(f"exemplar_price is {price}; expected a number >= 0")
    costs = np.array(distances, dtype=np.float64, order="C")
    costs.ravel()[:: costs.shape[0] + 1] += price
    n = costs.shape[0]
    multipliers = np.zeros((n, n))
    # One slave a point suffices: there is no cluster to have a slave. Its share of the price goes to them.
    lone = np.zeros(n)
    clusters, nothing = np.zeros(n, dtype=np.int64), np.zeros(1)
    best, lowest, bound, scale = np.empty(0, dtype=np.int64), np.inf, -np.inf, 1.0
    for _ in range(max_iter):
        exemplar_of, votes = np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        is_exemplar = np.empty(n, dtype=np.bool_)
        dual = kernels.solve_points(costs, multipliers, exemplar_of, votes)
        dual += kernels.solve_clusters(costs, lone, clusters, nothing, nothing, is_exemplar)
        votes += is_exemplar
        exemplars = np.unique(exemplar_of)
        energy = _energy(costs, exemplars)
        if energy < lowest:
            lowest, best = energy, exemplars
        scale = scale if dual > bound else scale * 0.95
        bound = max(bound, dual)
        # The squared length of the projected subgradient: copies that differ from their mean.
        length = float((votes * (1.0 - votes / (n + 1))).sum())
        if length == 0.0 or lowest - bound <= 1e-9 * max(1.0, abs(lowest)):
            break
        step = scale * (lowest - dual) / length
        kernels.move_points(costs, multipliers, exemplar_of, votes, step)
        lone += step * (is_exemplar - votes / (n + 1))
    best, lowest = _improve(costs, best, lowest)
    labels = best[costs[:, best].argmin(axis=1)]
    labels[best] = best
    return Clustering(labels=labels, energy=lowest, bound=float(bound))


def _energy(costs: Float64, exemplars: Int64) -> float:
    table = costs[:, exemplars]
    away = np.ones(costs.shape[0], dtype=np.bool_)
    away[exemplars] = False
    return float(table[away].min(axis=1).sum() + costs[exemplars, exemplars].sum())


def _improve(costs: Float64, exemplars: Int64, energy: float) -> tuple[Int64, float]:
    """Better exemplars within clusters, and merges, as long as either lowers the energy."""
    while True:
        labels = costs[:, exemplars].argmin(axis=1)
        labels[exemplars] = np.arange(exemplars.size)
        medoids = exemplars.copy()
        for at in range(exemplars.size):
            rows = np.flatnonzero(labels == at)
            medoids[at] = rows[costs[np.ix_(rows, rows)].sum(axis=0).argmin()]
        candidates = [np.unique(medoids)]
        if exemplars.size > 1:
            candidates += [np.delete(exemplars, at) for at in range(min(exemplars.size, 64))]
        cheapest = min(((_energy(costs, candidate), at) for at, candidate in enumerate(candidates)))
        if cheapest[0] >= energy - 1e-9 * max(1.0, abs(energy)):
            return exemplars, energy
        energy, exemplars = cheapest[0], candidates[cheapest[1]]
