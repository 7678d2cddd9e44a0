"""Intervals of figures that are sums over units."""

import math

import numpy as np
from scipy.special import stdtrit

from pairmark.models.core.arrays import Float64, Int64

CONFIDENCE = 0.95
"""Of the intervals of comparisons and of figures by rows."""


def t_interval(
    value: float, shares: Float64, owner: Int64, *, low: float = -math.inf, high: float = math.inf
) -> tuple[float, float] | None:
    """Student's t interval of a figure at `CONFIDENCE`, its variance that of sums over owners; None for one owner.

    Parameters
    ----------
    shares : (n,) what each row adds to the figure's deviation (linearized ratio). owner : (n,) codes 0, 1, ...
    low, high : the figure's range.
    """
    n_owners = int(owner.max()) + 1
    if n_owners < 2:
        return None
    error = math.sqrt(float((np.bincount(owner, shares) ** 2).sum()) * n_owners / (n_owners - 1))
    reach = float(stdtrit(n_owners - 1, (1 + CONFIDENCE) / 2)) * error
    return max(value - reach, low), min(value + reach, high)


def mean_interval(
    values: Float64, owner: Int64, *, low: float = -math.inf, high: float = math.inf
) -> tuple[float, float] | None:
    """`t_interval` of the mean of rows."""
    mean = float(values.mean())
    return t_interval(mean, (values - mean) / values.size, owner, low=low, high=high)
