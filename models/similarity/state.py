"""Fitted trees and forests as named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.schema import State, Stateful, StateSchema
from pairmark.models.similarity.learned import LearnedFeatures, PairFeatures
from pairmark.models.similarity.schema import (
    SimilarityFacts,
    layout,
    require_cells,
    require_learned,
    require_nodes,
)
from pairmark.models.similarity.trees import STUMP_ARRAYS, Aggregation, RocKnots, Tree

_NODE_ARRAYS = ("node_feature", "node_threshold", "node_low", "node_high")
SCHEMA = StateSchema(
    facts=SimilarityFacts, layout=layout, relations=(require_cells, require_nodes, require_learned)
)


class TreesState(Stateful):
    """Arrays of all trees end to end, with where each begins."""

    leaf_rank: Any
    pair_features: PairFeatures | Literal["auto"]
    pair_features_: PairFeatures
    trees_: list[Tree]
    learned_: LearnedFeatures | None

    def _finish(self) -> None:
        raise NotImplementedError

    def to_state(self) -> State:
        """Arrays of all trees end to end, with where each begins."""
        trees = self.trees_
        arrays: dict[str, NDArray[Any]] = {
            name: np.concatenate([getattr(tree, name) for tree in trees]) for name in _NODE_ARRAYS
        }
        if any(tree.rules for tree in trees):
            raise ValueError(
                f"leaf_rank is a {type(self.leaf_rank).__name__}, whose fitted copies could only be saved as code; "
                "models with leaf_rank 'cart', 'linear' or 'boosting' can be saved"
            )
        if any(tree.planes.shape[0] for tree in trees):
            width = max(tree.planes.shape[1] for tree in trees)
            arrays["planes"] = np.concatenate([tree.planes.reshape(-1, width) for tree in trees])
        if any(tree.stump_counts.size for tree in trees):
            arrays.update(
                {name: np.concatenate([getattr(tree, name) for tree in trees]) for name in STUMP_ARRAYS}
            )
            arrays["stump_starts"] = np.cumsum(
                [0, *(tree.stump_features.size for tree in trees)], dtype=np.int64
            )
        arrays["cells"] = np.concatenate([tree.cells for tree in trees])
        arrays["node_starts"] = np.cumsum([0, *(tree.node_feature.size for tree in trees)], dtype=np.int64)
        arrays["cell_starts"] = np.cumsum([0, *(tree.cells.shape[0] for tree in trees)], dtype=np.int64)
        meta: dict[str, Any] = {"pair_features": self.pair_features_}
        if self.learned_ is not None:
            learned, meta["learned"] = self.learned_.to_state()
            arrays.update(learned)
        return arrays, meta

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """The estimator, fitted with what `to_state` gave."""
        nodes, cells = arrays["node_starts"].tolist(), arrays["cell_starts"].tolist()
        stumps = arrays["stump_starts"].tolist() if "stump_starts" in arrays else []
        self.trees_ = [
            Tree(
                cells=arrays["cells"][cells[t] : cells[t + 1]],
                **{  # type: ignore[arg-type]
                    name: arrays[name][nodes[t] : nodes[t + 1]]
                    for name in (
                        *_NODE_ARRAYS,
                        *(name for name in ("planes", "stump_counts") if name in arrays),
                    )
                },
                **{  # type: ignore[arg-type]
                    name: arrays[name][stumps[t] : stumps[t + 1]] for name in STUMP_ARRAYS[1:] if stumps
                },
            )
            for t in range(len(nodes) - 1)
        ]
        told = meta.get("learned")
        # Artefacts from before there was a choice hold what was asked for.
        self.pair_features_ = meta.get("pair_features") or self.pair_features  # type: ignore[assignment]
        self.learned_ = (
            None if told is None else LearnedFeatures.from_state(self.pair_features_, arrays, told)
        )
        self._restore(arrays, meta)
        self._finish()
        return self

    def _restore(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """What a subclass has beside trees."""


class ForestState(TreesState):
    """Trees, how their leaves are read, and the ROC out of bag."""

    aggregation: Aggregation | Literal["auto"]
    aggregation_: Aggregation
    oob_roc_: RocKnots | None

    def to_state(self) -> State:
        """Trees, how their leaves are read, and the ROC out of bag."""
        arrays, meta = super().to_state()
        meta["aggregation"] = self.aggregation_
        if self.oob_roc_ is not None:
            arrays["oob_fpr"], arrays["oob_tpr"] = self.oob_roc_
        return arrays, meta

    def _restore(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        # Artefacts from before there was a choice hold what was asked for.
        default: Aggregation = "log-odds" if self.aggregation == "auto" else self.aggregation
        self.aggregation_ = meta.get("aggregation") or default
        self.oob_roc_ = RocKnots(arrays["oob_fpr"], arrays["oob_tpr"]) if "oob_fpr" in arrays else None
