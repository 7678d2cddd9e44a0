"""From distances to classes: the strategies of section 3.10, and probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np

from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.core.state import Array, StateRecord
from pairmark.models.ghost import kernels
from pairmark.models.ghost.space import (
    Companions,
    GhostPoints,
    Space,
    by_class,
    draw_companions,
    reduce_by_class,
)

STRATEGIES: Final = ("center", "average", "knn", "minimum", "maximum")
"""In the order in which ties between them are broken."""
_NEIGHBORS = 5
"""Rows that vote under ``knn`` (section 4.1)."""
_CELLS = 2_000_000
"""Distances held at a time."""


@dataclass(frozen=True, kw_only=True)
class GhostClasses:
    """The classes that points are assigned to.

    Attributes
    ----------
    codes : (n,) class of each training row.
    exemplars : (n_classes,) training row of each class's center.
    companions : the rows that stand beside a new point and the center, where sets of three have a weight.
    """

    codes: Annotated[Int64, Array(shape=("rows",), below="classes")]
    exemplars: Annotated[Int64, Array(shape=("classes",), below="rows")]
    companions: Annotated[Companions | None, StateRecord(prefix="sets3_")]

    @property
    def n_classes(self) -> int:
        """How many there are."""
        return int(self.exemplars.size)


@dataclass(frozen=True, kw_only=True)
class Weighing:
    """Learned weights, each divided by its meta-feature's scale: ready to be multiplied with raw values."""

    columns: Int64
    features: Float64
    pairs: dict[str, float]
    sets: dict[str, float]
    clusters: dict[str, float]


def weighing_of(space: Space, weights: Float64, other_scales: Float64, n_inputs: int) -> Weighing:
    """Weights over scales, by what they weigh."""
    meta_features = space.meta_features
    n_features = n_inputs if meta_features.features else 0
    features = weights[:n_features] * space.inverse[:n_features]
    columns = np.flatnonzero(features > 0)
    in_use = other_scales > 0
    meta_weights = np.divide(weights[n_features:], other_scales, out=np.zeros(in_use.size), where=in_use)
    n_pairs, n_sets = len(meta_features.pairs), len(meta_features.sets)
    return Weighing(
        columns=columns.astype(np.int64),
        features=features[columns],
        pairs=_positive(meta_features.pairs, meta_weights[:n_pairs]),
        sets=_positive(meta_features.sets, meta_weights[n_pairs : n_pairs + n_sets]),
        clusters=_positive(meta_features.clusters, meta_weights[n_pairs + n_sets :]),
    )


def _positive(names: Sequence[str], weights: Float64) -> dict[str, float]:
    return {name: float(weight) for name, weight in zip(names, weights, strict=True) if weight > 0}


def describe(
    space: Space,
    weighing: Weighing,
    points: GhostPoints,
    codes: Int64,
    n_classes: int,
    seed: int,
) -> GhostClasses:
    """The classes of some rows: the center of each, and the sets that stand beside new points."""
    exemplars = np.empty(n_classes, dtype=np.int64)
    rng = np.random.default_rng([seed, 99])
    for c in range(n_classes):
        rows = np.flatnonzero(codes == c)
        # Of a large class, so many are tried as centers for so many that the best is still near the best.
        sample = rows if rows.size <= 1_024 else np.sort(rng.choice(rows, 1_024, replace=False))
        sample_points = points.take(sample)
        exemplars[c] = sample[distances(space, weighing, sample_points, sample_points).sum(axis=0).argmin()]
    beside = np.random.default_rng([seed, 3])
    companions = draw_companions(codes, n_classes, beside) if weighing.sets else None
    return GhostClasses(codes=codes, exemplars=exemplars, companions=companions)


def distances(space: Space, weighing: Weighing, A: GhostPoints, B: GhostPoints) -> Float64:
    """(n_A, n_B) the learned second-order distance."""
    out = np.zeros((len(A), len(B)))
    kernels.add_weighted_distances(A.raw, B.raw, True, weighing.columns, weighing.features, out)
    for name, weight in weighing.pairs.items():
        out += weight * space.pair_values(name, A, B, grid=True)
    return out


def class_distances(
    space: Space,
    weighing: Weighing,
    classes: GhostClasses,
    members: GhostPoints,
    points: GhostPoints,
    strategies: tuple[str, ...],
) -> dict[str, Float64]:
    """(n, n_classes) distance of points to classes, whose rows are ``members``, under each strategy; a point is never
    compared with itself.

    Every strategy reads the second-order distances its way and adds the features of sets, read likewise at the
    class's center (averaged under ``center`` and ``knn``), and the cluster metrics.
    """
    step = max(1, _CELLS // max(len(members), 1))
    parts: dict[str, list[Float64]] = {strategy: [] for strategy in strategies}
    for at in range(0, len(points), step):
        block = points if len(points) <= step else points.take(slice(at, at + step))
        for strategy, table in _of_block(space, weighing, classes, members, block, strategies).items():
            parts[strategy].append(table)
    return {strategy: np.concatenate(table) for strategy, table in parts.items()}


def _of_block(
    space: Space,
    weighing: Weighing,
    classes: GhostClasses,
    members: GhostPoints,
    P: GhostPoints,
    strategies: tuple[str, ...],
) -> dict[str, Float64]:
    codes, n_classes = classes.codes, classes.n_classes
    table = distances(space, weighing, P, members)
    is_own: Bool = np.equal(P.ids[:, None], members.ids[None, :])
    centers = np.ascontiguousarray(table[:, classes.exemplars])
    extra: dict[str, Any] = {}
    tables: dict[str, Float64] = {}
    for strategy in strategies:
        rule = strategy if strategy in ("minimum", "maximum") else "average"
        if rule not in extra:
            extra[rule] = _class_additions(space, weighing, classes, members, P, rule)
        if strategy == "center":
            tables[strategy] = centers + extra[rule]
        elif strategy == "knn":
            tables[strategy] = _votes(
                np.where(is_own, np.inf, table + extra[rule][:, codes]), codes, n_classes
            )
        else:
            tables[strategy] = reduce_by_class(table, is_own, codes, n_classes, strategy) + extra[rule]
    return tables


def _class_additions(
    space: Space, weighing: Weighing, classes: GhostClasses, members: GhostPoints, P: GhostPoints, rule: str
) -> Float64:
    """What sets and cluster metrics add to the distance of each class."""
    out = np.zeros((len(P), classes.n_classes))
    centers, class_numbers = members.take(classes.exemplars), np.arange(classes.n_classes)
    if classes.companions is not None:
        beside = members.take(classes.companions.by_class)
        for name, weight in weighing.sets.items():
            out += weight * space.set_grid(name, P, centers, beside, classes.companions, class_numbers, rule)
    for name, weight in weighing.clusters.items():
        out += weight * space.cluster_values(name, P, members, classes.codes, classes.n_classes)
    return out


def _votes(table: Float64, codes: Int64, n_classes: int) -> Float64:
    """Votes that a class lacks among the k nearest; ties go to the nearer class (which adds less than one vote)."""
    k = min(_NEIGHBORS, table.shape[1])
    near = np.argsort(table, axis=1, kind="stable")[:, :k]
    lacking = np.full((table.shape[0], n_classes), float(k))
    rows = np.repeat(np.arange(table.shape[0]), k)
    np.add.at(lacking, (rows, codes[near].ravel()), -1.0)
    nearest = by_class(np.minimum, table, codes, n_classes)
    typical = np.maximum(np.take_along_axis(table, near, axis=1)[:, -1:], 1e-300)
    typical = np.where(np.isfinite(typical), typical, 1.0)
    nearest = np.where(np.isfinite(nearest), nearest, 1e300)
    return np.asarray(lacking + 0.5 * nearest / (nearest + typical))


def balanced_accuracy(truth: Int64, predicted: Int64, n_classes: int) -> float:
    """Mean share of each class's rows that were recognized, over the classes that occur."""
    counts = np.bincount(truth, minlength=n_classes)
    right = np.bincount(truth[truth == predicted], minlength=n_classes)
    return float((right[counts > 0] / counts[counts > 0]).mean())
