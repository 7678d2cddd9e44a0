"""A learned similarity of records."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sklearn.utils import check_random_state

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.spec import RandomState, document_parameters
from pairmark.models.records.base import COLUMNS, RecordScorer
from pairmark.models.records.explain import explained
from pairmark.models.records.schema import Records
from pairmark.models.records.state import RecordSimilarityState
from pairmark.models.records.trees import TreeSettings, fit_trees


@document_parameters
class RecordSimilarity(RecordSimilarityState, RecordScorer):
    """Same or different, by boosted trees and a randomised forest on comparators of fields.

    A score is the mean chance of same that both give, for pairs as they occur in training.

    Attributes
    ----------
    schema_ : the columns with their types.
    trees_ : the fitted trees.

    Examples
    --------
    >>> from pairmark import RecordSimilarity
    >>> rows = [{"name": f"name{at}", "town": f"town{at % 7}", "year": str(1950 + at % 40)} for at in range(80)]
    >>> columns = {"name": "text", "town": "category", "year": "category"}
    >>> model = RecordSimilarity(columns=columns, n_estimators=10, n_forest=10)
    >>> model = model.fit(rows + rows, [*range(80), *range(80)])
    >>> same, different = model.score_pairs(rows, [0, 0], [0, 1])
    >>> bool(same > different)
    True
    """

    def __init__(
        self,
        *,
        columns: Annotated[dict[str, str] | None, Field(description=COLUMNS)] = None,
        n_estimators: Annotated[int, Field(ge=0, le=10_000, description="boosted trees")] = 300,
        n_forest: Annotated[
            int, Field(ge=0, le=10_000, description="trees of the randomised forest beside them")
        ] = 300,
        learning_rate: Annotated[
            float, Field(gt=0, le=1, description="how much of each boosted tree is added")
        ] = 0.05,
        max_depth: Annotated[int, Field(ge=1, le=12, description="depth of the boosted trees")] = 6,
        n_pairs: Annotated[
            int,
            Field(
                ge=2,
                le=5_000_000,
                description="training pairs drawn from identities: half of them same, of the others half candidates "
                "that share a rare key; explicit pairs are all used",
            ),
        ] = 100_000,
        random_state: Annotated[RandomState, Field(description="seed of pairs and trees")] = 0,
    ) -> None:
        self.columns = columns
        self.n_estimators = n_estimators
        self.n_forest = n_forest
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.n_pairs = n_pairs
        self.random_state = random_state

    def _learn_identities(self, rows: Records, codes: Int64, identities: NDArray[Any]) -> None:
        random = self._random()
        prepared = self._comparators.fit(rows).prepare(rows)
        left, right, same = self._pairs_of_identities(prepared, codes, self.n_pairs, random)
        features = self._comparators.compare(prepared, left, prepared, right)
        self._learn(features, same, np.ones(same.size), random)

    def _learn_pairs(self, left: Records, right: Records, same: Bool, weight: Float64) -> None:
        random = self._random()
        first, number = distinct_cells(np.concatenate([left, right]))
        cells = np.concatenate([left, right])[first]
        prepared = self._comparators.fit(cells).prepare(cells)
        features = self._comparators.compare(prepared, number[: len(left)], prepared, number[len(left) :])
        self._learn(features, same, weight / weight.mean(), random)

    def _learn(self, features: Float32, same: Bool, weight: Float64, random: np.random.Generator) -> None:
        if not self.n_estimators and not self.n_forest:
            raise ValueError("n_estimators and n_forest are 0: expected trees of either kind")
        settings = TreeSettings(self.n_estimators, self.n_forest, self.learning_rate, self.max_depth)
        self.trees_ = fit_trees(features, same, weight, settings, random)

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
