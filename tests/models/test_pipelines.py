"""A similarity behind scalers: one model of raw rows, saved and loaded as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from pairmark import (
    LabelRankingTree,
    MetricSimilarity,
    Plda,
    SimilarityAuto,
    SimilarityForest,
    from_pipeline,
    load,
    save,
)
from pairmark.models.core.artefact import ArtefactError

SCALING = "column-scaling"
RNG = np.random.default_rng(0)
Y = np.repeat(np.arange(20), 5)
SCALES = np.array([1e-4, 1.0, 30.0, 1e5])
X = 7 * SCALES + SCALES * (RNG.standard_normal((20, 4))[Y] + 0.4 * RNG.standard_normal((100, 4)))


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
    pipeline = make_pipeline(scaler, last).fit(X, Y)
    Z, inner = pipeline[:-1].transform(X), pipeline[-1]
    model = from_pipeline(pipeline)
    np.testing.assert_allclose(
        model.pair_score(X[:50], X[50:]), inner.pair_score(Z[:50], Z[50:]), rtol=1e-4, atol=1e-5
    )
    assert model.score(X, Y) == pytest.approx(pipeline.score(X, Y), abs=1e-4)
    scores = model.top_k(X[:3], X, 4)[1]
    assert scores[:, 0].tolist() == model.score_against(X[:3], X).max(axis=1).tolist()
    assert scores.tobytes() == model.top_k(X[:3], model.index(X), 4)[1].tobytes()
    save(pipeline, tmp_path / "whole")
    again = load(tmp_path / "whole")
    assert type(again) is type(last)
    assert again.pair_score(X[:50], X[50:]).tobytes() == model.pair_score(X[:50], X[50:]).tobytes()
    assert again.score_against(X[:2], X).tobytes() == model.score_against(X[:2], X).tobytes()


def test_scalers_in_a_row_are_one_and_float64_is_scaled_before_it_is_rounded() -> None:
    far = X + 1e7 * SCALES
    pipeline = make_pipeline("passthrough", StandardScaler(), MinMaxScaler((-1, 3)), MetricSimilarity()).fit(
        far, Y
    )
    Z = pipeline[:-1].transform(far)
    scores = from_pipeline(pipeline).pair_score(far[:50], far[50:])
    np.testing.assert_allclose(scores, pipeline[-1].pair_score(Z[:50], Z[50:]), rtol=1e-3, atol=1e-4)


def test_an_index_of_the_bare_model_is_another_models() -> None:
    pipeline = make_pipeline(StandardScaler(), Plda()).fit(X, Y)
    with pytest.raises(ValueError, match="another model"):
        from_pipeline(pipeline).top_k(X[:1], pipeline[-1].index(X), 1)
    assert "scaling_" not in vars(pipeline[-1])


def test_fitted_again_it_learns_from_rows_as_they_are() -> None:
    model = from_pipeline(make_pipeline(StandardScaler(), MetricSimilarity()).fit(X, Y)).fit(X, Y)
    assert model.pair_score(X, X[:1]).tobytes() == MetricSimilarity().fit(X, Y).pair_score(X, X[:1]).tobytes()


def test_missing_values_and_explanations_go_through(tmp_path: Path) -> None:
    rows = X.copy()
    rows[::7, 1] = np.nan
    pipeline = make_pipeline(StandardScaler(), SimilarityAuto(candidates=["plda"])).fit(rows, Y)
    save(pipeline, tmp_path / "whole")
    model = load(tmp_path / "whole")
    assert np.isfinite(model.pair_score(rows[:50], rows[50:])).all()
    told = model.explain(rows[:1], rows[7:8])
    assert told["learner"] == model._kind


def test_columns_names_are_those_of_the_first_step(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    save(make_pipeline(StandardScaler(), MetricSimilarity()).fit(frame, Y), tmp_path / "whole")
    model = load(tmp_path / "whole")
    with pytest.raises(ValueError, match="feature names"):
        model.pair_score(frame[["b", "a", "c", "d"]], frame)


def test_sparse_rows_are_scaled_but_never_centred() -> None:
    rows = csr_array(np.where(X > 7 * SCALES, X, 0.0))
    model = from_pipeline(make_pipeline(MaxAbsScaler(), MetricSimilarity()).fit(rows, Y))
    dense = model.pair_score(rows.toarray()[:50], rows.toarray()[50:])
    np.testing.assert_allclose(model.pair_score(rows[:50], rows[50:]), dense, rtol=1e-5)
    centred = from_pipeline(make_pipeline(StandardScaler(), MetricSimilarity()).fit(rows.toarray(), Y))
    with pytest.raises(ValueError, match="toarray"):
        centred.pair_score(rows[:50], rows[50:])
    with pytest.raises(ValueError, match="too large"):
        model.pair_score(np.full((1, 4), 1e300), X[:1])


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
        pipeline.fit(X, Y)
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

    save(make_pipeline(StandardScaler(), MetricSimilarity()).fit(X, Y), tmp_path / "whole")
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
