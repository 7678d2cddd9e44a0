"""Upper bounds of the false positive rate that hold at every threshold at once.

``finite-sample``: rates alpha_0 < alpha_1 < ... ten to the decade, from the smallest that sizes allow up. Each
gets the threshold t_k that keeps it with failure probability (1 - confidence) / 2^(k + 1), summing to below
1 - confidence.
FPR(t) falls in t, so with that confidence FPR(t) <= alpha_k for all k and all t >= t_k: steps, nothing between them is
known. Halving costs little: the smallest rate rises by 23 % at 95 %, and larger ones have data to spare.

``bootstrap``: the studentised bootstrap with one critical value for all thresholds
(`pairmark.models.calibration.bootstrap`); asymptotic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pairmark.models.calibration.bootstrap import BootstrapTable, confidence_row
from pairmark.models.calibration.bounds import order_pairs_needed
from pairmark.models.calibration.finite_sample import STEPS_PER_DECADE, FiniteSample
from pairmark.models.core.arrays import Float32, Float64


@dataclass(frozen=True, kw_only=True)
class FprBand:
    """A step function: a score above ``thresholds[k]`` has a false positive rate of at most ``fpr[k]``.

    Attributes
    ----------
    thresholds : (k,) float32, descending.
    fpr : (k,) float64, ascending; the first is the floor, above the last threshold's rate nothing is claimed.
    confidence : that all steps hold together.
    method : ``finite-sample`` or ``bootstrap`` (asymptotic).
    """

    thresholds: Float32 = field(repr=False)
    fpr: Float64 = field(repr=False)
    confidence: float
    method: Literal["finite-sample", "bootstrap"]

    @property
    def smallest_fpr(self) -> float:
        """The floor."""
        return float(self.fpr[0])

    def bound(self, threshold: np.float32) -> float:
        """Of the rate of scores strictly above the threshold; 1 below the lowest step."""
        step = int(np.count_nonzero(self.thresholds > threshold))
        return float(self.fpr[step]) if step < self.fpr.size else 1.0

    def log10(self, scores: Float32) -> Float64:
        """log10 of the bound of each score; 0 at and below the lowest threshold."""
        # The number of thresholds that are not strictly below the score is the step it has reached.
        step = np.searchsorted(-self.thresholds, -scores, side="right")
        rates: Float64 = np.log10(np.append(self.fpr, 1.0))
        return rates[step]


def finite_sample_band(finite: FiniteSample, thresholds: Float32, confidence: float) -> FprBand | None:
    """The band by halved failure probabilities; None when no rate below 1 is answered.

    Parameters
    ----------
    thresholds : (n,) float32, descending; what `FiniteSample` numbers.
    """
    n = finite.n_matched
    if n < 1:
        return None
    # Where the first step lies is decided by n alone: labels and scores have no say.
    floor = -math.expm1(math.log((1 - confidence) / 2) / n)
    top = math.floor(-math.log10(floor) * STEPS_PER_DECADE) if floor < 1 else 0
    while top > 0 and order_pairs_needed(10 ** (-top / STEPS_PER_DECADE), 1 - (1 - confidence) / 2) > n:
        top -= 1
    steps: list[tuple[np.float32, float]] = []
    # The k-th rate from the smallest may fail with (1 - confidence) / 2^(k + 1).
    for k, level in enumerate(range(top, 0, -1)):
        rate = 10 ** (-level / STEPS_PER_DECADE)
        choice = finite.choose(rate, 1 - (1 - confidence) / 2 ** (k + 1))
        if choice is not None:
            steps.append((np.float32(thresholds[choice[0]]), rate))
    return _steps(steps, confidence, "finite-sample")


def bootstrap_band(table: BootstrapTable, confidence: float) -> FprBand | None:
    """The asymptotic band; None where the bootstrap is not admitted or not kept for that confidence."""
    row = confidence_row(confidence)
    if row is None or table.simultaneous is None or not table.admitted.any():
        return None
    steps: list[tuple[np.float32, float]] = []
    bounds = table.simultaneous[row]
    for at in np.flatnonzero(table.admitted & (bounds < 1)):
        # The next power of a tenth of a decade above the bound.
        level = math.floor(-math.log10(bounds[at]) * STEPS_PER_DECADE)
        if level > 0:
            steps.append((np.float32(table.thresholds[at]), 10 ** (-level / STEPS_PER_DECADE)))
    return _steps(steps, confidence, "bootstrap")


def _steps(
    candidates: list[tuple[np.float32, float]],
    confidence: float,
    method: Literal["finite-sample", "bootstrap"],
) -> FprBand | None:
    """For each rate its lowest threshold, and only rates that reach lower than every smaller one."""
    lowest: dict[float, np.float32] = {}
    for threshold, rate in candidates:
        lowest[rate] = min(threshold, lowest.get(rate, threshold))
    steps: list[tuple[np.float32, float]] = []
    # A larger rate says something only where it reaches lower than all smaller ones.
    for rate in sorted(lowest):
        if not steps or lowest[rate] < steps[-1][0]:
            steps.append((lowest[rate], rate))
    if not steps:
        return None
    return FprBand(
        thresholds=np.array([threshold for threshold, _ in steps], dtype=np.float32),
        fpr=np.array([rate for _, rate in steps]),
        confidence=confidence,
        method=method,
    )
