"""The finite-sample bound on the false positive rate, for every distribution and every sample size.

Rows of one pair of units are averaged, then pairs of units: A(t) is the average of 1{different, score > t} and B
that of 1{different}. The average of 1{different, score > t} + alpha 1{same}, that is A(t) + alpha (1 - B), has an
expectation above alpha exactly when FPR(t) is above alpha, whatever the mix of classes in the draw, so labels need
not be conditioned on (in open-set use B = 1). t is admitted when

    n KL(A(t) + alpha (1 - B) || alpha) >= log(1 / (1 - confidence)),

n being the number of independent blocks (`models.pair_samples.independent_blocks`): floor(m/2) for all pairs of m
units, floor(P/(D+1)) for P pairs with at most D at one unit (Chernoff's bound for U-statistics, Hoeffding 1963).
Independent rows of equal weight take the exact binomial tail instead (Tong, Feng & Li 2018), which is sharper and
has the same floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, ndtri

_STEPS = 200


def kl_bernoulli(q: float, p: float) -> float:
    """KL(q || p) between Bernoulli distributions, in nats; infinite where q is impossible under p."""
    if q < 0 or q > 1 or not 0 <= p <= 1:
        raise ValueError(f"KL({q} || {p}) is not defined; expected shares between 0 and 1")
    left = 0.0 if q == 0 else (math.inf if p == 0 else q * math.log(q / p))
    right = 0.0 if q == 1 else (math.inf if p == 1 else (1 - q) * math.log((1 - q) / (1 - p)))
    return max(0.0, left + right)


def log_tail(mean: float, p: float) -> float:
    """-KL(mean || p): n times this bounds log P(average <= mean) for n observations in [0, 1] with expectation >= p.

    Chernoff's bound with Hoeffding's (1963, theorem 1); it also holds for averages of averages over n independent
    observations each (section 5). It is 0 (says nothing) for mean >= p.
    """
    if mean >= p:
        return 0.0
    if mean <= 0:
        return math.log1p(-p) if p < 1 else -math.inf
    return -kl_bernoulli(mean, p)


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


def blocks_needed(fpr: float, confidence: float, different_share: float = 1.0) -> int:
    """Independent blocks from which ``fpr`` is answered at all: log(1 / (1 - confidence)) / KL(fpr (1 - B) || fpr)."""
    needed = math.log1p(-confidence) / log_tail(fpr * (1 - different_share), fpr)
    # A hair off: a floor asked back must not take one block more.
    return max(1, math.ceil(needed * (1 - 1e-12)))


@dataclass(frozen=True, kw_only=True)
class FiniteSample:
    """The bound by threshold number (0 is the largest score of a different pair, where nothing is above).

    Attributes
    ----------
    above : (k,) float64, ascending from 0: A at each distinct score of different pairs, best first.
    n : independent blocks.
    different_share : B.
    exact_binomial : rows are independent and weigh the same, so that ``n above`` are counts.
    """

    above: NDArray[np.float64] = field(repr=False)
    n: int
    different_share: float
    exact_binomial: bool

    def rate(self, at: int) -> float:
        """The observed false positive rate at a threshold."""
        return min(1.0, float(self.above[at]) / self.different_share)

    def admits(self, at: int, fpr: float, confidence: float) -> bool:
        """Whether the rate at threshold ``at`` is at most ``fpr`` with this confidence."""
        if self.exact_binomial:
            tail = binomial_log_tail(round(float(self.above[at]) * self.n), fpr, self.n)
        else:
            tail = self.n * log_tail(float(self.above[at]) + fpr * (1 - self.different_share), fpr)
        return tail <= math.log1p(-confidence)

    def lookup(self, fpr: float, confidence: float) -> int | None:
        """Number of the lowest admitted threshold; None when not even the highest is."""
        if not self.admits(0, fpr, confidence):
            return None
        low, high = 0, self.above.size
        while high - low > 1:
            middle = (low + high) // 2
            if self.admits(middle, fpr, confidence):
                low = middle
            else:
                high = middle
        return low

    def upper(self, at: int, confidence: float) -> float | None:
        """Upper confidence bound of the rate at threshold ``at``: the smallest rate admitted; None when none is."""
        highest = math.nextafter(1.0, 0.0)
        if self.n < 1 or not self.admits(at, highest, confidence):
            return None
        lowest = min(max(self.rate(at), math.ulp(0.0)), highest)
        return smallest_true(lambda rate: self.admits(at, rate, confidence), lowest, highest)

    def smallest(self, confidence: float) -> float | None:
        """The floor: the smallest rate that is answered; None when none is."""
        return self.upper(0, confidence)
