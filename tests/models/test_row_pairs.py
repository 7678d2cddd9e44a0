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
from pairmark.models.core.kernels import rows as row_kernels

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


def test_each_row_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def prepare(rows: Any) -> row_pairs.PairsOfRows:
        seen.append(len(rows))
        return lambda left, right: (rows[left] - rows[right])[:, 0]

    monkeypatch.setattr(row_pairs, "_PAIR_CELLS", 120 * 300)
    got = row_pairs.scored_rows(prepare, X, LEFT, RIGHT)
    assert seen == [np.unique(np.concatenate([LEFT, RIGHT])).size]
    np.testing.assert_array_equal(got, X[LEFT, 0] - X[RIGHT, 0])


@pytest.mark.parametrize("d", [1, 3, 4, 7, 40])
def test_rows_are_mapped_in_the_order_of_their_features(d: int) -> None:
    """So a score does not depend on how many features are summed at a time."""
    rows = RNG.standard_normal((9, d)).astype(np.float32)
    weights = RNG.standard_normal((d, 300)).astype(np.float32)
    bias = RNG.standard_normal(300).astype(np.float32)
    out = np.empty((9, 300), dtype=np.float32)
    row_kernels.affine(rows, weights, bias, out)
    expected = np.repeat(bias[None], 9, axis=0)
    for i in range(d):
        expected += rows[:, i : i + 1] * weights[i]
    assert out.tobytes() == expected.tobytes()
