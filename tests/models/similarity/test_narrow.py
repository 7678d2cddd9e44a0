"""Nodes of one word score as nodes of two do, to the last bit, whatever the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pairmark.models import SimilarityForest
from pairmark.models.similarity import packing
from pairmark.models.similarity.packing import AxisTrees, RowPairs
from tests.models.similarity.axis_trees import axis, packed


def wide(model: SimilarityForest, monkeypatch: pytest.MonkeyPatch) -> AxisTrees:
    with monkeypatch.context() as patch:
        patch.setattr(packing, "narrow_nodes", lambda *_: None)
        trees = AxisTrees(
            model.trees_, [tree.leaf_log_odds() for tree in model.trees_], pair_map=model.pair_map
        )
    assert trees.narrow is None
    return trees


def values(kind: str, rng: np.random.Generator, n: int) -> np.ndarray:
    X = rng.normal(size=(n, 5))
    if kind == "few":
        X = np.rint(2 * X)
    elif kind == "tails":
        X = np.sign(X) * np.exp(12 * np.abs(X))
    return X.astype(np.float32)


@pytest.mark.parametrize("kind", ["real", "few", "tails"])
@pytest.mark.parametrize(
    "params", [{}, {"pair_map": "max-min"}, {"pair_map": "products"}, {"pair_features": "discriminant"}]
)
def test_narrow_nodes_score_as_wide_ones(
    kind: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(30), 12)
    X = values(kind, rng, 30)[y] + (values(kind, rng, 360) if kind != "tails" else 0)
    model = SimilarityForest(n_estimators=4, n_pairs=4_000, max_depth=5, random_state=0, **params).fit(X, y)
    assert packed(model).narrow is not None
    other = wide(model, monkeypatch)
    n = 1_300
    left, right = X[rng.integers(0, 360, n)].copy(), X[rng.integers(0, 360, n)].copy()
    # Pairs on thresholds themselves and next to them, and numbers as large and small as there are.
    for p in range(300):
        tree = model.trees_[p % 4]
        node = int(rng.integers(axis(tree).features.size))
        f, threshold = int(axis(tree).features[node]), tree.splits.thresholds[node]
        if f < 10:
            right[p, f % 5] = 0.0
            left[p, f % 5] = np.nextafter(
                threshold, (np.float32(-np.inf), threshold, np.float32(np.inf))[p % 3]
            )
    left[300:310], right[310:320, 2], left[320:330] = 3e38, -3e38, 1e-42
    columns = forms = None
    if model.learned_ is not None:
        columns, forms = (model.learned_.columns(left), model.learned_.columns(right)), model.learned_.forms
    for n_pairs in (n, 40, 9, 1):
        part = None if columns is None else (columns[0][:n_pairs], columns[1][:n_pairs])
        sums = [
            its.sums(RowPairs(left[:n_pairs], right[:n_pairs], part, forms)) for its in (model._packed, other)
        ]
        assert sums[0].tobytes() == sums[1].tobytes()


def test_more_features_than_a_narrow_node_holds_are_scored_by_wide_ones() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 6)
    X = (rng.normal(size=(10, 600))[y] + rng.normal(size=(60, 600))).astype(np.float32)
    model = SimilarityForest(n_estimators=3, n_pairs=500, max_depth=3, random_state=0).fit(X, y)
    assert packed(model).narrow is None
    forward, backward = model.pair_score(X[:30], X[30:]), model.pair_score(X[30:], X[:30])
    assert forward.tobytes() == backward.tobytes()
    assert len(set(forward.tolist())) > 1
