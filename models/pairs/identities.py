"""Identities that explicit pairs tell of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pairmark.models.pairs.splits import joined_groups


def identities_of_pairs(points: NDArray[np.float32], n: int, same: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Identities of points, (2 n,): equal points, and points joined by same pairs at one or more removes, are one.

    Parameters
    ----------
    points : (2 n, d), left rows then right rows.
    same : (n,).
    """
    _, number = np.unique(points, axis=0, return_inverse=True)
    number = number.ravel()
    _, component = joined_groups(int(number.max()) + 1, number[:n][same], number[n:][same])
    return np.unique(component[number], return_inverse=True)[1].astype(np.int64)
