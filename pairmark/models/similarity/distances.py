"""Pair features without learning: distances of rows with scaled features.

Also what every learned feature rests on: scalings, forms of coordinates, and pairs that judge.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.base import Float32
from pairmark.models.evaluation.pairs import roc_curve_pairs
from pairmark.models.pairs.sampling import TrainingPairs, sample_pairs
from pairmark.models.similarity.learned import (
    CoordinateMap,
    Forms,
    LearnedFeatures,
    OutOfFold,
    Scaling,
    pair_values,
)

FIT_ROWS = 100_000
"""Most rows that a covariance is worked out from; quantiles, from four times as many."""
TRIED_ROWS = 4_000
"""Rows that ways of learning are tried on."""
_TRIED_PAIRS = 10_000
_JUDGED_AT = (0.01, 0.1)


def scalings(X: Float32) -> tuple[Scaling, ...]:
    """Scalings to try: features may share one unit (pixels, principal components), in which those that vary most may
    matter most, or each may have its own unit."""
    mean, deviation = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    ways = []
    for power in (0.0, 0.5, 1.0):
        weight = deviation**power
        unit = max(float(np.sqrt(((weight * deviation) ** 2).mean())), 1e-30)
        ways.append(Scaling(mean, weight / unit, False))
    return *ways, Scaling(*normal_scale(X), True)


def normal_scale(X: Float32) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Medians, and one over the normal-consistent interquartile range (else the deviation)."""
    low, middle, high = np.percentile(X[: 4 * FIT_ROWS], (25, 50, 75), axis=0).astype(np.float64)
    width = (high - low) / 1.349
    deviation = X.std(axis=0, dtype=np.float64)
    width = np.where(width > 0, width, np.where(deviation > 0, deviation, 1.0))
    return middle, 1.0 / np.maximum(width, 1e-30)


def reached(forms: Forms, coordinates: Float32, pairs: TrainingPairs) -> float:
    """What the first feature finds of the same pairs at low false positive rates: its mean TPR at `_JUDGED_AT`."""
    columns = forms.columns(coordinates)
    values = pair_values(columns, columns, pairs.left, pairs.right, forms.forms)
    if values[:, 0].min() == values[:, 0].max():
        return 0.0
    fpr, tpr, _ = roc_curve_pairs(values[:, 0], pairs.same)
    return float(np.mean([tpr[fpr <= rate].max(initial=0.0) for rate in _JUDGED_AT]))


def judging_pairs(codes: NDArray[np.int64], random: np.random.RandomState) -> TrainingPairs | None:
    """Pairs that tell good features from bad ones; None where there are not both kinds."""
    seed = int(random.randint(2**31))
    if np.unique(codes).size < 2 or np.bincount(codes).max() < 2:
        return None
    return sample_pairs(codes, _TRIED_PAIRS, random_state=seed)


def learn_distances(
    X: Float32, codes: NDArray[np.int64], random: np.random.RandomState
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
