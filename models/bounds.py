"""Exact tail bounds for an average of n independent observations in [0, 1], and intervals for shares."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import bdtr, ndtri

_STEPS = 200


def kl_bernoulli(q: float, p: float) -> float:
    """KL(q || p) between Bernoulli distributions, in nats; infinite where q is impossible under p."""
    if q < 0 or q > 1 or not 0 <= p <= 1:
        raise ValueError(f"KL({q} || {p}) is not defined; expected shares between 0 and 1")
    left = 0.0 if q == 0 else (math.inf if p == 0 else q * math.log(q / p))
    right = 0.0 if q == 1 else (math.inf if p == 1 else (1 - q) * math.log((1 - q) / (1 - p)))
    return max(0.0, left + right)


def log_tail(mean: float, p: float, n: int) -> float:
    """Upper bound on log P(average of n <= mean) when the expectation is p or more: -n KL(mean || p).

    Chernoff's bound with Hoeffding's (1963, theorem 1) for variables in [0, 1]; it also holds for averages of
    averages over n independent variables each (section 5). It is 0 (says nothing) for mean >= p.
    """
    if mean >= p:
        return 0.0
    if mean <= 0:
        return n * math.log1p(-p) if p < 1 else -math.inf
    return -n * kl_bernoulli(mean, p)


def binomial_log_tail(k: int, p: float, n: int) -> float:
    """log P(Binomial(n, p) <= k), exactly: the order-statistic rule of Tong, Feng & Li (2018), proposition 1."""
    if k == 0:
        return n * math.log1p(-p) if p < 1 else -math.inf
    tail = float(bdtr(k, n, p))
    return math.log(tail) if tail > 0 else -math.inf


def smallest_true(test: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest x in [low, high] with test(x), to the last bits, for a test true from a point (high included)."""
    if test(low):
        return low
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if test(middle):
            high = middle
        else:
            low = middle
    return high


def wilson_interval(share: float, n: int, confidence: float) -> tuple[float, float]:
    """Wilson's (1927) two-sided interval for a share observed on n independent observations."""
    if n < 1:
        return 0.0, 1.0
    z = float(ndtri(0.5 + confidence / 2))
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At 0 and 1 the ends are exact; rounding must not move them.
    return (0.0 if share <= 0 else max(0.0, centre - half)), (1.0 if share >= 1 else min(1.0, centre + half))
