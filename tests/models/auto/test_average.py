"""The mean of candidates that folds cannot tell apart."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from sklearn.datasets import load_iris

from pairmark import SimilarityAuto, load
from pairmark.models.auto.average import finalists, scale_of
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.evaluation.validation import validation_folds

X, y = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def averaged() -> SimilarityAuto:
    return SimilarityAuto(protocol="closed-set").fit(X[::2], y[::2])


def test_level_candidates_are_averaged_and_serve_as_one(averaged: SimilarityAuto, tmp_path: Path) -> None:
    assert averaged.winner_ == "average"
    line = next(line for line in averaged.leaderboard_ if line["chosen"])
    assert sorted(line["params"]["members"]) == ["class trees", "classes"]
    # No forest, PLDA or logistic regression on pairs beside them.
    raced = {line["name"] for line in averaged.leaderboard_ if line["folds"]}
    assert raced == {"average", "classes", "class trees", "cosine"}
    for rate, interval in line["validated_interval"].items():
        assert interval is None or interval[0] <= line["validated_tpr"][rate] <= interval[1]
    averaged.save(tmp_path / "model")
    again = load(tmp_path / "model")
    grid = averaged.score_against(X[1::2], X[::2])
    assert again.score_against(X[1::2], again.index(X[::2])).tobytes() == grid.tobytes()
    assert averaged.pair_score(X[1:2], X[::2]).tobytes() == grid[0].tobytes()
    rows, scores = again.top_k(X[1:2], X[::2], 5)
    assert scores[0].tolist() == grid[0, rows[0]].tolist() == sorted(grid[0], reverse=True)[:5]
    assert averaged.score(X[1::2], y[1::2]) > 0.96
    reason = averaged.explain(X[1], X[0])
    assert (
        reason["score"]
        == grid[0, 0]
        == pytest.approx(sum(part["contribution"] for part in reason["members"]))
    )
    assert averaged.settled().fit(X, y).winner_ == "average"


def test_neither_the_order_of_rows_nor_names_of_classes_play_a_part(
    averaged: SimilarityAuto, tmp_path: Path
) -> None:
    order = np.random.default_rng(0).permutation(75)
    named = np.array(["c", "a", "b"])[y]
    again = SimilarityAuto(protocol="closed-set").fit(X[::2][order], named[::2][order])
    again.save(tmp_path / "model")
    scores = averaged.score_against(X[1::2], X[::2])
    for model in (again, load(tmp_path / "model")):
        assert model.score_against(X[1::2], X[::2]).tobytes() == scores.tobytes()
        with pytest.raises(ValueError, match="class 'd' was not in training"):
            model.score(X, np.where(np.arange(150) == 0, "d", named))


def test_a_damaged_member_is_named(averaged: SimilarityAuto) -> None:
    arrays, meta = averaged.to_state()
    name = next(name for name in arrays if name.startswith("winner-0-") and arrays[name].dtype.kind == "f")
    damaged = {**arrays, name: np.full_like(arrays[name], np.nan)}
    with pytest.raises(ArtefactError, match=name):
        SimilarityAuto().from_state(damaged, {**meta, "n_features_in": 4, "feature_names_in": None})


def test_finalists_are_the_best_and_those_that_raise_what_they_reach_together() -> None:
    means = np.array([[0.5], [0.9], [0.88], [0.86], [0.84]])
    together = {(1,): 0.9, (1, 2): 0.93, (1, 2, 3): 0.9, (1, 2, 4): 0.94}
    assert finalists(means, lambda numbers: together[tuple(numbers)], 0.0) == [1, 2, 4]
    assert finalists(means, lambda numbers: 0.8, 0.0) == [1]
    # A loss that counts as level is no reason to leave one out.
    assert finalists(means[:3], lambda numbers: 0.8, 0.11) == [1, 2]
    assert finalists(means, lambda numbers: 0.8, 0.09) == [1]


def test_folds_that_find_every_pair_leave_room_for_what_few_rows_cannot_show() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    rows = 50 * np.eye(3)[labels] + rng.normal(size=(90, 3))
    model = SimilarityAuto(protocol="closed-set", candidates=["class trees"]).fit(rows, labels)
    line = next(line for line in model.leaderboard_ if line["chosen"])
    assert line["validated_tpr"]["0.1"] == 1.0
    assert line["validated_interval"]["0.1"] == pytest.approx([1 - 3 / 90, 1.0])


def test_a_scale_rises_with_the_rank_among_negative_pairs() -> None:
    negative = np.random.default_rng(0).normal(size=5_000)
    scale = scale_of(negative)
    scores = np.array([-1e3, -2.0, 0.0, 1.0, 2.33, 10.0, 1e3])
    values = np.interp(scores, scale["knots"], scale["values"])
    assert (np.diff(values) > 0).all()
    assert values[4] == pytest.approx(np.log(100), abs=0.2)
    constant = scale_of(np.zeros(9))
    assert np.isfinite(constant["values"]).all()
    assert (np.diff(constant["knots"]) > 0).all()


@pytest.mark.parametrize(("protocol", "n_independent"), [("closed-set", 6), ("open-set", 6 * 5 // 2)])
def test_no_fold_splits_a_group(protocol: Literal["closed-set", "open-set"], n_independent: int) -> None:
    groups, rng = np.repeat(np.arange(24), 8), np.random.default_rng(0)
    # Everybody does both of two things, or is two of 48 that come along together.
    codes = np.tile(np.repeat([0, 1], 4), 24) if protocol == "closed-set" else np.arange(192) // 4
    folds = validation_folds(codes, protocol, rng, groups=groups)
    assert len(folds) == 8
    for fold in folds:
        assert not set(groups[fold.train]) & set(groups[fold.test])
        assert fold.n_independent == n_independent
