"""Similarity trees as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32, Float64, Int32, Int64
from pairmark.models.pairs.sampling import PairMap
from pairmark.models.similarity.kernels import layout

PAIR_MAPS: dict[str, int] = {
    "diff-sum": layout.DIFF_SUM,
    "max-min": layout.MAX_MIN,
}
HALF_NAMES = {
    "diff-sum": ("|x - x'|", "x + x'"),
    "max-min": ("max(x, x')", "min(x, x')"),
}


_NODE_ARRAYS = {
    "node_feature": "features",
    "node_threshold": "thresholds",
    "node_low": "node_low",
    "node_high": "node_high",
}
"""Attributes of a tree with one entry a node, by the names of their arrays in a file."""


class GrowthSettings(NamedTuple):
    """How each tree is grown: parameters of the estimators, and how many features a cell tries."""

    leaf_depth: int
    pair_map: PairMap
    max_depth: int
    n_tried: int


class RocKnots(NamedTuple):
    """A broken-line ROC: false and true positive rates at its knots."""

    fpr: Float64
    tpr: Float64


@dataclass(frozen=True, kw_only=True)
class Tree:
    """One oriented tree: cells, and the nodes that lead from a cell to its two children.

    Attributes
    ----------
    cells : (n_cells, 7) int64: depth j, position k from the left, first node (-1: none, a leaf), weight of same and
        of different training pairs, left and right child cell (-1: none).
    features : (n_nodes,) int32, the pair feature that each node tests: a feature, plus the number of features for the
        pair map's second half, or from twice that number on a learned one.
    thresholds : (n_nodes,) float32.
    node_low, node_high : (n_nodes,) int32: where a pair goes whose value is at most, or above, the threshold;
        a node (>= 0) or ``-1 - cell``.
    """

    cells: Int64
    features: Int32
    thresholds: Float32
    node_low: Int32
    node_high: Int32

    @property
    def leaves(self) -> Int64:
        """Terminal cells, from left (most similar) to right."""
        terminal = np.flatnonzero(self.cells[:, layout.CELL_NODE] < 0)
        depth, position = (
            self.cells[terminal, layout.CELL_DEPTH],
            self.cells[terminal, layout.CELL_POSITION],
        )
        return terminal[np.argsort(position << (depth.max() - depth), kind="stable")]

    def leaf_scores(self, depth: int) -> Float64:
        """``2^J (1 - k / 2^j)`` of each leaf (Clemencon & Vogel, section 2.2 and eq. 4), J = ``depth``."""
        leaves = self.cells[self.leaves]
        return 2.0**depth - leaves[:, layout.CELL_POSITION] * 2.0 ** (depth - leaves[:, layout.CELL_DEPTH])

    def leaf_log_odds(self) -> Float64:
        """Log of F+ over F- of each leaf, with half a pair added to either side of it."""
        leaves, root = self.cells[self.leaves], self.cells[0]
        same, different = leaves[:, layout.CELL_SAME], leaves[:, layout.CELL_DIFFERENT]
        odds = (
            (same + 0.5)
            / (root[layout.CELL_SAME] + 1.0)
            * (root[layout.CELL_DIFFERENT] + 1.0)
            / (different + 0.5)
        )
        return np.asarray(np.log(odds), dtype=np.float64)

    def roc(self) -> tuple[Float64, Float64]:
        """Knots (alpha, beta) = cumulated (F-, F+) of the leaves from left to right, from (0, 0) to (1, 1).

        The chance line where the training pairs were of one kind.
        """
        leaves, root = self.cells[self.leaves], self.cells[0]
        if not root[layout.CELL_SAME] or not root[layout.CELL_DIFFERENT]:
            return np.array([0.0, 1.0]), np.array([0.0, 1.0])
        below = np.cumsum(leaves[:, [layout.CELL_DIFFERENT, layout.CELL_SAME]], axis=0)
        totals = np.maximum(root[[layout.CELL_DIFFERENT, layout.CELL_SAME]], 1)
        knots = np.vstack([np.zeros((1, 2)), below / totals])
        return knots[:, 0], knots[:, 1]

    def auc(self) -> float:
        """``1/2 + 1/2`` of the sum of Lambda over every split cell: the area under the broken line of `roc`."""
        return 0.5 + float(self.gains().sum())

    def gains(self) -> Float64:
        """What each split cell adds to the AUC, (n_cells,), half its Lambda; 0 for leaves."""
        counts = self.cells[:, [layout.CELL_SAME, layout.CELL_DIFFERENT]].astype(np.float64)
        rates = counts / np.maximum(counts[0], 1e-300)
        out = np.zeros(self.cells.shape[0])
        split = np.flatnonzero(self.cells[:, layout.CELL_NODE] >= 0)
        left = self.cells[split, layout.CELL_LEFT]
        out[split] = 0.5 * (rates[split, 1] * rates[left, 0] - rates[split, 0] * rates[left, 1])
        return out

    @property
    def cell_of_node(self) -> Int64:
        """(n_nodes,) the cell that each node splits; the nodes of a cell follow one another."""
        starts = self.cells[:, layout.CELL_NODE]
        split = np.flatnonzero(starts >= 0)
        split = split[np.argsort(starts[split])]
        return np.repeat(split, np.diff(np.append(starts[split], self.features.size)))


def joined_arrays(trees: Sequence[Tree]) -> dict[str, NDArray[Any]]:
    """Named arrays of all trees, at least one, end to end, with where each begins."""
    arrays = {
        name: np.concatenate([getattr(tree, attribute) for tree in trees])
        for name, attribute in _NODE_ARRAYS.items()
    }
    arrays["cells"] = np.concatenate([tree.cells for tree in trees])
    arrays["node_starts"] = np.cumsum([0, *(tree.features.size for tree in trees)], dtype=np.int64)
    arrays["cell_starts"] = np.cumsum([0, *(tree.cells.shape[0] for tree in trees)], dtype=np.int64)
    return arrays


def parted_trees(arrays: Mapping[str, NDArray[Any]]) -> list[Tree]:
    """The trees of `joined_arrays`."""
    nodes = [slice(*ends) for ends in pairwise(arrays["node_starts"].tolist())]
    cells = [slice(*ends) for ends in pairwise(arrays["cell_starts"].tolist())]
    return [
        Tree(
            cells=arrays["cells"][its_cells],
            **{attribute: arrays[name][its_nodes] for name, attribute in _NODE_ARRAYS.items()},
        )
        for its_nodes, its_cells in zip(nodes, cells, strict=True)
    ]
