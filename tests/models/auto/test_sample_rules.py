"""How samples of a subject are combined is chosen by the race's folds, kept with the model, and what ``auto`` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pairmark
from pairmark import SimilarityAuto
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.evaluation.validation import tpr_at
from pairmark.models.pairs.sampling import subject_pairs

Rows = tuple[np.ndarray, np.ndarray]
BY_NUMBER = [
    {"samples": [2, 1], "aggregation": "plda", "mean_tpr": {"plda": 0.5, "best": 0.4}, "folds": 8},
    {"samples": [5, 1], "aggregation": "best", "mean_tpr": {"plda": 0.5, "best": 0.7}, "folds": 8},
    {"samples": [5, 5], "aggregation": "mean", "mean_tpr": {"plda": 0.5, "mean": 0.7}, "folds": 8},
    {"samples": None, "aggregation": "median", "mean_tpr": {"plda": 0.5, "median": 0.7}, "folds": 8},
]


def photos(n: int, sittings: int, each: int, *, session: float, noise: float, seed: int = 0) -> Rows:
    """People who sat so often, with so many photos a sitting: those of one sitting are alike."""
    random = np.random.default_rng(seed)
    who = np.repeat(np.arange(n), sittings * each)
    sitting = np.repeat(np.arange(n * sittings), each)
    rows = random.normal(size=(n, 8))[who] + session * random.normal(size=(n * sittings, 8))[sitting]
    return (rows + noise * random.normal(size=(who.size, 8))).astype(np.float32), who


def alike(seed: int = 0, n: int = 40) -> Rows:
    return photos(n, 2, 6, session=1.0, noise=0.1, seed=seed)


def independent(seed: int = 0, n: int = 40) -> Rows:
    return photos(n, 12, 1, session=1.0, noise=0.3, seed=seed)


def fitted(rows: Rows, *candidates: Any, **params: Any) -> SimilarityAuto:
    return SimilarityAuto(candidates=list(candidates or ("plda",)), random_state=0, **params).fit(*rows)


def rules(model: SimilarityAuto) -> dict[Any, str]:
    return {rule.samples and tuple(rule.samples): rule.aggregation for rule in model.sample_rules_}


@pytest.fixture(scope="module")
def sittings() -> SimilarityAuto:
    return fitted(alike())


def tpr(model: SimilarityAuto, rows: Rows, k: int, aggregation: str) -> float:
    """At a false positive rate of 1 %, k samples against one."""
    X, y = rows
    pairs = subject_pairs(y, k, 1, n_pairs=20_000)
    people = np.split(X[pairs.index], np.cumsum(pairs.counts)[:-1])
    sides = [[people[at] for at in side] for side in (pairs.left, pairs.right)]
    scores = model.subject_score(*sides, aggregation=aggregation)
    return float(tpr_at(scores[pairs.same], scores[~pairs.same], (0.01,))[0])


@pytest.mark.parametrize("candidate", ["plda", "cosine"])
def test_where_photos_of_a_sitting_are_alike_auto_is_as_good_as_the_best_way(candidate: str) -> None:
    model, others = fitted(alike(), candidate), alike(seed=1, n=100)
    usual = model.aggregations[0]
    for k in (2, 5):
        by_way = {way: tpr(model, others, k, way) for way in model.aggregations}
        auto = tpr(model, others, k, "auto")
        assert auto >= max(by_way.values()) - 0.01, (k, auto, by_way)
        assert k == 2 or auto > by_way[usual] + 0.1
    for rule in model.sample_rules_:
        assert rule.mean_tpr[rule.aggregation] == max(rule.mean_tpr.values())


def test_where_samples_are_independent_the_exact_ratio_stays() -> None:
    found = rules(fitted(independent()))
    assert list(found) == [(2, 1), (2, 2), (5, 1), (5, 5), (10, 1), None]
    assert set(found.values()) == {"plda"}


def test_another_way_must_be_ahead_beyond_chance() -> None:
    found = [rule for seed in (3, 4) for rule in fitted(independent(seed), "cosine").sample_rules_]
    assert {rule.aggregation for rule in found} == {"mean"}
    # The median of many scores is about as good as their mean, and by luck ahead of it in some worlds.
    assert any(rule.mean_tpr["median"] > rule.mean_tpr["mean"] for rule in found)


def test_the_choice_is_saved_and_stated(sittings: SimilarityAuto, tmp_path: Path) -> None:
    assert "best" in rules(sittings).values()
    pairmark.save(sittings, tmp_path / "model")
    loaded = pairmark.load(tmp_path / "model")
    assert loaded.sample_rules_ == sittings.sample_rules_
    X = alike()[0]
    people = [X[:5], X[5:6]]
    assert loaded.subject_score(people, people).tobytes() == sittings.subject_score(people, people).tobytes()
    assert sittings.model_facts()["race"]["samples"] == [rule.model_dump() for rule in sittings.sample_rules_]


def test_threads_and_repeats_choose_alike(sittings: SimilarityAuto) -> None:
    assert fitted(alike(), n_jobs=2).sample_rules_ == sittings.sample_rules_


def with_rules(model: SimilarityAuto, found: list[dict[str, Any]]) -> SimilarityAuto:
    arrays, meta = model.to_state()
    meta = {**meta, "sample_rules": found, "n_features_in": model.n_features_in_}
    return SimilarityAuto(**model.get_params()).from_state(arrays, meta)


def test_auto_goes_by_the_number_of_samples(sittings: SimilarityAuto) -> None:
    model, (X, _) = with_rules(sittings, BY_NUMBER), alike()
    by_class = {
        (2, 1): "plda",
        (4, 3): "plda",
        (5, 4): "best",
        (5, 5): "mean",
        (40, 1): "best",
        (40, 7): "mean",
    }
    for samples, way in by_class.items():
        assert model.auto_aggregation(samples) == way, samples
    assert model.auto_aggregation() == model.auto_aggregation((1, 1)) == "median"
    sides = {2: [X[:2], X[12:14]], 6: [X[20:26], X[40:46]]}
    probes = [X[50:51], X[60:61]]
    for (k, enrolled), way in zip(sides.items(), ("plda", "best"), strict=True):
        expected = model.subject_score(enrolled, probes, aggregation=way)
        for left, right in ((enrolled, probes), (probes, enrolled)):
            assert model.subject_score(left, right).tobytes() == expected.tobytes(), k
        prepared = [model.subjects(side) for side in (enrolled, probes)]
        assert model.subject_score(*prepared).tobytes() == expected.tobytes(), k
    # Of different numbers, and in searches, scores must compare: one way for all.
    people = [*sides[2], *sides[6]]
    expected = model.subject_score(people, probes[:1], aggregation="median")
    assert model.subject_score(people, probes[:1]).tobytes() == expected.tobytes()
    index = model.index_subjects(people)
    assert index.aggregation == "median"
    ids, scores = model.top_k_subjects(probes[:1], index, 4)
    assert scores[0].tobytes() == expected[ids[0]].tobytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"aggregation": "max"}, r"sample_rules\.0\.aggregation"),
        ({"aggregation": "median"}, r"sample_rules\.0 names 'median'"),
        ({"samples": [2]}, r"sample_rules\.0\.samples"),
        ({"samples": [2, 0]}, r"sample_rules\.0\.samples"),
        ({"samples": [1, 1]}, "rising order"),
        ({"samples": [1, 2]}, "larger number first"),
        ({"samples": [5, 1]}, "rising order"),
        ({"samples": None}, "rising order"),
        ({"mean_tpr": {"plda": 1.5}}, r"sample_rules\.0\.mean_tpr"),
        ({"folds": 0}, r"sample_rules\.0\.folds"),
        ({"other": 1}, r"sample_rules\.0\.other"),
    ],
)
def test_a_choice_that_no_fit_writes_is_refused(
    sittings: SimilarityAuto, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArtefactError, match=message):
        with_rules(sittings, [{**BY_NUMBER[0], **change}, *BY_NUMBER[1:]])


def test_a_way_that_the_winner_lacks_is_refused() -> None:
    model = fitted(alike(), "cosine")
    with pytest.raises(
        ArtefactError, match=r"sample_rules\.0 names 'plda'; expected one of mean, best, median"
    ):
        with_rules(model, BY_NUMBER)


def test_a_model_without_a_choice_does_as_before(sittings: SimilarityAuto) -> None:
    arrays, meta = sittings.to_state()
    earlier = {name: fact for name, fact in meta.items() if name != "sample_rules"}
    model = SimilarityAuto().from_state(arrays, {**earlier, "n_features_in": 8})
    assert model.auto_aggregation((5, 1)) == "plda"
    assert model.to_state()[1] == {**earlier, "sample_rules": []}
    assert "samples" not in model.model_facts()["race"]


@pytest.mark.parametrize(
    ("rows", "protocol"),
    [
        pytest.param(alike(n=14), "open-set", id="14 people"),
        pytest.param(photos(40, 2, 1, session=1.0, noise=0.1), "open-set", id="2 samples a person"),
        pytest.param(alike(n=20), "closed-set", id="shared classes"),
    ],
)
def test_few_people_and_few_samples_are_left_as_they_were(rows: Rows, protocol: Any) -> None:
    model = fitted(rows, protocol=protocol)
    assert model.sample_rules_ == []
    assert model.auto_aggregation((5, 1)) == model.auto_aggregation() == "plda"


def test_of_listed_pairs_nothing_is_compared() -> None:
    X, y = alike()
    left, right = np.arange(0, X.shape[0] - 1), np.arange(1, X.shape[0])
    model = SimilarityAuto(candidates=["cosine"]).fit_pairs(X[left], X[right], y[left] == y[right])
    assert model.sample_rules_ == []
    assert model.auto_aggregation((5, 1)) == "mean"
