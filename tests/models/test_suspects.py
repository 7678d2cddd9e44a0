"""Rows that look wrong are found, and rows that are all right are not."""

from __future__ import annotations

import numpy as np

from pairmark.models.evaluation.suspects import suspects


def people(n: int, rows: int, width: int = 32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(n, width))
    X = np.repeat(centres, rows, axis=0) + 0.5 * rng.normal(size=(n * rows, width))
    return X.astype(np.float32), np.repeat(np.arange(n), rows)


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
