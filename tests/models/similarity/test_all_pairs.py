"""Counts over all pairs, by autocorrelation, against going through the pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from models import SimilarityTree
from models.pairs import pair_features
from models.similarity.all_pairs import pair_counts, root_split

X, y = load_digits(return_X_y=True)
X = X.astype(np.float32)


@pytest.mark.parametrize("pair_map", ["diff-sum", "max-min"])
@pytest.mark.parametrize("n_classes", [2, 40])
def test_counts_equal_enumeration(pair_map: Any, n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    codes = rng.integers(0, 256, (120, 3)).astype(np.uint8)
    codes[:40] //= 16
    classes = rng.integers(0, n_classes, 120)
    counts = pair_counts(codes, classes, pair_map)
    left, right = np.triu_indices(120, 1)
    bins = pair_features(codes[left].astype(np.float32), codes[right].astype(np.float32), pair_map).astype(
        int
    )
    for kind, which in enumerate((classes[left] == classes[right], classes[left] != classes[right])):
        for half in range(2):
            for k in range(3):
                expected = np.bincount(bins[which, 3 * half + k], minlength=counts.shape[3])
                assert counts[kind, half, k].tolist() == expected.tolist()


@pytest.mark.parametrize("pair_map", ["diff-sum", "max-min"])
def test_the_root_split_is_that_of_a_tree_grown_on_every_pair(pair_map: Any) -> None:
    found = root_split(X[:400], y[:400], pair_map)
    left, right = np.triu_indices(400, 1)
    same = y[left] == y[right]
    f = pair_features(X[left], X[right], pair_map)
    assert (found.n_same, found.n_different) == (same.sum(), (~same).sum())
    half = ("|x - x'|", "max(x, x')").count(found.map) == 0
    low = f[:, 64 * half + found.feature] <= found.threshold
    assert (found.low_same, found.low_different) == ((low & same).sum(), (low & ~same).sum())
    tree = (
        SimilarityTree(max_depth=1, leaf_depth=1, n_pairs=None, pair_map=pair_map)
        .fit(X[:400], y[:400])
        .trees_[0]
    )
    grown = f[:, tree.node_feature[0]] <= tree.node_threshold[0]
    a, c = (grown & same).sum() / same.sum(), (grown & ~same).sum() / (~same).sum()
    assert found.impurity == pytest.approx(a * c / (a + c) + (1 - a) * (1 - c) / (2 - a - c), rel=1e-9)


def test_nothing_to_split_is_refused() -> None:
    with pytest.raises(ValueError, match="every feature is constant"):
        root_split(np.ones((6, 2)), [0, 0, 1, 1, 2, 2])
    with pytest.raises(ValueError, match="single identity"):
        root_split(X[:6], np.zeros(6))
