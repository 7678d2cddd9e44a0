"""The threshold that scores suggest for a rate, which guarantees nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pairmark.models.calibration.finite_sample import order_upper
from pairmark.models.calibration.guarantees import units_needed, used_share
from pairmark.models.calibration.operating_point import nothing_guaranteed
from pairmark.models.core.arrays import Float32, Float64

if TYPE_CHECKING:
    from pairmark.models.calibration.calibration import Calibration

WINDOW = 3.0
TAIL_PAIRS = 30
_ENOUGH = 8


FEWEST_NEGATIVES = 300
"""Independent negative pairs below which the tail is hardly known: its slope is shrunk, the rate has an interval."""


def suggested_threshold(
    thresholds: Float32, rates: Float64, fpr: float, n_independent: int = FEWEST_NEGATIVES
) -> np.float32:
    """The float32 threshold whose smoothed rate is ``fpr``.

    The logarithm of the rate is taken for linear in the score near the rate. Where it goes on beyond what was seen and
    negative pairs are few, the slope is shrunk by one standard error, as of an exponential tail: the threshold is
    stricter.

    Parameters
    ----------
    thresholds : (k,) descending distinct scores of different pairs.
    rates : (k,) ascending share of different pairs strictly above each.
    n_independent : how many independent negative pairs the rates are worth.
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
    if n_independent < FEWEST_NEGATIVES and np.log(fpr) < level:
        n_near = max(4.0, n_independent * float(middle[near[-1]]))
        slope *= 1 - 1 / np.sqrt(n_near)
    return np.float32(x.mean() + (np.log(fpr) - level) / slope)


def rate_interval(rate: float, n: int, confidence: float) -> tuple[float, float]:
    """Clopper and Pearson's (1934) interval of a rate that n independent pairs showed."""
    if n == 0:
        return 0.0, 1.0
    k, level = min(n, round(rate * n)), 1 - (1 - confidence) / 2
    low = 0.0 if k == 0 else 1 - order_upper(n - k, n, level)
    return low, order_upper(k, n, level)


MORE_PEOPLE = (0, 100, 200, 400)
"""How many people more `tpr_by_people` tells of."""


def tpr_by_people(calibration: Calibration, fpr: float, confidence: float = 0.95) -> list[dict[str, float]]:
    """What more people would bring on these scores: TPR at a rate by the number of people who calibrate, JSON-able.

    The first entry is for those there are or, where they are too few, for the minimum. The threshold to expect is
    estimated from these scores, by the share of the rate that so many people typically let it use. Empty where people
    would change nothing: pairs that are counted, that guarantee nothing, or none that are positive.
    """
    facts = calibration.facts
    if facts.counted or nothing_guaranteed(facts.origin) or not facts.n_same_pairs:
        return []
    needed = units_needed(fpr, confidence, different_share=facts.different_share)["finite-sample"] or 1
    first, tpr, entries = max(facts.n_units, needed), 0.0, []
    if calibration.answers(fpr, confidence):
        tpr = calibration.operating_point(fpr, confidence).tpr or 0.0
    for people in (first + more for more in MORE_PEOPLE):
        if people > first or not tpr:
            threshold = calibration.suggested(fpr * used_share(people / needed))
            tpr = max(tpr, calibration.share_of_positives(threshold) or 0.0)
        entries.append({"people": people, "tpr": tpr})
    return entries
