"""The linear SVM at the end of the chain is the minimum of its loss."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.models.rankboost import svm


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
