"""What each feature contributes to a pair's log-odds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pairmark.models.core.contributions import by_feature
from pairmark.models.core.inputs import feature_names_of
from pairmark.models.logistic.learning import LogisticWeights
from pairmark.models.logistic.rows import PreparedRows, RowPreparation


def contributions(
    estimator: Any,
    rows: RowPreparation,
    weights: LogisticWeights,
    pair: tuple[PreparedRows, PreparedRows],
    score: float,
    feature_names: Sequence[str] | None,
) -> dict[str, Any]:
    """See `SimilarityLogistic.explain`: ``feature``, its ``left`` and ``right`` value as compared, ``contribution``."""
    d = rows.scale.size
    a, b = (_dense(side)[:d].astype(np.float64) for side in pair)
    _, cosine_weight, plain, _, _ = weights.terms
    scale = pair[0].tails[0, 0] * pair[1].tails[0, 0]
    parts = weights.weights[:d] * np.abs(a - b) + (cosine_weight + plain * rows.plain[:d] * scale) * a * b
    features, total = by_feature(feature_names_of(estimator, feature_names), a, b, parts)
    return {"score": score, "rows": rows.kind, "features": features, "rest": score - total}


def _dense(rows: PreparedRows) -> Any:
    values = rows.values
    return values.toarray()[0] if hasattr(values, "toarray") else values[0]
