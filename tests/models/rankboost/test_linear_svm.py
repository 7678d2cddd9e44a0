"""The linear SVM at the end of the chain is the minimum of its loss."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from pairmark import RankBoostKernel
from pairmark.models.rankboost import svm
from pairmark.models.rankboost.rules import Coordinates


def loss(rule: svm.LinearRule, rows: np.ndarray, signs: np.ndarray, at: int) -> float:
    """Of one plane, for rows of root mean square length 1 and C = 1."""
    short = np.maximum(0.0, 1.0 - signs * (rows @ rule.coef[at] + rule.intercept[at]))
    return 0.5 * float(rule.coef[at] @ rule.coef[at] + rule.intercept[at] ** 2) + float(short @ short)


def world(n: int, width: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, classes, n)
    rows = rng.standard_normal((n, width)) + 1.5 * rng.standard_normal((classes, width))[codes]
    rows /= np.sqrt(np.mean((rows**2).sum(axis=1)))
    return rows.astype(np.float32), codes


@pytest.mark.parametrize("classes", [2, 4])
def test_no_other_plane_has_a_smaller_loss(classes: int) -> None:
    rows, codes = world(2_000, 12, classes)
    ours = svm.linear_svm(rows, codes, 1.0)
    theirs = svm._by_liblinear(rows, codes, 1.0, 1.0)
    assert ours.coef.shape == theirs.coef.shape
    for at in range(ours.coef.shape[0]):
        signs = np.where(codes == (1 if classes == 2 else at), 1.0, -1.0)
        exact = rows.astype(np.float64)
        least = loss(ours, exact, signs, at)
        assert least <= loss(theirs, exact, signs, at) * (1 + 1e-9)
        for direction in np.random.default_rng(1).standard_normal((20, 12)):
            moved = svm.LinearRule(coef=ours.coef + 1e-3 * direction, intercept=ours.intercept)
            assert loss(moved, exact, signs, at) > least
    assert (ours.predict(rows) == theirs.predict(rows)).mean() > 0.999


def test_rows_of_one_class_apart_from_all_others_by_far_and_equal_rows_are_no_trouble() -> None:
    rows = np.repeat(np.eye(3, dtype=np.float32), 5, axis=0)
    codes = np.repeat([0, 1, 2], 5)
    assert svm.linear_svm(rows, codes, 1.0).predict(rows).tolist() == codes.tolist()
    assert np.isfinite(svm.linear_svm(np.zeros((15, 3), np.float32), codes, 1.0).coef).all()


def test_more_columns_than_rows_are_learned_from_too() -> None:
    rows, codes = world(30, 80, 2)
    assert (svm.linear_svm(rows, codes, 1.0).predict(rows) == codes).all()


@pytest.mark.parametrize("components", [None, 30])
@pytest.mark.parametrize("classes", [2, 3])
def test_rows_of_few_coordinates_get_the_plane_that_the_rows_they_stand_for_get(
    components: int | None, classes: int
) -> None:
    rng = np.random.default_rng(2)
    mapped = csr_array(random_array((1_500, 40), density=0.1, rng=rng, format="csr"))
    matrix = np.eye(40) if components is None else rng.standard_normal((40, components))
    rows = (mapped @ matrix).astype(np.float32)
    codes = np.digitize(rows[:, :3].sum(axis=1) + rng.standard_normal(1_500), [-0.5, 0.5][: classes - 1])
    few = Coordinates(
        starts=mapped.indptr.astype(np.int64),
        at=mapped.indices.astype(np.int64),
        values=mapped.data,
        means=np.zeros(1_500),
        width=40,
    )
    assert svm.is_narrow(1_500, components or 40, 40, lambda: few)
    by_map, by_rows = svm.linear_svm_of_map(mapped, matrix, codes, 1.0), svm.linear_svm(rows, codes, 1.0)
    np.testing.assert_allclose(by_map.coef, by_rows.coef, atol=1e-5 * np.abs(by_rows.coef).max())
    np.testing.assert_allclose(by_map.intercept, by_rows.intercept, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"chain": "A-D"},
        {"chain": "A-B-D", "n_pivots": 200},
        {"coordinates": "features"},
        {"weak": "grid"},
    ],
)
def test_a_fit_of_rows_with_few_coordinates_ends_at_the_plane_of_their_embedding(settings: dict) -> None:
    rng = np.random.default_rng(3)
    X = csr_array((rng.random((1_600, 60)) < 0.1).astype(np.float32))
    y = (X @ rng.standard_normal(60) + 0.5 * rng.standard_normal(1_600) > 0).astype(int)
    model = RankBoostKernel(n_estimators=100, **settings).fit(X, y)
    assert model._maps_to_few(X, 1_600)
    assert model.rules_.distinct()[0].size < len(model.rules_)
    expected = svm.linear_svm(model.transform(X), y, 1.0).score(model.transform(X))
    np.testing.assert_allclose(model.svm_score(X), expected, atol=1e-4)
    same = RankBoostKernel(n_estimators=100, **settings).fit(X, y, unlabelled=X.toarray())
    np.testing.assert_array_equal(same.transform(X), model.transform(X))
