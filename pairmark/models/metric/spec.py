"""The metric learner, for the registry."""

from __future__ import annotations

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.metric.estimator import MetricSimilarity

METRIC = LearnerSpec(
    kind="metric",
    title="Metric: cosine, Euclidean and others, optionally whitened within identities; for good embeddings",
    estimator=MetricSimilarity,
    capabilities=frozenset({"similarity", "match", "search", "embed"}),
    accepts_sparse=True,
    retired={"p": ...},
    learns=lambda params: bool(params.get("whiten")),
)
