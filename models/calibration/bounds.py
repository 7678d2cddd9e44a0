"""The finite-sample bound on the false positive rate, for every distribution and every sample size.

Rows of one pair of units are averaged, then pairs of units: A(t) is the average of 1{different, score > t} and B
that of 1{different}. The average of 1{different, score > t} + alpha 1{same}, that is A(t) + alpha (1 - B), has an
expectation above alpha exactly when FPR(t) is above alpha, whatever the mix of classes in the draw, so labels need
not be conditioned on (in open-set use B = 1). t is admitted when

    n KL(A(t) + alpha (1 - B) || alpha) >= log(1 / (1 - confidence)),

n being the number of independent blocks (`pairmark.models.pairs.samples.independent_blocks`): floor(m/2) for
all pairs of m
units, floor(P/(D+1)) for P pairs with at most D at one unit (Chernoff's bound for U-statistics, Hoeffding 1963). The
same averaging over blocks holds for every convex function, not only the exponential, so the best function of the form
(c - u)+ is used beside it: P(U <= x) <= min over c > x of E(c - B/n)+ / (c - x), B binomial (Bentkus 2004; for
U-statistics by Hoeffding's section 5). It is never worse, has the same floor, and takes about a third off the price.

Independent rows of equal weight take the exact binomial tail instead (Tong, Feng & Li 2018), which is sharper still.
So do pairs of units that a random, score-blind matching has made disjoint: their scores are independent, and the
(k+1)-th largest of N is admitted when P(Binomial(N, alpha) <= k) <= 1 - confidence. It uses one pair in m and depends
on the matching, but near the floor, where the average over all pairs must be zero or next to it, it leaves much more
of the TPR. Which of the two is used is fixed by n, alpha and confidence alone (`ORDER_BELOW`), so no error is shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtri, ndtri

from pairmark.models.calibration.kernels.bounds import stop_loss_log_tail

_STEPS = 200
ORDER_BELOW = 1.25
"""The order statistic is used with fewer blocks than this times the floor's. At the floor its threshold's rate is
typically 0.23 alpha and the average's 0; at 1.25 times it is 0.18 against 0.14, at 1.5 times 0.15 against 0.17."""
ORDER_BELOW_CLOSED = 8.0
"""In closed-set use conditioning on classes gains as much as same pairs are frequent, so it is used for longer. (The
share of same pairs itself may not decide: the average over all pairs is not valid given the labels.)"""
MOST_BLOCKS = 10**15
"""What `blocks_needed` says at most: beyond it the number tells nobody anything."""


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
    return _whole(math.log1p(-confidence), log_tail(fpr * (1 - different_share), fpr))


def average_log_tail(mean: float, p: float, n: int) -> float:
    """log of a bound on P(average of n independent blocks <= mean), their expectation being at least p."""
    chernoff = n * log_tail(mean, p)
    # Far out, where sums would underflow, the two differ by nothing that matters.
    if not 0 < mean < p or chernoff < -500:
        return chernoff
    return min(chernoff, float(stop_loss_log_tail(mean, p, n)))


def order_rank(n: int, p: float, confidence: float) -> int | None:
    """The largest k with P(Binomial(n, p) <= k) <= 1 - confidence; None when there is none."""
    limit = math.log1p(-confidence)
    if n < 1 or binomial_log_tail(0, p, n) > limit * (1 - 1e-12):
        return None
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        if binomial_log_tail(middle, p, n) <= limit:
            low = middle
        else:
            high = middle
    return low


def order_pairs_needed(fpr: float, confidence: float) -> int:
    """Disjoint different pairs from which the order statistic answers ``fpr``."""
    return _whole(math.log1p(-confidence), math.log1p(-fpr))


def _whole(log_confidence: float, log_tail_of_one: float) -> int:
    """Independent draws whose tail is at most that; at most `MOST_BLOCKS`, also where a tiny rate's tail underflows."""
    needed = log_confidence / log_tail_of_one if log_tail_of_one < 0 else math.inf
    # A hair off: a floor asked back must not take one block more.
    return max(1, math.ceil(min(needed, MOST_BLOCKS) * (1 - 1e-12)))


def order_upper(k: int, n: int, confidence: float) -> float:
    """Clopper and Pearson's (1934) upper bound of a rate of which n independent draws showed k."""
    if k == 0:
        return -math.expm1(math.log1p(-confidence) / n)
    return float(bdtri(k, n, 1 - confidence)) if k < n else 1.0


@dataclass(frozen=True, kw_only=True)
class FiniteSample:
    """The bound by threshold number (0 is the largest score of a different pair, where nothing is above).

    Attributes
    ----------
    above : (k,) float64, ascending from 0: A at each distinct score of different pairs, best first.
    n : independent blocks.
    different_share : B.
    exact_binomial : rows are independent and weigh the same, so that ``n above`` are counts.
    matched : (N,) ascending threshold numbers of the different pairs in a random matching of the units; None when
        there is none (independent rows, weights).
    order_below : blocks, in multiples of the floor's, below which the order statistic of `matched` is used.
    """

    above: NDArray[np.float64] = field(repr=False)
    n: int
    different_share: float
    exact_binomial: bool
    matched: NDArray[np.int64] | None = field(default=None, repr=False)
    order_below: float = ORDER_BELOW

    def by_order(self, fpr: float, confidence: float) -> bool:
        """Whether the order statistic of the matching answers: by sizes alone, never by scores or labels."""
        if self.matched is None:
            return False
        return self.n * -math.log1p(-fpr) < self.order_below * -math.log1p(-confidence)

    def choose(self, fpr: float, confidence: float) -> tuple[int, float] | None:
        """Number of the chosen threshold and the upper bound of its rate; None when ``fpr`` is not answered."""
        if self.matched is not None and self.by_order(fpr, confidence):
            rank = order_rank(self.matched.size, fpr, confidence)
            if rank is None:
                return None
            rank = min(rank, self.matched.size - 1)
            return int(self.matched[rank]), min(fpr, order_upper(rank, self.matched.size, confidence))
        at = self.lookup(fpr, confidence)
        if at is None:
            return None
        bound = self.upper(at, confidence)
        return at, fpr if bound is None else min(fpr, bound)

    def rate(self, at: int) -> float:
        """The observed false positive rate at a threshold."""
        return min(1.0, float(self.above[at]) / self.different_share)

    def admits(self, at: int, fpr: float, confidence: float) -> bool:
        """Whether the rate at threshold ``at`` is at most ``fpr`` with this confidence."""
        if self.exact_binomial:
            tail = binomial_log_tail(round(float(self.above[at]) * self.n), fpr, self.n)
        else:
            tail = average_log_tail(float(self.above[at]) + fpr * (1 - self.different_share), fpr, self.n)
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
        if self.matched is not None and self.matched.size:
            floor = order_upper(0, self.matched.size, confidence)
            if self.by_order(floor, confidence):
                return floor
        return self.upper(0, confidence)
