"""Thresholds that the same scores give under other secrets of a service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.calibration.calibration_seed import CalibrationSeed
from pairmark.models.calibration.held_out import HeldOutScores
from pairmark.models.pairs.samples import pair_sample

UNIFORMS = tuple((np.arange(10) + 0.5) / 10)
"""Midpoints of tenths: what a random number in (0, 1) may be."""


def thresholds_by_chance(
    scores: ArrayLike,
    same: ArrayLike,
    units: ArrayLike,
    fpr: float,
    uniforms: Sequence[float],
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[float]:
    """The threshold at ``fpr`` for each value of U, of pairs that Pairmark drew; each is answered."""
    held = HeldOutScores.of(
        pair_sample(scores, same, units),
        chance=CalibrationSeed(uniform=1.0, seed=seed),
        n_replicates=1_000,
        origin="drawn",
    )
    found = []
    for uniform in uniforms:
        chosen = replace(held.finite, uniform=float(uniform)).choose(fpr, confidence)
        assert chosen is not None, "fewer people than the rate takes"
        found.append(float(held.thresholds[chosen[0]]))
    return found
