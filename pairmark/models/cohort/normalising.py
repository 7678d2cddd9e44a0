"""Scores normalised by those of both sides with a cohort of other people.

Somebody who resembles everybody has high scores with the cohort too, so what is left after normalising is how much
more alike two people are than each is to strangers. S-norm (Kenny 2010) is the mean of both sides, and adaptive S-norm
(Matejka et al. 2017) uses only each side's most similar cohort members.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pairmark.models.cohort.kernels.stats import spread_of_rows

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean and standard deviation of each row's scores with the cohort, (n,) each."""

    mean: Float64 = field(repr=False)
    sd: Float64 = field(repr=False)

    def take(self, rows: NDArray[np.int64]) -> Spread:
        """Those of some rows."""
        return Spread(mean=self.mean[rows], sd=self.sd[rows])

    def of(self, scores: Float32) -> Float64:
        """Scores in standard deviations above that mean."""
        found: Float64 = (scores.astype(np.float64) - self.mean) / self.sd
        return found


def spread_with_cohort(scores: Float32, top: int | None = None) -> Spread:
    """Spread of scores with the cohort.

    Parameters
    ----------
    scores : (n, c) of each row with each member. top : only so many greatest ones count; None: all.
    """
    n, size = scores.shape
    mean, sd = np.empty(n), np.empty(n)
    spread_of_rows(np.ascontiguousarray(scores), size if top is None else min(top, size), mean, sd)
    # Somebody whom the whole cohort scores alike is only moved.
    return Spread(mean=mean, sd=np.where(sd > 0, sd, 1.0))


def normalised(scores: Float32, left: Spread, right: Spread) -> Float32:
    """Scores in units of both sides' spread with the cohort, which swapped sides change by no bit."""
    return (0.5 * (left.of(scores) + right.of(scores))).astype(np.float32)
