"""How draws are shared among strata."""

from __future__ import annotations

import math

import numpy as np

from pairmark.models.core.arrays import Float64
from pairmark.models.core.compiled import kernel


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
