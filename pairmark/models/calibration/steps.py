"""Places in sorted scores: how many are above a threshold, and a few of them for people to look at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def n_above(descending: NDArray[np.float32], threshold: np.float32) -> int:
    """How many entries are strictly above a threshold, without reading (a mapped file) from end to end."""
    return int(descending.size - np.searchsorted(descending[::-1], threshold, side="right"))


def spaced(ascending: NDArray[np.float64], max_points: int) -> NDArray[np.int64]:
    """Indices of at most ``max_points`` values, first and last among them: half even, half dense at the low end."""
    n = ascending.size
    if n <= max_points:
        return np.arange(n, dtype=np.int64)
    half = max_points // 2
    low = np.geomspace(1, n - 1, half).astype(np.int64)
    even = np.linspace(0, n - 1, max_points - half).astype(np.int64)
    return np.unique(np.concatenate([[0], low, even]))[:max_points] if half else even
