"""LeafRank by classifiers, bags and what is out of them: each against its definition, by brute force."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.neighbors import KNeighborsClassifier

from pairmark.models import SimilarityForest, SimilarityTree
from pairmark.models.pairs.sampling import pair_features
from pairmark.models.similarity.kernels import layout

X, y = load_iris(return_X_y=True)
X = X.astype(np.float32)
LEFT, RIGHT = np.triu_indices(len(y), 1)
SAME = y[LEFT] == y[RIGHT]


def split_cells(tree: Any) -> list[int]:
    return np.flatnonzero(tree.cells[:, layout.CELL_NODE] >= 0).tolist()


@pytest.mark.parametrize("leaf_rank", ["linear", "boosting"])
@pytest.mark.parametrize("pair_map", ["diff-sum", "max-min", "products"])
def test_cells_of_a_classifier_are_where_it_sends_pairs(leaf_rank: Any, pair_map: Any) -> None:
    model = SimilarityTree(leaf_rank=leaf_rank, max_depth=3, pair_map=pair_map, random_state=0)
    model.fit_pairs(X[LEFT], X[RIGHT], SAME)
    tree = model.trees_[0]
    splits: Any = tree.splits
    f = pair_features(X[LEFT], X[RIGHT], pair_map)
    reached = np.zeros(len(SAME), dtype=int)
    for cell in split_cells(tree):
        node = tree.cells[cell, layout.CELL_NODE]
        inside = reached == cell
        if leaf_rank == "linear":
            goes = (
                f[inside].astype(np.float64) @ splits.planes[node].astype(np.float64)
                > splits.thresholds[node]
            )
        else:
            stop = splits.counts[: node + 1].sum()
            own = np.arange(stop - splits.counts[node], stop)
            above = f[inside][:, splits.features[own]] > splits.limits[own]
            goes = above @ splits.steps[own].astype(np.float64) > splits.thresholds[node]
        reached[inside] = np.where(
            goes, tree.cells[cell, layout.CELL_LEFT], tree.cells[cell, layout.CELL_RIGHT]
        )
    for cell in tree.leaves:
        inside = reached == cell
        assert tree.cells[cell, layout.CELL_SAME] == (SAME & inside).sum()
        assert tree.cells[cell, layout.CELL_DIFFERENT] == (~SAME & inside).sum()
    depth, position = tree.cells[reached, layout.CELL_DEPTH], tree.cells[reached, layout.CELL_POSITION]
    scores = model.pair_score(X[LEFT], X[RIGHT])
    assert scores.tolist() == (2.0**3 * (1 - position / 2.0**depth)).tolist()
    assert scores.tobytes() == model.pair_score(X[RIGHT], X[LEFT]).tobytes()
    assert scores[:5].tolist() == [
        model.pair_score(X[i][None], X[j][None])[0] for i, j in zip(LEFT[:5], RIGHT[:5], strict=True)
    ]
    assert model.auc_ > 0.9
    reported = model.explain(X[0], X[70])
    assert json.loads(json.dumps(reported)) == reported
    assert [reported["cell"]["depth"], reported["cell"]["position"]] == tree.cells[reached[69], :2].tolist()
    assert json.dumps(model.tree_data())


@pytest.mark.parametrize(
    ("leaf_rank", "message"),
    [
        ("svm", "leaf_rank is 'svm'"),
        (KNeighborsClassifier(), "leaf_rank is KNeighborsClassifier"),
        (3, "leaf_rank is 3"),
    ],
)
def test_classifiers_that_cannot_rank_are_named(leaf_rank: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SimilarityTree(leaf_rank=leaf_rank).fit(X, y)


def gentle_stump(f: np.ndarray, same: np.ndarray, weight: np.ndarray) -> tuple[float, int, float]:
    """Least weighted squared error of a stump fitted to +-1, its feature and the largest value on its low side."""
    label = np.where(same, 1.0, -1.0)
    best = (np.inf, -1, 0.0)
    for k in range(f.shape[1]):
        for value in np.unique(f[:, k])[:-1]:
            low = f[:, k] <= value
            error = 0.0
            for side in (low, ~low):
                mean = np.average(label[side], weights=weight[side])
                error += (weight[side] * (label[side] - mean) ** 2).sum()
            if error < best[0] - 1e-12:
                best = (error, k, float(value))
    return best


def test_boosting_adds_the_stumps_of_least_squared_error() -> None:
    """Gentle AdaBoost by its definition, all borders tried, against the cell that was grown."""
    rng = np.random.default_rng(0)
    left, right = (rng.integers(0, 6, size=(300, 3)).astype(np.float32) for _ in range(2))
    same = np.abs(left - right).sum(axis=1) + 2 * rng.standard_normal(300) < 5
    given = rng.integers(1, 4, 300)
    rounds = 6
    tree = SimilarityTree(max_depth=1, leaf_rank="boosting", leaf_rounds=rounds, random_state=0)
    grown = tree.fit_pairs(left, right, same, sample_weight=given).trees_[0]
    f, label = pair_features(left, right), np.where(same, 1.0, -1.0)
    weight = given / np.where(same, given[same].sum(), given[~same].sum())
    total = np.zeros(300)
    for _ in range(rounds):
        _, k, value = gentle_stump(f, same, weight)
        low = f[:, k] <= value
        step = np.where(
            low,
            np.average(label[low], weights=weight[low]),
            np.average(label[~low], weights=weight[~low]),
        )
        total += 0.5 * step
        weight = weight * np.exp(-label * 0.5 * step)
    splits: Any = grown.splits
    sums = (f[:, splits.features] > splits.limits) @ splits.steps.astype(np.float64)
    assert np.allclose(sums - grown.splits.thresholds[0], total, atol=1e-5)
    assert grown.cells[1, layout.CELL_SAME] == given[same & (total > 0)].sum()


@pytest.mark.parametrize("leaf_rank", ["boosting", "linear", "exhaustive"])
def test_cells_that_nothing_splits_stay_leaves(leaf_rank: Any) -> None:
    constant = np.full((20, 3), 2.0, dtype=np.float32)
    tree = SimilarityTree(leaf_rank=leaf_rank, random_state=0).fit(constant, np.arange(20) // 5)
    assert tree.auc_ == 0.5
    assert tree.pair_score(constant[:3], constant[3:6]).tolist() == [256.0] * 3
    forest = SimilarityForest(leaf_rank=leaf_rank, n_estimators=2, random_state=0)
    forest.fit(constant, np.arange(20) // 5)
    assert np.unique(forest.pair_score(constant, constant[::-1])).size == 1


def test_first_trees_score_as_the_smaller_forest_does() -> None:
    params: dict[str, Any] = {"n_pairs": 500, "max_depth": 4, "random_state": 0}
    large = SimilarityForest(n_estimators=6, **params).fit(X, y)
    small = SimilarityForest(n_estimators=6, **params).fit(X, y)
    small.trees_ = small.trees_[:2]
    small._finish()
    assert (
        large.anytime_score(X[LEFT], X[RIGHT], 2).tobytes() == small.pair_score(X[LEFT], X[RIGHT]).tobytes()
    )
    assert (
        large.anytime_score(X[LEFT], X[RIGHT], 6).tobytes() == large.pair_score(X[LEFT], X[RIGHT]).tobytes()
    )
    for n in (0, 7):
        with pytest.raises(ValueError, match="expected 1 to 6"):
            large.anytime_score(X, X, n)


def test_importances_share_the_gain_by_feature() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 20)
    points = np.column_stack([rng.standard_normal((200, 2)), labels + 0.1 * rng.standard_normal(200)])
    forest = SimilarityForest(n_estimators=5, n_pairs=2000, max_features=None, random_state=0).fit(
        points, labels
    )
    assert forest.pair_feature_importances_.sum() == pytest.approx(1.0)
    assert forest.feature_importances_.argmax() == 2
    assert forest.feature_importances_[2] > 0.5
