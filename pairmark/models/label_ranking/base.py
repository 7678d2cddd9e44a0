"""What all label rankers share: checks, canonical labels, scores to positions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.arrays import Float32, Float64
from pairmark.models.core.inputs import checked_matrix
from pairmark.models.core.spec import check_params
from pairmark.models.core.state import Array, DeclaredState, Fact, StoredState, require
from pairmark.models.evaluation.rankings import Positions, borda, copeland, kemeny, kendall_tau, positions_of
from pairmark.models.label_ranking.rankings_data import (
    MAX_LABELS,
    TrainingRankings,
    n_pairs,
    training_rankings,
)

_BLOCK_CELLS = 8_000_000
"""Numbers of a block of pairwise matrices: bounds the memory of a large batch."""


class RankerBase(DeclaredState, BaseEstimator):
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
        self._check()
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

    @classmethod
    def _sizes(cls, file: StoredState) -> Mapping[str, int]:
        return {"pairs": n_pairs(file.facts.n_labels)}

    @classmethod
    def _relate(cls, file: StoredState) -> None:
        order = file.arrays["label_order"]
        counts = np.bincount(order, minlength=file.facts.n_labels)
        require(counts[order] == 1, "label_order", order, "each label once")

    def _check(self) -> None:
        """Hold the parameters against their model; a `ValueError` names those that do not fit."""
        check_params(self)

    @abstractmethod
    def _learn(self, X: Float32, rankings: TrainingRankings, random: np.random.RandomState) -> None: ...

    @abstractmethod
    def _scores(self, X: Float32) -> Float64:
        """Scores in canonical order, (n, k), higher is better."""

    def _ranked(self, X: Float32) -> tuple[Positions, Float64]:
        """Positions and scores of points that were checked already, for who serves them."""
        scores = self._rank_scores(X)
        return self._in_caller_order(positions_of(scores)), self._in_caller_order(scores)

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
        original = np.empty(canonical.shape)
        original[:, self.order_] = canonical
        return original

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "order_")


def aggregated(before: Float64, aggregation: str) -> Float64:
    """Scores, (n, k), by which pairwise shares are ranked.

    ``borda``: mean share of wins. ``copeland``: labels beaten; equal numbers by Borda. ``kemeny``: places from the
    end of the order that disagrees least.
    """
    k = before.shape[1]
    shares = borda(before) / (k - 1)
    if aggregation == "borda":
        return np.asarray(shares)
    if aggregation == "copeland":
        # Defeats come in halves, so that shares within (0, 1) scaled to below a half only settle ties.
        return np.asarray((k - 1) - copeland(before) + 0.49 * shares)
    return np.asarray((k - 1) - kemeny(before))


def spread_seeds(random: np.random.RandomState, n: int) -> list[int]:
    """Seeds drawn before any parallel work, so that results don't depend on who does it."""
    return [int(seed) for seed in random.randint(0, np.iinfo(np.int64).max, size=n, dtype=np.int64)]
