"""The logistic similarity: scores are those of its formula, and beat a cosine where features differ in worth."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from pairmark import MetricSimilarity, SimilarityAuto, SimilarityLogistic
from pairmark.models.core.artefact import OutdatedModel
from pairmark.models.evaluation.validation import tpr_at
from tests.models.saving import reloaded


def words(n: int, seed: int, d: int = 3_000) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 0 and 1: common features, which change from row to row, and a few rare ones, which stay."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n), 2)
    rows = np.zeros((2 * n, d), dtype=np.float32)
    for person in range(n):
        own = rng.integers(40, d, 6)
        for row in (2 * person, 2 * person + 1):
            rows[row, rng.integers(0, 40, 12)] = 1.0
            rows[row, own[rng.random(6) < 0.8]] = 1.0
    return rows, y


def pairs_of(y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    left = np.concatenate([np.arange(0, y.size, 2), rng.integers(0, y.size, 3_000)])
    right = np.concatenate([np.arange(1, y.size, 2), rng.integers(0, y.size, 3_000)])
    keep = left != right
    return left[keep], right[keep], (y[left] == y[right])[keep]


X, Y = words(150, 0)
LEFT, RIGHT, SAME = pairs_of(Y, 1)
NEW, NEW_Y = words(150, 2)


@cache
def of_dense() -> SimilarityLogistic:
    return SimilarityLogistic().fit_pairs(X[LEFT], X[RIGHT], SAME)


@cache
def of_sparse() -> SimilarityLogistic:
    return SimilarityLogistic().fit_pairs(csr_array(X)[LEFT], csr_array(X)[RIGHT], SAME)


def by_formula(model: SimilarityLogistic, a: np.ndarray, b: np.ndarray) -> float:
    """The score of a pair of rows, in plain float64."""
    arrays, _ = model.to_state()
    rarity, (intercept, both, plain, small, large) = arrays["scale"], arrays["terms"]
    a, b = a.astype(np.float64), b.astype(np.float64)
    u, v = (rarity * x / np.linalg.norm(rarity * x) for x in (a, b))
    sizes = [0.1 * np.abs(x).sum() / np.linalg.norm(x) for x in (a, b)]
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    apart = model.coef_ @ np.abs(u - v)
    return float(
        intercept + apart + both * (u @ v) + plain * cosine + small * min(sizes) + large * max(sizes)
    )


def test_scores_are_those_of_the_formula() -> None:
    expected = [by_formula(of_dense(), a, b) for a, b in pairwise(NEW[:41])]
    assert of_dense().pair_score(NEW[:40], NEW[1:41]) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert of_sparse().pair_score(csr_array(NEW[:40]), csr_array(NEW[1:41])) == pytest.approx(
        [by_formula(of_sparse(), a, b) for a, b in pairwise(NEW[:41])], rel=1e-5, abs=1e-5
    )


def test_rows_are_weighed_by_how_rare_features_are() -> None:
    rows = np.concatenate([X[LEFT], X[RIGHT]])
    expected = 1.0 + np.log((1.0 + len(rows)) / (1.0 + (rows != 0).sum(axis=0)))
    for model in (of_dense(), of_sparse()):
        assert model.to_state()[0]["scale"] == pytest.approx(expected)


def test_sparse_rows_and_dense_ones_learn_and_score_alike() -> None:
    dense, sparse = (
        of_dense().pair_score(NEW[:50], NEW[50:100]),
        of_sparse().pair_score(NEW[:50], NEW[50:100]),
    )
    assert np.corrcoef(dense, sparse)[0, 1] > 0.999
    # What a model takes for input does not change what it says.
    assert of_sparse().pair_score(csr_array(NEW[:50]), NEW[50:100]).tobytes() == sparse.tobytes()
    assert of_dense().pair_score(csr_array(NEW[:50]), NEW[50:100]).tobytes() == dense.tobytes()
    grid = of_sparse().score_against(csr_array(NEW[:3]), csr_array(NEW))
    assert grid[2, :50].tobytes() == of_sparse().pair_score(NEW[2:3], NEW[:50]).tobytes()


@pytest.mark.parametrize("fitted", [of_dense, of_sparse], ids=["dense", "sparse"])
def test_a_saved_one_scores_and_searches_the_same(
    fitted: Callable[[], SimilarityLogistic], tmp_path: Path
) -> None:
    model = fitted()
    loaded = reloaded(model, tmp_path / "model")
    rows = csr_array(NEW) if fitted is of_sparse else NEW
    assert (
        loaded.pair_score(rows[:30], rows[30:60]).tobytes()
        == model.pair_score(rows[:30], rows[30:60]).tobytes()
    )
    model.index(rows).save(tmp_path / "index")
    ids, scores = loaded.top_k(rows[:4], loaded.open_index(tmp_path / "index"), 3)
    assert ids[:, 0].tolist() == [0, 1, 2, 3]
    assert scores.tobytes() == model.top_k(rows[:4], rows, 3)[1].tobytes()


def test_rare_features_count_for_more_than_a_cosine_gives_them() -> None:
    left, right, same = pairs_of(NEW_Y, 3)
    found = {
        name: model.pair_score(csr_array(NEW)[left], csr_array(NEW)[right])
        for name, model in (("logistic", of_sparse()), ("cosine", MetricSimilarity().fit(csr_array(X), Y)))
    }
    reached = {name: tpr_at(scores[same], scores[~same], (0.003,))[0] for name, scores in found.items()}
    assert reached["logistic"] > reached["cosine"] + 0.2
    assert reached["logistic"] > 0.9


@pytest.mark.parametrize("listed", [True, False], ids=["pairs", "identities"])
def test_the_race_finds_it_on_sparse_rows(listed: bool) -> None:
    rows = csr_array(np.hstack([X, np.zeros((X.shape[0], 3_000), dtype=np.float32)]))
    auto = SimilarityAuto(budget_seconds=0.001, max_rows=200)
    model = auto.fit_pairs(rows[LEFT], rows[RIGHT], SAME) if listed else auto.fit(rows, Y)
    assert model.winner_ == "logistic"
    line = next(line for line in model.leaderboard_ if line["chosen"])
    assert isinstance(model.model_, SimilarityLogistic)
    assert line["params"] == {"C": model.model_.C}


def test_contributions_add_up_to_the_score() -> None:
    reported = of_sparse().explain(csr_array(NEW[:1]), csr_array(NEW[1:2]))
    total = sum(line["contribution"] for line in reported["features"]) + reported["rest"]
    assert total == pytest.approx(reported["score"])
    assert reported["score"] == of_sparse().pair_score(NEW[:1], NEW[1:2])[0]


def test_a_model_of_standardized_rows_is_refused_with_what_to_do() -> None:
    model = of_dense()
    arrays, facts = model.to_state()
    facts = {**facts, "n_features_in": X.shape[1]}
    old = {**arrays, "centre": np.zeros(X.shape[1])}
    assert SimilarityLogistic().from_state(old, facts).pair_score(NEW[:9], NEW[9:18]).tobytes() == (
        model.pair_score(NEW[:9], NEW[9:18]).tobytes()
    )
    with pytest.raises(OutdatedModel, match="rows is 'standard', which this version no longer has"):
        SimilarityLogistic().from_state({**old, "centre": np.ones(X.shape[1])}, facts)


def test_zero_rows_and_unseen_features_have_finite_scores() -> None:
    rows = np.zeros((2, X.shape[1]), dtype=np.float32)
    rows[1, -1] = 7.0
    for model in (of_dense(), of_sparse()):
        assert np.isfinite(model.score_against(rows, rows)).all()
