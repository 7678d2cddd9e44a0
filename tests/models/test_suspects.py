"""Rows that look wrong are found, and rows that are all right are not."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.models.evaluation.suspects import near_duplicates, suspects


def people(n: int, rows: int, width: int = 32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(n, width))
    X = np.repeat(centres, rows, axis=0) + 0.5 * rng.normal(size=(n * rows, width))
    return X.astype(np.float32), np.repeat(np.arange(n), rows)


@pytest.mark.parametrize("width", [2, 32, 300])
def test_near_duplicates_are_found_and_nothing_else(width: int) -> None:
    X, y = people(300, 4, width)
    # Two columns hold rows that are close by chance; what was planted must be found all the same.
    assert width == 2 or not sum(map(len, near_duplicates(X, y)))
    rng = np.random.default_rng(1)
    copies = rng.choice(len(X), 60, replace=False)
    X2 = np.concatenate([X, X[copies] * np.float32(1 + 1e-4)])
    y2 = np.concatenate([y, np.where(np.arange(60) < 30, y[copies], y[copies] + 1000)])
    found = near_duplicates(X2, y2)
    planted = {(int(row), len(X) + at) for at, row in enumerate(copies)}
    across, within = ({(int(a), int(b)) for a, b in some} for some in found)
    if width > 2:
        assert across | within <= planted
        assert len(across) >= 27
        assert len(within) >= 27
    equal = near_duplicates(np.concatenate([X, X[:50]]), np.concatenate([y, y[:50] + 1000]))
    if width > 2:
        assert {int(a) for a, _ in equal[0]} == set(range(50))


def test_few_or_equal_rows_raise_no_suspicion() -> None:
    for X in (np.zeros((1, 3)), np.zeros((50, 3)), np.ones((2, 1))):
        assert not sum(map(len, near_duplicates(X, np.arange(len(X)))))


def test_double_names_and_wrong_labels_are_reported() -> None:
    X, y = people(40, 6, 64)
    y = y.copy()
    # Person 3 is also called 40; one row of person 7 is said to be of person 8.
    y[3 * 6 + 3 : 4 * 6] = 40
    y[7 * 6] = 8
    left, right = np.triu_indices(len(y), 1)
    scores = -np.linalg.norm(X[left] - X[right], axis=1)
    rows = np.stack([left, right], axis=1)
    double_names, labels = suspects(scores, y[left] == y[right], rows, y[rows])
    assert double_names.tolist() == [[3, 40]]
    assert labels.tolist() == [7 * 6]
    clean = np.repeat(np.arange(40), 6)
    assert not sum(map(len, suspects(scores, clean[left] == clean[right], rows, clean[rows])))
