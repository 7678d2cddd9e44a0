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

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.blas import one_blas_thread
from pairmark.models.similarity.node_splits import AxisSplits, Splits

MOST_BORDERS = 512
"""Borders that are looked at in a cell, of all features together."""
MOST_LEVELS = 64
"""Borders of one pair feature at most."""
MOST_PAIRS = 16_384
"""Pairs of a cell that its region is chosen on; all of them are then parted."""
LEFT, RIGHT = -1, -2
"""Where a node of `Region` sends pairs beside other nodes: to the left or the right child of the cell."""


class Region(NamedTuple):
    """What splits a cell: a tree of up to three nodes; a child is a later node (>= 0), `LEFT` or `RIGHT`."""

    splits: Splits
    low: tuple[int, ...]
    high: tuple[int, ...]

    def left(self, f: Float32) -> Bool:
        """Which pairs go to the left child."""
        at = np.zeros(f.shape[0], dtype=np.int64)
        for node, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            at_node = at == node
            at[at_node] = np.where(self.splits.high(node, f[at_node]), high, low)
        return np.asarray(at == LEFT)


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
    splits = AxisSplits(
        features=columns[owners[nodes]].astype(np.int32), thresholds=borders[nodes].astype(np.float32)
    )
    return Region(
        splits=splits,
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
