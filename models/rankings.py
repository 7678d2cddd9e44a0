"""Distances and agreement between rankings."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_CELLS = 4_000_000


def kendall_tau(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """Kendall's tau-b between the rows of two arrays of positions.

    Parameters
    ----------
    a, b : (n, k) positions (or any numbers that order the labels); equal values are ties. NaN means that the
        label is absent: it is left out of that row, on both sides.

    Returns
    -------
    (n,) float64 in [-1, 1]: (concordant - discordant) / sqrt(pairs not tied in a * pairs not tied in b),
    Kendall 1945. NaN where that is 0/0: fewer than two labels in common, or all of them tied on one side.

    Raises
    ------
    ValueError
        When shapes differ, are not two-dimensional, or values are infinite.
    """
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.ndim != 2 or left.shape != right.shape:
        raise ValueError(f"a and b have shapes {left.shape} and {right.shape}; expected (n, k) for both")
    if np.isinf(left).any() or np.isinf(right).any():
        raise ValueError("a and b hold infinities; expected positions, NaN where a label is absent")
    n, k = left.shape
    tau = np.full(n, np.nan)
    absent = np.isnan(left) | np.isnan(right)
    block = max(1, _CELLS // max(1, k * k))
    first, second = np.triu_indices(k, 1)
    for start in range(0, n, block):
        rows = slice(start, start + block)
        sign_a = np.sign(left[rows, first] - left[rows, second])
        sign_b = np.sign(right[rows, first] - right[rows, second])
        # A pair with an absent label is no pair: 0 counts as tied on both sides.
        gone = absent[rows, first] | absent[rows, second]
        sign_a[gone] = 0.0
        sign_b[gone] = 0.0
        untied = np.abs(sign_a).sum(axis=1) * np.abs(sign_b).sum(axis=1)
        agreement = (sign_a * sign_b).sum(axis=1)
        np.divide(agreement, np.sqrt(untied), out=tau[rows], where=untied > 0)
    return tau
