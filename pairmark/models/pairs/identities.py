"""Identities derived from explicit pairs."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.arrays import Bool, Float32, Int64
from pairmark.models.core.kernels import rows as row_kernels
from pairmark.models.pairs.splits import joined_groups


def distinct_rows(points: Float32) -> tuple[Int64, Int64]:
    """Equal rows as one, in the order met, by hashes: sorting whole rows takes seconds where pairs are many.

    Returns
    -------
    first : (m,) a row of each kind. number : (n,) which kind each row is of.
    """
    # Adding 0 rids rows of negative zeros, whose bits are others.
    rows = np.ascontiguousarray(points, dtype=np.float32) + np.float32(0.0)
    _, first, number = np.unique(
        row_kernels.row_hashes(rows.view(np.uint32)), return_index=True, return_inverse=True
    )
    if first.size == rows.shape[0]:
        return np.arange(first.size), np.arange(first.size)
    if (rows[first][number] != rows).any():
        # Rows that only share a hash.
        _, first, number = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    return first[order].astype(np.int64), place[number.ravel()]


def identities_of_pairs(points: Float32, same: Bool) -> Int64:
    """Identities of points, (2 n,): equal points, and points joined by same pairs at one or more removes, are one.

    Parameters
    ----------
    points : (2 n, d), left rows then right rows.
    same : (n,).
    """
    first, number = distinct_rows(points)
    return joined_identities(first.size, number, same)[number]


def joined_identities(n_rows: int, number: Int64, same: Bool) -> Int64:
    """Identities 0, 1, ... of distinct rows, (n_rows,); see `identities_of_pairs`.

    ``number`` : (2 n,) which distinct row each side of each pair is, left sides then right sides.
    """
    n = same.size
    _, component = joined_groups(n_rows, number[:n][same], number[n:][same])
    return np.unique(component, return_inverse=True)[1].astype(np.int64)
