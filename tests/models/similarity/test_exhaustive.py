"""Regions by equation (3): they are the best of all trees of depth 2, and find what greedy trees miss."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from pairmark import SimilarityTree
from pairmark.models.similarity.exhaustive import LEFT, Region, best_region
from pairmark.models.similarity.node_splits import AxisSplits

COLUMNS = np.array([4, 9, 11])


def gone_left(region: Region, f: np.ndarray) -> np.ndarray:
    """Node by node, pair by pair."""
    assert isinstance(region.splits, AxisSplits)
    names = {int(name): place for place, name in enumerate(COLUMNS)}
    found = []
    for row in f:
        at = 0
        while at >= 0:
            feature = names[int(region.splits.features[at])]
            at = (region.high if row[feature] > region.splits.thresholds[at] else region.low)[at]
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


def test_features_informative_only_together_are_found() -> None:
    """The class is the exclusive or of two signs; best is Lambda 1/4 and more, and no border alone tells anything."""
    rng = np.random.default_rng(0)

    def pairs(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = rng.normal(size=(2, n, 4)).astype(np.float32)
        y = (x[..., 0] > 0) ^ (x[..., 1] > 0)
        return x[0], x[1], y[0] == y[1]

    left, right, same = pairs(6_000)
    test = pairs(10_000)
    auc = {
        leaf_rank: roc_auc_score(
            test[2],
            SimilarityTree(leaf_rank=leaf_rank, leaf_depth=2, max_depth=3, random_state=0)
            .fit_pairs(left, right, same)
            .pair_score(*test[:2]),
        )
        for leaf_rank in ("cart", "exhaustive")
    }
    assert auc["exhaustive"] > max(0.68, auc["cart"] + 0.05)
