"""Learning the weights: max-margin CRF energies by dual decomposition (sections 3.2 to 3.6; docs/ghost.md derives)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.ghost import kernels
from pairmark.models.ghost.space import Space, draw_companions

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

    def distances(self, weights: GhostWeights) -> Float32:
        """(n, n) d[p, q] without the exemplars' price."""
        out = np.empty(self._same.shape, dtype=np.float32)
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
        costs.ravel()[:: self.codes.size + 1] += np.float32(weights.exemplar * self.exemplar)
        return np.asarray(costs, dtype=np.float32)

    def true_exemplars(self, distances: Float32) -> Int64:
        """(n,) each point's exemplar in the best true solution (equation 13): per cluster, least in sum."""
        sums = np.where(self._same, distances, 0.0).sum(axis=0, dtype=np.float64)
        exemplars = np.empty(self.error.over.size, dtype=np.int64)
        for c in range(exemplars.size):
            rows = np.flatnonzero(self.codes == c)
            exemplars[c] = rows[sums[rows].argmin()]
        return np.asarray(exemplars[self.codes])

    def solve(self, costs: Any) -> Solution:
        """Minimise every slave at the present multipliers."""
        n = self.codes.size
        exemplars, votes = np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        is_exemplar = np.empty(n, dtype=np.bool_)
        total = kernels.solve_points(costs, self.points, exemplars, votes)
        total += kernels.solve_clusters(
            costs, self.clusters, self.codes, self.error.over, self.error.none, is_exemplar
        )
        votes += is_exemplar
        # Less what Delta is before any point is at home (equation 11's last term).
        dual = float(total - self.error.away[self.codes].sum())
        return Solution(exemplars=exemplars, votes=votes, is_exemplar=is_exemplar, dual=dual)

    def move(self, costs: Any, solution: Solution, step: float) -> None:
        """A projected subgradient step of the multipliers (Lemma 3, with its sign and its sum set right)."""
        n = self.codes.size
        kernels.move_points(costs, self.points, solution.exemplars, solution.votes, step)
        self.clusters += step * (solution.is_exemplar - solution.votes / (n + 1))

    def gradient(self, truth: Int64, solution: Solution) -> tuple[Float64, Float64, float]:
        """Subgradient of the loss in the weights of features, of the others, and of the exemplars' price."""
        n = self.codes.size
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
        paid = distances[np.arange(truth.size), truth].sum(dtype=np.float64)
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

    def moved(self, step: Float64) -> GhostWeights:
        """Less a step, (K + 1,), the price's last; never below 0."""
        moved, k = np.maximum(np.append(self.flat, self.exemplar) - step, 0.0), self.features.size
        return GhostWeights(features=moved[:k], meta_features=moved[k:-1], exemplar=float(moved[-1]))


def learn(
    sets: Sequence[TrainingSet],
    start: GhostWeights,
    *,
    max_iter: int,
    tau: float,
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
    squares = np.zeros(start.flat.size + 1)
    curve: list[float] = []
    losses: dict[int, float] = {}
    lowest, calm, unit = np.inf, 0, 1.0 / len(sets)
    for turn in range(max_iter):
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
                curve.append(sum(losses.values()) + tau * float(weights.flat.sum()))
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
            slope = np.append(np.concatenate([features, meta_features]) + unit * tau, price)
            # Sums over points are brought to one point's size, the price to its own.
            slope /= training.codes.size
            slope[-1] /= training.exemplar
            weights = weights.moved(_step(slope, squares))
        on_progress((turn + 1) / max_iter)
    return best, curve


def _step(slope: Float64, squares: Float64) -> Float64:
    """What to take off the weights, each by a rate of its own (AdaGrad, Duchi et al. 2011) instead of the authors' s/t:
    ``squares`` sums up squared slopes, in place."""
    squares += slope**2
    return np.asarray(_STEP * slope / np.sqrt(np.maximum(squares, 1e-300)))


_MOST_BYTES = 1024**3
"""What training sets take at most: of more rows, so many sets are drawn."""
_VALIDATION = 0.2
"""Share of each class's rows that is withheld."""
_LEAST_VALIDATION = 10
"""With fewer withheld rows, none are, and each learning row is judged against the others instead."""


def partition(codes: Int64, size: int, rng: np.random.Generator) -> list[Int64]:
    """Rows in training sets of about ``size`` rows, classes spread evenly where they are large enough.

    A class with at least two rows for each set is spread over all of them; a smaller one stays whole, in the set with
    the fewest rows, since what it says is how its rows lie together.
    """
    n_sets = -(-codes.size // size)
    if n_sets == 1:
        return [np.arange(codes.size)]
    parts: list[list[Int64]] = [[] for _ in range(n_sets)]
    fill = np.zeros(n_sets, dtype=np.int64)
    counts = np.bincount(codes)
    by_class = np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1])
    for c in np.argsort(-counts, kind="stable"):
        rows = rng.permutation(by_class[c])
        if rows.size >= 2 * n_sets:
            for place, part in enumerate(np.array_split(rows, n_sets)):
                parts[place].append(part)
                fill[place] += part.size
        else:
            place = int(fill.argmin())
            parts[place].append(rows)
            fill[place] += rows.size
    return [np.sort(np.concatenate(part)) for part in parts if part]


def withheld_rows(codes: Int64, rng: np.random.Generator) -> tuple[Int64, Int64]:
    """Rows to learn from, and rows withheld: from every class that keeps four of them or more."""
    counts = np.bincount(codes)
    share = np.floor(counts * _VALIDATION).astype(np.int64)
    share[counts - share < 4] = 0
    if share.sum() < _LEAST_VALIDATION:
        return np.arange(codes.size), np.empty(0, dtype=np.int64)
    away = [rng.choice(np.flatnonzero(codes == c), share[c], replace=False) for c in np.flatnonzero(share)]
    withheld = np.sort(np.concatenate(away))
    return np.setdiff1d(np.arange(codes.size), withheld), withheld


def training_sets(
    space: Space,
    codes: Int64,
    learning: Int64,
    seed: int,
    rng: np.random.Generator,
    *,
    balanced: bool,
    subset_size: int,
    max_iter: int,
) -> tuple[list[TrainingSet], Float64]:
    """Training sets of the learning rows, and the scale of each meta-feature beside the features' own: its mean in the
    first set."""
    parts = [learning[part] for part in partition(codes[learning], subset_size, rng)]
    size = 4 * max(part.size for part in parts) ** 2 * (len(space.meta_features.names) + 2)
    parts = parts[: max(1, min(max_iter, _MOST_BYTES // size))]
    sets: list[TrainingSet] = []
    scales = np.zeros(0)
    for rows in parts:
        classes, classes_of_rows = np.unique(codes[rows], return_inverse=True)
        classes_of_rows = classes_of_rows.astype(np.int64)
        matrices = _matrices(space, rows, classes_of_rows, classes.size, seed)
        if not sets:
            scales = _means(matrices, space)
        matrices /= np.where(scales > 0, scales, 1.0).astype(np.float32)[:, None, None]
        error = error_of(classes_of_rows, classes.size, balanced=balanced)
        points = space.training_points.take(rows)
        features = points.scaled if space.meta_features.features else np.empty((rows.size, 0))
        training_set = TrainingSet(
            columns=np.ascontiguousarray(features.T, dtype=np.float32),
            matrices=matrices,
            codes=classes_of_rows,
            error=error,
            # In units of what another exemplar earns in Delta, so that the price starts where it will end up.
            exemplar=max(float(error.over.mean()), 1.0),
        )
        sets.append(training_set)
    return sets, scales


def _matrices(space: Space, rows: Int64, codes: Int64, n_classes: int, seed: int) -> Float32:
    """(K2, n, n) the meta-features beside the features' own, of every row choosing every other."""
    points, meta_features = space.training_points.take(rows), space.meta_features
    tables = [space.pair_values(name, points, points, grid=True) for name in meta_features.pairs]
    if meta_features.sets:
        sets = draw_companions(codes, n_classes, np.random.default_rng([seed, 3]))
        beside = points.take(sets.by_class)
        tables += [space.set_grid(name, points, points, beside, sets, codes) for name in meta_features.sets]
    tables += [
        space.cluster_values(name, points, points, codes, n_classes)[:, codes]
        for name in meta_features.clusters
    ]
    return np.array(tables, dtype=np.float32).reshape(-1, rows.size, rows.size)


def _means(matrices: Float32, space: Space) -> Float64:
    n = matrices.shape[1]
    off_diagonal = ~np.eye(n, dtype=np.bool_)
    means = np.array([table[off_diagonal].mean(dtype=np.float64) if n > 1 else 0.0 for table in matrices])
    if not np.isfinite(means).all():
        name = space.meta_features.names[int(np.argmin(np.isfinite(means)))]
        raise ValueError(f"meta-feature {name!r} is too large for float32: scale the features down")
    return means


MAX_PAIRS = 100_000
"""Pairs learned from; of more, so many are drawn."""


def learn_from_pairs(
    table: Float32,
    n_features: int,
    same: Bool,
    weight: Float64,
    *,
    balanced: bool,
    max_iter: int,
    tau: float,
) -> tuple[GhostWeights, list[float]]:
    """Minimise the exact loss of all two-point training sets.

    With the exemplars' price b, a same pair loses ``[d - b + extra]+``, with 0 for ``extra`` when balanced, else 1, and
    a different one ``[b + margin - d]+``: these are max over x of E(truth) - E(x) + Delta(x) for two points, so no
    slaves are needed.

    Parameters
    ----------
    table : (n, K) meta-features of each pair.
    weight : (n,) share of each pair in the loss.
    """
    n, extra, margin = table.shape[0], 0.0 if balanced else 1.0, 2.0
    # Start at the scale of the margin, between the typical pair of each kind.
    size = float(table.sum(axis=1, dtype=np.float64) @ weight / weight.sum())
    scales = np.full(table.shape[1], margin / max(size, 1e-12))
    weights = GhostWeights(
        features=scales[:n_features], meta_features=scales[n_features:], exemplar=margin / 2
    )
    best, lowest, curve, squares = weights, np.inf, [], np.zeros(table.shape[1] + 1)
    reach = np.append(scales, margin)
    for _ in range(2 * max_iter):
        distance = (table @ weights.flat.astype(np.float32)).astype(np.float64)
        losses = np.where(same, distance - weights.exemplar + extra, weights.exemplar + margin - distance)
        objective = float(weight @ np.maximum(losses, 0.0)) + tau * float(weights.flat.sum())
        curve.append(objective)
        if objective < lowest:
            best, lowest = weights, objective
        push: Any = weight * (losses > 0) * np.where(same, 1.0, -1.0)
        slope = (push.astype(np.float32) @ table).astype(np.float64) + tau
        weights = weights.moved(_step(np.append(slope, -push.sum()) / n, squares) * reach)
    return best, curve
