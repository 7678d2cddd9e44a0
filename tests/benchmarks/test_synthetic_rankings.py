"""Generators of rankings: their distributions are the ones they are named after."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._synthetic_rankings import (
    alpha_inconsistency,
    beta_gap,
    linear_scores,
    make_lfn,
    make_ranking_data,
    make_sfn,
    mallows_mean_distance,
    sample_mallows,
    truncated_gaussian,
    with_missing,
    with_ties,
)
from pairmark.models.evaluation.rankings import kendall_tau


def discordant(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    k = a.shape[1]
    return (1 - kendall_tau(a, b)) * k * (k - 1) / 4


@pytest.mark.parametrize("theta", [0.0, 0.4, 1.5])
def test_mallows_draws_have_the_models_probabilities(theta: float) -> None:
    centre = np.array([2.0, 0.0, 3.0, 1.0])
    n = 60_000
    drawn = sample_mallows(np.tile(centre, (n, 1)), theta, random_state=0)
    every = np.array(list(permutations(range(4))), dtype=float)
    weight = np.exp(-theta * discordant(every, np.tile(centre, (24, 1))))
    expected = weight / weight.sum()
    codes = drawn @ [64, 16, 4, 1]
    seen = np.array([(codes == code).mean() for code in every @ [64, 16, 4, 1]])
    assert seen.sum() == pytest.approx(1.0)
    assert np.abs(seen - expected).max() < 5 * np.sqrt(expected.max() / n)


@pytest.mark.parametrize(("k", "theta"), [(2, 0.7), (5, 2.0), (200, 0.05), (200, 3.0), (7, 0.0)])
def test_mallows_distances_have_the_known_mean_for_any_k(k: int, theta: float) -> None:
    rng = np.random.default_rng(k)
    centre = np.argsort(rng.random((600, k)), axis=1).astype(float)
    drawn = sample_mallows(centre, theta, random_state=1)
    distances = discordant(centre, drawn)
    expected = mallows_mean_distance(k, theta)
    error = distances.std() / np.sqrt(len(distances)) + 1e-9
    assert abs(distances.mean() - expected) < 5 * error


def test_a_dispersion_for_each_row_and_certainty_in_the_limit() -> None:
    centre = np.tile(np.arange(6.0), (4_000, 1))
    theta = np.repeat([0.0, 500.0], 2_000)
    drawn = sample_mallows(centre, theta, random_state=0)
    assert (drawn[2_000:] == centre[2_000:]).all()
    assert abs(kendall_tau(centre[:2_000], drawn[:2_000]).mean()) < 0.05


def test_mallows_refuses_what_is_no_ranking() -> None:
    with pytest.raises(ValueError, match="permutations"):
        sample_mallows([[0.0, 0.0, 1.0]], 1.0)
    with pytest.raises(ValueError, match="theta"):
        sample_mallows([[0.0, 1.0]], -1.0)


def test_noise_is_centred_and_stays_within_its_bound() -> None:
    for std in (0.05, 0.25):
        drawn = truncated_gaussian(std)((100_000, 1), np.random.default_rng(0))
        assert np.abs(drawn).max() <= 0.25
        assert abs(drawn.mean()) < 0.004
    assert truncated_gaussian(0.05)((100_000, 1), np.random.default_rng(0)).std() == pytest.approx(
        0.05, rel=0.02
    )
    assert not truncated_gaussian(0.0)((3, 2), np.random.default_rng(0)).any()


def test_score_functions_are_sparse_and_span_their_interval() -> None:
    m = linear_scores(40, 3, n_informative=4, random_state=1)
    corners = np.zeros((2**4, 40))
    corners[:, m.features] = np.array(np.meshgrid(*[[0, 1]] * 4)).reshape(4, -1).T
    scores = m(corners)
    assert scores.min(axis=0) == pytest.approx(np.full(3, 0.25))
    assert scores.max(axis=0) == pytest.approx(np.full(3, 0.75))
    elsewhere = corners.copy()
    elsewhere[:, np.setdiff1d(np.arange(40), m.features)] = 1
    assert np.array_equal(m(elsewhere), scores)


def test_the_papers_families_and_how_noisy_they_are() -> None:
    clean = make_sfn(500, random_state=3)
    assert clean.X.shape == (500, 100)
    assert clean.truth.shape == (500, 5)
    assert np.array_equal(clean.rankings, clean.truth)
    assert alpha_inconsistency(clean.truth, clean.rankings) == 0.0
    assert beta_gap(clean.truth, clean.rankings) == 1.0
    best = np.argmax(clean.scores, axis=1)
    assert (clean.truth[np.arange(500), best] == 0).all()
    gaps = []
    for std in (0.01, 0.05, 0.2):
        noisy = make_sfn(500, noise=truncated_gaussian(std), random_state=3)
        assert np.array_equal(noisy.truth, clean.truth)
        gaps.append(beta_gap(noisy.truth, noisy.rankings))
        assert 0 < alpha_inconsistency(noisy.truth, noisy.rankings) < 1
    assert gaps == sorted(gaps, reverse=True)
    assert make_lfn(10, random_state=0).X.shape == (10, 1_000)
    assert np.array_equal(make_lfn(10, random_state=0).rankings, make_lfn(10, random_state=0).rankings)


def test_missing_labels_follow_the_survival_probabilities() -> None:
    m = linear_scores(20, 4, n_informative=3, random_state=0)
    fixed = make_ranking_data(4_000, 20, m, survival=[1.0, 0.9, 0.5, 0.1], random_state=0)
    seen = ~np.isnan(fixed.rankings)
    assert seen.mean(axis=0) == pytest.approx([1.0, 0.9, 0.5, 0.1], abs=0.03)
    by_point = make_ranking_data(
        2_000, 20, m, survival=lambda X: np.where(X[:, :1] > 0, 1.0, 0.2) * np.ones((1, 4)), random_state=0
    )
    full = (~np.isnan(by_point.rankings)).all(axis=1)
    assert full[by_point.X[:, 0] > 0].all()
    assert full[by_point.X[:, 0] == 0].mean() < 0.05


@given(st.integers(2, 9), st.floats(0, 1), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_what_survives_keeps_its_order(k: int, survival: float, at_least: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = np.argsort(rng.random((20, k)), axis=1).astype(float)
    part = with_missing(whole, survival, at_least=min(at_least, k), random_state=seed)
    for row, kept in zip(whole, part, strict=True):
        there = ~np.isnan(kept)
        assert there.sum() >= min(at_least, k)
        assert np.array_equal(np.argsort(row[there]), np.argsort(kept[there]))
        assert sorted(kept[there]) == list(range(int(there.sum())))


@given(st.integers(2, 9), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_ties_join_neighbours_only(k: int, boundary: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = np.argsort(rng.random((20, k)), axis=1).astype(float)
    tied = with_ties(whole, boundary, random_state=seed)
    in_order = np.take_along_axis(tied, np.argsort(whole, axis=1), axis=1)
    steps = np.diff(in_order, axis=1)
    assert set(np.unique(steps)) <= {0.0, 1.0}
    assert (in_order[:, 0] == 0).all()
    if boundary == 1.0:
        assert np.array_equal(tied, whole)
