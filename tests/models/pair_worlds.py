"""Made-up worlds of pairs whose true false positive rate is known, to test promises against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from pairmark.models.pairs.splits import held_out_pairs


@dataclass(frozen=True, kw_only=True)
class Scored:
    scores: NDArray[np.float32]
    same: NDArray[np.bool_]
    units: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class People:
    """Open-set: score of a different pair = effect + effect + noise, rounded down to a grid where asked.

    Effects are Gaussian, or Student's with three degrees of freedom (``tail="t3"``).
    """

    m: int
    per: int = 2
    effect: float = 0.7
    n_pairs: int = 20_000
    step: float = 0.0
    tail: Literal["normal", "t3"] = "normal"

    def draw(self, rng: np.random.Generator) -> Scored:
        y = np.repeat(np.arange(self.m), self.per)
        pairs = held_out_pairs(y, protocol="open-set", n_pairs=self.n_pairs, random_state=rng)
        heavy = self.tail == "t3"
        effects = self.effect * (rng.standard_t(3, self.m) if heavy else rng.standard_normal(self.m))
        scores = effects[pairs.units].sum(axis=1) + rng.standard_normal(len(pairs)) + 4.0 * pairs.same
        if self.step:
            scores = np.floor(scores / self.step) * self.step
        return Scored(scores=scores.astype(np.float32), same=pairs.same, units=pairs.units)

    def true_rate(self, threshold: float) -> float:
        if self.step:
            # score > t on the grid means that the value before rounding reached the next step.
            threshold = (np.floor(threshold / self.step) + 1) * self.step
        if self.tail == "t3":
            ordered = _heavy_tailed(self.effect)
            return 1 - float(np.searchsorted(ordered, threshold, side="right")) / ordered.size
        return float(norm.sf(threshold / np.sqrt(1 + 2 * self.effect**2)))


@lru_cache
def _heavy_tailed(effect: float) -> NDArray[np.float64]:
    """Two million scores of different pairs in order: a rate of 1 % is known to within 1 % of itself."""
    rng = np.random.default_rng(99)
    return np.sort(effect * rng.standard_t(3, (2_000_000, 2)).sum(axis=1) + rng.standard_normal(2_000_000))


@dataclass(frozen=True, kw_only=True)
class Classes:
    """Closed-set: unequal classes on a line, score = -distance of two noisy samples. The rate is given different."""

    m: int
    n_classes: int = 4
    spread: float = 0.6
    n_pairs: int = 20_000

    def shares(self) -> NDArray[np.float64]:
        weights = 1.0 / np.arange(1, self.n_classes + 1)
        return weights / weights.sum()

    def draw(self, rng: np.random.Generator) -> Scored:
        y = rng.choice(self.n_classes, self.m, p=self.shares())
        pairs = held_out_pairs(y, protocol="closed-set", n_pairs=self.n_pairs, random_state=rng)
        x = y + self.spread * rng.standard_normal(self.m)
        scores = -np.abs(x[pairs.left] - x[pairs.right])
        return Scored(scores=scores.astype(np.float32), same=pairs.same, units=pairs.units)

    def true_rate(self, threshold: float) -> float:
        shares, scale = self.shares(), self.spread * np.sqrt(2)
        hit = different = 0.0
        for a, p in enumerate(shares):
            for b, q in enumerate(shares):
                if a != b:
                    different += p * q
                    near = norm.cdf((-threshold - (a - b)) / scale) - norm.cdf((threshold - (a - b)) / scale)
                    hit += p * q * max(0.0, near)
        return hit / different
