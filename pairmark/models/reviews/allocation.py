"""From which stratum the next item is drawn: a rule of the judgements so far only."""

from __future__ import annotations

import math

import numpy as np

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.reviews.kernels.allocation import best_shares

_CONVINCING = 3.5
"""Log likelihood ratio by which strata must differ before draws follow them."""
_MOST = 8.0
"""Most often that an item of one stratum is drawn for one of all."""


def strata_differ(n: Int64, s: Int64) -> bool:
    """Whether wrong items concentrate in some stratum, by the likelihood of one share each against one for all."""
    log_separate = sum(_fit(float(a), float(b)) for a, b in zip(n, s, strict=True))
    return log_separate - _fit(float(n.sum()), float(s.sum())) >= _CONVINCING


def _fit(n: float, s: float) -> float:
    if s <= 0 or s >= n:
        return 0.0
    return s * math.log(s / n) + (n - s) * math.log1p(-s / n)


def next_stratum(sizes: Int64, n: Int64, s: Int64, at_most: float) -> int:
    """The stratum that is furthest behind its share of draws.

    Until something is wrong, or while more is than was asked about, that is its share of the items; then see
    `best_shares`.
    """
    share = sizes / sizes.sum()
    n_draws = n.sum()
    target = share if s.sum() == 0 or n_draws == 0 else _target_shares(share, n, s, at_most)
    behind = np.where(n < sizes, target * (n_draws + 1) - n, -np.inf)
    return int(np.argmax(behind))


def _target_shares(share: Float64, n: Int64, s: Int64, at_most: float) -> Float64:
    risk = (s + 0.5) / (s.sum() * n / n.sum() + 0.5)
    p = np.clip(s.sum() / (n @ risk) * risk, 0.0, 0.98)
    if share @ p >= at_most:
        return share
    shares: Float64 = best_shares(share, p, at_most, _MOST)
    return shares
