"""Pairs parted in place: each keeps its rows, and its weight, in whatever order it comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pairmark.models import SimilarityTree
from pairmark.models.similarity.kernels import layout


@pytest.mark.parametrize("weights", ["none", "alike", "whole"])
def test_trees_do_not_depend_on_the_order_of_pairs(weights: str) -> None:
    rng = np.random.default_rng(0)
    n = 9_000
    left, right = rng.standard_normal((2, n, 5)).astype(np.float32)
    same = np.abs(left - right)[:, 0] + 0.5 * rng.standard_normal(n) < 1.0
    weight = {"none": None, "alike": np.full(n, 3), "whole": rng.integers(1, 5, n)}[weights]

    def grown(order: np.ndarray) -> Any:
        params: dict[str, Any] = {"max_depth": 6, "leaf_depth": 3, "random_state": 0}
        its = None if weight is None else weight[order]
        model = SimilarityTree(**params).fit_pairs(left[order], right[order], same[order], its)
        # What a cell counted is what scores there.
        each = np.ones(n) if weight is None else weight
        tree, scores = model.trees_[0], model.pair_score(left, right)
        for score, cell in zip(tree.leaf_scores(6), tree.cells[tree.leaves], strict=True):
            inside = scores == np.float32(score)
            assert cell[layout.CELL_SAME] == each[inside & same].sum()
            assert cell[layout.CELL_DIFFERENT] == each[inside & ~same].sum()
        assert len(tree.cells) > 30
        return model.to_state()[0]

    one, other = grown(np.arange(n)), grown(rng.permutation(n))
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])
