"""What each feature contributes to a score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pairmark.models.core.arrays import Float32, Float64
from pairmark.models.core.inputs import by_feature, feature_names_of


def contributions(
    estimator: Any, left: Float32, right: Float32, score: float, feature_names: Sequence[str] | None
) -> dict[str, Any]:
    """Contributions that add up to one pair's score.

    Parameters
    ----------
    left, right : (d,) what `transform` made of the pair.

    Returns
    -------
    ``metric``, ``whitened``, and ``features``, the largest contributions first: ``feature``, its ``left`` and
    ``right`` value as compared (after whitening and scaling, where there is any) and its ``contribution``: the product
    (cosine, correlation, dot), or minus its part of the distance (of ``euclidean`` and ``minkowski`` in proportion to
    the power of the difference; of ``chebyshev`` all on the largest difference). ``rest`` is what all others add.
    """
    parts = _parts(
        estimator.metric, float(estimator.p), left.astype(np.float64), right.astype(np.float64), score
    )
    features, total = by_feature(feature_names_of(estimator, feature_names), left, right, parts)
    return {
        "metric": estimator.metric,
        "whitened": bool(estimator.whiten),
        "features": features,
        "rest": float(parts.sum() - total) if features else 0.0,
    }


def _parts(metric: str, p: float, left: Float64, right: Float64, score: float) -> Float64:
    distance = np.abs(left - right)
    if metric in ("cosine", "correlation", "dot"):
        parts = left * right
    elif metric == "sqeuclidean":
        parts = -(distance**2)
    elif metric == "manhattan":
        parts = -distance
    elif metric == "canberra":
        size = np.abs(left) + np.abs(right)
        parts = -np.divide(distance, size, out=np.zeros_like(distance), where=size > 0)
    elif metric == "hamming":
        parts = -(left != right).astype(np.float64) / left.size
    elif not distance.any():
        parts = np.zeros_like(distance)
    elif metric == "braycurtis":
        parts = -distance / (np.abs(left) + np.abs(right)).sum()
    elif metric == "chebyshev":
        parts = np.zeros_like(distance)
        parts[distance.argmax()] = score
    else:
        power = (distance / distance.max()) ** (p if metric == "minkowski" else 2.0)
        parts = score * power / power.sum()
    return np.asarray(parts, dtype=np.float64)
