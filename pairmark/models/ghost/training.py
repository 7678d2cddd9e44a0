"""From rows and classes to training sets: {V^k, C^k} and their potentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.ghost.learning import GhostWeights, Steps, TrainingSet, error_of
from pairmark.models.ghost.space import Companions, Space, draw_companions

if TYPE_CHECKING:
    from pairmark.models.ghost.estimator import Ghost


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
            for at, part in enumerate(np.array_split(rows, n_sets)):
                parts[at].append(part)
                fill[at] += part.size
        else:
            at = int(fill.argmin())
            parts[at].append(rows)
            fill[at] += rows.size
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
    space: Space, codes: Int64, learning: Int64, ghost: Ghost, seed: int, rng: np.random.Generator
) -> tuple[list[TrainingSet], Float64]:
    """Training sets of the learning rows, and the scale of each meta-feature beside the features' own: its mean in the
    first set."""
    parts = [learning[part] for part in partition(codes[learning], ghost.subset_size, rng)]
    size = 4 * max(part.size for part in parts) ** 2 * (len(space.meta_features.names) + 2)
    parts = parts[: max(1, min(ghost.max_iter, _MOST_BYTES // size))]
    sets: list[TrainingSet] = []
    scales = np.zeros(0)
    for rows in parts:
        classes, own = np.unique(codes[rows], return_inverse=True)
        own = own.astype(np.int64)
        matrices = _matrices(space, rows, own, classes.size, seed)
        if not sets:
            scales = _means(matrices, space)
        matrices /= np.where(scales > 0, scales, 1.0).astype(np.float32)[:, None, None]
        error = error_of(own, classes.size, balanced=ghost.balanced)
        points = space.training_points.take(rows)
        features = points.scaled if space.meta_features.features else np.empty((rows.size, 0))
        training_set = TrainingSet(
            columns=np.ascontiguousarray(features.T, dtype=np.float32),
            matrices=matrices,
            codes=own,
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
    companions: dict[int, Companions] = {}
    for name, size in meta_features.sets:
        if size not in companions:
            draws = np.random.default_rng([seed, size])
            companions[size] = draw_companions(codes, n_classes, size - 2, draws)
        sets = companions[size]
        tables.append(space.set_grid(name, points, points, points.take(sets.rows), sets, codes))
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
    settings: Ghost,
) -> tuple[GhostWeights, list[float]]:
    """Minimise the exact loss of all two-point training sets.

    With the exemplars' price b, a same pair loses ``[d - b + over]+``, with 0 for ``over`` when balanced, else 1, and a
    different one ``[b + margin - d]+``: these are max over x of E(truth) - E(x) + Delta(x) for two points, so no slaves
    are needed.

    Parameters
    ----------
    table : (n, K) meta-features of each pair.
    weight : (n,) share of each pair in the loss.
    """
    n, over, margin = table.shape[0], 0.0 if settings.balanced else 1.0, 2.0
    weights = GhostWeights(features=np.ones(n_features), meta_features=np.ones(table.shape[1] - n_features))
    # Start at the scale of the margin, between the typical pair of each kind.
    size = float(table.sum(axis=1, dtype=np.float64) @ weight / weight.sum())
    weights.features *= margin / max(size, 1e-12)
    weights.meta_features *= margin / max(size, 1e-12)
    weights.exemplar = margin / 2
    best, lowest, curve, steps = weights, np.inf, [], Steps(table.shape[1])
    for _ in range(2 * settings.max_iter):
        distance = (table @ weights.flat.astype(np.float32)).astype(np.float64)
        losses = np.where(same, distance - weights.exemplar + over, weights.exemplar + margin - distance)
        objective = float(weight @ np.maximum(losses, 0.0)) + settings.tau * float(weights.flat.sum())
        curve.append(objective)
        if objective < lowest:
            best, lowest = weights, objective
        push: Any = weight * (losses > 0) * np.where(same, 1.0, -1.0)
        slope = (push.astype(np.float32) @ table).astype(np.float64) + settings.tau
        updated = np.maximum(weights.flat - steps.of(slope, n) * margin / max(size, 1e-12), 0.0)
        price = float(-push.sum())
        weights = GhostWeights(
            features=updated[:n_features],
            meta_features=updated[n_features:],
            exemplar=max(weights.exemplar - margin * steps.of_price(price / n, 1.0), 0.0),
        )
    return best, curve
