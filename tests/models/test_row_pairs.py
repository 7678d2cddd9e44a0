"""Scoring pairs of rows by number, a bounded number of rows at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from pairmark.models import (
    MetricSimilarity,
    Plda,
    SimilarityForest,
    SimilarityLogistic,
)
from pairmark.models.core import row_pairs

RNG = np.random.default_rng(0)
Y = np.repeat(np.arange(20), 6)
X = (2.0 * RNG.standard_normal((20, 120))[Y] + RNG.standard_normal((120, 120))).astype(np.float32)
LEFT, RIGHT = RNG.integers(0, len(X), (2, 3_000))
SOME = {
    "plda": Plda(shrink_within=0.3, shrink_between=0.1, marginals="raw", length_norm=True, n_components=64),
    "plda with trees": Plda(
        shrink_within=0.3, shrink_between=0.1, marginals="normal", length_norm=False, residual_rounds=5
    ),
    "whitened cosine": MetricSimilarity(whiten=True),
    "discriminant forest": SimilarityForest(
        n_estimators=3, n_pairs=2_000, pair_features="discriminant", random_state=0
    ),
}


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("most_cells", [120 * 1_000, 120 * 50])
def test_scores_are_those_of_pairs(name: str, most_cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where rows are prepared a few at a time."""
    monkeypatch.setattr(row_pairs, "_CELLS", most_cells)
    monkeypatch.setattr(row_pairs, "_PAIR_CELLS", 120 * 400)
    model: Any = SOME[name]
    if not model.__sklearn_is_fitted__():
        model.fit(X, Y)
    assert model.score_pairs(X, LEFT, RIGHT).tobytes() == model.pair_score(X[LEFT], X[RIGHT]).tobytes()


@pytest.mark.parametrize(
    "model", [MetricSimilarity(), MetricSimilarity("correlation"), SimilarityLogistic()], ids=repr
)
def test_sparse_rows(model: Any) -> None:
    rows = csr_array(np.where(np.abs(X) > 1.5, X, 0.0).astype(np.float32))
    model.fit(rows, Y)
    assert (
        model.score_pairs(rows, LEFT, RIGHT).tobytes() == model.pair_score(rows[LEFT], rows[RIGHT]).tobytes()
    )
