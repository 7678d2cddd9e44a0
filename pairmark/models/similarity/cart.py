"""Growing trees whose cells are split by a greedy tree on pair features: ``leaf_rank="cart"``."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.arrays import Float32
from pairmark.models.similarity.binning import Grid
from pairmark.models.similarity.kernels import layout
from pairmark.models.similarity.kernels.growing import grow
from pairmark.models.similarity.training_pairs import WeightedPairs
from pairmark.models.similarity.trees import PAIR_MAPS, GrowthSettings, Tree

LEARNED_BINS = 1_024
"""Bins of a learned feature: many, for low false positive rates lie in its last ones."""


def grow_tree(
    grid: Grid,
    pairs: WeightedPairs,
    settings: GrowthSettings,
    seed: int,
    *,
    learned: layout.LearnedValues | None = None,
) -> Tree:
    """Grow a tree; ``pairs`` are reordered, and weights along with them.

    ``learned`` : `learned_codes` of the pairs, where they are known.
    """
    points = layout.CodedPoints(
        codes=grid.codes,
        columns=grid.columns,
        low=grid.low,
        step=grid.step,
        n_codes=grid.n_codes,
        exact=grid.exact,
        pair_map=PAIR_MAPS[settings.pair_map],
    )
    table = layout.PairTable(
        rows=np.ascontiguousarray(pairs.pairs),
        weight=np.array(pairs.weight[:1]) if pairs.is_even else np.ascontiguousarray(pairs.weight),
        stride=np.uint64(0 if pairs.is_even else 1),
        n_same=pairs.n_same,
    )
    learned = learned_codes(pairs.learned) if learned is None else learned
    limits = layout.GrowthLimits(settings.max_depth, settings.leaf_depth, settings.n_tried)
    cells, nodes = grow(points, grid.features, grid.n_features, table, learned, limits, np.uint64(seed))
    return Tree(
        cells=cells.copy(),
        features=nodes[:, 0].astype(np.int32),
        thresholds=nodes[:, 1].astype(np.float32),
        node_low=nodes[:, 2].astype(np.int32),
        node_high=nodes[:, 3].astype(np.int32),
    )


def learned_codes(values: Float32 | None) -> layout.LearnedValues:
    """Bins of equal counts of each learned feature, (n, m)."""
    if values is None:
        values = np.empty((0, 0), dtype=np.float32)
    n, m = values.shape
    by_feature = np.ascontiguousarray(values.T)
    codes = np.empty((n, m), dtype=np.uint16)
    edges = np.full((m, LEARNED_BINS + 1), np.inf, dtype=np.float32)
    n_bins = np.zeros(m, dtype=np.int64)
    for k in range(m):
        ascending = np.sort(by_feature[k])
        borders = np.unique(ascending[np.linspace(0, n - 1, LEARNED_BINS).astype(np.int64)])
        codes[:, k] = np.searchsorted(borders, by_feature[k])
        edges[k, : borders.size], n_bins[k] = borders, borders.size
    return layout.LearnedValues(codes=codes, values=by_feature, edges=edges, n_bins=n_bins)
