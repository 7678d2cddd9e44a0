"""Evidence from draws without replacement: its numerator, and the largest number of wrong items it does not rule out.

A stratum of N items of which w are wrong gives an ordered sequence of n judgements, s of them wrong, with probability
L(w) = (w)_s (N - w)_{n-s} / (N)_n, falling factorials. log L is concave in w.
"""

from __future__ import annotations

import math

import numpy as np

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.core.compiled import kernel

_SLACK = 1e-9


@kernel
def _compare(
    n_h: Float64,
    s_h: Float64,
    n: float,
    s: float,
    sizes: Int64,
    total: int,
    risk: Float64,
) -> None:
    mean = 0.0
    for g in range(sizes.size):
        # Wrong ones found here over those expected if all strata were alike, each with half a one more: never 0.
        risk[g] = (s_h[g] + 0.5) / (s * n_h[g] / max(n, 1.0) + 0.5)
        mean += risk[g] * sizes[g] / total
    for g in range(sizes.size):
        risk[g] /= mean


@kernel
def log_numerators(
    stratum: Int64,
    wrong: Int64,
    sizes: Int64,
    n_before: Int64,
    s_before: Int64,
    adaptive: bool,
    shares: Float64,
    log_numerator: Float64,
) -> None:
    """Add to ``log_numerator`` (n_shares,) the log probability of the judgements under each share of wrong items.

    The probability of the next judgement uses only those before it: the share, times a risk of the stratum of mean 1.
    With one stratum, what has been drawn is subtracted.

    Parameters
    ----------
    n_before, s_before : judgements and wrong ones of each stratum before the first of these.
    adaptive : the risk is how the stratum has compared with all so far, (s_h + 1/2) / (s n_h / n + 1/2); else nine
        tenths of what is wrong are expected in the first stratum.
    """
    k = sizes.size
    n_h, s_h = n_before.astype(np.float64), s_before.astype(np.float64)
    n, s = n_h.sum(), s_h.sum()
    risk = np.ones(k)
    total = sizes.sum()
    if k > 1:
        risk[:] = 0.1 * total / max(total - sizes[0], 1)
        risk[0] = 0.9 * total / max(sizes[0], 1)
    if adaptive:
        _compare(n_h, s_h, n, s, sizes, total, risk)
    for t in range(stratum.size):
        h = stratum[t]
        for j in range(shares.size):
            # Below 1, or one right judgement would rule the share out for good.
            even = min(0.98, shares[j] * risk[h])
            p = even
            if k == 1:
                # What is wrong among the items not yet drawn; at least a quarter of the share, where more
                # were found than it says.
                p = min(0.98, max((even * sizes[h] - s_h[h]) / (sizes[h] - n_h[h]), 0.25 * even))
            if wrong[t]:
                log_numerator[j] += math.log(p) if p > 0.0 else -np.inf
            else:
                log_numerator[j] += math.log1p(-p)
        n += 1.0
        n_h[h] += 1.0
        s += wrong[t]
        s_h[h] += wrong[t]
        if adaptive:
            _compare(n_h, s_h, n, s, sizes, total, risk)


@kernel
def log_likelihood(size: int, n: int, s: int, w: int) -> float:
    """log L(w); -inf where so many wrong items cannot give these judgements."""
    if w < s or size - w < n - s:
        return -np.inf
    return (
        math.lgamma(w + 1.0)
        - math.lgamma(w - s + 1.0)
        + math.lgamma(size - w + 1.0)
        - math.lgamma(size - w - (n - s) + 1.0)
        - math.lgamma(size + 1.0)
        + math.lgamma(size - n + 1.0)
    )


@kernel
def _step(size: int, n: int, s: int, w: int) -> float:
    """log L(w) - log L(w + 1): what one more wrong item costs; it grows with w."""
    return math.log((w + 1.0 - s) * (size - w) / ((w + 1.0) * (size - w - n + s)))


@kernel
def _reach(size: int, n: int, s: int, price: float) -> int:
    """The largest w up to which one more wrong item costs at most ``price``, from the most likely w on."""
    low, high = s, size - (n - s)
    while low < high:
        middle = (low + high) // 2
        if _step(size, n, s, middle) <= price:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _likeliest(size: Int64, n: Int64, s: Int64, price: float) -> tuple[int, float]:
    """Total and log likelihood of the configuration that water-filling reaches at a price."""
    total, value = 0, 0.0
    for h in range(size.size):
        w = _reach(size[h], n[h], s[h], price)
        total += w
        value += log_likelihood(size[h], n[h], s[h], w)
    return total, value


@kernel
def log_envelope(size: Int64, n: Int64, s: Int64, min_wrong: int) -> float:
    """log of the largest likelihood of any configuration of the strata with at least ``min_wrong`` wrong items in all.

    Each stratum's log likelihood is concave, so adding wrong items where the next one costs least is optimal.
    """
    total: int
    value: float
    total, value = _likeliest(size, n, s, 0.0)
    if total >= min_wrong:
        return value
    if size.size == 1:
        value = log_likelihood(size[0], n[0], s[0], min_wrong)
        return value
    if min_wrong > (size - n + s).sum():
        return -np.inf
    # Water-filling: the least price at which so many wrong items are reached, by doubling, then bisection.
    low, high = 0.0, 1.0
    while _likeliest(size, n, s, high)[0] < min_wrong:
        high *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if _likeliest(size, n, s, middle)[0] < min_wrong:
            low = middle
        else:
            high = middle
    total, value = _likeliest(size, n, s, low)
    # Just below that price some are missing, and each costs about as much: an upper bound, since none costs less.
    value -= (min_wrong - total) * low
    return value


@kernel
def most_wrong(
    size: Int64,
    n: Int64,
    s: Int64,
    before: Int64,
    log_needed: float,
) -> int:
    """The largest total of wrong items whose likelihood is still above exp(``log_needed``).

    Parameters
    ----------
    size, n, s : items, judgements and wrong ones of each stratum, of what was there after the first phase.
    before : items, judgements and wrong ones of the first phase, drawn from all items alike.
    """
    alike_size = before[0:1]
    alike_n = before[1:2]
    alike_s = before[2:3]
    low: int = before[2] + s.sum()
    high = before[2] + (size - n + s).sum()
    while low < high:
        # Rounded up, or two neighbours would never meet.
        middle = (low + high + 1) // 2
        value = log_envelope(alike_size, alike_n, alike_s, middle) + log_envelope(
            size, n, s, middle - before[2]
        )
        if value >= log_needed - _SLACK:
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def _at_distance(p: float, distance: float) -> float:
    """The larger share q with KL(p, q) = ``distance``."""
    low, high = p, 1.0 - 1e-12
    for _ in range(40):
        q = 0.5 * (low + high)
        kl = (1.0 - p) * math.log((1.0 - p) / (1.0 - q))
        if p > 0.0:
            kl += p * math.log(p / q)
        if kl < distance:
            low = q
        else:
            high = q
    return high


@kernel
def best_shares(share: Float64, p: Float64, at_most: float, max_ratio: float) -> Float64:
    """Shares of draws by which the evidence against ``at_most`` grows fastest in the worst case.

    The saddle point of max over draws a, min over shares q of wrong items with mean ``at_most``, of
    sum_h a_h KL(p_h, q_h): all strata are equally far from what is estimated, and draws go by how steep that is.

    Parameters
    ----------
    share : of the population, by stratum. p : estimated shares of wrong items, of a mean below ``at_most``.
    max_ratio : bound of how much more often than on average the items of one stratum are drawn.
    """
    # The distance at which the shares that far from the estimates have a mean of `at_most`, by bisection.
    low, high = 0.0, 30.0
    for _ in range(40):
        distance = 0.5 * (low + high)
        mean = 0.0
        for h in range(p.size):
            mean += share[h] * _at_distance(p[h], distance)
        if mean < at_most:
            low = distance
        else:
            high = distance
    draws = np.empty(p.size)
    for h in range(p.size):
        q = _at_distance(p[h], high)
        # 1 / (d KL(p, q) / dq) = q (1 - q) / (q - p): strata where a step of q costs little take more draws.
        draws[h] = share[h] * min(max_ratio, q * (1.0 - q) / max(q - p[h], 1e-12))
    draws /= draws.sum()
    return draws
