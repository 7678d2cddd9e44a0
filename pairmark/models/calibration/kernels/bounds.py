"""The sharpest convex bound on the lower tail of an average that is dominated by a binomial."""

from __future__ import annotations

import math

from pairmark.models.core.compiled import kernel


@kernel
def stop_loss_log_tail(mean: float, p: float, n: int) -> float:
    """log of min over c > mean of E(c - B/n)+ / (c - mean), B binomial(n, p); for 0 <= mean < p < 1.

    E(c - B/n)+ is convex and piecewise linear in c, so the minimum is at some c = j/n, and the ratio falls up to it
    and rises after it. Sums are kept relative to P(B = j - 1) at the first j, which is all that can underflow.
    """
    at = mean * n
    j = math.floor(at) + 1
    anchor = (
        math.lgamma(n + 1.0)
        - math.lgamma(float(j))
        - math.lgamma(n - j + 2.0)
        + (j - 1) * math.log(p)
        + (n - j + 1) * math.log1p(-p)
    )
    odds = p / (1.0 - p)
    # below = P(B <= j - 1), loss = sum of (j - i) P(B = i) over i < j; terms shrink at least geometrically.
    # Downwards from i = j - 1, relative to P(B = j - 1).
    term = 1.0
    below = 0.0
    loss = 0.0
    i = j - 1
    while i >= 0:
        below += term
        loss += (j - i) * term
        if term * (j - i + 1) < 1e-17 * loss:
            break
        term *= i / ((n - i + 1.0) * odds)
        i -= 1
    # Upwards: from j to j + 1 the loss grows by P(B <= j); the ratio is least where it stops falling.
    mass = 1.0
    best = loss / (j - at)
    while j < n + 1:
        mass *= (n - j + 1.0) / j * odds
        below += mass
        loss += below
        j += 1
        ratio = loss / (j - at)
        if ratio >= best:
            break
        best = ratio
    # A hair up, for the rounding of lgamma at large n: never in favour of the caller.
    return min(0.0, anchor + math.log(best) + 1e-9 + 4e-16 * abs(math.lgamma(n + 1.0)))
