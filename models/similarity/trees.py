"""Similarity trees as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pairmark.models.similarity.kernels import layout
from pairmark.models.similarity.splits import Splits

Aggregation = Literal["rank", "log-odds"]
PAIR_MAPS: dict[str, int] = {
    "diff-sum": layout.DIFF_SUM,
    "max-min": layout.MAX_MIN,
    "products": layout.PRODUCTS,
}
HALF_NAMES = {
    "diff-sum": ("|x - x'|", "x + x'"),
    "max-min": ("max(x, x')", "min(x, x')"),
    "products": ("x x'", "x + x'"),
}


class RocKnots(NamedTuple):
    """A broken-line ROC: false and true positive rates at its knots."""

    fpr: NDArray[np.float64]
    tpr: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Tree:
    """One oriented tree: cells, and the nodes that lead from a cell to its two children.

    Attributes
    ----------
    cells : (n_cells, 7) int64: depth j, position k from the left, first node (-1: none, a leaf), weight of same and
        of different training pairs, left and right child cell (-1: none).
    splits : what each node tests.
    node_low, node_high : (n_nodes,) int32: where a pair goes whose value is at most, or above, the threshold;
        a node (>= 0) or ``-1 - cell``.
    """

    cells: NDArray[np.int64]
    splits: Splits
    node_low: NDArray[np.int32]
    node_high: NDArray[np.int32]

    @property
    def leaves(self) -> NDArray[np.int64]:
        """Terminal cells, from left (most similar) to right."""
        terminal = np.flatnonzero(self.cells[:, layout.CELL_NODE] < 0)
        depth, position = (
            self.cells[terminal, layout.CELL_DEPTH],
            self.cells[terminal, layout.CELL_POSITION],
        )
        return terminal[np.argsort(position << (depth.max() - depth), kind="stable")]

    def leaf_scores(self, depth: int) -> NDArray[np.float64]:
        """``2^J (1 - k / 2^j)`` of each leaf (Clemencon & Vogel, section 2.2 and eq. 4), J = ``depth``."""
        leaves = self.cells[self.leaves]
        return 2.0**depth - leaves[:, layout.CELL_POSITION] * 2.0 ** (depth - leaves[:, layout.CELL_DEPTH])

    def leaf_log_odds(self) -> NDArray[np.float64]:
        """Log of F+ over F- of each leaf, with half a pair added to either side of it."""
        leaves, root = self.cells[self.leaves], self.cells[0]
        same, other = leaves[:, layout.CELL_SAME], leaves[:, layout.CELL_DIFFERENT]
        odds = (
            (same + 0.5)
            / (root[layout.CELL_SAME] + 1.0)
            * (root[layout.CELL_DIFFERENT] + 1.0)
            / (other + 0.5)
        )
        return np.asarray(np.log(odds), dtype=np.float64)

    def roc(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
        split = self.cells[self.cells[:, layout.CELL_NODE] >= 0]
        same, other = (
            float(max(self.cells[0, field], 1)) for field in (layout.CELL_SAME, layout.CELL_DIFFERENT)
        )
        left = self.cells[split[:, layout.CELL_LEFT]]
        gain = (split[:, layout.CELL_DIFFERENT] / other) * (left[:, layout.CELL_SAME] / same) - (
            split[:, layout.CELL_SAME] / same
        ) * (left[:, layout.CELL_DIFFERENT] / other)
        return 0.5 + 0.5 * float(gain.sum())

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The tree as named arrays; see `Splits.has_state`."""
        starts = np.array([0, len(self.splits)])
        nodes: dict[str, NDArray[Any]] = {
            "cells": self.cells,
            "node_low": self.node_low,
            "node_high": self.node_high,
        }
        return nodes | self.splits.to_state(starts)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], kind: type[Splits]) -> Self:
        """The tree of `to_arrays`, by the class of its splits."""
        return cls(
            cells=arrays["cells"],
            splits=kind.from_state(arrays, slice(None), 0),
            node_low=arrays["node_low"],
            node_high=arrays["node_high"],
        )
