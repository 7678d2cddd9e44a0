"""Inputs that learners are not made for, and what must not change what they learn: names, buffers, one person."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, KFold, cross_val_score

from pairmark import MetricSimilarity, Plda, RankBoostKernel, SimilarityForest

LEARNERS = (
    Plda(),
    MetricSimilarity(metric="euclidean", whiten=True),
    SimilarityForest(n_estimators=3, random_state=0),
    RankBoostKernel(n_estimators=5, random_state=0),
)


def people(n: int = 40, rows: int = 3, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n), rows)
    return (rng.normal(size=(n, d))[y] + 0.5 * rng.normal(size=(n * rows, d))).astype(np.float32), y


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
def test_one_person_and_nobody_twice_are_refused(learner: Plda) -> None:
    X, y = people()
    with pytest.raises(ValueError, match="a single identity"):
        learner.fit(X, np.zeros_like(y))
    with pytest.raises(ValueError, match="every identity has one row"):
        learner.fit(X, np.arange(len(X)))


@pytest.mark.parametrize("learner", LEARNERS[:3], ids=lambda learner: type(learner).__name__)
@pytest.mark.parametrize("seed", range(3))
def test_what_people_are_called_plays_no_part(learner: Plda, seed: int) -> None:
    X, y = people(seed=seed)
    scores = learner.fit(X, y).pair_score(X[::2], X[1::2])
    for names in ([f"p{number}" for number in y], [f"{97 * number % 101:03d}" for number in y], -y):
        renamed = learner.fit(X, np.array(names)).pair_score(X[::2], X[1::2])
        np.testing.assert_array_equal(renamed, scores)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
def test_a_buffer_that_is_filled_again_does_not_change_an_index(learner: Plda) -> None:
    X, y = people()
    learner.fit(X, y)
    buffer = X[:100].copy()
    index = learner.index(buffer)
    ids, scores = learner.top_k(X[:3], index, 3)
    buffer[:] = 0
    again = learner.top_k(X[:3], index, 3)
    np.testing.assert_array_equal(again[0], ids)
    np.testing.assert_array_equal(again[1], scores)


def test_a_part_that_cannot_be_scored_names_the_splitter() -> None:
    X, y = people(n=3, rows=30)
    with pytest.warns(UserWarning, match="cv=GroupKFold"):
        cross_val_score(Plda(), X, y, cv=KFold(3))
    many, who = people()
    assert np.isfinite(cross_val_score(Plda(), many, who, groups=who, cv=GroupKFold(3))).all()
