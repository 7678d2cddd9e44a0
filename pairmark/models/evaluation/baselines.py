"""Simple baselines for comparison with a trained learner."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.evaluation.rankings import consensus

MAX_WHITENED = 1_024
"""Features up to which whitening is tried: its cost grows with their cube."""
MAX_ROWS = 20_000
"""Training rows that neighbours and logistic regressions look at; more are sampled."""
NEIGHBOURS = 10
_CELLS = 20_000_000


def pair_baselines(n_features: int) -> dict[str, dict[str, Any]]:
    """Name -> parameters of the learner ``metric``: cosine, Euclidean and, where it is cheap, whitened cosine."""
    baselines: dict[str, dict[str, Any]] = {name: {"metric": name} for name in ("cosine", "euclidean")}
    if n_features <= MAX_WHITENED:
        baselines["whitened cosine"] = {"metric": "cosine", "whiten": True}
    return baselines


def ranking_baselines(X: Any, Y: ArrayLike, queries: Any, random_state: int = 0) -> dict[str, Float64]:
    """Positions that two rules predict for ``queries``.

    Parameters
    ----------
    X : (n, d) training rows. Y : (n, k) their positions, NaN = absent.
    queries : (m, d).

    Returns
    -------
    ``constant``: one ranking for all, by how often each label goes before the others; ``borda of neighbours``: the
    same over the `NEIGHBOURS` nearest training rows, features scaled to unit variance. Each (m, k).
    """
    rows, positions = _sampled(X, np.asarray(Y, dtype=np.float64), random_state)
    truth = np.asarray(Y, dtype=np.float64)
    near = _neighbours(rows, queries)
    return {
        "constant": np.repeat(consensus(truth), queries.shape[0], axis=0),
        "borda of neighbours": np.concatenate([consensus(positions[at]) for at in near]),
    }


def class_baselines(X: Any, y: ArrayLike, queries: Any, random_state: int = 0) -> dict[str, NDArray[Any]]:
    """Classes that three rules predict for ``queries``.

    Parameters
    ----------
    X : (n, d) training rows. y : (n,) their classes. queries : (m, d).

    Returns
    -------
    ``majority``, ``nearest neighbours`` (5, features scaled to unit variance) and ``logistic`` (L2), each (m,).
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows, labels = _sampled(X, np.asarray(y), random_state)
    classes, counts = np.unique(np.asarray(y), return_counts=True)
    answer: dict[str, NDArray[Any]] = {
        "majority": np.full(queries.shape[0], classes[counts.argmax()], dtype=classes.dtype)
    }
    scaler = StandardScaler(with_mean=not issparse(rows))
    for name, rule in (
        ("nearest neighbours", KNeighborsClassifier(min(5, rows.shape[0]))),
        ("logistic", LogisticRegression(max_iter=200)),
    ):
        answer[name] = np.asarray(make_pipeline(scaler, rule).fit(rows, labels).predict(queries))
    return answer


def _neighbours(X: Any, queries: Any) -> Int64:
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=not issparse(X)).fit(X)
    index = NearestNeighbors(n_neighbors=min(NEIGHBOURS, X.shape[0])).fit(scaler.transform(X))
    return np.asarray(index.kneighbors(scaler.transform(queries), return_distance=False), dtype=np.int64)


def _sampled(X: Any, y: NDArray[Any], random_state: int) -> tuple[Any, NDArray[Any]]:
    limit = min(MAX_ROWS, max(1_000, _CELLS // max(1, X.shape[1])))
    if X.shape[0] <= limit:
        return X, y
    rows = np.sort(np.random.default_rng(random_state).choice(X.shape[0], size=limit, replace=False))
    return X[rows], y[rows]
