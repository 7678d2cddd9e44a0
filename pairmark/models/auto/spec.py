"""`similarity-auto`, for the registry."""

from __future__ import annotations

from pairmark.models.auto.estimator import SimilarityAuto
from pairmark.models.core.spec import LearnerSpec

AUTO = LearnerSpec(
    kind="similarity-auto",
    title="Automatic: compares cosine, PLDA, forests and others on held-out people, keeps the simplest of the best",
    estimator=SimilarityAuto,
    capabilities=frozenset({"similarity", "match", "search", "embed"}),
    accepts_sparse=True,
    distributes=True,
)
