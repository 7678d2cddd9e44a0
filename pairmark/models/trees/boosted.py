"""Boosted trees on features of rows; missing features are values of their own."""

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import expit

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.progress import report
from pairmark.models.core.state import Array, Fact, refuse, require
from pairmark.models.trees import kernels

Nodes = tuple[NDArray[Any], ...]
"""Of one tree: features, bins, sides of missing values, children and values."""

_SAMPLE = 200_000
_MANY = 1_024
"""Rows from which on features that all of them lack are worth taking out of the trees."""
_REPORT_EVERY = 10


class BoostedTrees(NamedTuple):
    """Fitted trees, node after node.

    Attributes
    ----------
    roots : (T,) int64 first node of each tree. bias : margin that boosting begins with.
    features : (N,) int32, -1 at leaves. thresholds : (N,) float32, to the low child up to there.
    low_missing : (N,) uint8, whether missing values go to the low child.
    children : (N,) int64, the low child; the high one follows it. values : (N,) float64 of every node.
    """

    roots: Annotated[Int64, Array(shape=("trees",), low=0, order="rising")]
    bias: Annotated[float, Fact(), Field(ge=-1e6, le=1e6)]
    features: Annotated[NDArray[np.int32], Array(shape=("nodes",), low=-1, below="comparators")]
    thresholds: Annotated[Float32, Array(shape=("nodes",))]
    low_missing: Annotated[NDArray[np.uint8], Array(shape=("nodes",), high=1)]
    children: Annotated[Int64, Array(shape=("nodes",), low=0)]
    values: Annotated[Float64, Array(shape=("nodes",), low=-1e6, high=1e6)]

    def score(self, features: Float32) -> Float32:
        """Chance that each pair is the same, (n,) float32."""
        out, trees = np.empty(features.shape[0], dtype=np.float32), self
        if len(features) >= _MANY:
            is_missing: Bool = np.logical_and.reduce(np.isnan(features), axis=0)
            trees = self._without(is_missing) if is_missing.any() else self
        kernels.score(np.ascontiguousarray(features), *trees, out)
        return out

    def _without(self, is_missing: Bool) -> "BoostedTrees":
        """Trees that score rows which all lack some features, (m,), to the same bit: without the splits by these."""
        is_split = self.features >= 0
        is_gone = is_split & is_missing[self.features]
        onward = np.where(is_gone, self.children + (self.low_missing == 0), np.arange(is_split.size))
        while (further := onward[onward]).tobytes() != onward.tobytes():
            onward = further
        level, levels = onward[self.roots], []
        while level.size:
            levels.append(level)
            children = self.children[level[is_split[level]]]
            level = onward[np.stack([children, children + 1], axis=1)].ravel()
        nodes = np.concatenate(levels)
        # Level by level, the two children of each node that is split come after all of the roots.
        children = np.where(is_split[nodes], self.roots.size - 2 + 2 * np.cumsum(is_split[nodes]), 0)
        return self._replace(
            roots=np.arange(self.roots.size),
            features=self.features[nodes],
            thresholds=self.thresholds[nodes],
            low_missing=self.low_missing[nodes],
            children=children,
            values=self.values[nodes],
        )

    def completed(self, depth: int) -> tuple[NDArray[np.int32], Float32, Float64]:
        """Features, thresholds and values of trees of one depth, every node in its place: the children of node k are
        2 k + 1 and 2 k + 2. Nodes that are not split send everything low.

        Returns
        -------
        (T, 2^depth - 1) int32 and float32, and (T, 2^depth) float64, of the leaves.
        """
        nodes = self.roots[:, None]
        levels = []
        for _ in range(depth):
            split, low = self.features[nodes] >= 0, self.children[nodes]
            threshold = np.where(split, self.thresholds[nodes], np.finfo(np.float32).max)
            levels.append((np.where(split, self.features[nodes], 0), threshold))
            both = np.where(split, low, nodes), np.where(split, low + 1, nodes)
            nodes = np.stack(both, axis=2).reshape(nodes.shape[0], -1)
        features, thresholds = (np.hstack(part) for part in zip(*levels, strict=True))
        return features.astype(np.int32), thresholds.astype(np.float32), self.values[nodes]

    def contributions(self, features: Float32) -> Float64:
        """What each feature adds to one pair's score, (m + 1,); the last is what every pair begins with.

        What the margin adds to the chance is shared out as its steps share out the margin.
        """
        nodes = self.roots.copy()
        steps = np.zeros(features.size)
        while (inner := np.flatnonzero(self.features[nodes] >= 0)).size:
            parents = nodes[inner]
            tested = self.features[parents]
            value = features[tested]
            goes_low = np.where(
                np.isnan(value), self.low_missing[parents] == 1, value <= self.thresholds[parents]
            )
            nodes[inner] = self.children[parents] + ~goes_low
            np.add.at(steps, tested, self.values[nodes[inner]] - self.values[parents])
        begin = self.bias + self.values[self.roots].sum()
        start, end = expit(begin), expit(begin + steps.sum())
        return np.append(steps * (end - start) / (steps.sum() or 1.0), start)

    def relate(self, prefix: str) -> None:
        """Refuse trees whose nodes lead out of their tree, or back."""
        roots, features, children = self.roots, self.features, self.children
        n = features.size
        if not roots.size or roots[0] != 0 or roots[-1] >= n:
            ends_at = f"begin at {roots[0]} and end at {roots[-1]}" if roots.size else "are none"
            raise refuse(f"{prefix}roots", 0, ends_at, f"0, and less than {n} nodes")
        split = features >= 0
        ends = np.append(roots[1:], n)
        end = ends[np.searchsorted(roots, np.arange(n), side="right") - 1]
        # A child comes after its node: every way ends.
        good = ~split | ((children > np.arange(n)) & (children < end - 1))
        require(np.asarray(good), f"{prefix}children", children, "two nodes further on in the same tree")


class TreeSettings(NamedTuple):
    """How trees are grown: see `kernels.grow`; and the share of features that each tree tries."""

    n_trees: int
    learning_rate: float
    max_depth: int
    least_weight: float = 1.0
    ridge: float = 5.0
    tried_share: float = 0.15


def fit_trees(
    features: Float32,
    same: Bool,
    weight: Float64,
    settings: TreeSettings,
    random: np.random.Generator,
    margin: Float64 | None = None,
    directions: Float64 | None = None,
) -> BoostedTrees:
    """Grow trees.

    Parameters
    ----------
    features : (n, m) float32, NaN where missing. same : (n,). weight : (n,) of mean about 1.
    margin : (n,) what boosting begins with, row by row; None: the odds of all.
    directions : (m,) 1 for features that may only raise a score as they rise, -1 for those that may only lower it, else
        0; None: no feature is bound.
    """
    n, m = features.shape
    borders = _borders(features, random)
    codes = np.empty((n, m), dtype=np.uint8)
    for f in range(m):
        codes[:, f] = np.searchsorted(borders[f], features[:, f])
    codes[np.isnan(features)] = kernels.MISSING
    target = same.astype(np.float64)
    base = float(np.average(target, weights=weight))
    bias = float(np.log(base / (1 - base))) if 0 < base < 1 else (10.0 if base else -10.0)
    bound = np.zeros(m) if directions is None else directions
    margin = np.full(n, bias) if margin is None else margin.copy()
    n_tried = min(m, max(4, round(settings.tried_share * m)))
    trees: list[Nodes] = []
    leaves = np.empty(n)
    room, n_waiting = min(2 ** (settings.max_depth + 1), 2 * n + 1), 2 * settings.max_depth + 4
    # Memory of `kernels.grow`, which takes longer to compile where it allocates.
    memory = (
        np.empty((n_waiting, 4), dtype=np.int64), np.empty((n_waiting, 2)), np.empty((n_tried, kernels.BINS, 2)),
    )  # fmt: skip
    for tree in range(settings.n_trees):
        chance = expit(margin)
        g, h = weight * (chance - target), np.maximum(weight * chance * (1.0 - chance), 1e-12)
        columns = random.permutation(m)[:n_tried].astype(np.int64)
        nodes = (
            np.empty(room, dtype=np.int32), np.zeros(room, dtype=np.int32), np.zeros(room, dtype=np.uint8),
            np.zeros(room, dtype=np.int64), np.empty(room),
        )  # fmt: skip
        limits = settings.max_depth, settings.least_weight, settings.ridge
        size = kernels.grow(codes, g, h, np.arange(n), *limits, bound, columns, leaves, *memory, *nodes)
        trees.append(tuple(array[:size] for array in nodes))
        trees[-1][-1][:] *= settings.learning_rate
        margin += settings.learning_rate * leaves
        if tree % _REPORT_EVERY == 0:
            report(tree / settings.n_trees, f"growing trees: {tree} of {settings.n_trees}")
    return _end_to_end(trees, borders, bias)


def _end_to_end(trees: list[Nodes], borders: Float32, bias: float) -> BoostedTrees:
    """Trees in bins as trees in values; numbers of nodes in a tree become numbers in the whole."""
    sizes = [tree[0].size for tree in trees]
    roots = np.cumsum([0, *sizes], dtype=np.int64)[:-1]
    features, bins, low_missing, children, values = map(np.concatenate, zip(*trees, strict=True))
    split = features >= 0
    padded = np.hstack([borders, np.full((borders.shape[0], 1), np.inf, dtype=np.float32)])
    thresholds = np.where(split, padded[np.maximum(features, 0), bins], 0)
    # A border above all values is the greatest number.
    thresholds = np.minimum(thresholds, np.finfo(np.float32).max).astype(np.float32)
    children = np.where(split, children + np.repeat(roots, sizes), 0)
    return BoostedTrees(roots, bias, features, thresholds, low_missing, children, values)


def _borders(features: Float32, random: np.random.Generator) -> Float32:
    """(m, BINS - 2) borders between the bins of each feature: halfway between even quantiles of its values."""
    n, m = features.shape
    rows = random.permutation(n)[:_SAMPLE] if n > _SAMPLE else slice(None)
    borders = np.full((m, kernels.BINS - 2), np.inf, dtype=np.float32)
    for f in range(m):
        values = features[rows, f]
        values = np.sort(values[~np.isnan(values)])
        if not values.size:
            continue
        distinct = np.unique(values)
        if distinct.size > kernels.BINS - 1:
            at = np.linspace(0, values.size - 1, kernels.BINS - 1).round().astype(np.int64)
            distinct = np.unique(values[at])
        middle = ((distinct[1:].astype(np.float64) + distinct[:-1]) / 2).astype(np.float32)
        # Where no number lies between, the lower value itself is the border.
        middle = np.where((middle >= distinct[:-1]) & (middle < distinct[1:]), middle, distinct[:-1])
        borders[f, : middle.size] = middle
    return borders
