"""Ranking tasks from labels: one class against the rest, or halves of many classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array, hstack

from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.rankboost.binning import bin_rows
from pairmark.models.rankboost.boosting import BoostSettings, RankingTask, boost, one_against_rest
from pairmark.models.rankboost.rules import Rules

MOST_CLASSES = 32
"""With more classes than this, tasks are random halves of the classes instead of each against the rest."""


def class_tasks(codes: Int64, n_classes: int, rng: np.random.Generator) -> list[RankingTask]:
    """Tasks for classes.

    Two classes: the second above the first (the paper's bipartite form). Up to `MOST_CLASSES`: each against the rest,
    so that every weak ranker finds what one class has in common, which is what makes rows of a class similar. Pairwise
    preferences between classes would need k(k - 1)/2 rankings, and an order of classes that identities do not have.
    More: `MOST_CLASSES` random halves of the classes (output codes: Dietterich and Bakiri 1995), so that the time does
    not grow with the number of identities.
    """
    if n_classes == 2:
        return [one_against_rest(codes, np.array([1]))]
    if n_classes <= MOST_CLASSES:
        return [one_against_rest(codes, np.array([label])) for label in range(n_classes)]
    halves = [np.sort(rng.permutation(n_classes)[: n_classes // 2]) for _ in range(MOST_CLASSES)]
    return [one_against_rest(codes, half) for half in halves]


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
    # Where both sides hold a value: the lesser in column j, and minus the greater in column width + j. "Both above a"
    # is then one condition, and so is "both below b".
    both = points[:n].astype(np.bool_).multiply(points[n:].astype(np.bool_))
    least, greatest = csr_array(points[:n].multiply(both)), csr_array(points[n:].multiply(both))
    lesser, greater = np.minimum(least.data, greatest.data), np.maximum(least.data, greatest.data)
    least.data, greatest.data = lesser, -greater
    pairs = csr_array(hstack([least, greatest], format="csr"))
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
