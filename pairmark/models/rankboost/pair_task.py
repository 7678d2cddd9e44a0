"""Learns from explicit pairs: same pairs are ranked above different ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from pairmark.models.core.arrays import Bool, Float64
from pairmark.models.rankboost.binning import bin_rows, parts
from pairmark.models.rankboost.boosting import BoostSettings, RankingTask, boost
from pairmark.models.rankboost.kernels import binning as binning_kernels
from pairmark.models.rankboost.rules import Rules


def pair_task(
    points: csr_array,
    same: Bool,
    weight: Float64,
    settings: BoostSettings,
    on_progress: Callable[[float], None],
) -> Rules:
    """Rankers of points, learned by ranking same pairs above different ones.

    Parameters
    ----------
    points : (2n, d), the left side of each pair, then the right side of each.
    same, weight : (n,) of the pairs.
    """
    n, width = same.size, points.shape[1]
    starts, columns, values = parts(points)
    sides = np.arange(n), n + np.arange(n)
    made_starts = np.zeros(n + 1, dtype=np.int64)
    nothing = np.empty(0, np.int64), np.empty(0, np.float32)
    size = binning_kernels.shared_columns(starts, columns, values, *sides, width, made_starts, *nothing)
    arrays = np.empty(size, np.int64), np.empty(size, np.float32)
    binning_kernels.shared_columns(starts, columns, values, *sides, width, made_starts, *arrays)
    pairs = csr_array((arrays[1], arrays[0], made_starts), shape=(n, 2 * width))
    task = RankingTask(upper=same, weight=weight)
    rules = boost(bin_rows(pairs), task, replace(settings, upper_only=True), on_progress=on_progress)
    return _of_points(rules, width)


def _of_points(rules: Rules, width: int) -> Rules:
    """Conditions on pairs' columns as conditions on points: below < -max means max < -below."""
    features, low, high = rules.features.copy(), rules.low.copy(), rules.high.copy()
    is_mirror = features >= width
    below = -rules.low[is_mirror]
    low[is_mirror] = -np.inf
    high[is_mirror] = np.where(np.isinf(below), below, np.nextafter(below, np.float32(-np.inf)))
    features[is_mirror] -= width
    # A grid may have looked at one feature from both sides: that is one range.
    for at in np.flatnonzero(features[:, 0] == features[:, 1]):
        low[at] = low[at].max(), -np.inf
        high[at] = high[at].min(), np.inf
        features[at, 1] = -1
    return Rules(features=features, low=low, high=high, alpha=rules.alpha)
