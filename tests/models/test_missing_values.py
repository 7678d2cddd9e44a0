"""Missing values: who takes them, what fills them, that models are saved with it, and what the others say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import pairmark
from pairmark import MetricSimilarity, Plda, SimilarityAuto, SimilarityForest, SimilarityLogistic
from pairmark.models.core.artefact import ArtefactError, read_artefact
from pairmark.models.registry import restored

RNG = np.random.default_rng(0)
Y = np.repeat(np.arange(30), 6)
X = (RNG.standard_normal((30, 6))[Y] * 2 + RNG.standard_normal((180, 6))).astype(np.float32)
HOLES = X.copy()
HOLES[RNG.random(X.shape) < 0.1] = np.nan
LEARNERS: list[Any] = [
    Plda(shrink_within=0.2, shrink_between=0.1),
    MetricSimilarity(whiten=True),
    SimilarityForest(n_estimators=5),
    SimilarityAuto(candidates=["cosine", "plda"]),
]


@pytest.mark.parametrize("model", LEARNERS, ids=lambda model: type(model).__name__)
def test_a_model_of_rows_with_holes_takes_them_and_is_saved_with_what_fills_them(
    model: Any, tmp_path: Path
) -> None:
    model.fit(HOLES, Y)
    assert model.score(HOLES, Y) > 0.75
    scores = model.pair_score(HOLES[:90], HOLES[90:])
    index = model.index(HOLES)
    assert np.array_equal(model.top_k(HOLES[:3], index, 5)[1], model.top_k(HOLES[:3], HOLES, 5)[1])
    pairmark.save(model, tmp_path / "model")
    loaded = pairmark.load(tmp_path / "model")
    assert loaded.pair_score(HOLES[:90], HOLES[90:]).tobytes() == scores.tobytes()
    artefact = read_artefact(tmp_path / "model")
    artefact.arrays["missing-fill"] = np.zeros(5, dtype=np.float32)
    with pytest.raises(ArtefactError, match="missing-fill"):
        restored(artefact)
    # Other rows fill otherwise: an index of the one model is not one of the other.
    model.fill_ = model.fill_ + 1
    with pytest.raises(ValueError, match="made by another model"):
        model.top_k(HOLES[:3], index, 5)
    model.fit(X, Y)
    with pytest.raises(ValueError, match="X contains NaN: no training row had a missing value"):
        model.score_pairs(HOLES, np.arange(90), np.arange(90, 180))


@pytest.mark.parametrize("n_empty", [1, 180])
@pytest.mark.parametrize("model", LEARNERS, ids=lambda model: type(model).__name__)
def test_rows_of_nothing_but_nan_are_refused(model: Any, n_empty: int) -> None:
    rows = X.copy()
    rows[:n_empty] = np.nan
    with pytest.raises(ValueError, match=f"{n_empty} of 180 training rows hold nothing but NaN"):
        model.fit(rows, Y)
    same = Y[:90] == Y[90:]
    same[:40] = True
    with pytest.raises(ValueError, match="hold nothing but NaN"):
        model.fit_pairs(rows[:90], rows[90:], same)


def test_a_forest_cuts_what_is_missing_off() -> None:
    """What is missing tells people apart here, and nothing else does."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((180, 3)).astype(np.float32)
    rows[Y % 2 == 0, 0] = np.nan
    model = SimilarityForest(n_estimators=10, max_features=None).fit(rows, Y)
    odd, even = np.flatnonzero(Y % 2), np.flatnonzero(Y % 2 == 0)
    across = model.pair_score(rows[odd], rows[even])
    assert model.pair_score(rows[even[:-6]], rows[even[6:]]).mean() > across.mean() + 2


def test_listed_pairs_have_holes_on_either_side() -> None:
    same = Y[:90] == Y[:90][::-1]
    same[:45] = True
    left, right = X[:90].copy(), HOLES[90:]
    model = SimilarityForest(n_estimators=3).fit_pairs(left, right, same)
    assert np.isfinite(model.pair_score(HOLES[:90], right)).all()


def test_columns_without_any_value_and_infinities() -> None:
    rows = HOLES.copy()
    rows[:, 2] = np.nan
    for model in LEARNERS:
        assert np.isfinite(model.fit(rows, Y).pair_score(rows[:90], rows[90:])).all()
        with pytest.raises(ValueError, match="infinity"):
            model.fit(np.where(np.isnan(rows), np.inf, rows), Y)
    huge = (rows.astype(np.float64) * 1e38).clip(-3e38, 3e38)
    assert np.isfinite(SimilarityForest(n_estimators=2).fit(huge, Y).fill_).all()


def test_others_refuse_them_with_a_way_out() -> None:
    with pytest.raises(ValueError, match=r"X contains NaN: fill missing values first.*or use SimilarityAuto"):
        SimilarityLogistic().fit(HOLES, Y)
    sparse = csr_array(np.where(np.isnan(HOLES), 0, HOLES))
    sparse.data[0] = np.nan
    with pytest.raises(ValueError, match="X contains NaN: fill missing values first"):
        MetricSimilarity().fit(sparse, Y)
