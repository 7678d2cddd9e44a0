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


def error_of(codes: Int64, n_clusters: int, *, alpha: float, beta: float, balanced: bool) -> Error:
    """Equation 10, or its unbalanced original (Komodakis 2011): every violation counts the same."""
    sizes = np.bincount(codes, minlength=n_clusters).astype(np.float64)
    if balanced:
        return Error(
            over=alpha * (codes.size - sizes), none=alpha * sizes, away=beta / np.maximum(sizes, 1.0)
        )
    unit_costs = np.ones(n_clusters)
    return Error(over=alpha * unit_costs, none=alpha * unit_costs, away=beta * unit_costs)


@dataclass(kw_only=True)
class TrainingSet:
    """One training set {V^k, C^k} and its multipliers.

    Attributes
    ----------
    columns : (K, n) float32, scaled features: f_i(p, q) = |columns[i, p] - columns[i, q]|.
    slaves : (K2, n, n) float32, the other meta-features as the point-wise slaves see p choosing q.
    truths : the same as the true solution pays for them; the same array where both agree.
    codes : (n,) true cluster of each point, 0 to n_clusters - 1.
    exemplar : f(q, q) of the exemplar's own price, in the units of Delta.
    """

    columns: Float32
    slaves: Float32
    truths: Float32
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

    def distances(self, weights: GhostWeights, *, truths: bool = False) -> Float32:
        """(n, n) d[p, q] without the exemplars' price: as slaves see it, or as the true solution pays."""
        out = np.empty((len(self), len(self)), dtype=np.float32)
        kernels.learning_costs(
            self.columns,
            weights.features.astype(np.float32),
            self.truths if truths else self.slaves,
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
            self.truths[:, everyone, truth].sum(axis=1, dtype=np.float64)
            - self.slaves[:, everyone[away], solution.exemplars[away]].sum(axis=1, dtype=np.float64)
            - self.slaves[:, everyone, everyone].astype(np.float64) @ share
        )
        price = self.exemplar * (self.error.over.size - float(share.sum()))
        return features, meta_features, price

    def rounded(self, costs: Float32, solution: Solution) -> float:
        """E - Delta of an assignment read off the slaves: an upper bound of its minimum."""
        n = len(self)
        winners = np.flatnonzero(solution.votes * 2 > n + 1)
        if winners.size == 0:
            winners = np.array([solution.votes.argmax()])
        return self.augmented(costs, winners)

    def augmented(self, costs: Float32, exemplars: Int64) -> float:
        """E - Delta when these are the exemplars and every other point takes its cheapest."""
        table = costs[:, exemplars].astype(np.float64)
        total = float(np.delete(table, exemplars, axis=0).min(axis=1).sum())
        total += float(costs[exemplars, exemplars].sum(dtype=np.float64))
        counts = np.bincount(self.codes[exemplars], minlength=self.error.over.size)
        extra = np.where(counts == 0, self.error.none, self.error.over * (counts - 1.0))
        return total - float(extra.sum()) - self.constant

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

    def copy(self) -> GhostWeights:
        """Another with the same numbers."""
        return GhostWeights(
            features=self.features.copy(), meta_features=self.meta_features.copy(), exemplar=self.exemplar
        )

    @property
    def flat(self) -> Float64:
        """All but the price."""
        return np.concatenate([self.features, self.meta_features])


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """One outer iteration: the regularised loss (primal), its parts, and the gap of the inner inference."""

    objective: float
    energy: float
    dual: float
    rounded: float
    n_weights: int

    @property
    def gap(self) -> float:
        """Between the best assignment read off the slaves and their sum: 0 when inference is exact."""
        return self.rounded - self.dual


def learn(
    sets: Sequence[Callable[[], TrainingSet]],
    start: GhostWeights,
    settings: Ghost,
    on_progress: Callable[[float], None] = lambda fraction: None,
) -> tuple[GhostWeights, list[Iteration]]:
    """Algorithm 1: exemplars, T subgradient updates of weights and multipliers, projection; until calm.

    Parameters
    ----------
    sets : each gives a training set; one is visited an iteration, in turn.

    Returns
    -------
    The weights of the least loss met (over the last visit of every set), and what each iteration saw.
    """
    weights, best = start.copy(), start.copy()
    steps = Steps(start.flat.size)
    history: list[Iteration] = []
    losses: dict[int, float] = {}
    lowest, calm, unit = np.inf, 0, 1.0 / len(sets)
    for turn in range(settings.max_iter):
        number = turn % len(sets)
        training = sets[number]()
        truth: Int64 | None = None
        for update in range(settings.n_updates):
            distances = training.distances(weights)
            # Exemplars follow the weights once an iteration; the updates between hold them.
            if truth is None:
                paid = (
                    distances
                    if training.truths is training.slaves
                    else training.distances(weights, truths=True)
                )
                truth = training.true_exemplars(paid)
            costs = training.costs(distances, weights)
            solution = training.solve(costs)
            if update == 0:
                energy = training.true_energy(paid, truth, weights)
                losses[number] = energy - solution.dual
                objective = sum(losses.values()) + penalty(weights, settings)
                history.append(
                    Iteration(
                        objective=objective,
                        energy=energy,
                        dual=solution.dual,
                        rounded=training.rounded(costs, solution),
                        n_weights=int((weights.flat > 0).sum()),
                    )
                )
                if len(losses) == len(sets):
                    if objective < lowest - settings.tol * max(abs(objective), 1e-12):
                        lowest, calm, best = objective, 0, weights.copy()
                    else:
                        calm += 1
                if calm >= _CALM * len(sets) and turn >= 2 * len(sets) and settings.tol > 0:
                    return best, history
            features, meta_features, price = training.gradient(truth, solution)
            training.visits += 1
            size = float(distances.mean()) + float(training.error.away.mean())
            training.move(costs, solution, size * _STEP / np.sqrt(training.visits))
            slope = np.concatenate([features, meta_features]) + unit * slope_of_penalty(weights, settings)
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
    return best, history


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


def penalty(weights: GhostWeights, settings: Ghost) -> float:
    if settings.penalty == "l1":
        return settings.tau * float(weights.flat.sum())
    return settings.tau * float((weights.flat**2).sum()) / 2 if settings.penalty == "l2" else 0.0


def slope_of_penalty(weights: GhostWeights, settings: Ghost) -> Float64:
    if settings.penalty == "l1":
        return np.full(weights.flat.size, settings.tau)
    return settings.tau * weights.flat if settings.penalty == "l2" else np.zeros(weights.flat.size)
