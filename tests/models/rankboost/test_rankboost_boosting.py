"""RankBoost against its definition: every pair, every feature, every threshold, written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.metrics import roc_auc_score

from pairmark.models import RankBoostKernel
from pairmark.models.rankboost.boosting import BoostSettings, RankingTask, Weights, best_ranker, boost
from pairmark.models.rankboost.rows import bin_rows, sparse_rows


def world(seed: int, n: int = 14, d: int = 4, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """A few rows with zeros and repeated values, and labels."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 4, (n, d)).astype(np.float32) * (rng.random((n, d)) < 0.7)
    y = rng.integers(0, classes, n)
    y[:classes] = np.arange(classes)
    return X.astype(np.float32), y


def pair_matrix(y: np.ndarray, H: np.ndarray) -> np.ndarray:
    """D(i, j), explicitly: exp(H(i) - H(j)) where j is to be ranked above i, summing to one."""
    D = (y[:, None] < y[None, :]) * np.exp(H[:, None] - H[None, :])
    return D / D.sum()


def conditions(X: np.ndarray) -> list[np.ndarray]:
    """Every stump: rows that hold the feature and lie above, or below, each threshold."""
    found = []
    for column in X.T:
        there = column != 0
        values = np.unique(column[there])
        found.extend(there & (column >= value) for value in values)
        found.extend(there & (column < value) for value in values[1:])
    return found


def gain_of(h: np.ndarray, D: np.ndarray, criterion: str) -> float:
    """|r|, or sqrt(1 - Z) with Z at its best alpha."""
    difference = h[None, :].astype(float) - h[:, None]
    if criterion == "r":
        return abs(float((D * difference).sum()))
    right, wrong = D[difference == 1].sum(), D[difference == -1].sum()
    z = D[difference == 0].sum() + 2 * np.sqrt(right * wrong)
    return float(np.sqrt(max(0.0, 1.0 - z)))


def task_of(y: np.ndarray) -> RankingTask:
    return RankingTask(upper=y == 1, weight=np.ones(len(y)))


@pytest.mark.parametrize("criterion", ["r", "z"])
def test_each_stump_is_the_best_there_is(criterion: str) -> None:
    for seed in range(6):
        X, y = world(seed)
        data = bin_rows(sparse_rows(X), 256)
        weights = Weights(data, task_of(y))
        settings = BoostSettings(n_estimators=1, weak="stump", criterion=criterion)
        H = np.zeros(len(y))
        for _ in range(6):
            D = pair_matrix(y, H)
            best = max(gain_of(h, D, criterion) for h in conditions(X))
            found = best_ranker(data, settings, weights, 1.0)
            if found is None:
                assert best < 1e-9
                break
            h = np.isin(np.arange(len(y)), found.rows)
            assert found.gain == pytest.approx(best, abs=1e-7)
            assert gain_of(h, D, criterion) == pytest.approx(best, abs=1e-7)
            weights.add(found.rows, 0.37)
            H[found.rows] += 0.37


@pytest.mark.parametrize("criterion", ["r", "z"])
def test_each_grid_is_the_best_pair_of_conditions(criterion: str) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = (rng.random((24, 4)) < 0.6).astype(np.float32)  # one condition a feature: beams cover all
        y = ((X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=24)) > 0.4).astype(np.int64)
        y[:2] = 0, 1
        data = bin_rows(sparse_rows(X), 256)
        weights = Weights(data, task_of(y))
        settings = BoostSettings(n_estimators=1, weak="grid", criterion=criterion)
        D = pair_matrix(y, np.zeros(24))
        single = conditions(X)
        best = max(gain_of(a & b, D, criterion) for a in single for b in single)
        found = best_ranker(data, settings, weights, 1.0)
        assert found is not None
        assert found.gain == pytest.approx(best, abs=1e-7)
        assert gain_of(np.isin(np.arange(24), found.rows), D, criterion) == pytest.approx(best, abs=1e-7)


def test_weights_and_scores_follow_the_paper() -> None:
    X, y = world(5, n=30)
    data = bin_rows(sparse_rows(X), 256)
    rules = boost(data, task_of(y), BoostSettings(n_estimators=8, weak="stump", criterion="r"))
    H = np.zeros(30)
    for at in range(len(rules)):
        column = X[:, rules.features[at, 0]]
        h = (column != 0) & (column > rules.low[at, 0]) & (column <= rules.high[at, 0])
        D = pair_matrix(y, H)
        r = (D * (h[None, :].astype(float) - h[:, None])).sum()
        assert rules.alpha[at] == pytest.approx(0.5 * np.log((1 + r) / (1 - r)), abs=1e-9)
        H += rules.alpha[at] * h
    model = RankBoostKernel(n_estimators=8, criterion="r", random_state=0).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), H, atol=1e-12)


def test_one_feature_that_decides_all_gives_a_finite_weight_and_ends() -> None:
    X = np.ones((40, 2), dtype=np.float32)
    X[20:, 1] = 2.0
    y = np.repeat([0, 1], 20)
    for criterion in ("r", "z"):
        model = RankBoostKernel(n_estimators=50, criterion=criterion, random_state=0).fit(X, y)
        assert len(model.rules_) == 1
        assert 0 < abs(model.rules_.alpha[0]) < 10
        assert roc_auc_score(y, model.decision_function(X)) == 1.0


@given(st.integers(0, 10_000), st.sampled_from(["r", "z"]), st.sampled_from(["stump", "grid"]))
def test_sparse_rows_learn_and_score_as_dense_ones_to_the_last_bit(
    seed: int, criterion: Any, weak: Any
) -> None:
    X, y = world(seed, n=25, d=6, classes=2 + seed % 2)
    y[-2:] = y[:2]
    how = {"n_estimators": 6, "criterion": criterion, "weak": weak, "random_state": 0, "n_components": 5}
    assume(any(gain_of(h, pair_matrix((y == 1).astype(int), 0.0 * y), "r") > 0.01 for h in conditions(X)))
    dense = RankBoostKernel(**how).fit(X, y)
    rows, columns = np.nonzero(np.ones_like(X))
    shuffled = np.random.default_rng(seed).permutation(rows.size)
    # Unsorted entries, zeros stored, and one of them in two halves.
    rows, columns = np.append(rows[shuffled], 0), np.append(columns[shuffled], 0)
    values = X[rows, columns].copy()
    values[-1] /= 2
    values[np.flatnonzero((rows == 0) & (columns == 0))[0]] /= 2
    order = np.argsort(rows, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(X)))])
    messy = csr_array((values[order], columns[order], starts), shape=X.shape)
    sparse = RankBoostKernel(**how).fit(messy, y)
    assert sparse.decision_function(X).tobytes() == dense.decision_function(messy).tobytes()
    assert sparse.transform(messy).tobytes() == dense.transform(X).tobytes()
    assert sparse.pair_score(messy[:5], messy[3:8]).tobytes() == dense.pair_score(X[:5], X[3:8]).tobytes()
    assert sparse.score_against(messy[:5], messy).tobytes() == dense.score_against(X[:5], X).tobytes()
