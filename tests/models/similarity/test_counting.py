"""Counting eight features at a time, and cells that share histograms, against counting pair by pair."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.models.pairs.sampling import PairMap, sample_pairs
from pairmark.models.similarity.binning import quantise
from pairmark.models.similarity.cart import grow_arguments, learned_codes
from pairmark.models.similarity.kernels import layout
from pairmark.models.similarity.kernels.growing import grow
from pairmark.models.similarity.training_pairs import WeightedPairs, evenly


@pytest.mark.parametrize("pair_map", ["diff-sum", "max-min"])
@pytest.mark.parametrize(
    ("n_pairs", "weighted", "learned"), [(150_000, False, 0), (9_000, True, 3), (140_000, True, 1)]
)
def test_both_ways_of_counting_grow_the_same_tree(
    pair_map: PairMap, n_pairs: int, weighted: bool, learned: int
) -> None:
    rng = np.random.default_rng(n_pairs)
    y = np.repeat(np.arange(40), 15)
    # Real values, few values, whole numbers on a grid of 200 and a constant: eleven features, no multiple of eight.
    X = rng.normal(size=(40, 11))[y] + rng.normal(size=(600, 11))
    X[:, 3], X[:, 7], X[:, 8] = np.rint(X[:, 3]), 1.0, np.rint(30 * X[:, 8])
    drawn = sample_pairs(y, n_pairs, random_state=0)
    weight = rng.integers(1, 5, len(drawn)) if weighted else np.ones(len(drawn))
    pairs = np.stack([drawn.left, drawn.right])
    values = None
    if learned:
        pairs = np.vstack([pairs, np.arange(len(drawn), dtype=np.int32)])
        values = (rng.normal(size=(len(drawn), learned)) + 0.5 * drawn.same[:, None]).astype(np.float32)
    grid = quantise(X.astype(np.float32))
    assert grid.codes.shape[1] == 10
    grown = []
    for by_word in (True, False):
        points, table = grow_arguments(
            grid,
            WeightedPairs(
                pairs=pairs.copy(),
                weight=weight.astype(np.int32) if weighted else evenly(len(drawn)),
                n_same=int(drawn.same.sum()),
                learned=values,
            ),
            pair_map=pair_map,
            by_word=by_word,
        )
        own = learned_codes(values)
        limits = layout.GrowthLimits(max_depth=5, leaf_depth=3, n_tried=10)
        grown.append(
            grow(points, grid.features, 11, table, own, limits, np.uint64(1), np.empty((0, 0, 0, 0)))
        )
    assert len(grown[0][1]) > 20
    for cells_or_nodes in zip(*grown, strict=True):
        np.testing.assert_array_equal(*cells_or_nodes)
    cells = grown[0][0]
    assert cells[0, layout.CELL_SAME] + cells[0, layout.CELL_DIFFERENT] == weight.sum()
