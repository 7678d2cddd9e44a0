"""The region of a cell that is best by the paper's equation (3) itself, among all trees of depth 2 on a grid.

A greedy tree splits a cell by the border that looks best alone. Where two features tell only together (an exclusive
or), every border looks alike, and it misses regions that are there. Here all trees of depth 2 are gone through: with S
the pairs' signed masses (1 over the same pairs' weight, minus 1 over the different pairs') and L the (pairs x borders)
matrix of which pair is low by which border, ``L' S L`` holds the mass that is low by each two borders, and the four
leaves of every tree follow from it. Lambda of a tree is the sum of its leaves' positive masses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pairmark.models.core.arrays import Bool, Float32, Float64, Int32, Int64
from pairmark.models.core.blas import one_blas_thread
from pairmark.models.pairs.sampling import PairMap, pair_features
from pairmark.models.similarity.kernels.layout import CELL_LEFT, CELL_NODE, CELL_RIGHT
from pairmark.models.similarity.training_pairs import WeightedPairs
from pairmark.models.similarity.trees import GrowthSettings, Tree

MOST_BORDERS = 512
"""Borders that are looked at in a cell, of all features together."""
MOST_LEVELS = 64
"""Borders of one pair feature at most."""
MOST_PAIRS = 16_384
"""Pairs of a cell that its region is chosen on; all of them are then parted."""
FIT_VALUES = 2**24
"""Most numbers of f that are written out at a time: 64 MiB."""
LEFT, RIGHT = -1, -2
"""Where a node of `Region` sends pairs beside other nodes: to the left or the right child of the cell."""


class Region(NamedTuple):
    """What splits a cell: a tree of up to three nodes; a child is a later node (>= 0), `LEFT` or `RIGHT`.

    Attributes
    ----------
    features, thresholds : (n_nodes,) int32 and float32, what each node tests.
    """

    features: Int32
    thresholds: Float32
    low: tuple[int, ...]
    high: tuple[int, ...]

    def left(self, f: Float32) -> Bool:
        """Which pairs go to the left child."""
        at = np.zeros(f.shape[0], dtype=np.int64)
        for node, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            at_node = at == node
            above = f[at_node, self.features[node]] > self.thresholds[node]
            at[at_node] = np.where(above, high, low)
        return np.asarray(at == LEFT)


def grow_by_regions(X: Float32, pairs: WeightedPairs, settings: GrowthSettings, seed: int) -> Tree:
    """Grow a tree whose cells are split by `best_region`.

    Each feature that a cell tries brings its two pair features. Learned ones always enter. Pairs of either kind weigh
    the same within a cell. Regions are chosen on at most `MOST_PAIRS` pairs of a cell, drawn evenly from both kinds;
    all of them are then parted, in blocks.
    """
    rng = np.random.default_rng(seed)
    d, n_tried = X.shape[1], settings.n_tried
    features = _Features(X, pairs, settings.pair_map)
    weight = pairs.weight.astype(np.int64)
    n = weight.size
    cells: list[list[int]] = [
        [0, 0, -1, int(weight[: pairs.n_same].sum()), int(weight[pairs.n_same :].sum()), -1, -1]
    ]
    nodes: list[tuple[float, ...]] = []
    todo = [(0, np.arange(n))]
    while todo:
        cell, members = todo.pop()
        depth, position, _, n_same, n_different = cells[cell][:5]
        if depth >= settings.max_depth or not n_same or not n_different:
            continue
        tried_columns = np.sort(rng.choice(d, n_tried, replace=False)) if n_tried < d else np.arange(d)
        split = _fit_region(features, members, tried_columns, rng)
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
        ends, first = {LEFT: -1 - number, RIGHT: -1 - (number + 1)}, len(nodes)
        for feature, threshold, low, high in zip(*split, strict=True):
            nodes.append((feature, threshold, ends.get(low, first + low), ends.get(high, first + high)))
        todo += [(number + 1, members[~left]), (number, members[left])]
    # 32-bit numbers, all exact in float64.
    table = np.array(nodes, dtype=np.float64).reshape(-1, 4)
    return Tree(
        cells=np.array(cells, dtype=np.int64),
        features=table[:, 0].astype(np.int32),
        thresholds=table[:, 1].astype(np.float32),
        node_low=table[:, 2].astype(np.int32),
        node_high=table[:, 3].astype(np.int32),
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


def _fit_region(
    features: _Features, members: Int64, tried_columns: Int64, rng: np.random.Generator
) -> Region | None:
    """What splits a cell, learned from some features of points; None where there is nothing to learn."""
    limit = min(max(16, FIT_VALUES // features.width), MOST_PAIRS)
    members = _sample(members, features.n_same, limit, rng)
    same = members < features.n_same
    columns = np.concatenate(
        [tried_columns, features.n_raw + tried_columns, 2 * features.n_raw + np.arange(features.n_learned)]
    )
    mass = features.weight[members].astype(np.float64)
    mass = np.where(same, mass / mass[same].sum(), -mass / mass[~same].sum())
    return best_region(features.of(members, tried_columns), mass, columns, rng)


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


def best_region(f: Float32, mass: Float64, columns: Int64, rng: np.random.Generator) -> Region | None:
    """The tree of greatest Lambda; None where no border parts the pairs.

    Parameters
    ----------
    f : (n, m) features of pairs. mass : (n,) signed, sums to 0.
    columns : (m,) what the features are called in the region.
    rng : draws features where there are more than `MOST_BORDERS` has two borders for.
    """
    m = f.shape[1]
    features = (
        np.arange(m) if 2 * m <= MOST_BORDERS else np.sort(rng.choice(m, MOST_BORDERS // 2, replace=False))
    )
    owners, borders = _grid(f, features)
    if not owners.size:
        return None
    low = (f[:, owners] <= borders).astype(np.float32)
    signed = mass.astype(np.float32)
    # One thread: sums, and with them ties, must not depend on how many there are.
    with one_blas_thread():
        joint = ((low * signed[:, None]).T @ low).astype(np.float64)
        marginal, total = low.T.astype(np.float64) @ mass, float(mass.sum())
    above = marginal[None, :] - joint
    below_sum = np.maximum(joint, 0.0) + np.maximum(marginal[:, None] - joint, 0.0)
    above_sum = np.maximum(above, 0.0) + np.maximum(total - marginal[:, None] - above, 0.0)
    inner = below_sum.argmax(axis=1), above_sum.argmax(axis=1)
    borders_range = np.arange(marginal.size)
    root = int((below_sum[borders_range, inner[0]] + above_sum[borders_range, inner[1]]).argmax())
    a, b = int(inner[0][root]), int(inner[1][root])
    masses = (
        (joint[root, a], marginal[root] - joint[root, a]),
        (above[root, b], total - marginal[root] - above[root, b]),
    )
    sides = [[LEFT if value > 0 else RIGHT for value in leaves] for leaves in masses]
    if len({*sides[0], *sides[1]}) == 1:
        return None
    nodes, children = [root], []
    for border, leaves in zip((a, b), sides, strict=True):
        # A node whose children go the same way decides nothing.
        children.append(leaves[0] if leaves[0] == leaves[1] else len(nodes))
        if leaves[0] != leaves[1]:
            nodes.append(border)
    ends = [leaves for leaves in sides if leaves[0] != leaves[1]]
    return Region(
        features=columns[owners[nodes]].astype(np.int32),
        thresholds=borders[nodes].astype(np.float32),
        low=(children[0], *(leaves[0] for leaves in ends)),
        high=(children[1], *(leaves[1] for leaves in ends)),
    )


def _grid(f: Float32, features: Int64) -> tuple[Int64, Float32]:
    """Borders at quantiles of each feature: whose each is, and its value, at most which a pair is low."""
    levels = min(MOST_LEVELS, max(2, MOST_BORDERS // max(features.size, 1)))
    owners, borders = [], []
    for feature in features:
        ascending = np.sort(f[:, feature])
        values = np.unique(ascending[np.linspace(0, ascending.size - 1, levels + 2).astype(np.int64)[1:-1]])
        # A border at the largest value parts nothing. Adding 0 rids it of a negative zero.
        values = values[values < ascending[-1]] + np.float32(0.0)
        owners.append(np.full(values.size, feature))
        borders.append(values)
    if not owners:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
    return np.concatenate(owners).astype(np.int64), np.concatenate(borders).astype(np.float32)
