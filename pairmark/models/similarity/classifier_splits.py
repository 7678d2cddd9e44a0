"""LeafRank by classifiers: a classifier on the pair features f splits each cell.

The classifier is a plane (``linear``), a sum of stumps (``boosting``) or the best of all trees of depth 2
(``exhaustive``). It meets the pairs of one cell only, under weights that balance both kinds within the cell (Clemencon
& Vogel, "Symmetric LeafRank"). Where a cell's features would take more than `FIT_VALUES` numbers, it learns from as
many of its pairs as fit, drawn evenly from both kinds; all of them are then parted, in blocks.
"""

from __future__ import annotations

import warnings

import numpy as np

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.pairs.sampling import PairMap, pair_features
from pairmark.models.similarity.exhaustive import LEFT, MOST_PAIRS, RIGHT, Region, best_region
from pairmark.models.similarity.kernels import boosting as boosting_kernels
from pairmark.models.similarity.kernels.layout import CELL_LEFT, CELL_NODE, CELL_RIGHT
from pairmark.models.similarity.node_splits import KINDS, PlaneSplits, Splits, StumpSplits
from pairmark.models.similarity.training_pairs import WeightedPairs
from pairmark.models.similarity.trees import GrowthSettings, Tree

FIT_VALUES = 2**24
"""Most numbers of f that are written out at a time: 64 MiB."""
_RATE = 0.5
"""What part of each stump counts: smaller steps, several of which share a feature, hold better on other pairs."""


def grow_by_classifier(X: Float32, pairs: WeightedPairs, settings: GrowthSettings, seed: int) -> Tree:
    """Grow a tree whose cells are split by ``linear``, ``boosting`` or ``exhaustive``.

    Each feature that a cell tries brings its two pair features. Learned ones always enter.
    """
    rng = np.random.default_rng(seed)
    d, n_tried = X.shape[1], settings.n_tried
    features = _Features(X, pairs, settings.pair_map)
    weight = pairs.weight.astype(np.int64)
    n = weight.size
    cells: list[list[int]] = [
        [0, 0, -1, int(weight[: pairs.n_same].sum()), int(weight[pairs.n_same :].sum()), -1, -1]
    ]
    splits: list[Splits] = []
    nodes: list[tuple[int, int]] = []
    todo = [(0, np.arange(n))]
    while todo:
        cell, members = todo.pop()
        depth, position, _, n_same, n_different = cells[cell][:5]
        if depth >= settings.max_depth or not n_same or not n_different:
            continue
        tried_columns = np.sort(rng.choice(d, n_tried, replace=False)) if n_tried < d else np.arange(d)
        split = _fit_split(settings, features, members, tried_columns, rng)
        if split is None:
            continue
        left = np.empty(members.size, dtype=np.bool_)
        block = max(1, FIT_VALUES // features.width)
        for start in range(0, members.size, block):
            f = features.of(members[start : start + block])
            left[start : start + block] = split.left(f)
        same = members < pairs.n_same
        left_same, left_different = (int(weight[members[left & kind]].sum()) for kind in (same, ~same))
        if left_same * n_different <= left_different * n_same:
            continue
        number = len(cells)
        cells[cell][CELL_NODE] = len(nodes)
        cells[cell][CELL_LEFT], cells[cell][CELL_RIGHT] = number, number + 1
        cells.append([depth + 1, 2 * position, -1, left_same, left_different, -1, -1])
        cells.append(
            [depth + 1, 2 * position + 1, -1, n_same - left_same, n_different - left_different, -1, -1]
        )
        splits.append(split.splits)
        ends, first = {LEFT: -1 - number, RIGHT: -1 - (number + 1)}, len(nodes)
        for low, high in zip(split.low, split.high, strict=True):
            nodes.append((ends.get(low, first + low), ends.get(high, first + high)))
        todo += [(number + 1, members[~left]), (number, members[left])]
    table = np.array(nodes, dtype=np.int32).reshape(-1, 2)
    kind = KINDS[settings.leaf_rank]
    return Tree(
        cells=np.array(cells, dtype=np.int64),
        splits=kind.concatenate(splits) if splits else kind.empty(),
        node_low=np.ascontiguousarray(table[:, 0]),
        node_high=np.ascontiguousarray(table[:, 1]),
    )


class _Features:
    """f of some of the pairs, written out on demand."""

    def __init__(self, X: Float32, pairs: WeightedPairs, pair_map: PairMap) -> None:
        self._X, self._pairs, self._map, self.weight = X, pairs, pair_map, pairs.weight
        self.n_same, self.n_raw = pairs.n_same, X.shape[1]
        self.n_learned = 0 if pairs.learned is None else pairs.learned.shape[1]
        self.width = 2 * X.shape[1] + self.n_learned

    def of(self, members: Int64, tried_columns: Int64 | None = None) -> Float32:
        """(n, width) float32; of the points' ``tried_columns`` (all when None), and all learned ones."""
        table = self._pairs.pairs
        left, right = (
            self._X[table[side, members]]
            if tried_columns is None
            else self._X[np.ix_(table[side, members], tried_columns)]
            for side in (0, 1)
        )
        f = pair_features(left, right, self._map)
        if self._pairs.learned is None:
            return f
        return np.hstack([f, self._pairs.learned[table[2, members]]])


def _fit_split(
    settings: GrowthSettings,
    features: _Features,
    members: Int64,
    tried_columns: Int64,
    rng: np.random.Generator,
) -> Region | None:
    """What splits a cell, learned from some features of points; None where there is nothing to learn."""
    limit = max(16, FIT_VALUES // features.width)
    if settings.leaf_rank == "exhaustive":
        limit = min(limit, MOST_PAIRS)
    members = _sample(members, features.n_same, limit, rng)
    same = members < features.n_same
    f = features.of(members, tried_columns)
    columns = np.concatenate(
        [tried_columns, features.n_raw + tried_columns, 2 * features.n_raw + np.arange(features.n_learned)]
    )
    cost = features.weight[members].astype(np.float64)
    cost = np.where(same, cost / cost[same].sum(), cost / cost[~same].sum()) * members.size / 2
    if settings.leaf_rank == "exhaustive":
        return best_region(f, np.where(same, cost, -cost) * 2 / members.size, columns, rng)
    splits: Splits | None
    if settings.leaf_rank == "boosting":
        splits = _stumps(f, cost, int(np.count_nonzero(same)), columns, settings.leaf_rounds)
    else:
        splits = _plane(f, same, cost, columns, features.width)
    # One node, whose high pairs go left.
    return None if splits is None else Region(splits, (RIGHT,), (LEFT,))


def _sample(members: Int64, n_same: int, limit: int, rng: np.random.Generator) -> Int64:
    """At most so many pairs, drawn evenly from both kinds; same ones stay first."""
    if members.size <= limit:
        return members
    kinds = members[members < n_same], members[members >= n_same]
    smaller = min(kinds[0].size, kinds[1].size, limit // 2)
    takes = [smaller if kind.size == smaller else min(kind.size, limit - smaller) for kind in kinds]
    return np.concatenate(
        [np.sort(rng.choice(kind, take, replace=False)) for kind, take in zip(kinds, takes, strict=True)]
    )


def _stumps(f: Float32, cost: Float64, n_same: int, columns: Int64, n_rounds: int) -> StumpSplits | None:
    """Gentle AdaBoost on some columns of f; see `boosting_kernels`."""
    n, m = f.shape
    f = np.ascontiguousarray(f)
    borders = np.zeros((m, boosting_kernels.BINS), dtype=np.float32)
    n_borders, codes = np.zeros(m, dtype=np.int64), np.empty((n, m), dtype=np.uint8)
    boosting_kernels.code(f, n_same, borders, n_borders, codes)
    features_of_rounds, numbers = np.zeros(n_rounds, dtype=np.int64), np.zeros(n_rounds, dtype=np.int64)
    steps = np.zeros((n_rounds, 2))
    n_done = boosting_kernels.boost(
        codes, n_same, n_borders, cost, n_rounds, _RATE, features_of_rounds, numbers, steps
    )
    if not n_done:
        return None
    # Stumps of one border are one, and a stump adds its step above it to what it adds anyway.
    place, stump_of = np.unique(
        features_of_rounds[:n_done] * boosting_kernels.BINS + numbers[:n_done], return_inverse=True
    )
    feature, number = np.divmod(place, boosting_kernels.BINS)
    step = np.bincount(stump_of, weights=steps[:n_done, 1] - steps[:n_done, 0], minlength=place.size)
    return StumpSplits(
        counts=np.array([place.size], dtype=np.int64),
        features=columns[feature].astype(np.int32),
        limits=borders[feature, number],
        steps=step.astype(np.float32),
        thresholds=np.array([-steps[:n_done, 0].sum()], dtype=np.float32),
    )


def _plane(f: Float32, same: Bool, cost: Float64, columns: Int64, width: int) -> PlaneSplits | None:
    """Logistic regression on some columns of f."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    wide = f.astype(np.float64)
    mean, deviation = wide.mean(axis=0), wide.std(axis=0)
    moving = deviation > 1e-9 * (1.0 + np.abs(mean))
    if not moving.any():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        plane = LogisticRegression(C=1.0, max_iter=100).fit(
            (wide[:, moving] - mean[moving]) / deviation[moving], same, sample_weight=cost
        )
    weights = np.zeros(width)
    weights[columns[moving]] = plane.coef_[0] / deviation[moving]
    threshold = float((plane.coef_[0] * mean[moving] / deviation[moving]).sum() - plane.intercept_[0])
    # Comparisons are made in float32; a common factor keeps weights and sums well inside its range.
    factor = 1.0 / max(float(np.abs(weights).max()), 1e-300)
    return PlaneSplits(
        planes=(weights * factor).astype(np.float32)[None, :],
        thresholds=np.array([threshold * factor], dtype=np.float32),
    )
