"""Pair features without learning: distances of rows with scaled features."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.arrays import Float32, Int64
from pairmark.models.similarity.pair_features.common import (
    TRIED_ROWS,
    judging_pairs,
    reached,
    scalings,
)
from pairmark.models.similarity.pair_features.maps import (
    CoordinateMap,
    Forms,
    LearnedFeatures,
    OutOfFold,
)


def learn_distances(
    X: Float32, codes: Int64, random: np.random.RandomState
) -> tuple[LearnedFeatures, OutOfFold]:
    """``distances`` features: cosine and distance under the scaling whose cosine separates pairs best.

    One of four scalings is all that is learned, so training pairs' values flatter no more than others'.
    """
    d = X.shape[1]
    unit_weights, nothing = np.ones(d), np.zeros(d)
    forms = Forms(
        np.array([unit_weights, 2 * unit_weights], dtype=np.float32),
        np.array([unit_weights, nothing]),
        np.array([nothing, unit_weights]),
    )
    sample = np.sort(random.permutation(X.shape[0])[:TRIED_ROWS])
    pairs = judging_pairs(codes[sample], random)
    ways = scalings(X)
    best = ways[-1]
    if pairs is not None:
        best = max(ways, key=lambda way: reached(forms, way.scaled(X[sample]), pairs))
    row_map = CoordinateMap(best, (), forms)
    values = OutOfFold(np.zeros(X.shape[0], dtype=np.int64), {(0, 0): (row_map.columns(X), forms.forms)})
    return LearnedFeatures(kind="distances", map=row_map), values
