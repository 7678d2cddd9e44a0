"""Bands around a whole ROC (and so DET) curve, from replicates of the sampling units.

Each rate p(t) is worth n(t) = p (1 - p) / V(t) independent observations, V being the replicates' variance, between the
number of disjoint blocks and that of pairs of units. With z*(t) = |p*(t) - p(t)| / sqrt(s (1 - s) / n), s = (n p + 2) /
(n + 4), the critical value is the quantile of the largest z* over all thresholds and both rates (Nair 1984: equal
precision), and the band at t is Wilson's interval with it, so that it has a width where nothing was seen, too. Rates
rise as t falls, which cuts off what one threshold's band says against its neighbours'. Asymptotic.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from pairmark.models.core.arrays import Float64


def simultaneous_bands(
    curve: Float64, replicates: Float64, blocks: tuple[int, int], edges: tuple[int, int], confidence: float
) -> Float64:
    """Low and high ends that hold at all thresholds and for both rates at once.

    Parameters
    ----------
    curve : (2, G) FPR and TPR, not decreasing along the thresholds.
    replicates : (R, 2, G) the same of each replicate.
    blocks, edges : for each rate the least and the most independent observations it can be worth.

    Returns
    -------
    (2, 2, G): low and high of FPR, then of TPR; neither decreases along the thresholds.
    """
    variance = replicates.var(axis=0)
    lowest, highest = (np.maximum(1.0, np.array(ends, dtype=np.float64))[:, None] for ends in (blocks, edges))
    bernoulli_variance = curve * (1 - curve)
    size = np.divide(
        bernoulli_variance,
        variance,
        out=np.broadcast_to(lowest, curve.shape).copy(),
        where=(variance > 0) & (bernoulli_variance > 0),
    )
    # No fewer than disjoint blocks, which are independent, and no more than pairs of units.
    size = np.clip(size, lowest, np.maximum(lowest, highest))
    centre = (size * curve + 2) / (size + 4)
    # How far off a replicate is, in standard errors; its largest over thresholds and both rates sets the
    # critical value.
    deviations = np.abs(replicates - curve) / np.sqrt(centre * (1 - centre) / size)
    critical = float(np.quantile(deviations.max(axis=(1, 2)), confidence))
    # No narrower than at one threshold by itself.
    z = max(critical, float(ndtri(0.5 + confidence / 2)))
    middle = (curve + z * z / (2 * size)) / (1 + z * z / size)
    half = z / (1 + z * z / size) * np.sqrt(bernoulli_variance / size + (z / (2 * size)) ** 2)
    low = np.where(curve <= 0, 0.0, np.clip(middle - half, 0.0, curve))
    high = np.where(curve >= 1, 1.0, np.clip(middle + half, curve, 1.0))
    # A rate cannot fall below what a higher threshold guarantees, nor rise above what a lower one allows.
    low = np.maximum.accumulate(low, axis=1)
    high = np.minimum.accumulate(high[:, ::-1], axis=1)[:, ::-1]
    bands: Float64 = np.stack([low, high], axis=1)
    return bands
