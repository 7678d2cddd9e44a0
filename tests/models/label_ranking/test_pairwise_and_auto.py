"""Pairwise rankers, and the automatic choice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.naive_bayes import GaussianNB

from pairmark.models import LabelRankingAuto, PairwiseLabelRanker, save
from pairmark.models.core.progress import listening
from pairmark.models.evaluation.rankings import positions_of
from pairmark.models.label_ranking.pairwise import square
from tests.models.saving import reloaded


def rankings(n: int = 160, k: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)).astype(np.float32)
    return X, positions_of(X @ rng.standard_normal((3, k)) + 0.3 * rng.standard_normal((n, k)))


def before(model: PairwiseLabelRanker, X: np.ndarray) -> np.ndarray:
    """How likely each label comes before each other, in the labels' given order."""
    shares = square(model.models_.shares(X), model.modelled_, model.constant_, model.n_labels_)
    back = np.argsort(model.order_)
    return shares[:, back[:, None], back] + 0.5 * np.eye(model.n_labels_)


@pytest.mark.parametrize("aggregation", ["copeland", "borda"])
@pytest.mark.parametrize("estimator", ["logistic", "forest", GaussianNB(), Perceptron()])
def test_any_classifier_ranks(estimator: object, aggregation: str) -> None:
    X, Y = rankings()
    model = PairwiseLabelRanker(estimator=estimator, aggregation=aggregation, random_state=0)
    model.fit(X[:120], Y[:120])
    assert model.score(X[120:], Y[120:]) > 0.5
    assert (np.sort(model.predict(X), axis=1) == np.arange(4)).all()


def test_pairs_are_what_the_classifier_learns_from_rows_that_show_both() -> None:
    X, Y = rankings()
    Y = np.where(np.random.default_rng(1).random(Y.shape) < 0.3, np.nan, Y)
    Y[np.isnan(Y).all(axis=1)] = np.arange(4)
    model = PairwiseLabelRanker(estimator=LogisticRegression()).fit(X, Y)
    sure = before(model, X)
    for i, j in [(0, 1), (2, 3), (1, 3)]:
        both = np.isfinite(Y[:, i]) & np.isfinite(Y[:, j])
        alone = LogisticRegression().fit(X[both], Y[both, i] < Y[both, j])
        np.testing.assert_allclose(sure[:, i, j], alone.predict_proba(X)[:, 1], atol=1e-3)


def test_copeland_and_borda_read_the_probabilities() -> None:
    X, Y = rankings(k=5)
    model = PairwiseLabelRanker().fit(X, Y)
    sure = before(model, X)
    defeats = (sure < 0.5).sum(axis=2)
    transitive = [r for r in range(len(X)) if len(set(defeats[r])) == 5]
    assert len(transitive) > 100
    for r in transitive:
        np.testing.assert_array_equal(model.predict(X[r : r + 1])[0], defeats[r])
    borda = PairwiseLabelRanker(aggregation="borda").fit(X, Y)
    np.testing.assert_allclose(borda.predict_scores(X), (sure.sum(axis=2) - 0.5) / 4, atol=1e-9)


def test_unseen_pairs_are_named_and_even() -> None:
    X, _ = rankings(60)
    Y = np.full((60, 4), np.nan)
    Y[:20, :2] = [0, 1]  # 0 before 1
    Y[20:40, 1:3] = [0, 1]  # 1 before 2; label 3 is met by 2 only
    Y[40:, 2:] = [0, 1]
    with pytest.warns(UserWarning, match=r"no training row orders the labels \(0, 2\), \(0, 3\), \(1, 3\)"):
        model = PairwiseLabelRanker().fit(X, Y)
    assert sorted(model.unseen_pairs_.tolist()) == [[0, 2], [0, 3], [1, 3]]
    even = before(model, X)
    assert (even[:, [0, 0, 1], [2, 3, 3]] == 0.5).all()
    assert (model.predict(X)[:, 0] == 0).all()


def test_your_own_classifier_is_refused_by_save_not_by_fit(tmp_path: Path) -> None:
    X, Y = rankings(60)
    model = PairwiseLabelRanker(estimator=GaussianNB()).fit(X, Y)
    with pytest.raises(ValueError, match="PairwiseLabelRanker of GaussianNB cannot be saved"):
        save(model, tmp_path / "model")
    with pytest.raises(ValueError, match="'logistic', 'forest' or 'tree', or a Classifier"):
        PairwiseLabelRanker(estimator=3).fit(X, Y)
    with pytest.raises(ValueError, match="estimator is 'svm'"):
        PairwiseLabelRanker(estimator="svm").fit(X, Y)
    with pytest.raises(ValueError, match="aggregation is 'sum'"):
        PairwiseLabelRanker(estimator=GaussianNB(), aggregation="sum").fit(X, Y)


def test_auto_hears_every_candidate_and_is_saved_whole(tmp_path: Path) -> None:
    X, Y = rankings(150)
    stages: list[str] = []
    with listening(lambda fraction, stage: stages.append(stage)):
        model = LabelRankingAuto(n_folds=2, random_state=0).fit(X, Y)
    assert all(tau > 0.5 for name, tau in model.tau_.items() if name != "constant")
    assert sum(model.weights_.values()) == pytest.approx(1.0)
    assert model.blend_tau_ >= max(model.tau_.values()) - 0.02
    assert {f"trying {name}" for name in model.tau_} <= set(stages)
    again = reloaded(model, tmp_path / "model")
    assert again.predict_scores(X).tobytes() == model.predict_scores(X).tobytes()
    assert (again.weights_, again.tau_) == (model.weights_, model.tau_)


def test_validation_on_noise_finds_nothing() -> None:
    """On rankings that no feature tells anything of, whoever is judged by rows it has seen looks good."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 3)).astype(np.float32)
    Y = rng.random((200, 4)).argsort(axis=1)
    model = LabelRankingAuto(candidates=["forest", "logistic"], n_folds=4, random_state=0).fit(X, Y)
    assert abs(model.tau_["forest"]) < 0.12, model.tau_
    assert abs(model.tau_["logistic"]) < 0.12, model.tau_


@pytest.mark.parametrize("share_missing", [0.0, 0.6])
def test_where_features_tell_nothing_the_one_ranking_for_all_stays(share_missing: float) -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((240, 6)).astype(np.float32)
    common = np.linspace(1.5, -1.5, 6)
    Y = positions_of(common + rng.standard_normal((240, 6)))
    learned = np.where(rng.random((120, 6)) < share_missing, np.nan, Y[:120])
    learned[np.isnan(learned).all(axis=1), 0] = 0
    model = LabelRankingAuto(candidates=["constant", "forest", "logistic"], random_state=0).fit(
        X[:120], learned
    )
    assert model.weights_ == {"constant": 1.0}
    assert (model.predict(X[120:]) == model.predict(X[:1])).all()
    forest = LabelRankingAuto(candidates=["forest"], random_state=0).fit(X[:120], learned)
    assert model.score(X[120:], Y[120:]) > forest.score(X[120:], Y[120:])
