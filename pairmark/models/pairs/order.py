"""Orders that look at neither names nor scores: nothing about a threshold is random."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Int64


def codes_by_appearance(values: NDArray[Any]) -> tuple[Int64, Int64]:
    """(n,) the number of each value, in the order in which values first appear, and where each first does."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[inverse.ravel()].astype(np.int64), first[order].astype(np.int64)


def stream_of(*sizes: int) -> np.random.PCG64:
    """A stream of bits that depends on sizes alone, the same in every version of NumPy."""
    return np.random.PCG64(np.random.SeedSequence(sizes))


def permutation_of(n: int, turn: int = 0) -> Int64:
    """The ``turn``-th permutation of n things, by their number alone."""
    return np.argsort(stream_of(n, turn).random_raw(n), kind="stable").astype(np.int64)
