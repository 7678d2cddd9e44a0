"""The threshold that scores suggest for a rate, which guarantees nothing."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.arrays import Float32, Float64

WINDOW = 3.0
TAIL_PAIRS = 30
_ENOUGH = 8


def suggested_threshold(thresholds: Float32, rates: Float64, fpr: float) -> np.float32:
    """The float32 threshold whose smoothed rate is ``fpr``.

    Parameters
    ----------
    thresholds : (k,) descending distinct scores of different pairs.
    rates : (k,) ascending share of different pairs strictly above each.
    """
    # The rate just below a score counts the pairs at it: midway keeps the estimate unbiased on a grid.
    nonzero = np.append(rates[1:], 1.0)
    middle = 0.5 * (rates + nonzero)
    near = np.flatnonzero((middle > fpr / WINDOW) & (middle < fpr * WINDOW))
    if near.size < _ENOUGH or middle[0] > fpr:
        near = np.arange(min(TAIL_PAIRS, thresholds.size))
    x, y = thresholds[near].astype(np.float64), np.log(middle[near])
    if near.size < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return np.float32(np.interp(fpr, middle, thresholds))
    slope, level = np.polyfit(x - x.mean(), y, 1)
    if slope >= 0:
        return np.float32(np.interp(fpr, middle, thresholds))
    return np.float32(x.mean() + (np.log(fpr) - level) / slope)
