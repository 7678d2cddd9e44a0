"""Similarity trees and forests, for the registry."""

from __future__ import annotations

from models.similarity.estimators import SimilarityForest, SimilarityTree
from models.similarity.params import SimilarityForestParams, SimilarityTreeParams
from models.similarity.state import from_state, to_state
from models.spec import LearnerSpec

TREE = LearnerSpec(
    kind="similarity-tree",
    title="Similarity tree: cells of pairs, ordered from most to least similar; small enough to read",
    estimator=SimilarityTree,
    capabilities=frozenset({"similarity", "match", "search"}),
    params=SimilarityTreeParams,
    to_state=to_state,
    from_state=from_state,
)

FOREST = LearnerSpec(
    kind="similarity-forest",
    title="Similarity forest: the mean of many similarity trees; accurate with little tuning",
    estimator=SimilarityForest,
    capabilities=frozenset({"similarity", "match", "search"}),
    params=SimilarityForestParams,
    to_state=to_state,
    from_state=from_state,
    distributes=True,
)
