"""Compile every kernel ahead of the first request or job."""

from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pairmark.models.calibration.warmup import warm_calibration
from pairmark.models.core.base import score_checked
from pairmark.models.core.spec import capabilities_of
from pairmark.models.evaluation.pairs import pair_report
from pairmark.models.pairs.lists import list_blocks
from pairmark.models.registry import learner_specs, load, sample_rows, save

_SMALL = {
    "n_estimators": 3,
    "depth": 1,
    "k_max": 2,
    "n_pairs": 64,
    "random_state": 0,
    "budget_seconds": 0.001,
}

_WAYS: dict[str, tuple[dict[str, Any], ...]] = {
    "rankboost-kernel": ({"n_components": 24},),
    "metric": ({"whiten": True}, {"metric": "euclidean"}),
}
"""Settings by kind whose models need other kernels than those of the kind's own settings."""


def warm_loaded(estimator: Any, capabilities: Collection[str], *, accepts_sparse: bool = False) -> None:
    """Score and search with a fitted learner once: the pages of its artefact are read, and its kernels compiled.

    Parameters
    ----------
    capabilities : what it will be asked for. accepts_sparse : whether pairs may be sparse.
    """
    rows = sample_rows(estimator, 4)
    if "similarity" in capabilities:
        if accepts_sparse:
            from scipy.sparse import csr_array

            sparse_rows = csr_array(rows[:2] * (np.arange(rows.shape[1]) < 1))
            score_checked(estimator, sparse_rows, sparse_rows)
        for n in (1, 2):
            score_checked(estimator, rows[:n], rows[2 : 2 + n])
    if "search" in capabilities:
        index = estimator.index(rows)
        estimator.top_k(rows[:2], index, 3)
        if rows.dtype == object:
            # Records: of many only candidates are scored.
            estimator.candidates(rows[:1], 1, [index], [None])
    if "rank-labels" in capabilities:
        estimator.predict(rows[:1])


def warm() -> None:
    """Fit and use every learner once on a few points, and calibrate; from a warm cache this takes moments."""
    warm_calibration()
    pair_report(np.arange(8.0), np.arange(8) % 2, n_replicates=2)
    # One connected list, so that it is cut.
    list_blocks(np.stack([np.arange(48), np.arange(1, 49)], axis=1), 49)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((24, 3)).astype(np.float32)
    y = np.repeat(np.arange(6), 4)
    for spec in learner_specs():
        small = {name: value for name, value in _SMALL.items() if name in spec.params.model_fields}
        estimator = spec.estimator(**{**spec.params().model_dump(), **small})
        if spec.needs == "rankings":
            estimator.fit(X, np.argsort(np.argsort(X, axis=1), axis=1).astype(np.float64))
        else:
            estimator.fit_pairs(X[:-1], X[1:], y[:-1] == y[1:])
            estimator.fit(X, y)
            if "similarity" in spec.capabilities:
                estimator.pair_score(X, X[:1])
                estimator.top_k(X[:2], X, 3)
                for aggregation in estimator.aggregations:
                    estimator.subject_score([X[:2]], [X[2:4], X[4:5]], aggregation=aggregation)
            for capability, method in (("embed", "transform"), ("classify", "predict_proba")):
                if capability in capabilities_of(spec, estimator):
                    getattr(estimator, method)(X)
        # As it is served: arrays that were read from files are other arrays to numba than those that a fit made.
        for fitted in (estimator, _store_and_load(estimator)):
            warm_loaded(fitted, spec.capabilities, accepts_sparse=spec.accepts_sparse)
        for way in _WAYS.get(spec.kind, ()):
            variant = spec.estimator(**{**spec.params().model_dump(), **small, **way}).fit(X, y)
            variant.pair_score(X, X[:1])
            variant.top_k(X[:2], X, 3)


def _store_and_load(estimator: Any) -> Any:
    """The learner as it is loaded from its artefact."""
    with TemporaryDirectory() as folder:
        save(estimator, Path(folder) / "model")
        return load(Path(folder) / "model")
