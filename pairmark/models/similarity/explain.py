"""Explanations: a tree as data, and the path of a pair."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pairmark.models.core.arrays import Float32
from pairmark.models.pairs.sampling import PairMap, pair_features
from pairmark.models.similarity.kernels import layout
from pairmark.models.similarity.trees import HALF_NAMES, Tree


@dataclass(frozen=True, kw_only=True)
class PairWords:
    """The features of a pair by number: their values and their names.

    Attributes
    ----------
    names : (d,) names of the points' features.
    """

    names: Sequence[str]
    pair_map: PairMap

    def values(self, left: Float32, right: Float32) -> Float32:
        """All features of one pair, (d,) each side."""
        return np.asarray(pair_features(left[None, :], right[None, :], self.pair_map)[0])

    def name(self, feature: int) -> dict[str, str]:
        """``feature`` and ``map`` of a pair feature."""
        half, place = divmod(feature, len(self.names))
        return {"feature": self.names[place], "map": HALF_NAMES[self.pair_map][half]}


def path(tree: Tree, left: Float32, right: Float32, words: PairWords) -> dict[str, Any]:
    """The decisions that take one pair, (d,) each, to its leaf.

    Returns
    -------
    ``path`` : one entry a decision: ``feature``, ``map`` (|x - x'| or x + x'), ``value`` and ``threshold`` in the
        data's units, ``above`` and the ``cell`` (depth, position) being split.
    ``cell`` : the leaf reached: depth, position, counts, ``fpr`` and ``tpr`` of the training pairs in it.
    """
    features = words.values(left, right)
    visits = list(_visits(tree, features))
    steps = [
        {
            **_test(tree, node, words),
            "value": float(features[tree.features[node]]),
            "above": above,
            "cell": tree.cells[cell, [layout.CELL_DEPTH, layout.CELL_POSITION]].tolist(),
        }
        for cell, nodes, _ in visits
        for node, above in nodes
    ]
    return {"path": steps, "cell": _cell(tree, visits[-1][2] if visits else 0)}


def _visits(tree: Tree, features: Float32) -> Iterator[tuple[int, list[tuple[int, bool]], int]]:
    """Of each cell on a pair's way: the nodes met, each with whether the pair is above, and the child cell reached."""
    cell = 0
    while (node := int(tree.cells[cell, layout.CELL_NODE])) >= 0:
        nodes = []
        while node >= 0:
            above = bool(features[tree.features[node]] > tree.thresholds[node])
            nodes.append((node, above))
            node = int(tree.node_high[node] if above else tree.node_low[node])
        yield cell, nodes, -1 - node
        cell = -1 - node


def forest(trees: Sequence[Tree], left: Float32, right: Float32, words: PairWords) -> dict[str, Any]:
    """What the trees of a forest say of one pair, (d,) each.

    Returns
    -------
    ``trees`` : each tree's leaf.
    ``features`` : pair features by how much they moved the score, largest first: ``effect`` is the mean over trees of
        +-2^-(j+1) for each split cell on the path (half the score's range left at depth j, up when the pair goes
        left), shared evenly by the decisions taken in it; with the number of ``decisions`` and the pair's ``value``.
    """
    values = words.values(left, right)
    effect = np.zeros(values.size)
    decisions = np.zeros(values.size, dtype=np.int64)
    leaves = []
    for tree in trees:
        leaf = 0
        for cell, nodes, leaf in _visits(tree, values):
            up = leaf == tree.cells[cell, layout.CELL_LEFT]
            half_left = 2.0 ** -(int(tree.cells[cell, layout.CELL_DEPTH]) + 1)
            for at, _ in nodes:
                effect[tree.features[at]] += (half_left if up else -half_left) / len(nodes)
                decisions[tree.features[at]] += 1
        leaves.append(_cell(tree, leaf))
    order = [int(i) for i in np.argsort(-np.abs(effect), kind="stable") if decisions[i]]
    return {
        "features": [
            {
                **words.name(i),
                "value": float(values[i]),
                "effect": float(effect[i] / len(trees)),
                "decisions": int(decisions[i]),
            }
            for i in order
        ],
        "trees": leaves,
    }


def tree_data(tree: Tree, words: PairWords, *, depth: int) -> dict[str, Any]:
    """A tree as JSON-able lists.

    Returns
    -------
    ``cells`` : depth, position, ``same`` and ``different`` (weights of training pairs), ``tpr`` and ``fpr`` (their
        shares of all), ``score`` of a leaf, and for a split cell ``left``, ``right`` (cell numbers) and ``split``
        (number of the first of its nodes).
    ``nodes`` : feature, map, threshold; ``low`` and ``high`` are ``{"node": n}`` or ``{"cell": c}``.
    """
    scores = dict(zip(tree.leaves.tolist(), tree.leaf_scores(depth).tolist(), strict=True))
    parts = {"left": layout.CELL_LEFT, "right": layout.CELL_RIGHT, "split": layout.CELL_NODE}
    cells = [
        _cell(tree, number)
        | (
            {"score": scores[number]}
            if number in scores
            else {name: int(row[field]) for name, field in parts.items()}
        )
        for number, row in enumerate(tree.cells)
    ]
    nodes = [
        {
            **_test(tree, node, words),
            "low": _target(int(tree.node_low[node])),
            "high": _target(int(tree.node_high[node])),
        }
        for node in range(tree.features.size)
    ]
    return {"max_depth": depth, "auc": tree.auc(), "cells": cells, "nodes": nodes}


def _target(child: int) -> dict[str, int]:
    return {"node": child} if child >= 0 else {"cell": -1 - child}


def _test(tree: Tree, node: int, words: PairWords) -> dict[str, Any]:
    return {**words.name(int(tree.features[node])), "threshold": float(tree.thresholds[node])}


def _cell(tree: Tree, number: int) -> dict[str, Any]:
    row, root = tree.cells[number], tree.cells[0]
    same, different = int(row[layout.CELL_SAME]), int(row[layout.CELL_DIFFERENT])
    return {
        "depth": int(row[layout.CELL_DEPTH]),
        "position": int(row[layout.CELL_POSITION]),
        "same": same,
        "different": different,
        "tpr": same / max(int(root[layout.CELL_SAME]), 1),
        "fpr": different / max(int(root[layout.CELL_DIFFERENT]), 1),
    }
