"""GHOST, for the registry."""

from __future__ import annotations

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.ghost.estimator import Ghost

GHOST = LearnerSpec(
    kind="ghost",
    title="GHOST: a sparse weighting of distances, graph paths and larger sets; selects features and classifies",
    estimator=Ghost,
    capabilities=frozenset({"similarity", "match", "search", "embed", "classify"}),
)
