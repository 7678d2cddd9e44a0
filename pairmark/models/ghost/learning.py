"""Learning the weights: max-margin CRF energies by dual decomposition (sections 3.2 to 3.6; docs/ghost.md derives)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.ghost.kernels import energy as kernels

if TYPE_CHECKING:
    from pairmark.models.ghost.estimator import Ghost

_STEP = 0.5
"""Size of the first step."""
_UPDATES = 2
"""Updates of an iteration, between new exemplars (the authors' T)."""
_TOLERANCE = 1e-4
"""Relative progress below which an iteration is calm."""
_CALM = 3
"""Iterations in a row without progress that end the learning (the authors' script stops after 3 too)."""


@dataclass(frozen=True, kw_only=True)
class Error:
    """The error function Delta of equation 10, one number a cluster.

    Attributes
    ----------
    over, none : what every exemplar beyond the first, and what having none, adds (alpha W).
    away : what each point that is assigned outside its cluster adds (beta, over |C| when balanced).
    """

    over: Float64
    none: Float64
    away: Float64


def error_of(codes: Int64, n_clusters: int, *, balanced: bool) -> Error:
    """Equation 10 with alpha = beta = 1, or its unbalanced original (Komodakis 2011): every violation counts the
    same."""
    sizes = np.bincount(codes, minlength=n_clusters).astype(np.float64)
    if balanced:
        return Error(over=codes.size - sizes, none=sizes, away=1.0 / np.maximum(sizes, 1.0))
    unit_costs = np.ones(n_clusters)
    return Error(over=unit_costs, none=unit_costs, away=unit_costs)


@dataclass(kw_only=True)
class TrainingSet:
    """One training set {V^k, C^k} and its multipliers.

    Attributes
    ----------
    columns : (K, n) float32, scaled features: f_i(p, q) = |columns[i, p] - columns[i, q]|.
    matrices : (K2, n, n) float32, the other meta-features of p choosing q.
    codes : (n,) true cluster of each point, 0 to n_clusters - 1.
    exemplar : f(q, q) of the exemplar's own price, in the units of Delta.
    """

    columns: Float32
    matrices: Float32
    codes: Int64
    error: Error
    exemplar: float
    points: Any = field(init=False)
    clusters: Float64 = field(init=False)

    def __post_init__(self) -> None:
        n = self.codes.size
        self._same = self.codes[:, None] == self.codes[None, :]
        # Any multipliers that add up to 0 will do. These hand what an exemplar costs and earns to the points in
        # equal parts, where the steps are of the right size, instead of one lump to the cluster's slave.
        over = self.error.over[self.codes]
        self.clusters = over - self.exemplar / (n + 1)
        self.points = np.ascontiguousarray(np.broadcast_to(-self.clusters / n, (n, n)), dtype=np.float32)
        self.visits = 0

    def __len__(self) -> int:
        return int(self.codes.size)

    def distances(self, weights: GhostWeights) -> Float32:
        """(n, n) d[p, q] without the exemplars' price."""
        out = np.empty((len(self), len(self)), dtype=np.float32)
        kernels.learning_costs(
            self.columns,
            weights.features.astype(np.float32),
            self.matrices,
            weights.meta_features.astype(np.float32),
            out,
        )
        return out

    def costs(self, distances: Float32, weights: GhostWeights) -> Float32:
        """The potentials of E - Delta (equation 12): closer inside clusters by ``away``, exemplars at their price."""
        costs = distances + np.where(self._same, self.error.away[self.codes], 0.0).astype(np.float32)
        costs.ravel()[:: len(self) + 1] += np.float32(weights.exemplar * self.exemplar)
        return np.asarray(costs, dtype=np.float32)

    def true_exemplars(self, distances: Float32) -> Int64:
        """(n,) each point's exemplar in the best true solution (equation 13): per cluster, least in sum."""
        sums = np.where(self._same, distances, 0.0).sum(axis=0, dtype=np.float64)
        exemplars = np.empty(self.error.over.size, dtype=np.int64)
        for c in range(exemplars.size):
            rows = np.flatnonzero(self.codes == c)
            exemplars[c] = rows[sums[rows].argmin()]
        of_rows: Int64 = exemplars[self.codes]
        return of_rows

    def solve(self, costs: Any) -> Solution:
        """Minimise every slave at the present multipliers."""
        n = len(self)
        exemplars, votes = np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        is_exemplar = np.empty(n, dtype=np.bool_)
        total = kernels.solve_points(costs, self.points, exemplars, votes)
        total += kernels.solve_clusters(
            costs, self.clusters, self.codes, self.error.over, self.error.none, is_exemplar
        )
        votes += is_exemplar
        return Solution(
            exemplars=exemplars, votes=votes, is_exemplar=is_exemplar, dual=float(total) - self.constant
        )

    @property
    def constant(self) -> float:
        """What Delta is before any point is at home: the sum of ``away`` (equation 11's last term)."""
        return float(self.error.away[self.codes].sum())

    def move(self, costs: Any, solution: Solution, step: float) -> None:
        """A projected subgradient step of the multipliers (Lemma 3, with its sign and its sum set right)."""
        n = len(self)
        kernels.move_points(costs, self.points, solution.exemplars, solution.votes, step)
        self.clusters += step * (solution.is_exemplar - solution.votes / (n + 1))

    def gradient(self, truth: Int64, solution: Solution) -> tuple[Float64, Float64, float]:
        """Subgradient of the loss in the weights of features, of the others, and of the exemplars' price."""
        n = len(self)
        features = np.empty(self.columns.shape[0])
        kernels.feature_gaps(self.columns, truth, solution.exemplars, features)
        everyone, share = np.arange(n), solution.votes / (n + 1)
        away = solution.exemplars != everyone
        meta_features = (
            self.matrices[:, everyone, truth].sum(axis=1, dtype=np.float64)
            - self.matrices[:, everyone[away], solution.exemplars[away]].sum(axis=1, dtype=np.float64)
            - self.matrices[:, everyone, everyone].astype(np.float64) @ share
        )
        price = self.exemplar * (self.error.over.size - float(share.sum()))
        return features, meta_features, price

    def true_energy(self, distances: Float32, truth: Int64, weights: GhostWeights) -> float:
        """E of a true solution; Delta is 0 there."""
        paid = distances[np.arange(len(self)), truth].sum(dtype=np.float64)
        return float(paid) + weights.exemplar * self.exemplar * self.error.over.size


@dataclass(frozen=True, kw_only=True)
class Solution:
    """Minimisers of the slaves.

    Attributes
    ----------
    exemplars : (n,) exemplar that p's slave chose.
    votes : (n,) how many slaves hold q to be an exemplar (X-hat of Lemma 3).
    is_exemplar : (n,) whether the slave of q's cluster does.
    dual : the sum of the slaves' minima, a lower bound of min E - Delta.
    """

    exemplars: Int64
    votes: Int64
    is_exemplar: Bool
    dual: float


@dataclass(kw_only=True)
class GhostWeights:
    """What is learned: of the features, of the other meta-features, and the price of an exemplar; all >= 0."""

    features: Float64
    meta_features: Float64
    exemplar: float = 1.0

    @property
    def flat(self) -> Float64:
        """All but the price."""
        return np.concatenate([self.features, self.meta_features])


def learn(
    sets: Sequence[TrainingSet],
    start: GhostWeights,
    settings: Ghost,
    on_progress: Callable[[float], None] = lambda fraction: None,
) -> tuple[GhostWeights, list[float]]:
    """Algorithm 1: exemplars, T subgradient updates of weights and multipliers, projection; until calm.

    Parameters
    ----------
    sets : one is visited an iteration, in turn.

    Returns
    -------
    The weights of the least loss met (over the last visit of every set), and the loss of each iteration.
    """
    weights = best = start
    steps = Steps(start.flat.size)
    curve: list[float] = []
    losses: dict[int, float] = {}
    lowest, calm, unit = np.inf, 0, 1.0 / len(sets)
    for turn in range(settings.max_iter):
        number = turn % len(sets)
        training = sets[number]
        for update in range(_UPDATES):
            distances = training.distances(weights)
            if update == 0:
                # Exemplars follow the weights once an iteration; the updates between hold them.
                truth = training.true_exemplars(distances)
            costs = training.costs(distances, weights)
            solution = training.solve(costs)
            if update == 0:
                losses[number] = training.true_energy(distances, truth, weights) - solution.dual
                curve.append(sum(losses.values()) + settings.tau * float(weights.flat.sum()))
                if len(losses) == len(sets):
                    if curve[-1] < lowest - _TOLERANCE * max(abs(curve[-1]), 1e-12):
                        lowest, calm, best = curve[-1], 0, weights
                    else:
                        calm += 1
                if calm >= _CALM * len(sets) and turn >= 2 * len(sets):
                    return best, curve
            features, meta_features, price = training.gradient(truth, solution)
            training.visits += 1
            size = float(distances.mean()) + float(training.error.away.mean())
            training.move(costs, solution, size * _STEP / np.sqrt(training.visits))
            slope = np.concatenate([features, meta_features]) + unit * settings.tau
            updated = np.maximum(weights.flat - steps.of(slope, len(training)), 0.0)
            k = weights.features.size
            weights = GhostWeights(
                features=updated[:k],
                meta_features=updated[k:],
                exemplar=max(
                    weights.exemplar - steps.of_price(price, training.exemplar * len(training)), 0.0
                ),
            )
        on_progress((turn + 1) / settings.max_iter)
    return best, curve


class Steps:
    """A step of its own for each weight (AdaGrad, Duchi et al. 2011), instead of the authors' s/t."""

    def __init__(self, n: int) -> None:
        self._squares, self._price = np.zeros(n), 0.0

    def of(self, slope: Float64, n: int) -> Float64:
        """What to take off the weights. Sums over points are brought to one point's size first."""
        slope = slope / n
        self._squares += slope**2
        return np.asarray(_STEP * slope / np.sqrt(np.maximum(self._squares, 1e-300)))

    def of_price(self, slope: float, unit: float) -> float:
        """What to take off the exemplars' price."""
        slope /= unit
        self._price += slope**2
        return float(_STEP * slope / np.sqrt(max(self._price, 1e-300)))
