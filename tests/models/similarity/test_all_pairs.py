"""Counts over all pairs, by autocorrelation, against going through the pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from pairmark.models import SimilarityForest, SimilarityTree
from pairmark.models.pairs.sampling import pair_features
from pairmark.models.similarity import all_pairs, parallel
from pairmark.models.similarity.all_pairs import pair_counts
from tests.models.similarity.axis_trees import axis

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


@pytest.mark.parametrize("pair_map", ["diff-sum", "max-min", "products"])
@pytest.mark.parametrize("features", ["raw", "discriminant"])
def test_all_pairs_grow_the_trees_that_counting_them_grows(
    pair_map: Any, features: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []

    def spy(*given: Any) -> np.ndarray:
        counted.append(given[2])
        return pair_counts(*given)

    # Real values beside whole numbers, classes of few rows beside some of many.
    points, classes = (
        X[:300] + 0.3 * np.sin(np.arange(64)) * X[:300, ::-1],
        np.minimum(np.arange(300) // 4, 60),
    )
    trees = []
    for known in (True, False):
        monkeypatch.setattr(parallel, "pair_counts", spy if known else lambda *_: None)
        forest = SimilarityForest(
            n_estimators=2, n_pairs=None, max_depth=4, max_features=20, pair_map=pair_map, pair_features=features,
            random_state=0,
        )  # fmt: skip
        single = SimilarityTree(max_depth=3, n_pairs=10**6, pair_map=pair_map, random_state=0)
        trees.append(forest.fit(points, classes).trees_ + single.fit(points, classes).trees_)
    assert counted == ([] if pair_map == "products" else [pair_map] * 2)
    for by_counts, by_pairs in zip(*trees, strict=True):
        assert by_counts.cells.tolist() == by_pairs.cells.tolist()
        assert by_counts.splits.thresholds.tobytes() == by_pairs.splits.thresholds.tobytes()
        assert axis(by_counts).features.tolist() == axis(by_pairs).features.tolist()


def test_a_sample_of_pairs_is_counted_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "pair_counts", None)
    SimilarityTree(max_depth=2, random_state=0, n_pairs=1_000).fit(X[:80], y[:80])


@pytest.mark.parametrize("transformed", [0, all_pairs.TRANSFORMED])
def test_counts_of_a_million_rows_are_exact(transformed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whole numbers beyond what float32 or uint32 hold: most rows in two codes, a few everywhere.
    monkeypatch.setattr(all_pairs, "TRANSFORMED", transformed)
    rng = np.random.default_rng(0)
    sizes = np.array([2**20 - 1_300, 1_200, 60, 40])
    classes = rng.permutation(np.repeat(np.arange(4), sizes))
    column = np.where(
        rng.random(classes.size) < 0.9, rng.choice([3, 250], classes.size), rng.integers(0, 256, classes.size)
    )
    counts = all_pairs.pair_counts(column.astype(np.uint8)[:, None], classes)
    expected = np.zeros((2, 2, 511), dtype=np.int64)
    for kind, groups in enumerate(([classes == c for c in range(4)], [np.ones(classes.size, dtype=bool)])):
        for rows in groups:
            h = np.bincount(column[rows], minlength=256)
            summed = np.convolve(h, h)
            summed[::2] -= h
            expected[kind, 1] += summed // 2
            apart = np.correlate(h, h, "full")[255:]
            apart[0] = (apart[0] - h.sum()) // 2
            expected[kind, 0, :256] += apart
    expected[1] -= expected[0]
    assert np.array_equal(counts[:, :, 0], expected)
