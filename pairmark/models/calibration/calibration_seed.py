"""The random numbers of a calibration: a function of a secret and of its people, of nothing that a caller chooses."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.pairs.samples import unit_text

HALVES = 2.0**-53


@dataclass(frozen=True, kw_only=True)
class CalibrationSeed:
    """What is drawn once for a set of people, and shared by every version that is calibrated on them.

    Attributes
    ----------
    uniform : U in (0, 1): thresholds are admitted where the bound's statistic reaches U / (1 - confidence).
    seed : of splits and matchings of the people.
    """

    uniform: float
    seed: int

    @classmethod
    def of_people(cls, names: ArrayLike, secret: bytes = b"") -> Self:
        """By HMAC-SHA256 of the set of names; order and repetition do not matter."""
        return cls._of(people_digest(np.asarray(names).ravel().tolist(), secret))

    @classmethod
    def of_generator(cls, random_state: int | np.random.Generator | None) -> Self:
        """By a seed. A generator is drawn from once."""
        return cls._of(np.random.default_rng(random_state).bytes(16))

    @classmethod
    def _of(cls, digest: bytes) -> Self:
        first, second = int.from_bytes(digest[:8]), int.from_bytes(digest[8:16])
        return cls(uniform=((first >> 11) + 0.5) * HALVES, seed=second >> 2)


def people_digest(names: Iterable[Any], secret: bytes) -> bytes:
    """HMAC-SHA256 of a set of names. Whole numbers count as their digits, whatever their type."""
    encoded = {unit_text(name).encode() for name in names}
    digest = hmac.new(secret, digestmod="sha256")
    for name in sorted(encoded):
        # A length before each name: two sets never give the same bytes.
        digest.update(len(name).to_bytes(8, "big") + name)
    return digest.digest()
