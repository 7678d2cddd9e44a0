"""Learners within scikit-learn's tools: model selection without a scorer, pipelines, names of columns, data frames."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from pairmark import (
    Ghost,
    LabelRankingTree,
    MetricSimilarity,
    Plda,
    SimilarityAuto,
    SimilarityForest,
    from_pipeline,
    load,
    operating_point,
    save,
)
from pairmark.models.core.artefact import ArtefactError
from tests.models.saving import reloaded

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


SCALING = "column-scaling"
DRAWS = np.random.default_rng(0)
SCALES = np.array([1e-4, 1.0, 30.0, 1e5])
RAW = 7 * SCALES + SCALES * (DRAWS.standard_normal((20, 4))[Y] + 0.4 * DRAWS.standard_normal((100, 4)))


@pytest.mark.parametrize(
    ("scaler", "last"),
    [
        (StandardScaler(), SimilarityAuto(candidates=["cosine", "plda"])),
        (MinMaxScaler(), MetricSimilarity(metric="euclidean")),
        (MaxAbsScaler(), SimilarityForest(n_estimators=3, n_pairs=500)),
        (RobustScaler(), MetricSimilarity(metric="euclidean")),
    ],
    ids=lambda one: type(one).__name__,
)
def test_it_scores_raw_rows_as_the_pipeline_does_scaled_ones(scaler: Any, last: Any, tmp_path: Path) -> None:
    pipeline = make_pipeline(scaler, last).fit(RAW, Y)
    Z, inner = pipeline[:-1].transform(RAW), pipeline[-1]
    model = from_pipeline(pipeline)
    np.testing.assert_allclose(
        model.pair_score(RAW[:50], RAW[50:]), inner.pair_score(Z[:50], Z[50:]), rtol=1e-4, atol=1e-5
    )
    assert model.score(RAW, Y) == pytest.approx(pipeline.score(RAW, Y), abs=1e-4)
    scores = model.top_k(RAW[:3], RAW, 4)[1]
    assert scores[:, 0].tolist() == model.score_against(RAW[:3], RAW).max(axis=1).tolist()
    assert scores.tobytes() == model.top_k(RAW[:3], model.index(RAW), 4)[1].tobytes()
    again = reloaded(pipeline, tmp_path / "whole")
    assert type(again) is type(last)
    assert again.pair_score(RAW[:50], RAW[50:]).tobytes() == model.pair_score(RAW[:50], RAW[50:]).tobytes()
    assert again.score_against(RAW[:2], RAW).tobytes() == model.score_against(RAW[:2], RAW).tobytes()


def test_scalers_in_a_row_are_one_and_float64_is_scaled_before_it_is_rounded() -> None:
    far = RAW + 1e7 * SCALES
    pipeline = make_pipeline("passthrough", StandardScaler(), MinMaxScaler((-1, 3)), MetricSimilarity()).fit(
        far, Y
    )
    Z = pipeline[:-1].transform(far)
    scores = from_pipeline(pipeline).pair_score(far[:50], far[50:])
    np.testing.assert_allclose(scores, pipeline[-1].pair_score(Z[:50], Z[50:]), rtol=1e-3, atol=1e-4)


def test_an_index_of_the_bare_model_is_another_models() -> None:
    pipeline = make_pipeline(StandardScaler(), Plda()).fit(RAW, Y)
    with pytest.raises(ValueError, match="another model"):
        from_pipeline(pipeline).top_k(RAW[:1], pipeline[-1].index(RAW), 1)
    assert "scaling_" not in vars(pipeline[-1])


def test_fitted_again_it_learns_from_rows_as_they_are() -> None:
    model = from_pipeline(make_pipeline(StandardScaler(), MetricSimilarity()).fit(RAW, Y)).fit(RAW, Y)
    assert (
        model.pair_score(RAW, RAW[:1]).tobytes()
        == MetricSimilarity().fit(RAW, Y).pair_score(RAW, RAW[:1]).tobytes()
    )


def test_missing_values_and_explanations_go_through(tmp_path: Path) -> None:
    rows = RAW.copy()
    rows[::7, 1] = np.nan
    pipeline = make_pipeline(StandardScaler(), SimilarityAuto(candidates=["plda"])).fit(rows, Y)
    model = reloaded(pipeline, tmp_path / "whole")
    assert np.isfinite(model.pair_score(rows[:50], rows[50:])).all()
    assert model.explain(rows[:1], rows[7:8])["learner"] == model._kind


def test_sparse_rows_are_scaled_but_never_centred() -> None:
    rows = csr_array(np.where(RAW > 7 * SCALES, RAW, 0.0))
    model = from_pipeline(make_pipeline(MaxAbsScaler(), MetricSimilarity()).fit(rows, Y))
    dense = model.pair_score(rows.toarray()[:50], rows.toarray()[50:])
    np.testing.assert_allclose(model.pair_score(rows[:50], rows[50:]), dense, rtol=1e-5)
    centred = from_pipeline(make_pipeline(StandardScaler(), MetricSimilarity()).fit(rows.toarray(), Y))
    with pytest.raises(ValueError, match="toarray"):
        centred.pair_score(rows[:50], rows[50:])
    with pytest.raises(ValueError, match="too large"):
        model.pair_score(np.full((1, 4), 1e300), RAW[:1])


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (make_pipeline(PCA(2), MetricSimilarity()), "cannot become part"),
        (make_pipeline(MinMaxScaler(clip=True), MetricSimilarity()), "cannot become part"),
        (make_pipeline(StandardScaler(), PCA(2)), "does not end with a similarity"),
        (make_pipeline("passthrough"), "does not end with a similarity"),
        (make_pipeline(StandardScaler(), LabelRankingTree()), "does not end with a similarity"),
    ],
)
def test_other_steps_are_refused_by_name(pipeline: Any, message: str, tmp_path: Path) -> None:
    if isinstance(pipeline[-1], MetricSimilarity):
        pipeline.fit(RAW, Y)
    with pytest.raises(ValueError, match=message):
        save(pipeline, tmp_path / "whole")


def test_an_unfitted_pipeline_is_refused() -> None:
    with pytest.raises(NotFittedError):
        from_pipeline(make_pipeline(StandardScaler(), MetricSimilarity()))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((2, 3)), "expected"),
        (np.ones((2, 4), dtype=np.float32), "expected"),
        (np.array([np.ones(4), [1, 1, 0, 1]]), "above zero"),
        (np.array([[np.nan, 0, 0, 0], np.ones(4)]), "finite"),
    ],
)
def test_an_array_that_no_scaler_writes_is_refused(array: np.ndarray, message: str, tmp_path: Path) -> None:
    from pairmark.models.core.artefact import read_artefact, write_artefact

    save(make_pipeline(StandardScaler(), MetricSimilarity()).fit(RAW, Y), tmp_path / "whole")
    old = read_artefact(tmp_path / "whole")
    write_artefact(
        tmp_path / "other",
        kind=old.kind,
        params=old.params,
        meta=old.meta,
        arrays={**old.arrays, SCALING: array},
    )
    with pytest.raises(ArtefactError, match=message):
        load(tmp_path / "other")
