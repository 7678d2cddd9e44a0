"""Pairs of rows with integer weights, as trees learn from them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.base import Float32


@dataclass(frozen=True, kw_only=True)
class WeightedPairs:
    """Pairs of rows with integer weights.

    Attributes
    ----------
    pairs : (2, n) int32: left row, right row; pairs of one identity first. With learned features, a third line: the
        pair's row of ``learned``.
    weight : (n,) int32; where all weigh the same, one number seen n times (see `evenly`).
    n_same : how many are of one identity.
    learned : (n, m) float32, learned features of pairs, or None.
    """

    pairs: NDArray[np.int32]
    weight: NDArray[np.int32]
    n_same: int
    learned: Float32 | None = None

    @property
    def is_even(self) -> bool:
        """Whether one number is the weight of all."""
        return self.weight.strides == (0,)

    def copy(self) -> WeightedPairs:
        """The same pairs, in arrays that may be reordered."""
        return replace(
            self, pairs=self.pairs.copy(), weight=self.weight if self.is_even else self.weight.copy()
        )

    @property
    def n_different(self) -> int:
        """How many are of different identities."""
        return int(self.pairs.shape[1]) - self.n_same


def evenly(n: int, weight: int = 1) -> NDArray[np.int32]:
    """The weights of ``n`` pairs that all weigh the same, in the memory of one."""
    return np.broadcast_to(np.int32(weight), n)
