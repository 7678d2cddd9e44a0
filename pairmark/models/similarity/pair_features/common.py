"""What every kind of learned feature rests on: scalings, and pairs that judge."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.evaluation.pairs import roc_curve_pairs
from pairmark.models.pairs.sampling import TrainingPairs, sample_pairs
from pairmark.models.similarity.pair_features.maps import Forms, Scaling, pair_values

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


def normal_scale(X: Float32) -> tuple[Float64, Float64]:
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


def judging_pairs(codes: Int64, random: np.random.RandomState) -> TrainingPairs | None:
    """Pairs that tell good features from bad ones; None where there are not both kinds."""
    seed = int(random.randint(2**31))
    if np.unique(codes).size < 2 or np.bincount(codes).max() < 2:
        return None
    return sample_pairs(codes, _TRIED_PAIRS, random_state=seed)
