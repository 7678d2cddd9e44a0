"""Options of trees and forests, each against its definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from pairmark.models import SimilarityForest, SimilarityTree

X, y = load_iris(return_X_y=True)
X = X.astype(np.float32)
LEFT, RIGHT = np.triu_indices(len(y), 1)


@pytest.mark.parametrize(("leaf_rank", "message"), [("svm", "leaf_rank is 'svm'"), (3, "leaf_rank is 3")])
def test_ways_to_split_that_there_are_none_of_are_named(leaf_rank: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SimilarityTree(leaf_rank=leaf_rank).fit(X, y)


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
