"""From rows and classes to training sets: {V^k, C^k} and their potentials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.ghost.kernels import energy as kernels
from pairmark.models.ghost.learning import (
    GhostWeights,
    Iteration,
    Steps,
    TrainingSet,
    error_of,
    penalty,
    slope_of_penalty,
)
from pairmark.models.ghost.space import SETS, Companions, GhostPoints, Space, draw_companions

if TYPE_CHECKING:
    from pairmark.models.ghost.estimator import Ghost


_KEPT_BYTES = 512 * 1024 * 1024
"""Training sets are kept between visits as long as all of them take less."""


_LEAST_VALIDATION = 10
"""With fewer withheld rows, none are, and each learning row is judged against the others instead."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How training sets are made."""

    space: Space
    points: GhostPoints
    codes: Int64
    ghost: Ghost
    seed: int


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
            for at, part in enumerate(np.array_split(rows, n_sets)):
                parts[at].append(part)
                fill[at] += part.size
        else:
            at = int(fill.argmin())
            parts[at].append(rows)
            fill[at] += rows.size
    return [np.sort(np.concatenate(part)) for part in parts if part]


def parts_of(
    codes: Int64, learning: Int64, sets: ArrayLike | None, size: int, rng: np.random.Generator
) -> list[Int64]:
    """Rows to learn from in training sets: as the caller says which row is in which, then of at most about ``size``."""
    if sets is None:
        return [learning[part] for part in partition(codes[learning], size, rng)]
    names = np.asarray(sets)
    if names.shape != codes.shape:
        raise ValueError(f"sets has shape {names.shape}; expected {codes.shape}, the set of each row")
    parts = []
    for value in np.unique(names):
        rows = learning[names[learning] == value]
        if rows.size:
            parts += [rows[part] for part in partition(codes[rows], size, rng)]
    return parts


def withheld_rows(codes: Int64, fraction: float, rng: np.random.Generator) -> tuple[Int64, Int64]:
    """Rows to learn from, and rows withheld: from every class that keeps four of them or more."""
    counts = np.bincount(codes)
    share = np.floor(counts * fraction).astype(np.int64)
    share[counts - share < 4] = 0
    if share.sum() < _LEAST_VALIDATION:
        return np.arange(codes.size), np.empty(0, dtype=np.int64)
    away = [rng.choice(np.flatnonzero(codes == c), share[c], replace=False) for c in np.flatnonzero(share)]
    withheld = np.sort(np.concatenate(away))
    return np.setdiff1d(np.arange(codes.size), withheld), withheld


def training_sets(plan: Plan, parts: Sequence[Int64]) -> tuple[list[Callable[[], TrainingSet]], Float64]:
    """Makers of training sets, and the scale of each meta-feature beside the features' own: its mean in the first
    set."""
    first, scales = _potentials(plan, parts[0])
    n_meta_features = len(plan.space.meta_features.names)
    size = sum(4 * part.size**2 * (n_meta_features + 2) for part in parts)
    cache: dict[int, TrainingSet] = {0: _training_set(plan, parts[0], first, scales)}
    # Multipliers live on between visits, whether the rest is kept or made again.
    multipliers: dict[int, tuple[Float32, Float64, int]] = {}

    def maker(at: int) -> Callable[[], TrainingSet]:
        def make() -> TrainingSet:
            if at in cache:
                return cache[at]
            training_set = _training_set(plan, parts[at], _potentials(plan, parts[at])[0], scales)
            if size > _KEPT_BYTES:
                for number, training in list(cache.items()):
                    multipliers[number] = training.points, training.clusters, training.visits
                    del cache[number]
                if at in multipliers:
                    training_set.points, training_set.clusters, training_set.visits = multipliers.pop(at)
            cache[at] = training_set
            return training_set

        return make

    return [maker(part_number) for part_number in range(len(parts))], scales


def _potentials(plan: Plan, rows: Int64) -> tuple[tuple[Float32, Float32, Int64, int], Float64]:
    """Slaves', and true solutions', values of the other meta-features; local codes, clusters; means."""
    space, points = plan.space, plan.points.take(rows)
    classes, codes = np.unique(plan.codes[rows], return_inverse=True)
    codes = codes.astype(np.int64)
    n, meta_features = rows.size, space.meta_features
    slaves = np.empty((len(meta_features.names), n, n), dtype=np.float32)
    free = plan.ghost.coupling == "free" and bool(meta_features.sets)
    truths = slaves if not free else np.empty_like(slaves)
    at = 0
    for name in meta_features.pairs:
        slaves[at] = truths[at] = space.pair_values(name, points, points, grid=True)
        at += 1
    companions: dict[int, Companions] = {}
    for name, size in meta_features.sets:
        if size not in companions:
            rng = np.random.default_rng([plan.seed, size])
            companions[size] = draw_companions(codes, classes.size, size - 2, plan.ghost.max_sets, rng)
        sets = companions[size]
        beside = space.set_grid(name, size, points, points, points.take(sets.rows), sets, codes)
        if free:
            n_sets = np.maximum(np.diff(sets.first), 1)[codes]
            repeated = repeated_sets(space, name, size, points) / n_sets
            truths[at], slaves[at] = beside + repeated, repeated
        else:
            slaves[at] = beside
        at += 1
    for name in meta_features.clusters:
        values = space.cluster_values(name, points, points, codes, classes.size)
        slaves[at] = truths[at] = values[:, codes]
        at += 1
    off_diagonal = ~np.eye(n, dtype=np.bool_)
    means = np.array([table[off_diagonal].mean(dtype=np.float64) if n > 1 else 0.0 for table in truths])
    if not np.isfinite(means).all():
        name = meta_features.names[int(np.argmin(np.isfinite(means)))]
        raise ValueError(f"meta-feature {name!r} is too large for float32: scale the features down")
    return (slaves, truths, codes, classes.size), means


def repeated_sets(space: Space, name: str, size: int, points: GhostPoints) -> Float64:
    """What p pays for choosing q in the tuples that hold only p and q, (n, n); on the diagonal, q's own tuple.

    Of the 2^(size - 1) tuples over {p, q}, all but the one of q alone begin with p or hold it (docs/ghost.md).
    """
    n = len(points)
    out = np.zeros((n, n))
    feature = SETS.get(name)
    if feature is None or feature.between == "rows" or feature.code == kernels.AREA:
        return out  # of fewer than three points, these are nothing
    between = space.between_points(feature.between, points, points, points)[0]
    top = float(space.graph.top_degree) if space.graph is not None else 0.0
    for p in range(n):
        for q in range(n):
            lone = p == q
            table = np.zeros((1, 1)) if lone else np.array([[0.0, between[p, q]], [between[p, q], 0.0]])
            out[p, q] = kernels.set_value(feature.code, table, 1 if lone else 2, top)
    out *= 2.0 ** (size - 1) - 1.0
    out.ravel()[:: n + 1] /= 2.0 ** (size - 1) - 1.0
    return out


def _training_set(
    plan: Plan, rows: Int64, potentials: tuple[Float32, Float32, Int64, int], scales: Float64
) -> TrainingSet:
    slaves, truths, codes, n_clusters = potentials
    divisors = np.where(scales > 0, scales, 1.0).astype(np.float32)[:, None, None]
    same = truths is slaves
    slaves /= divisors
    if not same:
        truths /= divisors
    options = plan.ghost
    error = error_of(codes, n_clusters, alpha=options.alpha, beta=options.beta, balanced=options.balanced)
    features = (
        plan.points.take(rows).scaled if plan.space.meta_features.features else np.empty((rows.size, 0))
    )
    return TrainingSet(
        columns=np.ascontiguousarray(features.T, dtype=np.float32),
        slaves=slaves,
        truths=slaves if same else truths,
        codes=codes,
        error=error,
        # In units of what another exemplar earns in Delta, so that the price starts where it will end up.
        exemplar=max(float(error.over.mean()), 1.0),
    )


MAX_PAIRS = 100_000
"""Pairs learned from; of more, so many are drawn."""


def learn_from_pairs(
    table: Float32,
    n_features: int,
    same: Bool,
    weight: Float64,
    settings: Ghost,
    *,
    over: float,
    margin: float,
) -> tuple[GhostWeights, list[Iteration]]:
    """Minimise the exact loss of all two-point training sets.

    With the exemplars' price b, a same pair loses ``[d - b + over]+`` and a different one ``[b + margin - d]+``: these
    are max over x of E(truth) - E(x) + Delta(x) for two points, so no slaves are needed.

    Parameters
    ----------
    table : (n, K) meta-features of each pair.
    weight : (n,) share of each pair in the loss.
    over, margin : alpha W for two exemplars in one cluster (0 when balanced), and alpha + beta.
    """
    n = table.shape[0]
    weights = GhostWeights(features=np.ones(n_features), meta_features=np.ones(table.shape[1] - n_features))
    # Start at the scale of the margin, between the typical pair of each kind.
    size = float(table.sum(axis=1, dtype=np.float64) @ weight / weight.sum())
    weights.features *= margin / max(size, 1e-12)
    weights.meta_features *= margin / max(size, 1e-12)
    weights.exemplar = margin / 2
    best, lowest, history, steps = weights, np.inf, [], Steps(table.shape[1])
    for _ in range(settings.max_iter * settings.n_updates):
        distance = (table @ weights.flat.astype(np.float32)).astype(np.float64)
        losses = np.where(same, distance - weights.exemplar + over, weights.exemplar + margin - distance)
        loss = float(weight @ np.maximum(losses, 0.0))
        objective = loss + penalty(weights, settings)
        history.append(
            Iteration(
                objective=objective,
                energy=loss,
                dual=0.0,
                rounded=0.0,
                n_weights=int((weights.flat > 0).sum()),
            )
        )
        if objective < lowest:
            best, lowest = weights, objective
        push: Any = weight * (losses > 0) * np.where(same, 1.0, -1.0)
        slope = (push.astype(np.float32) @ table).astype(np.float64) + slope_of_penalty(weights, settings)
        updated = np.maximum(weights.flat - steps.of(slope, n) * margin / max(size, 1e-12), 0.0)
        price = float(-push.sum())
        weights = GhostWeights(
            features=updated[:n_features],
            meta_features=updated[n_features:],
            exemplar=max(weights.exemplar - margin * steps.of_price(price / n, 1.0), 0.0),
        )
    return best, history
