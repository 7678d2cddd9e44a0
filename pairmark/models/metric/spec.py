"""The metric learner, for the registry."""

from __future__ import annotations

from pairmark.models.core.schema import Array, Loaded, StateSchema
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.metric.estimator import MetricSimilarity


def _layout(loaded: Loaded) -> dict[str, Array]:
    if not loaded.params["whiten"]:
        return {}
    d = loaded.n_features
    return {"mean": Array(kind="float64", shape=(d,)), "whitening": Array(kind="float64", shape=(d, d))}


METRIC = LearnerSpec(
    kind="metric",
    title="Metric: cosine, Euclidean and others, optionally whitened within identities; for good embeddings",
    estimator=MetricSimilarity,
    capabilities=frozenset({"similarity", "match", "search", "embed"}),
    state=StateSchema(layout=_layout),
    accepts_sparse=True,
    learns=lambda params: bool(params.get("whiten")),
)
