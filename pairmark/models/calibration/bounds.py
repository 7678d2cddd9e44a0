"""Tails that the finite-sample bounds rest on, and intervals.

Rows of one pair of units are averaged, then pairs of units: A(t) is the average of 1{different, score > t} and B
that of 1{different}. The average of 1{different, score > t} + alpha 1{same}, that is A(t) + alpha (1 - B), has an
expectation above alpha exactly when FPR(t) is above alpha, whatever the mix of classes in the draw, so labels need
not be conditioned on (in open-set use B = 1). `log_tail` bounds how often it is so small, with n independent blocks
(`pairmark.models.pairs.samples.independent_blocks`) in the place of n observations (Hoeffding 1963, section 5). The
curves that people look at take this bound, which costs no search; thresholds take sharper ones (`finite_sample`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import bdtr, bdtri, gammaln, ndtr, ndtri, stdtrit

from pairmark.models.core.arrays import Float64, Int64

_STEPS = 200
_CASES = 1_000
_ROUNDING = 1e-9
MOST_BLOCKS = 10**15
"""What `order_pairs_needed` says at most: beyond it the number has no meaning."""


def log_tail(mean: float, p: float) -> float:
    """-KL(mean || p): n times this bounds log P(average <= mean) for n observations in [0, 1] with expectation >= p.

    Chernoff's bound with Hoeffding's (1963, theorem 1); it also holds for averages of averages over n independent
    observations each (section 5). It is 0 (says nothing) for mean >= p.
    """
    if mean >= p:
        return 0.0
    if mean <= 0:
        return math.log1p(-p) if p < 1 else -math.inf
    if p >= 1:
        return -math.inf
    return -max(0.0, mean * math.log(mean / p) + (1 - mean) * math.log((1 - mean) / (1 - p)))


def binomial_log_tail(k: int, p: float, n: int) -> float:
    """log P(Binomial(n, p) <= k), exactly: the order-statistic rule of Tong, Feng & Li (2018), proposition 1."""
    if k == 0:
        return n * math.log1p(-p) if p < 1 else -math.inf
    tail = float(bdtr(k, n, p))
    return math.log(tail) if tail > 0 else -math.inf


def last_true(test: Callable[[int], bool], n: int) -> int | None:
    """The largest k below n with test(k), for a test true up to a point; None where not even test(0) is."""
    if not test(0):
        return None
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        if test(middle):
            low = middle
        else:
            high = middle
    return low


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


def small_sample_interval(
    share: float, n: int, units: int, confidence: float, *, floor: int
) -> tuple[float, float]:
    """Wilson's interval for a share that is worth about ``n`` independent observations.

    An n estimated from few units is itself uncertain, and rather too large. So it is taken for smaller, by a factor
    found by simulation (thirty people: `make bench BENCH=coverage`) that vanishes as units grow in number, and the
    quantile is Student's with units - 1 degrees of freedom.

    Parameters
    ----------
    units : that n was estimated from.
    floor : observations known to be independent; n is not taken for less.
    """
    z = float(stdtrit(max(1, units - 1), 0.5 + confidence / 2))
    wider = min(2 * float(ndtr(z)) - 1, 1 - 1e-12)
    return wilson_interval(share, max(floor, int(n / (1 + 16 / max(8, units)))), wider)


def t_reach(shares: Float64, owner: Int64, confidence: float) -> float | None:
    """Half of Student's t interval of a figure, its variance that of sums over owners; None for one owner.

    Parameters
    ----------
    shares : (n,) what each row adds to the figure's deviation (linearised ratio). owner : (n,) codes 0, 1, ...
    """
    n_owners = int(owner.max()) + 1
    if n_owners < 2:
        return None
    error = math.sqrt(float((np.bincount(owner, shares) ** 2).sum()) * n_owners / (n_owners - 1))
    return float(stdtrit(n_owners - 1, (1 + confidence) / 2)) * error


def order_rank(n: int, p: float, confidence: float) -> int | None:
    """The largest k with P(Binomial(n, p) <= k) <= 1 - confidence; None when there is none."""
    if n < 1:
        return None
    limit = math.log1p(-confidence)
    # At 0 a hair off: a floor asked back must be answered.
    return last_true(lambda k: binomial_log_tail(k, p, n) <= (limit if k else limit * (1 - 1e-12)), n)


def population_rank(
    n: int, population: int, p: float, confidence: float, most: float = math.inf
) -> int | None:
    """False matches that n different pairs, drawn at random without replacement, may show; None when not even 0.

    A rate above p among D different pairs means at least F = floor(p D) + 1 false matches, so that k or fewer are drawn
    with at most the hypergeometric probability. Which D between n and ``population`` is true is not known. That
    probability falls with F and rises with D, so for each F the largest D with that F is the worst; many F are taken
    together by the least of them and the largest D. ``most`` : larger numbers are not looked for.
    """
    if n < 1:
        return None
    matches, sizes = _worst_populations(n, population, p)
    rest = sizes - matches
    # log of C(matches, k) C(rest, n - k) / C(sizes, n), the probability of k matches among those drawn.
    fixed = (
        gammaln(matches + 1)
        + gammaln(rest + 1)
        - gammaln(sizes + 1)
        + gammaln(sizes - n + 1)
        + gammaln(n + 1)
    )
    tails = np.full(matches.shape, -np.inf)
    for k in range(n + 1):
        is_possible = (matches >= k) & (rest >= n - k)
        ways = gammaln(np.maximum(matches - k, 0) + 1) + gammaln(np.maximum(rest - n + k, 0) + 1)
        parts = fixed - ways - gammaln(k + 1) - gammaln(n - k + 1)
        tails = np.logaddexp(tails, np.where(is_possible, parts, -np.inf))
        # A hair off for rounding.
        if float(tails.max(initial=-np.inf)) > math.log1p(-confidence) - _ROUNDING:
            return k - 1 if k else None
        if k >= most:
            return k
    return n - 1


def _worst_populations(n: int, population: int, p: float) -> tuple[Int64, Int64]:
    """Numbers of false matches, and for each the number of different pairs that hides them best."""
    low, high = math.floor(p * n) + 1, math.floor(p * population) + 2
    first = np.arange(low, high + 1)
    if first.size > _CASES:
        first = np.unique(np.geomspace(low, high, _CASES).astype(np.int64))
    last = first[1:] - 1
    sizes = np.minimum(np.ceil(last / p).astype(np.int64), population)
    # The largest D with floor(p D) + 1 <= last; p * (last / p) may be rounded either way.
    for _ in range(2):
        sizes -= np.floor(p * sizes) + 1 > last
    admissible = (sizes >= n) & (first[:-1] <= sizes)
    return first[:-1][admissible], sizes[admissible]


def order_pairs_needed(fpr: float, confidence: float) -> int:
    """Independent pairs, or blocks, from which ``fpr`` is answered at all; at most `MOST_BLOCKS`."""
    log_tail_of_one = math.log1p(-fpr)
    n_pairs = math.log1p(-confidence) / log_tail_of_one if log_tail_of_one < 0 else math.inf
    # A hair off: a floor asked back must not take one block more.
    return max(1, math.ceil(min(n_pairs, MOST_BLOCKS) * (1 - 1e-12)))


def order_upper(k: int, n: int, confidence: float) -> float:
    """Clopper and Pearson's (1934) upper bound of a rate of which n independent draws showed k."""
    if k == 0:
        return -math.expm1(math.log1p(-confidence) / n)
    return float(bdtri(k, n, 1 - confidence)) if k < n else 1.0
