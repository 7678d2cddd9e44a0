"""Agreement of classifiers' probabilities."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.svm import SVC

from pairmark import SimilarityAuto, SimilarityClasses, load

X, y = load_iris(return_X_y=True)


@pytest.mark.parametrize("classifier", ["logistic", "svc", "extra-trees", "pool", "quick-pool"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_score_is_the_log_odds_that_two_rows_are_of_one_class(
    classifier: str, n_classes: int, tmp_path: Path
) -> None:
    rows, names = X[y < n_classes], np.array(["one", "two", "three"])[y[y < n_classes]]
    model = SimilarityClasses(classifier=classifier).fit(rows[::2], names[::2])
    left, right = np.triu_indices(75 * n_classes // 3 * 2 // 2, 1)
    scores = model.score_pairs(rows[1::2], left, right)
    same = names[1::2][left] == names[1::2][right]
    assert scores[same].mean() > 0 > scores[~same].mean()
    assert model.score(rows[1::2], names[1::2]) > 0.94
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").score_pairs(rows[1::2], left, right).tobytes() == scores.tobytes()


def test_a_class_that_joins_later_is_refused_by_name(tmp_path: Path) -> None:
    model = SimilarityClasses().fit(X[y < 2], y[y < 2])
    model.save(tmp_path / "model")
    for fitted in (model, load(tmp_path / "model")):
        with pytest.raises(ValueError, match="class '2' was not in training, but a class that joins later"):
            fitted.score(X, y)
    with pytest.raises(ValueError, match="protocol is 'open-set'"):
        SimilarityClasses(protocol="open-set").fit(X, y)
    for groups, said in (
        ([1, 2], r"groups has shape \(2,\); expected \(150,\), one group a row"),
        (np.where(y > 0, y, np.nan), "groups holds NaN"),
        (np.where(y > 0, "a", None), "groups has no group in 50 of 150 rows"),
    ):
        with pytest.raises(ValueError, match=said):
            SimilarityClasses().fit(X, y, groups=groups)


def test_every_class_of_many_is_known() -> None:
    rng = np.random.default_rng(0)
    places, labels = rng.normal(size=(230, 6)), np.repeat(np.arange(230), 3)
    rows = places[labels] + 0.05 * rng.normal(size=(690, 6))
    assert (
        SimilarityClasses(classifier="extra-trees", n_estimators=12).fit(rows, labels).score(rows, labels)
        > 0.9
    )


def test_classes_of_listed_pairs_have_no_names(tmp_path: Path) -> None:
    left, right = np.triu_indices(100, 7)
    model = SimilarityClasses(classifier="quick-pool").fit_pairs(X[left], X[right], y[left] == y[right])
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").score(X[100:], y[100:] + np.arange(50) % 2) == model.score(
        X[100:], y[100:] + np.arange(50) % 2
    )


def test_support_vectors_decide_as_those_of_scikit_learn() -> None:
    rows, labels = X[y > 0], y[y > 0]
    points = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    model = SimilarityClasses(classifier="svc").fit(rows, labels)
    reference = SVC(C=model.strength_[0], gamma=1 / 4).fit(points, labels).decision_function(points)
    # Beside the first row, the order of agreement is that of the decisions; support vectors have 1 within the solver's
    # tolerance.
    scores = model.pair_score(rows[np.argmax(reference)][None], rows)
    assert np.diff(reference[np.argsort(scores, kind="stable")]).min() > -0.01


def test_wrong_labels_and_groups_make_probabilities_softer() -> None:
    rows, labels = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    wrong = np.where(rng.random(labels.size) < 0.05, rng.integers(0, 3, labels.size), labels)
    right, noisy = (SimilarityClasses().fit(rows, values) for values in (labels, wrong))
    assert noisy.pair_score(rows, rows).mean() < right.pair_score(rows, rows).mean()
    # Ten copies of each row with labels by chance: folds that split them would find a classifier that knows them.
    copies, chance = np.repeat(rng.normal(size=(40, 5)), 10, axis=0), np.repeat(np.arange(40) % 2, 10)
    shifted = copies + 1e-3 * rng.normal(size=copies.shape)
    alone = SimilarityClasses(classifier="extra-trees").fit(shifted, chance)
    together = SimilarityClasses(classifier="extra-trees").fit(shifted, chance, groups=np.arange(400) // 10)
    assert together.sharpness_[0] < alone.sharpness_[0]


def test_the_default_takes_a_classifier_where_it_is_ahead() -> None:
    rows, labels = load_wine(return_X_y=True)
    model = SimilarityAuto(candidates=["cosine", "classes"]).fit(
        rows[::2], labels[::2], groups=np.arange(89) // 2
    )
    assert model.winner_ == "classes"
    assert isinstance(model.model_, SimilarityClasses)
