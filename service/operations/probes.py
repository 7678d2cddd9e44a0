"""Scores of fixed points, to check that a restored version gives the same scores."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from pairmark.service.store.store import ModelStore

_POINTS = 4


def probe(store: ModelStore, name: str, version: int) -> dict[str, Any]:
    """Load a version and have it answer for points that are always the same: ``sha256`` of the answer's bytes, and
    ``first``, its first number."""
    estimator = store.load(name, version)
    points = np.random.default_rng(0).standard_normal((2, _POINTS, int(estimator.n_features_in_)))
    left, right = points.astype(np.float32)
    if hasattr(estimator, "pair_score"):
        answer = estimator.pair_score(left, right)
    elif hasattr(estimator, "predict_proba"):
        answer = estimator.predict_proba(left)
    else:
        answer = estimator.predict(left)
    numbers = np.ascontiguousarray(answer)
    return {
        "sha256": hashlib.sha256(numbers.tobytes()).hexdigest(),
        "first": float(np.asarray(numbers, dtype=np.float64).flat[0]),
    }
