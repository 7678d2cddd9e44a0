"""Distances in a growing space, linear machines, and classes from pairs, by brute force."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.special import log_softmax
from sklearn.svm import SVC

from pairmark.models import RSBL
from pairmark.models.rsbl.growth import Distances
from pairmark.models.rsbl.inputs import classes_of_pairs
from pairmark.models.rsbl.kernels import spaces as kernels
from pairmark.models.rsbl.svm import by_class, exact_dual, fitted_sharpness, iterative_primal

SCIPY = {"euclidean": "euclidean", "manhattan": "cityblock", "chebyshev": "chebyshev", "hamming": "hamming",
         "cosine": "cosine", "correlation": "correlation"}  # fmt: skip


@pytest.mark.parametrize("metric", SCIPY)
def test_features_kept_as_one_measure_as_if_they_were_several(metric: str) -> None:
    rng = np.random.default_rng(0)
    rows, refs = rng.integers(0, 3, (9, 5)).astype(float), rng.integers(0, 3, (140, 5)).astype(float)
    more, ref_more = rng.choice([0.25, 0.5, 1.0], (9, 4)), rng.choice([0.25, 0.5, 1.0], (140, 4))
    counts = np.array([1.0, 4.0, 2.0, 7.0])
    grown = Distances(metric, 9, 140)
    grown.extend(rows.astype(np.float32), np.ascontiguousarray(refs.T, dtype=np.float32), np.ones(5))
    expected = cdist(rows, refs, SCIPY[metric]) ** 2
    # A constant row has no direction: it is as far from every other as if they were not related.
    expected = np.nan_to_num(expected, nan=1.0)
    np.testing.assert_allclose(grown.squared(), expected, atol=1e-5)
    before = deepcopy(grown)
    root = np.sqrt(counts)
    grown.extend(
        (more * root).astype(np.float32), np.ascontiguousarray((ref_more * root).T, dtype=np.float32), counts
    )
    whole, whole_refs = (
        np.hstack([a, np.repeat(b, counts.astype(int), axis=1)]) for a, b in ((rows, more), (refs, ref_more))
    )
    np.testing.assert_allclose(grown.squared(), cdist(whole, whole_refs, SCIPY[metric]) ** 2, atol=1e-5)
    np.testing.assert_allclose(before.squared(), expected, atol=1e-5)


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_nearest_is_a_stable_sort_without_the_row_itself(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    distances = rng.integers(0, 5, (8, 12)).astype(np.float32)
    own = np.where(rng.random(8) < 0.7, np.arange(8), -1)
    found = np.full((8, k), -9, dtype=np.int64)
    kernels.nearest(distances, own, k, found)
    for row in range(8):
        able = [at for at in range(12) if at != own[row]]
        assert found[row].tolist() == sorted(able, key=lambda at, row=row: (distances[row, at], at))[:k]


def test_machines_from_inner_products_are_libsvms() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((70, 5))
    two = (rows[:, 0] + 0.5 * rng.standard_normal(70) > 0).astype(np.int64)
    weights, intercepts = exact_dual(rows @ rows.T, two, 2, 32.0)
    expected = SVC(kernel="linear", C=32.0).fit(rows, two).decision_function(rows)
    np.testing.assert_allclose(rows @ rows.T @ weights[0] + intercepts[0], expected, atol=1e-2)
    three = (two + (rows[:, 1] > 0.5)).astype(np.int64)
    weights, intercepts = exact_dual(rows @ rows.T, three, 3, 1.0)
    for code in range(3):
        alone = SVC(kernel="linear", C=1.0).fit(rows, three == code).decision_function(rows)
        np.testing.assert_allclose(rows @ rows.T @ weights[code] + intercepts[code], alone, atol=1e-2)


def test_iterative_machines_reach_the_least_loss() -> None:
    rng = np.random.default_rng(1)
    # Features of very different sizes, as counted features are.
    rows = (rng.standard_normal((300, 8)) * np.array([1, 1, 1, 10, 30, 0.3, 5, 0])).astype(np.float32)
    rows[:, 3] += 40
    codes = (
        np.clip(np.round(rows[:, 0] + 0.1 * rows[:, 4] + 0.5 * rng.standard_normal(300)), -1, 1).astype(
            np.int64
        )
        + 1
    )
    coef, intercepts = iterative_primal(rows, codes, 3, 2.0, max_iter=1_000, tol=1e-12)
    for code in range(3):
        signs = np.where(codes == code, 1.0, -1.0)

        def loss(weight: np.ndarray, shift: float, signs: np.ndarray = signs) -> float:
            short = np.maximum(1 - signs * (rows @ weight + shift), 0)
            return 0.5 * float(weight @ weight) + 2.0 * float((short**2).sum())

        reached = loss(coef[code], intercepts[code])
        for _ in range(200):
            step = (
                rng.standard_normal(8)
                * rng.choice([1e-4, 1e-3, 1e-2])
                / np.maximum(np.abs(rows).mean(axis=0), 0.1)
            )
            assert loss(coef[code] + step, intercepts[code] + rng.standard_normal() * 1e-3) > reached * (
                1 - 1e-4
            )


def test_a_class_without_rows_never_wins() -> None:
    rows = np.random.default_rng(0).standard_normal((20, 3))
    codes = np.array([0, 2] * 10)
    weights, intercepts = exact_dual(rows @ rows.T, codes, 3, 1.0)
    decisions = by_class(rows @ rows.T @ weights.T + intercepts, 3)
    assert (decisions[:, 1] == -1.0).all()


def test_sharpness_is_that_of_the_decisions() -> None:
    rng = np.random.default_rng(0)
    for true in (0.2, 1.0, 5.0):
        decisions = rng.standard_normal((4_000, 3))
        chances = np.exp(log_softmax(true * decisions, axis=1))
        codes = (rng.random(4_000)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
        assert fitted_sharpness(decisions, codes) == pytest.approx(true, rel=0.15)
    certain = np.array([[1.0, -1.0]] * 10 + [[-1.0, 1.0]] * 10)
    sure = np.exp(log_softmax(fitted_sharpness(certain, np.repeat([0, 1], 10)) * certain, axis=1)).max()
    assert 0.9 < sure < 0.99


def test_same_pairs_join_rows_into_classes() -> None:
    rows = np.arange(14, dtype=np.float32).reshape(7, 2)
    left, right = np.array([0, 1, 3, 5, 0]), np.array([1, 2, 4, 6, 6])
    same = np.array([True, True, True, False, False])
    points, codes = classes_of_pairs(rows[left], rows[right], same, np.ones(5))
    place = {tuple(point): code for point, code in zip(points.tolist(), codes.tolist(), strict=True)}
    groups = [place[tuple(row)] for row in rows.tolist()]
    assert groups[0] == groups[1] == groups[2] != groups[3] == groups[4]
    assert len({groups[0], groups[3], groups[5], groups[6]}) == 4
    weak, codes = classes_of_pairs(rows[left], rows[right], same, np.array([1.0, 0, 1, 1, 1]))
    assert len(weak) == 6
    assert np.unique(codes).size == 4


def test_scores_compare_in_the_space_that_grew() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 3)).astype(np.float32)
    model = RSBL(depth=2, k_max=2).fit(rows, rows[:, 0] * rows[:, 1] > 0)
    H = model.transform(rows).astype(np.float64)
    unit = H / np.linalg.norm(H, axis=1, keepdims=True)
    np.testing.assert_allclose(model.score_against(rows, rows), unit @ unit.T, atol=2e-3)
    ids, scores = model.top_k(rows, np.repeat(rows, 3, axis=0), 6)
    np.testing.assert_array_equal(ids[:, :3], np.arange(60)[:, None] * 3 + np.arange(3))
    np.testing.assert_allclose(scores[:, 0], 1.0, atol=1e-6)
