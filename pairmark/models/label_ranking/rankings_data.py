"""Checks training rankings and brings them to one scale and a canonical order of labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.inputs import row_of_unranked
from pairmark.models.evaluation.rankings import Positions, mid_positions, pairwise_shares

MAX_LABELS = 1_000


def n_pairs(k: int) -> int:
    return k * (k - 1) // 2


TARGET_GRID = 64
"""Completed targets are whole multiples of 1 / TARGET_GRID, so that sums of them are exact."""


@dataclass(frozen=True, kw_only=True)
class TrainingRankings:
    """Rankings to learn from, in canonical label order.

    Attributes
    ----------
    order : (k,) which given label stands at each canonical place; a property of the rankings, not of the labels'
        given order. Everything is learned in it, so that a permutation of the labels permutes the answers and
        changes nothing else, and scores that tie are ordered by it.
    positions : (n, k) float32 mid-ranks among the labels that a row shows, NaN = absent.
    shares : (k, k) of the rows that show both labels, the share that puts the first before; 0.5 where none does
        and nothing can be inferred (see `inferred`).
    """

    order: NDArray[np.intp]
    positions: Float32
    shares: Float64

    @property
    def complete(self) -> bool:
        return not np.isnan(self.positions).any()


def training_rankings(Y: ArrayLike, n_rows: int) -> TrainingRankings:
    """Check rankings and bring them into canonical form.

    Parameters
    ----------
    Y : (n, k) positions; NaN = label absent, equal = tied. Gaps and offsets do not matter, only order does.

    A `ValueError` says which row or label is wrong.
    """
    try:
        values = np.asarray(Y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Y: {error}; expected (n, k) positions, NaN where a label is absent") from error
    if values.ndim != 2 or values.shape[0] != n_rows:
        raise ValueError(
            f"Y has shape {values.shape}; expected ({n_rows}, k), the labels' positions in each row"
        )
    k = values.shape[1]
    if not 2 <= k <= MAX_LABELS:
        raise ValueError(f"Y orders {k} label{'s' * (k != 1)}; expected 2 to {MAX_LABELS}")
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values).any(axis=1))[0])
        raise ValueError(f"Y holds an infinity in row {row}; expected positions, NaN where a label is absent")
    unranked = row_of_unranked(values)
    if unranked is not None:
        raise ValueError(
            f"Y holds -1 in row {unranked}, the best position; expected NaN where a label is absent"
        )
    present = ~np.isnan(values)
    if not present.any(axis=1).all():
        row = int(np.flatnonzero(~present.any(axis=1))[0])
        raise ValueError(f"row {row} of Y shows no label at all: leave such rows out")
    if not present.any(axis=0).all():
        label = int(np.flatnonzero(~present.any(axis=0))[0])
        raise ValueError(f"label {label} of Y is absent in every row: leave it out, or add rows that show it")
    positions = mid_positions(values)
    shares = pairwise_shares(positions)
    order = _canonical_order(positions, shares)
    positions, shares = positions[:, order], shares[np.ix_(order, order)]
    together = _untied_together(positions)
    if not together.any():
        raise ValueError("no row of Y orders two labels: expected some that are neither absent nor tied")
    return TrainingRankings(
        order=order,
        positions=positions.astype(np.float32),
        shares=inferred(shares, together),
    )


def inferred(shares: Float64, together: Int64) -> Float64:
    """Fill pairs that no row orders, transitively where the data allows.

    For such a pair (i, j) every label l that was seen ordered with both speaks: log-odds of (i, l) and (l, j) add up
    (as under Bradley-Terry), and the mean over l is taken; further rounds use what was inferred. What cannot be
    reached is 0.5.
    """
    is_settled = together > 0
    np.fill_diagonal(is_settled, True)
    odds = np.where(
        is_settled, _log_odds(np.where(is_settled & np.isfinite(shares), shares, 0.5), together), 0.0
    )
    while not is_settled.all():
        # A path's log-odds add up, so the mean over middle labels is two matrix products.
        inner = is_settled & ~np.eye(len(is_settled), dtype=bool)
        paths = inner.astype(np.float64) @ inner
        total = (odds * inner) @ inner + inner @ (odds * inner)
        reached = ~is_settled & (paths > 0)
        if not reached.any():
            break
        odds[reached] = total[reached] / paths[reached]
        is_settled |= reached
    result = np.where(together > 0, shares, 1.0 / (1.0 + np.exp(-odds)))
    np.fill_diagonal(result, 0.0)
    return np.asarray(result)


def completed_targets(positions: Float32, shares: Float64) -> Float64:
    """Doubled, centred positions of rows that may be incomplete.

    Parameters
    ----------
    positions : (n, k) mid-ranks, NaN = absent.
    shares : (k, k) for all rows, or (n, k, k) for each: how likely the first label comes before the second.

    Returns
    -------
    (n, k) float64: labels before minus labels behind, unknown pairs by their expectation ``1 - 2 shares``; whole
    numbers for complete rankings.
    """
    n, k = positions.shape
    targets = np.empty((n, k))
    estimates = 1.0 - 2.0 * shares
    estimates[..., np.arange(k), np.arange(k)] = 0.0
    block = max(1, 4_000_000 // (k * k))
    for start in range(0, n, block):
        part = positions[start : start + block]
        signs = np.sign(part[:, :, None] - part[:, None, :])
        fill = estimates if estimates.ndim == 2 else estimates[start : start + block]
        targets[start : start + block] = np.where(np.isnan(signs), fill, signs).sum(axis=2)
    return np.asarray(np.rint(targets * TARGET_GRID) / TARGET_GRID)


def _canonical_order(positions: Positions, shares: Float64) -> NDArray[np.intp]:
    """Labels by their mean share of wins; ties by the column of positions, which settles all but twins."""
    k = positions.shape[1]
    off = ~np.eye(k, dtype=bool)
    has_share = np.isfinite(shares) & off
    wins = np.where(has_share, shares, 0.0)
    # Summed from small to large, so that the sum does not depend on the labels' given order.
    mean = np.sort(wins, axis=1).sum(axis=1) / np.maximum(has_share.sum(axis=1), 1)
    columns = np.where(np.isnan(positions), -1.0, positions)
    order = sorted(range(k), key=lambda i: (-mean[i], columns[:, i].tolist()))
    return np.asarray(order, dtype=np.intp)


def _untied_together(positions: Positions) -> Int64:
    n, k = positions.shape
    counts = np.zeros((k, k), dtype=np.int64)
    block = max(1, 4_000_000 // (k * k))
    for start in range(0, n, block):
        part = positions[start : start + block]
        before = (part[:, :, None] < part[:, None, :]).sum(axis=0)
        counts += before + before.T
    return counts


def _log_odds(shares: Float64, together: Int64) -> Float64:
    """Log-odds, kept finite as if one more row said either way."""
    wins = shares * together
    return np.asarray(np.log((wins + 0.5) / (together - wins + 0.5)))
