"""Weights of several systems: the logistic regression that they are, and halves that keep people apart."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.models.calibration.likelihood_ratios import SystemWeights, halves


def test_weights_are_the_logistic_regression_of_balanced_pairs() -> None:
    rng = np.random.default_rng(0)
    same = rng.random(20_000) < 0.1
    first = rng.normal(size=same.size) + 2 * same
    second = 3 * (rng.normal(size=same.size) + 1 * same) + 7
    weights = SystemWeights.fit(np.column_stack([first, second]), same)
    # Gaussian classes: log LR is 2 x - 2 by the first, and x - 1/2 in units of the second's spread.
    np.testing.assert_allclose(weights.weight, [2, 1 / 3], rtol=0.15)
    reversed_second = SystemWeights.fit(np.column_stack([first, -second]), same)
    assert reversed_second.weight[0] > 0
    assert reversed_second.weight[1] == 0


def test_a_combined_score_depends_on_its_own_row_alone() -> None:
    scores = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    weights = SystemWeights(weight=np.array([0.7, 0.0, 1.3]), intercept=-0.2)
    combined = weights.combined(scores)
    assert combined.dtype == np.float32
    np.testing.assert_allclose(combined, scores @ weights.weight - 0.2, rtol=1e-5, atol=1e-5)
    for row in range(50):
        assert weights.combined(scores[row : row + 1])[0].tobytes() == combined[row].tobytes()
    huge = np.full((1, 3), np.finfo(np.float32).max)
    assert np.isfinite(weights.combined(huge)).all()


def test_no_person_weighs_the_systems_and_calibrates_them() -> None:
    person = np.repeat(np.arange(30), 2)
    left, right = np.triu_indices(person.size, 1)
    units = np.column_stack([person[left], person[right]])
    weight_rows, calibration_rows = halves(units[:, 0] == units[:, 1], units, random_state=0)
    weighing, calibrating = set(units[weight_rows].ravel()), set(units[calibration_rows].ravel())
    assert not weighing & calibrating
    assert weighing | calibrating == set(range(30))


def test_a_half_without_both_kinds_of_pairs_is_refused() -> None:
    with pytest.raises(ValueError, match=r"half of the units that is to .* has no pairs that"):
        halves(np.array([True, False]), np.array([[0, 0], [1, 2]]), random_state=0)
