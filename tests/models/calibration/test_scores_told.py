"""Scores that are none: distances."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark import operating_point


def test_distances_given_as_scores_are_told() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(150), 2)
    X = rng.normal(size=(150, 8))[y] + 0.3 * rng.normal(size=(300, 8))
    i, j = np.triu_indices(len(X), 1)
    distances = np.linalg.norm(X[i] - X[j], axis=1)
    with pytest.raises(ValueError, match="positive pairs score lower than negative ones"):
        operating_point(distances, y[i] == y[j], 0.05, units=(y[i], y[j]))
    assert operating_point(-distances, y[i] == y[j], 0.05, units=(y[i], y[j])).tpr > 0.9
