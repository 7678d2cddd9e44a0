"""Fitted trees and forests as named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.similarity.estimators import _SimilarityBase
from models.similarity.learned import LearnedFeatures
from models.similarity.trees import Tree
from models.spec import Arrays

_NODE_ARRAYS = ("node_feature", "node_threshold", "node_low", "node_high")


def to_state(estimator: _SimilarityBase) -> tuple[Arrays, dict[str, Any]]:
    """Arrays of all trees end to end, with where each begins."""
    trees = estimator.trees_
    arrays: Arrays = {name: np.concatenate([getattr(tree, name) for tree in trees]) for name in _NODE_ARRAYS}
    arrays["cells"] = np.concatenate([tree.cells for tree in trees])
    arrays["node_starts"] = np.cumsum([0, *(tree.node_feature.size for tree in trees)], dtype=np.int64)
    arrays["cell_starts"] = np.cumsum([0, *(tree.cells.shape[0] for tree in trees)], dtype=np.int64)
    if estimator.learned_ is None:
        return arrays, {}
    learned, meta = estimator.learned_.to_state()
    return {**arrays, **learned}, {"learned": meta}


def from_state(
    estimator: _SimilarityBase, arrays: Mapping[str, np.ndarray[Any, Any]], meta: Mapping[str, Any]
) -> _SimilarityBase:
    """The estimator, fitted with what `to_state` gave."""
    nodes, cells = arrays["node_starts"].tolist(), arrays["cell_starts"].tolist()
    estimator.trees_ = [
        Tree(
            cells=arrays["cells"][cells[t] : cells[t + 1]],
            **{name: arrays[name][nodes[t] : nodes[t + 1]] for name in _NODE_ARRAYS},
        )
        for t in range(len(nodes) - 1)
    ]
    told = meta.get("learned")
    estimator.learned_ = (
        None if told is None else LearnedFeatures.from_state(estimator.pair_features, arrays, told)
    )
    estimator._finish()
    return estimator
