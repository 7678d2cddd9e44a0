"""Fitted trees and forests as named arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from itertools import pairwise
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
from pairmark.models.similarity.splits import splits_of
from pairmark.models.similarity.trees import Aggregation, Tree

SCHEMA = StateSchema(
    facts=SimilarityFacts, layout=layout, relations=(require_cells, require_nodes, require_learned)
)


class TreesState(Stateful):
    """Arrays of all trees end to end, with where each begins."""

    leaf_rank: Any
    pair_features: PairFeatures | Literal["auto"] | None
    pair_features_: PairFeatures
    trees_: list[Tree]
    learned_: LearnedFeatures | None

    @abstractmethod
    def _finish(self) -> None: ...

    def to_state(self) -> State:
        """Arrays of all trees end to end, with where each begins."""
        trees = self.trees_
        node_starts = np.cumsum([0, *(len(tree.splits) for tree in trees)], dtype=np.int64)
        splits = type(trees[0].splits).joined([tree.splits for tree in trees])
        arrays: dict[str, NDArray[Any]] = splits.to_state(node_starts)
        for name in ("node_low", "node_high", "cells"):
            arrays[name] = np.concatenate([getattr(tree, name) for tree in trees])
        arrays["node_starts"] = node_starts
        arrays["cell_starts"] = np.cumsum([0, *(tree.cells.shape[0] for tree in trees)], dtype=np.int64)
        meta: dict[str, Any] = {"pair_features": self.pair_features_}
        if self.learned_ is not None:
            learned, meta["learned"] = self.learned_.to_state()
            arrays.update(learned)
        return arrays, meta

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """The estimator, fitted with what `to_state` gave."""
        kind = splits_of(self.leaf_rank)
        nodes = [slice(*ends) for ends in pairwise(arrays["node_starts"].tolist())]
        cells = [slice(*ends) for ends in pairwise(arrays["cell_starts"].tolist())]
        self.trees_ = [
            Tree(
                cells=arrays["cells"][its_cells],
                splits=kind.from_state(arrays, its_nodes, number),
                node_low=arrays["node_low"][its_nodes],
                node_high=arrays["node_high"][its_nodes],
            )
            for number, (its_nodes, its_cells) in enumerate(zip(nodes, cells, strict=True))
        ]
        learned = meta.get("learned")
        # Artefacts from before there was a choice hold what was asked for.
        self.pair_features_ = meta.get("pair_features") or self.pair_features  # type: ignore[assignment]
        self.learned_ = (
            None if learned is None else LearnedFeatures.from_state(self.pair_features_, arrays, learned)
        )
        self._restore(arrays, meta)
        self._finish()
        return self

    def _restore(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """What a subclass has beside trees."""


class ForestState(TreesState):
    """Trees, and how their leaves are read."""

    aggregation: Aggregation
    aggregation_: Aggregation

    def to_state(self) -> State:
        """Trees, and how their leaves are read."""
        arrays, meta = super().to_state()
        meta["aggregation"] = self.aggregation_
        return arrays, meta

    def _restore(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> None:
        # Artefacts from before there was a choice hold what was asked for.
        self.aggregation_ = meta.get("aggregation") or self.aggregation
