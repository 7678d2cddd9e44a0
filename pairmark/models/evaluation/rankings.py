"""Distances and agreement between rankings, and aggregation of pairwise preferences into one ranking.

Rankings are rows of positions: ``positions[r, i]`` is label i's 0-based place in row r, smaller is better. NaN means
that the label is absent and equal values are tied, wherever a function does not say otherwise.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.core.arrays import Float64
from pairmark.models.evaluation.kernels.rankings import kemeny_positions

Positions = Float64
Aggregation = Literal["borda", "copeland", "kemeny"]

KEMENY_EXACT = 10
"""Labels in a cycle of majorities that `kemeny` still orders exactly; more are ordered by local search."""
_CELLS = 4_000_000


def kendall_tau(a: ArrayLike, b: ArrayLike) -> Float64:
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

    Examples
    --------
    >>> from pairmark import kendall_tau
    >>> kendall_tau([[0, 1, 2], [0, 1, 2]], [[0, 1, 2], [2, 1, 0]])  # the same order, and its reverse
    array([ 1., -1.])
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
        # A pair with an absent label is no pair: 0 counts as tied on both sides.
        is_absent = absent[rows, first] | absent[rows, second]
        sign_a, sign_b = (
            np.where(is_absent, 0.0, np.sign(side[rows, first] - side[rows, second]))
            for side in (left, right)
        )
        untied = np.abs(sign_a).sum(axis=1) * np.abs(sign_b).sum(axis=1)
        agreement = (sign_a * sign_b).sum(axis=1)
        np.divide(agreement, np.sqrt(untied), out=tau[rows], where=untied > 0)
    return tau


def positions_of(scores: ArrayLike) -> Positions:
    """0-based positions of each row's scores, (n, k): highest first, ties by the labels' order."""
    values = np.asarray(scores, dtype=np.float64)
    order = np.argsort(-values, axis=1, kind="stable")
    positions = np.empty(values.shape)
    positions[np.arange(values.shape[0])[:, None], order] = np.arange(values.shape[1])
    return positions


def mid_positions(positions: ArrayLike) -> Positions:
    """Positions with gaps closed and ties in the middle of the places they share; NaN stays.

    ``[3, 1, 1, nan]`` becomes ``[2, 0.5, 0.5, nan]``.
    """
    values = np.asarray(positions, dtype=np.float64)
    result = np.empty(values.shape)
    block = max(1, _CELLS // max(1, values.shape[1] ** 2))
    for begin in range(0, values.shape[0], block):
        part = values[begin : begin + block]
        before = (part[:, None, :] < part[:, :, None]).sum(axis=2)
        tied = (part[:, None, :] == part[:, :, None]).sum(axis=2)
        result[begin : begin + block] = np.where(np.isnan(part), np.nan, before + (tied - 1) / 2)
    return result


def pairwise_shares(positions: ArrayLike) -> Float64:
    """Of the rows that show both labels, the share that puts the first before the second, (k, k).

    Ties count half each way. NaN where no row shows both; the diagonal is 0.
    """
    values = np.asarray(positions, dtype=np.float64)
    n, k = values.shape
    votes, n_compared = np.zeros((k, k)), np.zeros((k, k))
    block = max(1, _CELLS // max(1, k * k))
    for begin in range(0, n, block):
        part = values[begin : begin + block]
        before = (part[:, :, None] < part[:, None, :]) + 0.5 * (part[:, :, None] == part[:, None, :])
        present = ~np.isnan(part)
        votes += before.sum(axis=0)
        n_compared += present.T.astype(np.float64) @ present.astype(np.float64)
    shares = np.full((k, k), np.nan)
    np.divide(votes, n_compared, out=shares, where=n_compared > 0)
    np.fill_diagonal(shares, 0.0)
    return shares


def borda(before: Float64) -> Float64:
    """Borda scores, (n, k): the sum over the other labels of how surely a label comes before them.

    Parameters
    ----------
    before : (n, k, k) shares or probabilities that the first label comes before the second.
    """
    return np.asarray(before.sum(axis=2))


def consensus(positions: ArrayLike) -> Positions:
    """The one ranking, (1, k), that puts labels in the order of how often each goes before the others (Borda)."""
    # Two labels that no row shows together say nothing of each other: even.
    shares = np.nan_to_num(pairwise_shares(positions), nan=0.5)
    return positions_of(borda(shares[None]))


def copeland(before: Float64) -> Positions:
    """Copeland positions in closed form, (n, k): how many labels beat each, half for those that draw with it.

    Labels with equally many defeats are tied. On a transitive tournament it is the tournament's own order.
    Algorithm 6 of the paper counts the same from 1, with ``g_ij = +1`` where i comes after j.
    """
    after = np.swapaxes(before, 1, 2)
    defeats = (after > before).sum(axis=2) + 0.5 * ((after == before).sum(axis=2) - 1)
    return np.asarray(defeats, dtype=np.float64)


def kemeny(before: Float64) -> Positions:
    """Kemeny positions, (n, k): the order that disagrees least with the given preferences.

    Minimises the sum of ``before[j, i]`` over labels i put before j. Groups of labels that majorities order among
    each other are ordered apart; a group in which majorities run in circles is ordered exactly up to
    ``KEMENY_EXACT`` labels and by local search beyond (no single label can then be moved to improve it).

    Parameters
    ----------
    before : (n, k, k) shares, counts or probabilities that the first label comes before the second.
    """
    votes = np.ascontiguousarray(before, dtype=np.float64)
    out = np.empty(votes.shape[:2])
    kemeny_positions(votes, KEMENY_EXACT, out)
    return out
