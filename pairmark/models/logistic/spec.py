"""The logistic similarity, for the registry."""

from __future__ import annotations

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.logistic.estimator import SimilarityLogistic

LOGISTIC = LearnerSpec(
    kind="similarity-logistic",
    title="Logistic regression on differences of features; for rows that are mostly zeros, such as words and n-grams",
    estimator=SimilarityLogistic,
    capabilities=frozenset({"similarity", "match", "search"}),
    accepts_sparse=True,
    retired={"rows": ...},
)
