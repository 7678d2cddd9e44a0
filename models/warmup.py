"""Compile every kernel ahead of the first request or job."""

from __future__ import annotations

import numpy as np

from models.registry import LEARNERS

_SMALL = {"n_estimators": 2, "depth": 1, "k_max": 2, "n_pairs": 64, "random_state": 0}

_TIMES = 400


def warm() -> None:
    """Fit and use every registered learner once on a few points; from a warm kernel cache this takes moments."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((24, 3)).astype(np.float32)
    y = np.repeat(np.arange(6), 4)
    for spec in LEARNERS:
        small = {name: value for name, value in _SMALL.items() if name in spec.params.model_fields}
        estimator = spec.estimator(**{**spec.params().model_dump(), **small})
        if spec.needs == "rankings":
            estimator.fit(X, np.argsort(np.argsort(X, axis=1), axis=1).astype(np.float64))
            estimator.predict(X)
        else:
            estimator.fit_pairs(X[:-1], X[1:], y[:-1] == y[1:])
            estimator.fit(X, y)
            if "similarity" in spec.capabilities:
                estimator.pair_score(X, X[:1])
                estimator.top_k(X[:2], X, 3)
                # Galleries of some size are searched in other ways than small ones.
                estimator.top_k(X[:2], estimator.index(np.tile(X, (_TIMES, 1))), 3)
            for capability, method in (("embed", "transform"), ("classify", "predict_proba")):
                if capability in spec.capabilities:
                    getattr(estimator, method)(X)
