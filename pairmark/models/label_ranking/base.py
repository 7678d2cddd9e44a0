"""What all label rankers share: rankings checked and in canonical label order, scores to positions."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.arrays import Float32, Float64
from pairmark.models.core.inputs import checked_matrix, row_of_unranked
from pairmark.models.core.spec import check_params
from pairmark.models.core.state import Array, Fact, Stateful, StoredState, require
from pairmark.models.evaluation.rankings import (
    Positions,
    borda,
    copeland,
    kendall_tau,
    mid_positions,
    pairwise_shares,
    positions_of,
)

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
    shares : (k, k) of the rows that show both labels, the share that puts the first before; 0.5 where none does.
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
    if not (np.nanmin(positions, axis=1) < np.nanmax(positions, axis=1)).any():
        raise ValueError("no row of Y orders two labels: expected some that are neither absent nor tied")
    return TrainingRankings(
        order=order,
        positions=positions.astype(np.float32),
        shares=np.nan_to_num(shares, nan=0.5),
    )


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


_BLOCK_CELLS = 8_000_000
"""Numbers of a block of pairwise matrices: bounds the memory of a large batch."""


class RankerBase(Stateful, BaseEstimator):
    """A ranker that learns in canonical label order (see `TrainingRankings`) and answers in the given one.

    Families' rankers give `_learn` and `_scores`.
    """

    n_features_in_: int
    random_state: int | np.random.RandomState | None
    order_: Annotated[NDArray[np.int64], Array(name="label_order", shape=("n_labels",), below="n_labels")]
    n_labels_: Annotated[int, Fact(), Field(ge=2, le=MAX_LABELS)]
    _keeps_mapped = True
    _gone = frozenset({"calibration"})

    def fit(self, X: ArrayLike, Y: ArrayLike) -> Self:
        """Learn to rank labels.

        Parameters
        ----------
        X : (n, d) finite numbers.
        Y : (n, k) 0-based positions, smaller is better; NaN = label absent, equal = tied. Only order matters.

        Raises
        ------
        ValueError
            On anything else, with the row or label that is wrong, and on parameters out of bounds.
        """
        check_params(self)
        random: np.random.RandomState = check_random_state(self.random_state)
        X = checked_matrix(self, X, "X", reset=True)
        rankings = training_rankings(Y, X.shape[0])
        self._learn(X, rankings, random)
        self.order_ = rankings.order
        self.n_labels_ = int(rankings.order.size)
        return self

    def predict(self, X: ArrayLike) -> Positions:
        """Positions of the labels, (n, k): 0 is best.

        Equal scores are ordered by how often the labels come before others in the training data.
        """
        return self._in_caller_order(positions_of(self._rank_scores(self._points(X))))

    def predict_scores(self, X: ArrayLike) -> Float64:
        """Scores of the labels, (n, k), higher is better: `predict` orders by them, descending."""
        return self._in_caller_order(self._rank_scores(self._points(X)))

    def score(self, X: ArrayLike, Y: ArrayLike) -> float:
        """Mean Kendall tau (tau-b over the labels that Y shows) between Y and what is predicted."""
        positions = self.predict(X)
        tau = kendall_tau(np.asarray(Y, dtype=np.float64), positions)
        if np.isnan(tau).all():
            raise ValueError("no row of Y orders two labels, so there is no tau to take the mean of")
        return float(np.nanmean(tau))

    def _sizes(self, file: StoredState) -> Mapping[str, int]:
        return {"pairs": n_pairs(file.facts.n_labels)}

    def _relate(self, file: StoredState) -> None:
        counts = np.bincount(self.order_, minlength=self.n_labels_)
        require(counts[self.order_] == 1, "label_order", self.order_, "each label once")

    @abstractmethod
    def _learn(self, X: Float32, rankings: TrainingRankings, random: np.random.RandomState) -> None: ...

    @abstractmethod
    def _scores(self, X: Float32) -> Float64:
        """Scores in canonical order, (n, k), higher is better."""

    def _rank_scores(self, X: Float32) -> Float64:
        scores = np.empty((X.shape[0], self.n_labels_))
        size = max(1, _BLOCK_CELLS // self.n_labels_**2)
        for start in range(0, X.shape[0], size):
            scores[start : start + size] = self._scores(X[start : start + size])
        return scores

    def _points(self, X: ArrayLike) -> Float32:
        check_is_fitted(self)
        return checked_matrix(self, X, "X")

    def _in_caller_order(self, canonical: Float64) -> Float64:
        return canonical.take(np.argsort(self.order_), axis=1)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "order_")


def rank_checked(ranker: RankerBase, X: Float32) -> tuple[Positions, Float64]:
    """Positions and scores of labels for points that were checked already."""
    scores = ranker._rank_scores(X)
    return ranker._in_caller_order(positions_of(scores)), ranker._in_caller_order(scores)


def aggregate_shares(before: Float64, aggregation: str) -> Float64:
    """Scores, (n, k), by which pairwise shares are ranked.

    ``borda``: mean share of wins. ``copeland``: labels beaten; equal numbers by Borda.
    """
    k = before.shape[1]
    shares = borda(before) / (k - 1)
    if aggregation == "borda":
        return np.asarray(shares)
    # Defeats come in halves, so that shares within (0, 1) scaled to below a half only settle ties.
    return np.asarray((k - 1) - copeland(before) + 0.49 * shares)
