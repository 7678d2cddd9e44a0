"""A learned similarity of records."""

from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.arrays import ArrayLike, Bool, Float32, Float64, Int64, NDArray
from pairmark.models.core.inputs import checked_pairs, row_numbers
from pairmark.models.core.spec import LearnerSpec, RandomState, document_parameters
from pairmark.models.core.state import StateRecord
from pairmark.models.records.base import BLOCK, COLUMNS, RecordScorer, explain_score, score_in_blocks
from pairmark.models.records.comparators import Prepared
from pairmark.models.records.neighbors import N_CONTEXT, RivalIndex, find_rivals, logits
from pairmark.models.records.schema import Records
from pairmark.models.trees.boosted import BoostedTrees, TreeSettings, fit_trees

BLANKED_SHARE, N_PATTERNS = 1 / 3, 24
"""Training pairs that are learned from a second time without some of their columns, and how many choices of columns."""
N_FOLDS = 5
"""Parts of the training pairs, by left row: each is scored by models of the others."""


@document_parameters
class RecordSimilarity(RecordScorer):
    """Same or different, by boosted trees on comparators of fields.

    A score is the chance of same, for pairs as they occur in training.

    Attributes
    ----------
    schema_ : the columns with their types.
    trees_ : the fitted trees.
    context_ : trees that also see a pair's rivals, of `fit_among`; else None.

    Examples
    --------
    >>> from pairmark import RecordSimilarity
    >>> rows = [{"name": f"name{at}", "town": f"town{at % 7}", "year": str(1950 + at % 40)} for at in range(80)]
    >>> columns = {"name": "text", "town": "category", "year": "category"}
    >>> model = RecordSimilarity(columns=columns, n_estimators=10)
    >>> model = model.fit(rows + rows, [*range(80), *range(80)])
    >>> same, different = model.score_pairs(rows, [0, 0], [0, 1])
    >>> bool(same > different)
    True
    """

    def __init__(
        self,
        *,
        columns: Annotated[dict[str, str] | None, Field(description=COLUMNS)] = None,
        n_estimators: Annotated[int, Field(ge=1, le=10_000, description="boosted trees")] = 300,
        learning_rate: Annotated[
            float, Field(gt=0, le=1, description="how much of each tree is added")
        ] = 0.05,
        max_depth: Annotated[int, Field(ge=1, le=12, description="depth of the trees")] = 6,
        n_pairs: Annotated[
            int,
            Field(
                ge=2,
                le=5_000_000,
                description="training pairs drawn from identities: half of them same, of the others half records "
                "that share much; explicit pairs are all used",
            ),
        ] = 100_000,
        random_state: Annotated[RandomState, Field(description="seed of pairs and trees")] = 0,
    ) -> None:
        self.columns = columns
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.n_pairs = n_pairs
        self.random_state = random_state

    trees_: Annotated[BoostedTrees, StateRecord()]
    context_: Annotated[BoostedTrees | None, StateRecord(prefix="context_")]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "trees_")

    def _learn_identities(self, rows: Records, codes: Int64, identities: NDArray[Any]) -> None:
        random = self._random()
        prepared = self._comparators.fit(rows).prepare(rows)
        left, right, same = self._pairs_of_identities(prepared, codes, self.n_pairs, random)
        self._learn(rows, prepared, (left, right), same, np.ones(same.size), random)

    def _learn_pairs(self, left: Records, right: Records, same: Bool, weight: Float64) -> None:
        both = np.concatenate([left, right])
        first, number = distinct_cells(both)
        prepared = self._comparators.fit(both[first]).prepare(both[first])
        sides = number[: len(left)], number[len(left) :]
        self._learn(both[first], prepared, sides, same, weight / weight.mean(), self._random())

    def _learn(
        self,
        cells: Records,
        prepared: Prepared,
        sides: tuple[Int64, Int64],
        same: Bool,
        weight: Float64,
        random: np.random.Generator,
    ) -> None:
        """Grow trees on pairs of rows, some of them a second time with whole columns blanked."""
        left, right = sides
        self._comparators.learn_patterns(prepared.missing[left], prepared.missing[right])
        features, d = [self._comparators.compare(prepared, left, prepared, right)], cells.shape[1]
        again = random.permutation(left.size)[: int(BLANKED_SHARE * left.size) if d > 1 else 0]
        for part in np.array_split(again, N_PATTERNS):
            lacked = random.permutation(d)[random.integers(1, max(d, 2)) :]
            rows, number = np.unique([left[part], right[part]], return_inverse=True)
            blanked = cells[rows]
            blanked[:, lacked] = None
            records, ends = self._comparators.prepare(blanked), number.reshape(2, -1)
            features.append(self._comparators.compare(records, ends[0], records, ends[1]))
        order = np.concatenate([np.arange(left.size), again])
        data = np.concatenate(features), same[order], weight[order]
        self.trees_ = fit_trees(*data, self._settings, random, directions=self._comparators.directions)
        self.context_ = None

    @property
    def _settings(self) -> TreeSettings:
        return TreeSettings(self.n_estimators, self.learning_rate, self.max_depth)

    def fit_among(
        self,
        X: Any,
        left: ArrayLike,
        right: ArrayLike,
        same: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        n_left: int | None = None,
    ) -> Self:
        """Learn from pairs of rows, alone as `fit_pairs` does and among their rivals: the pairs of either record with
        those that share most with it, labelled or not.

        Rivals are scored by models that no pair of the same left row was fitted on. With too few labels for that
        (`N_FOLDS` of either kind) pairs are learned alone, and `context_` is None.

        Parameters
        ----------
        X : records of one table, or of two, one after the other.
        left, right : (n,) rows. same, sample_weight : as `fit_pairs`.
        n_left : rows of the left table, which come first; None: there is one table.
        """
        self._check_params()
        rows = self._training_rows(X, "X", reset=True)
        a, b = _rows_of_sides(left, right, len(rows), n_left)
        truth, weight = checked_pairs(a.size, same, sample_weight)
        self._learn_pairs(rows[a], rows[b], truth, weight)
        self._learn_among(self._comparators.prepare(rows), a, b, truth, weight / weight.mean(), n_left)
        return self

    def score_among(self, X: Any, left: ArrayLike, right: ArrayLike, *, n_left: int | None = None) -> Float32:
        """Similarity of pairs of rows among their rivals in the tables; parameters as `fit_among`.

        Scores depend on the tables, not on which pairs are asked about; swapped tables give the same to the last bit.

        Returns
        -------
        (n,) float32

        Raises
        ------
        ValueError
            If the model was not fitted by `fit_among`, or too few labels were there for it.
        """
        check_is_fitted(self)
        if self.context_ is None:
            raise ValueError(
                "the model has learned nothing of rivals: fit it with fit_among on more pairs of either kind"
            )
        rows = self._validated(X, "X")
        a, b = _rows_of_sides(left, right, len(rows), n_left)
        prepared = self._comparators.prepare(rows)
        rivals = find_rivals(self._comparators, prepared, n_left)
        rival_scores = logits(self.compared(prepared, rivals[0], prepared, rivals[1]))
        index, trees = RivalIndex.of(rivals, rival_scores, prepared.n), self.context_

        def score(part: Int64) -> Float32:
            features = self._comparators.compare(prepared, a[part], prepared, b[part])
            context = index.context(a[part], b[part], logits(self._scores(features)))
            return trees.score(np.hstack([features, context]))

        return score_in_blocks(score, np.arange(a.size))

    def score_candidates(self, X: Any, left: Int64, right: Int64, n_left: int | None = None) -> Float32:
        if self.context_ is None:
            return self.score_pairs(X, left, right)
        return self.score_among(X, left, right, n_left=n_left)

    def _learn_among(
        self, prepared: Prepared, left: Int64, right: Int64, same: Bool, weight: Float64, n_left: int | None
    ) -> None:
        """Fit the trees that also see rivals; each fold's pairs and their rivals are scored by trees of the others."""
        random = self._random()
        folds = random.permutation(prepared.n)[left] % N_FOLDS
        rivals = find_rivals(self._comparators, prepared, n_left)
        others = [folds != fold for fold in range(N_FOLDS)]
        is_short = min(same.sum(), (~same).sum()) < N_FOLDS or not rivals[0].size
        if is_short or any(np.unique(same[is_other]).size < 2 for is_other in others):
            return
        features = self._comparators.compare(prepared, left, prepared, right)
        context = np.empty((left.size, N_CONTEXT), dtype=np.float32)

        def grow(inputs: Float32, rows: Any, directions: Float64) -> BoostedTrees:
            return fit_trees(inputs, same[rows], weight[rows], self._settings, random, directions=directions)

        directions = self._comparators.directions
        fold_trees = [grow(features[is_other], is_other, directions) for is_other in others]
        rival_scores = np.empty((N_FOLDS, rivals[0].size))
        for start in range(0, rivals[0].size, BLOCK):
            part = slice(start, start + BLOCK)
            compared = self._comparators.compare(prepared, rivals[0][part], prepared, rivals[1][part])
            for fold, trees in enumerate(fold_trees):
                rival_scores[fold, part] = logits(trees.score(compared))
        for fold, trees in enumerate(fold_trees):
            own = ~others[fold]
            index = RivalIndex.of(rivals, rival_scores[fold], prepared.n)
            context[own] = index.context(left[own], right[own], logits(trees.score(features[own])))
        inputs, unbound = np.hstack([features, context]), np.zeros(N_CONTEXT)
        self.context_ = grow(inputs, slice(None), np.concatenate([directions, unbound]))

    def explain(self, left: Any, right: Any, feature_names: Any = None) -> dict[str, Any]:
        """What each field contributes to one pair's score.

        Returns
        -------
        JSON-able: ``score``, ``base`` (what every pair begins with) and ``fields``, the largest contributions first,
        each with both cells and what was found comparing them. ``base`` and contributions add up to the score.
        """
        a, b, features = self._compared_pair(left, right)
        return explain_score(self._comparators, a, b, features[0], self.trees_.contributions(features[0]),
                         float(self._scores(features)[0]))  # fmt: skip

    def _scores(self, features: Float32) -> Float32:
        return self.trees_.score(features)

    def _random(self) -> np.random.Generator:
        return np.random.default_rng(int(check_random_state(self.random_state).randint(2**31)))


def _rows_of_sides(left: Any, right: Any, n: int, n_left: int | None) -> tuple[Int64, Int64]:
    a, b = row_numbers(left, n, "left"), row_numbers(right, n, "right")
    if a.size != b.size:
        raise ValueError(f"left names {a.size} rows and right {b.size}: expected one of each a pair")
    if n_left is not None and a.size and not (a.max() < n_left <= b.min()):
        raise ValueError(f"expected left rows below {n_left} and right rows from there on")
    return a.astype(np.int64), b.astype(np.int64)


def distinct_cells(cells: Any) -> Any:
    """First row of each distinct record, and each row's number among them."""
    numbers: dict[tuple[Any, ...], int] = {}
    number = np.array([numbers.setdefault(tuple(row), len(numbers)) for row in cells], dtype=np.int64)
    _, first = np.unique(number, return_index=True)
    return first, number


RECORDS = LearnerSpec(
    kind="record-trees",
    title="Boosted trees on comparators of fields: for tables with text, categories, dates and missing cells",
    estimator=RecordSimilarity,
    capabilities=frozenset({"similarity", "match", "search"}),
    takes_records=True,
)
