"""Fused scores: the sum they are, weights from people that no learner saw, and never worse than the best alone."""

from __future__ import annotations

import numpy as np
import pytest

import pairmark
from pairmark import Fusion, Plda, SimilarityAuto, cllr
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.evaluation.validation import tpr_at
from pairmark.models.fusion.params import FUSED, FusionParams
from pairmark.models.fusion.spec import FUSION
from pairmark.models.fusion.weighing import Judged, Weights

RATES = (0.1, 0.03, 0.01)
EUCLIDEAN = {"learner": "metric", "params": {"metric": "euclidean"}}
REMEMBERS = {"learner": "metric", "params": {"whiten": True, "shrinkage": 1e-3}}
"""Whitening without shrinkage, in nearly as many dimensions as there are rows to learn it from."""


def crowd(
    people: int, rows: int, seed: int, width: int = 6, signal: int = 6
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = np.zeros((people, width))
    centres[:, :signal] = 1.5 * rng.normal(size=(people, signal))
    y = np.repeat(np.arange(people), rows)
    return (centres[y] + rng.normal(size=(y.size, width))).astype(np.float32), y


def rate(scores: np.ndarray, y: np.ndarray) -> float:
    i, j = np.triu_indices(y.size, 1)
    same = y[i] == y[j]
    return float(tpr_at(scores[i, j][same], scores[i, j][~same], RATES).mean())


def test_the_score_is_the_weighted_sum_of_the_learners() -> None:
    X, y = crowd(30, 4, 0)
    plda = Plda(marginals="raw", length_norm=False, shrink_within=0.1, shrink_between=0.1)
    model = Fusion(models=[plda, EUCLIDEAN], keep="always").fit(X, y)
    assert (model.weights_ >= 0).all()
    parts = [
        weight * one.pair_score(X[:20], X[20:40]).astype(np.float64)
        for weight, one in zip(model.weights_, model.models_, strict=True)
        if one is not None
    ]
    expected = np.sum(parts, axis=0) + model.intercept_
    np.testing.assert_allclose(model.pair_score(X[:20], X[20:40]), expected, rtol=1e-5, atol=1e-5)
    reported = model.explain(X[:1], X[20:21])
    total = reported["intercept"] + sum(part["contribution"] for part in reported["models"])
    assert reported["score"] == pytest.approx(total, rel=1e-5)
    assert all("explanation" in part for part in reported["models"])
    # The learners that serve have learned from all rows.
    np.testing.assert_array_equal(
        model.models_[0].pair_score(X[:9], X[9:18]), plda.fit(X, y).pair_score(X[:9], X[9:18])
    )


def test_who_remembers_the_training_people_gets_no_credit_for_it() -> None:
    """In-fold scores part the training people perfectly: weights from them would be the memory's alone."""
    fused, single = [], []
    for seed in range(4):
        X, y = crowd(24, 5, seed, width=70, signal=4)
        model = Fusion(models=[EUCLIDEAN, REMEMBERS], keep="always").fit(X, y)
        euclidean, remembers = model.models_
        assert rate(remembers.score_against(X, X), y) > 0.7
        spread = [one.pair_score(X[:60], X[60:]).std() for one in model.models_]
        shares = model.weights_ * spread
        assert shares[0] > 0.3 * shares.sum()
        fresh, who = crowd(80, 4, 100 + seed, width=70, signal=4)
        fused.append(rate(model.score_against(fresh, fresh), who))
        single.append([rate(one.score_against(fresh, fresh), who) for one in (euclidean, remembers)])
    best = np.array(single).max(axis=1)
    apart = np.array(fused) - best
    assert apart.mean() >= -2 * apart.std(ddof=1) / np.sqrt(apart.size)


def views(people: int, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths say one thing about people and directions another."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(people), rows)
    turn = rng.normal(size=(people, 5))[y] + 0.6 * rng.normal(size=(y.size, 5))
    size = np.exp(1.5 * rng.normal(size=people)[y] + 0.2 * rng.normal(size=y.size))
    return (size[:, None] * turn / np.linalg.norm(turn, axis=1, keepdims=True)).astype(np.float32), y


def test_learners_that_see_different_things_are_better_together() -> None:
    models = [{"learner": "metric", "params": {"metric": name}} for name in ("cosine", "canberra")]
    X, y = views(40, 5, 0)
    model = Fusion(models=models).fit(X, y)
    reported = model.rates_
    assert reported["gain"] > reported["standard_error"]
    assert (model.weights_ > 0).all()
    fresh, who = views(120, 4, 1)
    singles = [rate(one.score_against(fresh, fresh), who) for one in model.models_]
    assert rate(model.score_against(fresh, fresh), who) > max(singles)
    i, j = np.triu_indices(who.size, 1)
    # A log likelihood ratio as it stands.
    assert cllr(model.pair_score(fresh[i], fresh[j]), who[i] == who[j]) < 0.9


def test_the_best_alone_is_kept_where_nothing_is_gained(tmp_path) -> None:
    X, y = crowd(24, 5, 1, width=70, signal=4)
    model = Fusion(models=[EUCLIDEAN, EUCLIDEAN, REMEMBERS]).fit(X, y)
    assert model.rates_["gain"] <= model.rates_["standard_error"]
    assert np.count_nonzero(model.weights_) == 1
    assert model.models_.count(None) == 2
    best = model.models_[int(model.rates_["best"])]
    order = np.argsort(best.pair_score(X[:40], X[40:80]), kind="stable")
    np.testing.assert_array_equal(np.argsort(model.pair_score(X[:40], X[40:80]), kind="stable"), order)
    pairmark.save(model, tmp_path / "model")
    again = pairmark.load(tmp_path / "model")
    np.testing.assert_array_equal(again.pair_score(X[:9], X[9:18]), model.pair_score(X[:9], X[9:18]))
    index = model.index(X)
    index.save(tmp_path / "index")
    ids, scores = again.top_k(X[:3], again.open_index(tmp_path / "index"), 5)
    every = model.score_against(X[:3], X)
    np.testing.assert_array_equal(scores, -np.sort(-every, axis=1)[:, :5])
    np.testing.assert_array_equal(np.take_along_axis(every, ids, axis=1), scores)


def test_listed_pairs_are_weighed_on_points_that_nobody_saw() -> None:
    X, y = crowd(60, 2, 5)
    rng = np.random.default_rng(0)
    left, right = rng.integers(0, 120, (2, 2_000))
    apart = y[left] != y[right]
    a = X[np.concatenate([np.arange(0, 120, 2), left[apart]])]
    b = X[np.concatenate([np.arange(1, 120, 2), right[apart]])]
    flags = np.repeat([1, 0], [60, int(apart.sum())])
    model = Fusion(models=[EUCLIDEAN, {"learner": "similarity-logistic"}], keep="always").fit_pairs(
        a, b, flags
    )
    assert model.rates_["folds"] == 8
    fresh, who = crowd(60, 3, 6)
    assert rate(model.score_against(fresh, fresh), who) > 0.2


def test_too_few_rows_to_hold_any_out_weigh_alike() -> None:
    X = np.random.default_rng(0).normal(size=(3, 6))
    model = Fusion(models=[EUCLIDEAN, {"learner": "metric"}]).fit(X, [0, 0, 1])
    assert model.rates_ == {}
    assert (model.weights_ > 0).all()


def test_weights_are_the_logistic_regression_of_balanced_pairs() -> None:
    rng = np.random.default_rng(0)
    same = rng.random(20_000) < 0.1
    one = rng.normal(size=same.size) + 2 * same
    two = 3 * (rng.normal(size=same.size) + 1 * same) + 7
    found = Weights.fit([Judged(scores=np.column_stack([one, two]), same=same)])
    # Gaussian classes: log LR is 2 x - 2 by the one, and x - 1/2 in units of the other's spread.
    np.testing.assert_allclose(found.weight, [2, 1 / 3], rtol=0.15)
    against = Weights.fit([Judged(scores=np.column_stack([one, -two]), same=same)])
    assert against.weight[0] > 0
    assert against.weight[1] == 0


def test_what_cannot_be_fused_is_refused() -> None:
    X, y = crowd(20, 3, 0)
    for models, said in [
        (["people", "others:3"], "is a name"),
        ([EUCLIDEAN], "at least 2"),
        ([EUCLIDEAN, {"learner": "label-ranking-tree"}], "models"),
        ([EUCLIDEAN, {"learner": "metric", "params": {"mtric": 1}}], r"models\[1\]"),
        ([EUCLIDEAN, Fusion()], "models"),
    ]:
        with pytest.raises(ValueError, match=said):
            Fusion(models=models).fit(X, y)
    kinds = FusionParams.model_json_schema()["$defs"]["Component"]["properties"]["learner"]["enum"]
    assert set(kinds) == set(FUSED)
    nested = Fusion(models=[SimilarityAuto(candidates=["cosine"]), EUCLIDEAN], keep="always").fit(X, y)
    assert np.isfinite(nested.pair_score(X[:5], X[5:10])).all()


def test_what_no_fit_writes_is_refused() -> None:
    X, y = views(40, 5, 0)
    models = [{"learner": "metric", "params": {"metric": name}} for name in ("cosine", "canberra")]
    model = Fusion(models=models, keep="always").fit(X, y)
    arrays, meta = model.to_state()
    params = FusionParams.model_validate({"models": models}).model_dump()
    whole = {**meta, "n_features_in": 5, "feature_names_in": None}
    FUSION.state.check(params, whole, arrays)
    weights = arrays["weights"]
    wrong_arrays = [
        {**arrays, "weights": -weights},
        {**arrays, "weights": weights * np.array([1, np.nan])},
        {**arrays, "weights": weights * np.array([1, 0])},
        {**arrays, "weights": weights[:1]},
        {**arrays, "weights": weights.astype(np.float32)},
        {name: array for name, array in arrays.items() if name != "weights"},
        {**arrays, "model-2-stray": weights},
    ]
    for wrong in wrong_arrays:
        with pytest.raises(ArtefactError, match=r"weights|stray"):
            FUSION.state.check(params, whole, wrong)
    for kept in ([meta["models"][0], {**meta["models"][1], "kind": "plda"}], meta["models"][:1]):
        with pytest.raises(ArtefactError, match=r"models|weights"):
            FUSION.state.check(params, {**whole, "models": kept}, arrays)
