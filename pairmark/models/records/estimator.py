"""A learned similarity of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from pairmark.models.core.arrays import Bool, Float32, Float64
from pairmark.models.core.inputs import checked_pairs
from pairmark.models.core.spec import check_params
from pairmark.models.records.base import RecordScorer
from pairmark.models.records.explain import explained
from pairmark.models.records.params import RecordSimilarityParams
from pairmark.models.records.state import RecordSimilarityState
from pairmark.models.records.trees import TreeSettings, fit_trees


class RecordSimilarity(RecordSimilarityState, RecordScorer):
    """Same or different, by boosted trees and a randomised forest on comparators of fields.

    A score is the mean chance of same that both give, for pairs as they occur in training.

    Parameters
    ----------
    columns : from column to its type, ``date:FORMAT`` for dates; the others are inferred.
    n_estimators, n_forest : boosted trees, and trees of the forest.
    learning_rate, max_depth : of the boosted trees.
    n_pairs : most training pairs that `fit` draws: half of them same, of the others half candidates that share a
        rare key.
    random_state : seed of pairs and trees.

    Attributes
    ----------
    schema_ : the columns with their types.
    trees_ : the fitted trees.
    """

    def __init__(
        self,
        *,
        columns: Mapping[str, str] | None = None,
        n_estimators: int = 300,
        n_forest: int = 300,
        learning_rate: float = 0.05,
        max_depth: int = 6,
        n_pairs: int = 100_000,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.columns = columns
        self.n_estimators = n_estimators
        self.n_forest = n_forest
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.n_pairs = n_pairs
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Learn from records and who they are of.

        Parameters
        ----------
        X : n records, see `RecordScorer`. y : (n,) identities, two or more, one of them with two records or more.

        Raises
        ------
        ValueError
            On anything else; a `RecordError` names row and column.
        """
        check_params(self, RecordSimilarityParams)
        random = self._random()
        (cells,) = self._begin(X)
        prepared = self._comparators.fit(cells).prepare(cells)
        left, right, same = self._pairs_of_identities(prepared, y, self.n_pairs, random)
        features = self._comparators.compare(prepared, left, prepared, right)
        return self._learn(features, same, np.ones(same.size), random)

    def fit_pairs(
        self, left: Any, right: Any, same: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from explicit pairs.

        Parameters
        ----------
        left, right : n records each, see `RecordScorer`. same : (n,) 0 or 1, both of them. sample_weight : (n,).

        Raises
        ------
        ValueError
            As `fit`.
        """
        check_params(self, RecordSimilarityParams)
        random = self._random()
        a, b = self._begin(left, right)
        flags, weight = checked_pairs(len(a), len(b), same, sample_weight)
        first, number = distinct_cells(np.concatenate([a, b]))
        cells = np.concatenate([a, b])[first]
        prepared = self._comparators.fit(cells).prepare(cells)
        features = self._comparators.compare(prepared, number[: len(a)], prepared, number[len(a) :])
        return self._learn(features, flags, weight / weight.mean(), random)

    def _learn(self, features: Float32, same: Bool, weight: Float64, random: np.random.Generator) -> Self:
        if not self.n_estimators and not self.n_forest:
            raise ValueError("n_estimators and n_forest are 0: expected trees of either kind")
        settings = TreeSettings(self.n_estimators, self.n_forest, self.learning_rate, self.max_depth)
        self.trees_ = fit_trees(features, same, weight, settings, random)
        return self

    def explain(self, left: Any, right: Any, feature_names: Any = None) -> dict[str, Any]:
        """What each field contributes to one pair's score.

        Returns
        -------
        JSON-able: ``score``, ``base`` (what every pair begins with) and ``fields``, the largest contributions
        first, each
        with both cells and what was found comparing them. ``base`` and contributions add up to the score.
        """
        a, b = self._one_pair(left, right)
        comparators = self._comparators
        numbers = np.zeros(1, dtype=np.int64)
        features = comparators.compare(comparators.prepare(a), numbers, comparators.prepare(b), numbers)
        return explained(comparators, a[0], b[0], features[0], self.trees_.contributions(features[0]),
                         float(self._scores(features)[0]))  # fmt: skip

    def _scores(self, features: Float32) -> Float32:
        return self.trees_.score(features)

    def _random(self) -> np.random.Generator:
        return np.random.default_rng(int(check_random_state(self.random_state).randint(2**31)))


def distinct_cells(cells: Any) -> Any:
    """First row of each distinct record, and each row's number among them."""
    numbers: dict[tuple[Any, ...], int] = {}
    number = np.array([numbers.setdefault(tuple(row), len(numbers)) for row in cells], dtype=np.int64)
    _, first = np.unique(number, return_index=True)
    return first, number
