"""Learners within scikit-learn's tools: model selection without a scorer, pipelines, names of columns, data frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn import clone
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pairmark import Ghost, MetricSimilarity, Plda, SimilarityAuto, SimilarityForest, operating_point

RNG = np.random.default_rng(0)
Y = np.repeat(np.arange(20), 5)
CENTRES = RNG.standard_normal((20, 4)) * [3.0, 1.0, 1.0, 0.3]
X = (CENTRES[Y] + RNG.standard_normal((100, 4))).astype(np.float32)


def test_score_is_the_auc_of_all_pairs_of_rows() -> None:
    rows = np.round(X)
    model = MetricSimilarity("manhattan").fit(rows, Y)
    left, right = np.triu_indices(100, 1)
    scores, same = model.score_pairs(rows, left, right), Y[left] == Y[right]
    wins = scores[same][:, None] - scores[~same]
    assert model.score(rows, Y) == pytest.approx(((wins > 0) + 0.5 * (wins == 0)).mean())
    model.fit_pairs(rows[:-1], rows[1:], Y[:-1] == Y[1:])
    with pytest.raises(ValueError, match="every identity has one row"):
        model.score(X[::5], Y[::5])


@pytest.mark.parametrize("model", [Plda(), SimilarityForest(n_estimators=3)])
@pytest.mark.parametrize("splitter", [KFold(3), KFold(7), StratifiedKFold(5), LeaveOneGroupOut()])
def test_no_splitter_of_sorted_identities_gives_nan(model: Any, splitter: Any) -> None:
    # Parts to judge on hold one identity, parts of some, or one row of each.
    rows, y = X[:30], Y[:30]
    groups = y if isinstance(splitter, LeaveOneGroupOut) else None
    scores = cross_val_score(model, rows, y, groups=groups, cv=splitter, error_score="raise")
    assert ((scores > 0.3) & (scores <= 1)).all()
    names = np.array([f"person {number}" for number in y])
    fitted = MetricSimilarity()
    sparse = cross_val_score(fitted, csr_array(rows), names, groups=groups, cv=splitter, error_score="raise")
    assert np.isfinite(sparse).all()


def test_rows_of_one_identity_are_scored_beside_means_that_fit_saw() -> None:
    model = MetricSimilarity("euclidean").fit(X[:50], Y[:50])
    rows, means = X[50:55], X[:50].reshape(10, 5, 4).mean(axis=1)
    left, right = np.triu_indices(5, 1)
    same, apart = model.pair_score(rows[left], rows[right]), model.score_against(rows, means).ravel()
    wins = same[:, None] - apart
    assert model.score(rows, Y[50:55]) == pytest.approx(((wins > 0) + 0.5 * (wins == 0)).mean())
    with pytest.raises(ValueError, match="nor one that fit saw"):
        model.score(X[55::5], Y[55::5])


def test_models_are_selected_without_a_scorer() -> None:
    folds = GroupKFold(4)
    assert cross_val_score(Plda(), X, Y, groups=Y, cv=folds).mean() > 0.8
    search = GridSearchCV(MetricSimilarity(), {"metric": ["euclidean", "manhattan"]}, cv=folds)
    assert search.fit(X, Y, groups=Y).best_params_ == {"metric": "euclidean"}
    assert search.score(X, Y) == search.best_estimator_.score(X, Y)
    in_pipe = make_pipeline(StandardScaler(), SimilarityForest(n_estimators=3))
    assert cross_val_score(in_pipe, X, Y, groups=Y, cv=folds).min() > 0.6


def test_classifiers_keep_their_accuracy() -> None:
    model = Ghost(max_iter=3).fit(X, Y)
    assert model.score(X, Y) == (model.predict(X) == Y).mean()


@pytest.mark.parametrize(
    "model", [Plda(), MetricSimilarity(whiten=True), SimilarityAuto(candidates=["plda"])]
)
def test_columns_have_names(model: Any) -> None:
    vectors = model.fit(X, Y).transform(X)
    names = model.get_feature_names_out()
    assert len(names) == len(set(names)) == vectors.shape[1]
    assert make_pipeline(StandardScaler(), model).fit(X, Y)[-1:].get_feature_names_out().tolist() == list(
        names
    )


def test_a_race_that_a_forest_won_makes_no_vectors() -> None:
    model = SimilarityAuto(candidates=["similarity forest"], budget_seconds=9).fit(X, Y)
    assert not hasattr(model, "transform")
    assert not hasattr(model, "set_output")


@pytest.mark.parametrize("model", [Plda(), MetricSimilarity(), SimilarityAuto(candidates=["plda"])])
def test_vectors_come_as_data_frames(model: Any) -> None:
    pandas = pytest.importorskip("pandas")
    plain = clone(model).fit(X, Y)
    framed = clone(clone(model).set_output(transform="pandas")).fit(X, Y)
    vectors = framed.transform(X)
    assert isinstance(vectors, pandas.DataFrame)
    assert vectors.columns.tolist() == framed.get_feature_names_out().tolist()
    assert vectors.to_numpy().tobytes() == plain.transform(X).tobytes()
    assert framed.explain(X[0], X[1]) == plain.explain(X[0], X[1])


class Column:
    """What pandas' Series and categoricals are to us: objects with an array."""

    def __init__(self, values: list[Any]) -> None:
        self._values = np.array(values, dtype=object)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._values


def test_units_come_as_columns_frames_and_objects() -> None:
    model = MetricSimilarity("euclidean").fit(X, Y)
    left, right = np.triu_indices(100, 1)
    scores, same = model.score_pairs(X, left, right), Y[left] == Y[right]
    names = np.array([f"person {one}" for one in Y])
    expected = operating_point(scores, same, 0.3, units=np.stack([names[left], names[right]], axis=1))
    columns = names[left].tolist(), names[right].tolist()
    shapes: list[Any] = [
        columns,
        (Column(columns[0]), Column(columns[1])),
        np.stack([np.array(side, dtype=object) for side in columns], axis=1),
        Column(list(zip(*columns, strict=True))),
    ]
    for units in shapes:
        assert operating_point(scores, same, 0.3, units=units) == expected
    numbers = operating_point(scores, same, 0.3, units=np.stack([Y[left], Y[right]], axis=1))
    assert operating_point(scores, same, 0.3, units=(Column(Y[left].tolist()), Y[right])) == numbers
    for wrong, words in (
        ((columns[0], columns[1][:-1]), "two columns of shapes"),
        ((Column([None, *columns[0][1:]]), columns[1]), "NoneType, str together"),
        ((Y[left], columns[1]), "words, or whole numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            operating_point(scores, same, 0.3, units=wrong)
