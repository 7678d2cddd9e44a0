"""Scores normalised by a cohort: the formulas against their definitions, and that it is chosen only where it pays."""

from __future__ import annotations

import numpy as np
import pytest

import pairmark
from pairmark import CohortSimilarity, MetricSimilarity
from pairmark.models.auto.candidates import RACING
from pairmark.models.cohort.normalising import normalised, spread_with_cohort
from pairmark.models.cohort.params import CohortParams
from pairmark.models.core.artefact import ArtefactError


def crowd(people: int = 30, rows: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(people, 4)), rows, axis=0) + 0.5 * rng.normal(size=(people * rows, 4))
    return X.astype(np.float32), np.repeat(np.arange(people), rows)


@pytest.mark.parametrize(("how", "top"), [("s", None), ("adaptive-s", 7)])
def test_the_score_is_s_norm_by_its_definition(how: str, top: int | None) -> None:
    X, y = crowd()
    base = MetricSimilarity(metric="euclidean").fit(X, y)
    model = CohortSimilarity(
        learner_params={"metric": "euclidean"}, normalisation=how, cohort_size=40, top=7
    ).fit(X, y)
    a, b = X[:20] + 0.1, X[20:40]
    plain = base.pair_score(a, b).astype(np.float64)

    def units(side: np.ndarray) -> np.ndarray:
        scores = np.sort(base.score_against(side, model.cohort_).astype(np.float64), axis=1)
        scores = scores if top is None else scores[:, -top:]
        return (plain - scores.mean(axis=1)) / scores.std(axis=1)

    found = model.pair_score(a, b)
    np.testing.assert_allclose(found, 0.5 * (units(a) + units(b)), rtol=1e-5)
    np.testing.assert_array_equal(found, model.pair_score(b, a))
    np.testing.assert_array_equal(np.diagonal(model.score_against(a, b)), found)
    np.testing.assert_array_equal(model.pair_score(a[0][None], b), model.score_against(a[:1], b)[0])
    assert model.cohort_.shape == (40, 4)
    assert {tuple(row) for row in model.cohort_} <= {tuple(row) for row in X}


def test_people_whom_the_whole_cohort_scores_alike_have_finite_scores() -> None:
    scores = np.random.default_rng(1).normal(size=5).astype(np.float32)
    alike = spread_with_cohort(np.full((5, 9), 2.0, dtype=np.float32))
    assert np.isfinite(normalised(scores, alike, alike)).all()


def test_who_matches_everybody_no_longer_does() -> None:
    """Wolves: some people score high with all others, which is what the cohort shows."""
    rng = np.random.default_rng(5)
    people, rows = 60, 4
    X = np.repeat(rng.normal(size=(people, 6)), rows, axis=0) + 0.6 * rng.normal(size=(people * rows, 6))
    X += np.repeat(np.where(rng.random(people) < 0.3, 4.0, 0.0), rows)[:, None]
    y = np.repeat(np.arange(people), rows)
    model = CohortSimilarity(learner_params={"metric": "cosine"}, cohort_size=60, top=20).fit(X, y)
    assert model.normalisation_ in ("s", "adaptive-s")
    won = model.rates_[model.normalisation_]
    assert won["gain"] > won["standard_error"]
    assert model.model_facts()["cohort"]["size"] == 60


def test_auto_is_none_where_nothing_is_gained_and_then_the_learner_itself() -> None:
    X, y = crowd(seed=3)
    model = CohortSimilarity(learner="plda", cohort_size=10, top=3).fit(X, y)
    pays = {name for name, one in model.rates_.items() if one["gain"] > one["standard_error"]}
    assert not pays
    assert model.normalisation_ == "none"
    plain = CohortSimilarity(learner="plda", normalisation="none").fit(X, y)
    np.testing.assert_array_equal(plain.pair_score(X[:9], X[9:18]), plain.model_.pair_score(X[:9], X[9:18]))
    assert plain.cohort_.shape == (0, 4)
    listed = CohortSimilarity().fit_pairs(X[:40], X[40:80], y[:40] % 2)
    assert listed.normalisation_ == "none"


@pytest.mark.parametrize("how", ["none", "adaptive-s"])
def test_saved_galleries_and_searches_are_the_same_to_the_last_bit(how: str, tmp_path) -> None:
    X, y = crowd()
    model = CohortSimilarity(normalisation=how, cohort_size=20, top=5).fit(X, y)
    pairmark.save(model, tmp_path / "model")
    again = pairmark.load(tmp_path / "model")
    np.testing.assert_array_equal(again.pair_score(X[:9], X[9:18]), model.pair_score(X[:9], X[9:18]))
    index = model.index(X)
    index.save(tmp_path / "index")
    ids, scores = again.top_k(X[:3], again.open_index(tmp_path / "index"), 5)
    every = model.score_against(X[:3], X)
    np.testing.assert_array_equal(scores, -np.sort(-every, axis=1)[:, :5])
    np.testing.assert_array_equal(np.take_along_axis(every, ids, axis=1), scores)


def test_what_no_fit_writes_is_refused() -> None:
    from pairmark.models.cohort.spec import COHORT

    X, y = crowd()
    model = CohortSimilarity(normalisation="s", cohort_size=20).fit(X, y)
    arrays, meta = model.to_state()
    params = CohortParams(normalisation="s", cohort_size=20).model_dump()
    whole = {**meta, "n_features_in": 4, "feature_names_in": None}
    COHORT.state.check(params, whole, arrays)
    bad = model.cohort_.copy()
    bad[3, 1] = np.nan
    wrong_arrays = [
        {**arrays, "cohort": bad},
        {**arrays, "cohort": model.cohort_[:, :3]},
        {**arrays, "cohort": model.cohort_[:1]},
        {**arrays, "cohort": model.cohort_.astype(np.float64)},
        {name: array for name, array in arrays.items() if name != "cohort"},
        {**arrays, "stray": bad},
    ]
    for wrong in wrong_arrays:
        with pytest.raises(ArtefactError, match=r"cohort|stray"):
            COHORT.state.check(params, whole, wrong)
    for reported in ({**meta["model"], "kind": "plda"}, {**meta["model"], "kind": "poem"}):
        with pytest.raises(ArtefactError, match=r"model\.kind"):
            COHORT.state.check(params, {**whole, "model": reported}, arrays)


def test_any_learner_of_the_race_can_be_named() -> None:
    named = CohortParams.model_json_schema()["properties"]["learner"]["enum"]
    assert set(named) <= set(RACING)
    with pytest.raises(ValueError, match="learner_params"):
        CohortSimilarity(learner_params={"mtric": "cosine"}).fit(*crowd())
