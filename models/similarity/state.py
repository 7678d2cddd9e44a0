"""Fitted trees and forests as named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pairmark.models.core.spec import Arrays
from pairmark.models.similarity.estimators import RocKnots, SimilarityForest, _SimilarityBase
from pairmark.models.similarity.learned import LearnedFeatures
from pairmark.models.similarity.trees import STUMP_ARRAYS, Tree

_NODE_ARRAYS = ("node_feature", "node_threshold", "node_low", "node_high")


def to_state(estimator: _SimilarityBase) -> tuple[Arrays, dict[str, Any]]:
    """Arrays of all trees end to end, with where each begins."""
    trees = estimator.trees_
    arrays: Arrays = {name: np.concatenate([getattr(tree, name) for tree in trees]) for name in _NODE_ARRAYS}
    if any(tree.rules for tree in trees):
        raise ValueError(
            f"leaf_rank is a {type(estimator.leaf_rank).__name__}, whose fitted copies could only be saved as code; "
            "models with leaf_rank 'cart', 'linear' or 'boosting' can be saved"
        )
    if any(tree.planes.shape[0] for tree in trees):
        width = max(tree.planes.shape[1] for tree in trees)
        arrays["planes"] = np.concatenate([tree.planes.reshape(-1, width) for tree in trees])
    if any(tree.stump_counts.size for tree in trees):
        arrays.update(
            {name: np.concatenate([getattr(tree, name) for tree in trees]) for name in STUMP_ARRAYS}
        )
        arrays["stump_starts"] = np.cumsum([0, *(tree.stump_features.size for tree in trees)], dtype=np.int64)
    arrays["cells"] = np.concatenate([tree.cells for tree in trees])
    arrays["node_starts"] = np.cumsum([0, *(tree.node_feature.size for tree in trees)], dtype=np.int64)
    arrays["cell_starts"] = np.cumsum([0, *(tree.cells.shape[0] for tree in trees)], dtype=np.int64)
    meta: dict[str, Any] = {"pair_features": estimator.pair_features_}
    if estimator.learned_ is not None:
        learned, meta["learned"] = estimator.learned_.to_state()
        arrays.update(learned)
    if isinstance(estimator, SimilarityForest):
        meta["aggregation"] = estimator.aggregation_
        if estimator.oob_roc_ is not None:
            arrays["oob_fpr"], arrays["oob_tpr"] = estimator.oob_roc_
    return arrays, meta


def from_state(
    estimator: _SimilarityBase, arrays: Mapping[str, np.ndarray[Any, Any]], meta: Mapping[str, Any]
) -> _SimilarityBase:
    """The estimator, fitted with what `to_state` gave."""
    nodes, cells = arrays["node_starts"].tolist(), arrays["cell_starts"].tolist()
    stumps = arrays["stump_starts"].tolist() if "stump_starts" in arrays else []
    estimator.trees_ = [
        Tree(
            cells=arrays["cells"][cells[t] : cells[t + 1]],
            **{  # type: ignore[arg-type]
                name: arrays[name][nodes[t] : nodes[t + 1]]
                for name in (*_NODE_ARRAYS, *(name for name in ("planes", "stump_counts") if name in arrays))
            },
            **{  # type: ignore[arg-type]
                name: arrays[name][stumps[t] : stumps[t + 1]] for name in STUMP_ARRAYS[1:] if stumps
            },
        )
        for t in range(len(nodes) - 1)
    ]
    told = meta.get("learned")
    # Artefacts from before there was a choice hold what was asked for.
    estimator.pair_features_ = meta.get("pair_features", estimator.pair_features)
    estimator.learned_ = (
        None if told is None else LearnedFeatures.from_state(estimator.pair_features_, arrays, told)
    )
    if isinstance(estimator, SimilarityForest):
        # Artefacts from before there was a choice hold what was asked for.
        default = "log-odds" if estimator.aggregation == "auto" else estimator.aggregation
        estimator.aggregation_ = meta.get("aggregation", default)
        estimator.oob_roc_ = RocKnots(arrays["oob_fpr"], arrays["oob_tpr"]) if "oob_fpr" in arrays else None
    estimator._finish()
    return estimator
