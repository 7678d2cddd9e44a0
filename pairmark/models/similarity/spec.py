"""Similarity trees and forests, for the registry."""

from __future__ import annotations

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.similarity.estimators import SimilarityForest, SimilarityTree

TREE = LearnerSpec(
    kind="similarity-tree",
    title="Similarity tree: cells of pairs, ordered from most to least similar; small enough to read",
    estimator=SimilarityTree,
    capabilities=frozenset({"similarity", "match", "search"}),
    retired={"prune": ..., "leaf_rounds": ..., "pair_features": ...},
    renamed={("leaf_rank", "exhaustive"): "cart"},
)

FOREST = LearnerSpec(
    kind="similarity-forest",
    title="Similarity forest: the mean of many similarity trees; accurate with little tuning",
    estimator=SimilarityForest,
    capabilities=frozenset({"similarity", "match", "search"}),
    distributes=True,
    retired={"leaf_rounds": ..., "pair_features": ...},
    renamed={("leaf_rank", "exhaustive"): "cart"},
)
