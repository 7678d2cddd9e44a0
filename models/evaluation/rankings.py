"""Distances and agreement between rankings, and aggregation of pairwise preferences into one ranking.

Rankings are rows of positions: ``positions[r, i]`` is label i's 0-based place in row r, smaller is better. NaN means
that the label is absent and equal values are tied, wherever a function does not say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairmark.models.evaluation.kernels.rankings import kemeny_positions

Positions = NDArray[np.float64]
Aggregation = Literal["borda", "copeland", "kemeny"]

KEMENY_EXACT = 10
"""Labels in a cycle of majorities that `kemeny` still orders exactly; more are ordered by local search."""
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
    left, right = _two(a, b)
    tau = np.full(left.shape[0], np.nan)
    for rows, sign_a, sign_b, _ in _signs(left, right):
        untied = np.abs(sign_a).sum(axis=1) * np.abs(sign_b).sum(axis=1)
        agreement = (sign_a * sign_b).sum(axis=1)
        np.divide(agreement, np.sqrt(untied), out=tau[rows], where=untied > 0)
    return tau


def kendall_tau_x(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """tau-x of Emond and Mason (2002): a tie agrees with a tie, and half disagrees with an order.

    The correlation that corresponds to Kemeny's distance: equal weak orders have tau-x 1 even where all labels are
    tied, where tau-b is undefined. Without ties it equals `kendall_tau`. Parameters and errors as there; NaN only
    where fewer than two labels are in common.
    """
    left, right = _two(a, b)
    tau = np.full(left.shape[0], np.nan)
    for rows, sign_a, sign_b, gone in _signs(left, right):
        pairs = (~gone).sum(axis=1)
        # Scores are +1 for "before or tied", -1 for "behind", in both directions of each pair.
        both = sign_a * sign_b
        agreement = np.where(gone, 0.0, np.where((sign_a == 0) & (sign_b == 0), 1.0, both))
        np.divide(agreement.sum(axis=1), pairs, out=tau[rows], where=pairs > 0)
    return tau


def kendall_tau_of_lists(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """Kendall's tau between the two *lists of labels*, best first, as the authors of the source paper computed it.

    Only to reproduce Tables 4 and 5 of "Label ranking through nonparametric regression": it compares the inverse
    permutations, and is not the agreement between the two rankings. Complete rankings without ties.

    Raises
    ------
    ValueError
        As `kendall_tau`, and on absent labels.
    """
    left, right = _two(a, b)
    if np.isnan(left).any() or np.isnan(right).any():
        raise ValueError("a and b hold NaN; expected complete rankings")
    return kendall_tau(np.argsort(left, axis=1, kind="stable"), np.argsort(right, axis=1, kind="stable"))


def spearman_footrule(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """Spearman's footrule: the sum over labels of how far apart the two positions are, (n,).

    Labels absent on either side are left out of their row; give both sides positions on the same scale.
    """
    left, right = _two(a, b)
    return np.asarray(np.nansum(np.abs(left - right), axis=1))


def spearman_distance(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """Spearman's d2: the sum over labels of the squared difference of positions, (n,).

    Labels absent on either side are left out of their row; give both sides positions on the same scale.
    """
    left, right = _two(a, b)
    return np.asarray(np.nansum((left - right) ** 2, axis=1))


def top_k_hits(truth: ArrayLike, predicted: ArrayLike, k: int = 1) -> NDArray[np.float64]:
    """The share of the truth's first k labels that are among the first k predicted, (n,).

    Absent labels come last; ties are cut by the labels' order.

    Raises
    ------
    ValueError
        On shapes that differ, and when k is not between 1 and the number of labels.
    """
    left, right = _two(truth, predicted)
    if not 1 <= k <= left.shape[1]:
        raise ValueError(f"k is {k}; expected 1 to {left.shape[1]}, the number of labels")
    first = [np.argsort(side, axis=1, kind="stable")[:, :k] for side in (left, right)]
    hits: NDArray[np.float64] = (first[0][:, :, None] == first[1][:, None, :]).any(axis=2).mean(axis=1)
    return hits


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
    given = np.asarray(positions, dtype=np.float64)
    result = np.empty(given.shape)
    block = max(1, _CELLS // max(1, given.shape[1] ** 2))
    for begin in range(0, given.shape[0], block):
        part = given[begin : begin + block]
        before = (part[:, None, :] < part[:, :, None]).sum(axis=2)
        tied = (part[:, None, :] == part[:, :, None]).sum(axis=2)
        result[begin : begin + block] = np.where(np.isnan(part), np.nan, before + (tied - 1) / 2)
    return result


def pairwise_shares(positions: ArrayLike, *, sample_weight: ArrayLike | None = None) -> NDArray[np.float64]:
    """Of the rows that show both labels, the share that puts the first before the second, (k, k).

    Ties count half each way. NaN where no row shows both; the diagonal is 0.

    Parameters
    ----------
    positions : (n, k). sample_weight : (n,) numbers >= 0.
    """
    given = np.asarray(positions, dtype=np.float64)
    n, k = given.shape
    weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    votes, shown = np.zeros((k, k)), np.zeros((k, k))
    block = max(1, _CELLS // max(1, k * k))
    for begin in range(0, n, block):
        part, w = given[begin : begin + block], weight[begin : begin + block]
        before = (part[:, :, None] < part[:, None, :]) + 0.5 * (part[:, :, None] == part[:, None, :])
        present = ~np.isnan(part)
        votes += np.tensordot(w, before, axes=(0, 0))
        shown += (present * w[:, None]).T @ present.astype(np.float64)
    shares = np.full((k, k), np.nan)
    np.divide(votes, shown, out=shares, where=shown > 0)
    np.fill_diagonal(shares, 0.0)
    return shares


def borda(before: ArrayLike) -> NDArray[np.float64]:
    """Borda scores, (n, k): the sum over the other labels of how surely a label comes before them.

    Parameters
    ----------
    before : (n, k, k) shares or probabilities that the first label comes before the second.
    """
    votes = _preferences(before)
    return np.asarray(votes.sum(axis=2))


def consensus(positions: ArrayLike) -> Positions:
    """The one ranking, (1, k), that puts labels in the order of how often each goes before the others (Borda)."""
    # Two labels that no row shows together say nothing of each other: even.
    shares = np.nan_to_num(pairwise_shares(positions), nan=0.5)
    return positions_of(borda(shares[None]))


def copeland(before: ArrayLike) -> Positions:
    """Copeland positions in closed form, (n, k): how many labels beat each, half for those that draw with it.

    Labels with equally many defeats are tied. On a transitive tournament it is the tournament's own order.
    Algorithm 6 of the paper counts the same from 1, with ``g_ij = +1`` where i comes after j.
    """
    votes = _preferences(before)
    other = np.swapaxes(votes, 1, 2)
    defeats = (other > votes).sum(axis=2) + 0.5 * ((other == votes).sum(axis=2) - 1)
    return np.asarray(defeats, dtype=np.float64)


def kemeny(before: ArrayLike) -> Positions:
    """Kemeny positions, (n, k): the order that disagrees least with the given preferences.

    Minimises the sum of ``before[j, i]`` over labels i put before j. Groups of labels that majorities order among
    each other are ordered apart; a group in which majorities run in circles is ordered exactly up to
    ``KEMENY_EXACT`` labels and by local search beyond (no single label can then be moved to improve it).

    Parameters
    ----------
    before : (n, k, k) shares, counts or probabilities that the first label comes before the second.
    """
    votes = np.ascontiguousarray(_preferences(before))
    out = np.empty(votes.shape[:2])
    kemeny_positions(votes, KEMENY_EXACT, out)
    return out


def _two(a: ArrayLike, b: ArrayLike) -> tuple[Positions, Positions]:
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.ndim != 2 or left.shape != right.shape:
        raise ValueError(f"a and b have shapes {left.shape} and {right.shape}; expected (n, k) for both")
    if np.isinf(left).any() or np.isinf(right).any():
        raise ValueError("a and b hold infinities; expected positions, NaN where a label is absent")
    return left, right


def _signs(
    left: Positions, right: Positions
) -> Iterator[tuple[slice, NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]]:
    """Blocks of rows with the sign of every pair of labels on both sides, and which pairs are no pairs."""
    n, k = left.shape
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
        yield rows, sign_a, sign_b, gone


def _preferences(before: ArrayLike) -> NDArray[np.float64]:
    votes = np.asarray(before, dtype=np.float64)
    if votes.ndim != 3 or votes.shape[1] != votes.shape[2]:
        raise ValueError(f"before has shape {votes.shape}; expected (n, k, k), one square of labels a row")
    if not np.isfinite(votes).all():
        raise ValueError("before holds NaN or infinities; expected a number for every pair of labels")
    return votes
