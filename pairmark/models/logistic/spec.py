"""The logistic similarity, for the registry."""

from __future__ import annotations

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.logistic.estimator import SimilarityLogistic

LOGISTIC = LearnerSpec(
    kind="similarity-logistic",
    title="Logistic regression on differences of features; for rows of words and n-grams, and for listed pairs",
    estimator=SimilarityLogistic,
    capabilities=frozenset({"similarity", "match", "search"}),
    accepts_sparse=True,
)
