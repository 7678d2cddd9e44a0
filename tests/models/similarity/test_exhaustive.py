"""Regions by equation (3): they are the best of all trees of depth 2, and find what greedy trees miss."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmark.models.similarity.exhaustive import LEFT, Region, best_region

COLUMNS = np.array([4, 9, 11])


def gone_left(region: Region, f: np.ndarray) -> np.ndarray:
    """Node by node, pair by pair."""
    names = {int(name): place for place, name in enumerate(COLUMNS)}
    found = []
    for row in f:
        at = 0
        while at >= 0:
            feature = names[int(region.features[at])]
            at = (region.high if row[feature] > region.thresholds[at] else region.low)[at]
        found.append(at == LEFT)
    return np.array(found)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(2, 40))
def test_no_tree_of_depth_two_has_a_greater_lambda(seed: int, n_features: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    f = rng.integers(-2, 3, (n, n_features)).astype(np.float32)
    same = rng.random(n) < 0.5
    same[:2] = True, False
    mass = np.where(same, 1 / same.sum(), -1 / (~same).sum())
    borders = [(k, value) for k in range(n_features) for value in np.unique(f[:, k])[:-1]]
    low = [f[:, k] <= value for k, value in borders]
    best = 0.0
    for first, a, b in itertools.product(low, repeat=3):
        leaves = (first & a, first & ~a, ~first & b, ~first & ~b)
        best = max(best, sum(max(mass[leaf].sum(), 0.0) for leaf in leaves))
    region = best_region(f, mass, COLUMNS[:n_features], rng)
    if region is None:
        assert best < 1e-6
        return
    assert mass[gone_left(region, f)].sum() == pytest.approx(best, abs=1e-6)
    assert all(low != high for low, high in zip(region.low, region.high, strict=True))
