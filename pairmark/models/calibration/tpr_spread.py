"""What a promise costs in TPR, before it is paid: near the fewest people that a rate takes, thresholds are strict."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

BEST_TPR = 0.9
"""What a model could reach at a rate, where nothing is known of it."""
STEADY_MULTIPLE = 2
"""From so many times the fewest people on, an answer hardly depends on chance."""
DRAWS = (0.95, 0.5, 0.05)
"""Values of U whose thresholds bound what nine in ten draws of it give, and the middle."""
_USED = (
    (1.0, 0.027, 0.232, 0.865),
    (1.2, 0.159, 0.383, 0.843),
    (1.5, 0.302, 0.497, 0.946),
    (2.0, 0.430, 0.604, 0.950),
    (3.0, 0.557, 0.710, 0.940),
    (4.0, 0.623, 0.764, 0.975),
    (8.0, 0.723, 0.851, 0.975),
)
"""Times the fewest people, and FPR over the rate asked for: what nine in ten calibrations lie between, and the middle.
Of simulated people with Gaussian effects of .6, asked for 5 %."""


@dataclass(frozen=True, kw_only=True)
class TprSpread:
    """What an answer near the fewest people costs.

    Attributes
    ----------
    tpr : the TPR to expect over the random number that thresholds are drawn with. low, high : nine in ten lie between.
    steady_units : units from which an answer hardly depends on it, in all.
    """

    tpr: float
    low: float
    high: float
    steady_units: int


def expected_tpr(fpr: float, multiple: float, best: float) -> tuple[float, float, float]:
    """The TPR to expect of a model before there are scores: the middle, and what nine in ten calibrations lie between.

    Scores are taken for Gaussian with equal variances, people as alike as in most of our data; see
    ``docs/planning.md``.

    Parameters
    ----------
    multiple : of the fewest units that the rate takes; at least 1.
    best : the TPR at exactly that rate, of whoever knew the distribution.
    """
    at, *columns = (np.log(column) for column in np.array(_USED).T)
    shares = [math.exp(np.interp(math.log(multiple), at, column)) for column in columns]
    low, middle, high = (
        float(ndtr(ndtri(best) + ndtri(fpr * min(share, 1.0)) - ndtri(fpr))) for share in shares
    )
    return middle, low, high
