"""Similarities of records: checks, preparation, scoring of pairs and galleries, which all share, and a learned one."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, Field, PlainSerializer
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.arrays import ArrayLike, Bool, Float32, Float64, Int64, Matrix, NDArray
from pairmark.models.core.artefact import ArtefactError, OutdatedModel
from pairmark.models.core.base import GalleryIndex, PairScorerMixin
from pairmark.models.core.inputs import checked_pairs, one_of_equals, row_numbers
from pairmark.models.core.scores import PairsOfRows
from pairmark.models.core.search import Rows, TopK, number_rows, seal_array
from pairmark.models.core.spec import LearnerSpec, RandomState, document_parameters, keep_arguments
from pairmark.models.core.state import Array, Fact, StateRecord, StoredState, add_prefix, without_prefix
from pairmark.models.pairs.sampling import sample_pairs
from pairmark.models.records import neighbors
from pairmark.models.records.comparators import Comparators, Prepared, Rarity
from pairmark.models.records.kernels.tokens import Cells
from pairmark.models.records.neighbors import N_CONTEXT, RivalIndex, find_rivals, logits
from pairmark.models.records.schema import Records, Schema
from pairmark.models.records.tables import cells_of, columns_of, schema_of
from pairmark.models.trees.boosted import BoostedTrees, TreeSettings, fit_trees

_SHOWN = ("missing", "level", "Jaro-Winkler", "tokens, lower share", "days between", "ratio", "kilometres",
          "numbers, Jaccard", "model tokens, best")  # fmt: skip
"""Comparisons that people can read."""


def cell_values(schema: Schema, left: Any, right: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    one, other = schema.values(np.stack([left, right]))
    return one, other


BLOCK = 8_192
"""Pairs that are compared at a time: bounds the memory of their features."""
_MOST_KEPT = 1 << 23
"""Numbers that were compared and are kept."""
ScoreWithout = Callable[[Bool, Int64], Float32]
"""(d,) columns of which neither side has a cell, and numbers of pairs -> their scores."""
COLUMNS = (
    "from column to its type (number, category, text, name, date:FORMAT, place, boolean, id, ignore, ...); null: "
    "inferred from what the columns hold"
)
"""Description of a parameter that every model of records has."""
_NEIGHBORS = "neighbour_"
"""Begins the names of a gallery's arrays that find candidates."""
_FIRST, _SECOND = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
_HARD_SHARE = 0.5
"""Of the different pairs drawn from identities, how many are candidates, which differ less than most."""


class RecordScorer(PairScorerMixin, BaseEstimator):
    """A similarity of records that compares them field by field.

    Records are given as a pandas or polars frame, an Arrow table, a mapping from column to cells, a list of
    ``{"column": value}``, or a matrix of numbers. Columns are typed by ``columns``, the others by what they hold.
    """

    columns: Mapping[str, str] | None
    _comparators: Annotated[
        Comparators,
        Fact(
            kind=Annotated[
                dict[str, Any], AfterValidator(Comparators.from_json), PlainSerializer(Comparators.to_json)
            ]
        ),
    ]

    def _sizes(self, file: StoredState) -> Mapping[str, int]:
        comparators = file.facts.comparators
        if comparators.is_outdated or "one_sided_codes" not in file.arrays:
            raise OutdatedModel(
                "comparators decide for themselves what is alike, which this version no longer does"
            )
        n_fields, n = len(comparators.schema.fields), len(comparators.features)
        if n_fields != file.sizes["features"]:
            raise ArtefactError(
                f"the schema has {n_fields} fields for {file.sizes['features']} features: n_features_in"
            )
        return {"comparators": n, "context_comparators": n + N_CONTEXT}

    def _parts(self) -> Mapping[str, Any]:
        return {"rarity_": self._comparators.rarity, "one_sided_codes": self._comparators.one_sided}

    def _read_parts(self, file: StoredState) -> None:
        comparators = file.facts.comparators
        comparators.rarity = file.record(Rarity, "rarity_")
        comparators.one_sided = file.array("one_sided_codes", Array(kind="int64", shape=("patterns",)))

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags

    @property
    def schema_(self) -> Schema:
        """The columns, with their types."""
        return self._comparators.schema

    @abstractmethod
    def _scores(self, features: Float32) -> Float32:
        """Scores of pairs from their comparators, (n, m) -> (n,)."""

    def _training_rows(self, X: Any, name: str, *, reset: bool = False) -> Records:
        """Cells of training records; ``reset``: their schema becomes the model's."""
        if not reset:
            return cells_of(X, self.schema_, name, learner=type(self).__name__)
        schema = schema_of(X, self.columns)
        self._comparators = Comparators(schema)
        self.n_features_in_ = len(schema.fields)
        if columns_of(X) is not None or self.columns is not None:
            self.feature_names_in_ = np.array([column.name for column in schema.fields], dtype=object)
        return cells_of(X, schema, name)

    def _pairs_of_identities(
        self, prepared: Prepared, codes: Int64, n_pairs: int, random: np.random.Generator
    ) -> tuple[Int64, Int64, Bool]:
        """Pairs to learn from: at most half of them same; of the different ones half are candidates."""
        pairs = sample_pairs(codes, n_pairs, random_state=int(random.integers(2**31)))
        hard_left, hard_right = neighbors.candidate_pairs(self._comparators, prepared)
        hard_pairs = np.flatnonzero(codes[hard_left] != codes[hard_right])
        different = np.flatnonzero(~pairs.same)
        n_hard = min(hard_pairs.size, int(_HARD_SHARE * different.size))
        hard_pairs = np.sort(random.permutation(hard_pairs)[:n_hard])
        positions = np.concatenate([np.flatnonzero(pairs.same), different[: different.size - n_hard]])
        left = np.concatenate([pairs.left[positions], hard_left[hard_pairs]])
        right = np.concatenate([pairs.right[positions], hard_right[hard_pairs]])
        return left, right, codes[left] == codes[right]

    def score_pairs(
        self, X: Any, left: ArrayLike, right: ArrayLike, on_progress: Callable[[float], None] | None = None
    ) -> Float32:
        """Similarity of pairs of rows of one table; see `PairScorerMixin.score_pairs`."""
        return super().score_pairs(self._validated(X, "X"), left, right, on_progress)

    def score_candidates(self, X: Any, left: Int64, right: Int64, n_left: int | None = None) -> Float32:
        """`score_pairs` of the candidates of a whole table, or of two, of which the first has ``n_left`` rows: a model
        that learned of rivals sees those of each pair."""
        return self.score_pairs(X, left, right)

    @property
    def prior(self) -> float | None:
        """The share of the same among training records' pairs, where scores are log likelihood ratios; None: scores are
        chances."""
        return None

    def compare_once(self, X: Any, left: Int64, right: Int64, share: float = 1.0) -> ScoreWithout | None:
        """Scores pairs of rows again without some columns, which is faster than blanking them; None where what was
        compared takes too much memory, of which it may have a ``share``."""
        if left.size * len(self._comparators.features) > share * _MOST_KEPT:
            return None
        prepared = self._comparators.prepare(self._validated(X, "X"))
        features = self._comparators.compare(prepared, left, prepared, right)

        without = partial(self._comparators.without, features, prepared, left, right)

        def score(columns: Bool, numbers: Int64) -> Float32:
            return score_in_blocks(lambda part: self._scores(without(part, columns)), numbers)

        return score

    def _validated(self, X: Any, name: str) -> Matrix:
        return cells_of(X, self.schema_, name, learner=type(self).__name__)

    def _compared_pair(self, left: Any, right: Any) -> tuple[Any, Any, Float32]:
        """The cells of two records, and their comparators, (1, m)."""
        sides = []
        for side, name in ((left, "left"), (right, "right")):
            row = side[None, :] if isinstance(side, np.ndarray) and side.ndim == 1 else side
            sides.append(self._validated(row, name))
            if sides[-1].shape[0] != 1:
                raise ValueError(f"explain takes one pair; {name} has {sides[-1].shape[0]} rows")
        pair = np.concatenate(sides)
        prepared = self._comparators.prepare(pair)
        return pair[0], pair[1], self._comparators.compare(prepared, _FIRST, prepared, _SECOND)

    def patterns(self, left: Bool, right: Bool) -> Bool:
        """(n, 2, d) columns without which both sides of pairs are compared, from what they lack, (n, d) or (1, d)."""
        lacked = np.stack(np.broadcast_arrays(left, right), axis=1)
        blanked = self._comparators.blanks(lacked[:, 0], lacked[:, 1])
        lacked[blanked] = lacked[blanked].any(axis=1, keepdims=True)
        return lacked

    def compared(self, a: Prepared, left: Int64, b: Prepared, right: Int64) -> Float32:
        """Scores of pairs of prepared records, some at a time."""
        return score_in_blocks(
            lambda part: self._scores(self._comparators.compare(a, left[part], b, right[part])),
            np.arange(left.size),
        )

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        n = left.shape[0]
        if n == 1:
            # The most frequent request by far: both records are prepared at once.
            prepared = self._comparators.prepare(np.concatenate([left, right]))
            return self.compared(prepared, _FIRST, prepared, _SECOND)
        a, b = (self._comparators.prepare(one_of_equals(side)) for side in (left, right))
        return self.compared(a, np.arange(n) * (a.n == n), b, np.arange(n) * (b.n == n))

    def _pairs_of(self, rows: Matrix) -> PairsOfRows:
        prepared = self._comparators.prepare(rows)
        return lambda left, right: self.compared(prepared, left, prepared, right)

    def _indexed(self, vectors: Matrix, digest: str | None) -> GalleryIndex:
        # What is compared is kept, as plain arrays that can be saved and mapped; the cells themselves are not.
        prepared = self._comparators.prepare(vectors)
        postings = neighbors.Postings.of(*neighbors.keys_of(self._comparators, prepared))
        arrays = {**prepared.cells._asdict(), "numbers": prepared.numbers}
        arrays |= add_prefix(postings._asdict(), _NEIGHBORS)
        return GalleryIndex(
            vectors=seal_array(prepared.missing),
            arrays={name: seal_array(array) for name, array in arrays.items()},
            digest=digest,
        )

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        cells = Cells(**{name: index.arrays[name] for name in Cells._fields})
        gallery = Prepared(len(index), cells, index.arrays["numbers"], index.vectors)
        records, right = self._comparators.prepare(queries), np.asarray(number_rows(rows), dtype=np.int64)
        lefts = (np.full(right.size, query) for query in range(records.n))
        return np.stack([self.compared(records, left, gallery, right) for left in lefts])

    def candidates(
        self, query: Matrix, n: int, parts: Sequence[GalleryIndex], masks: Sequence[Bool | None]
    ) -> list[TopK]:
        """Rows of each part of a gallery that share most with one record, (1, c), and how much, float32; best first.

        Parameters
        ----------
        n : rows of a part, at most. masks : which rows of each part count; None: all.
        """
        postings = [neighbors.Postings(**without_prefix(part.arrays, _NEIGHBORS)) for part in parts]
        keys = np.unique(neighbors.keys_of(self._comparators, self._comparators.prepare(query))[0])
        best_parts = neighbors.nominate(keys, postings, masks, [len(part) for part in parts], n)
        return [(rows[None], worth[None].astype(np.float32)) for rows, worth in best_parts]

    max_scored = neighbors.MAX_SCORED
    """Rows of a gallery up to which a search scores all of them."""

    @property
    def n_candidates(self) -> int | None:
        """Rows of a larger gallery that a search scores; None, all of them, where no column has keys."""
        return neighbors.N_CANDIDATES if self._comparators.is_text.size else None


def score_in_blocks(score: Callable[[Int64], Float32], numbers: Int64) -> Float32:
    """Scores of pairs by their numbers, some at a time, which bounds the memory of their features."""
    scores = np.empty(numbers.size, dtype=np.float32)
    for start in range(0, numbers.size, BLOCK):
        scores[start : start + BLOCK] = score(numbers[start : start + BLOCK])
    return scores


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
        keep_arguments(self, locals())

    trees_: Annotated[BoostedTrees, StateRecord()]
    context_: Annotated[BoostedTrees | None, StateRecord(prefix="context_")]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "trees_")

    def _learn_identities(self, rows: Records, codes: Int64, identities: NDArray[Any]) -> None:
        random = self._random()
        prepared = self._comparators.fit(rows).prepare(rows)
        left, right, same = self._pairs_of_identities(prepared, codes, self.n_pairs, random)
        self._learn(prepared, (left, right), same, np.ones(same.size), random)

    def _learn_pairs(self, left: Records, right: Records, same: Bool, weight: Float64) -> None:
        both = np.concatenate([left, right])
        first, number = distinct_cells(both)
        prepared = self._comparators.fit(both[first]).prepare(both[first])
        sides = number[: len(left)], number[len(left) :]
        self._learn(prepared, sides, same, weight / weight.mean(), self._random())

    def _learn(
        self,
        prepared: Prepared,
        sides: tuple[Int64, Int64],
        same: Bool,
        weight: Float64,
        random: np.random.Generator,
    ) -> None:
        """Grow trees on pairs of rows, some of them a second time with whole columns blanked."""
        left, right = sides
        self._comparators.learn_patterns(prepared.missing[left], prepared.missing[right])
        features, d = [self._comparators.compare(prepared, left, prepared, right)], prepared.missing.shape[1]
        again = random.permutation(left.size)[: int(BLANKED_SHARE * left.size) if d > 1 else 0]
        for part in np.array_split(again, N_PATTERNS):
            lacked = np.zeros(d, dtype=np.bool_)
            lacked[random.permutation(d)[random.integers(1, max(d, 2)) :]] = True
            features.append(self._comparators.without(features[0], prepared, left, right, part, lacked))
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
        index, trees = RivalIndex(rivals, rival_scores, prepared.n), self.context_

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
            index = RivalIndex(rivals, rival_scores[fold], prepared.n)
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
        contributions, cells = self.trees_.contributions(features[0]), cell_values(self.schema_, a, b)
        fields: dict[str, dict[str, Any]] = {}
        for (field, feature), value, part in zip(
            self._comparators.features, features[0], contributions[:-1], strict=True
        ):
            entry = fields.setdefault(
                field,
                {"field": field, "left": cells[0].get(field), "right": cells[1].get(field), "contribution": 0.0,
                 "comparisons": {}},
            )  # fmt: skip
            entry["contribution"] += float(part)
            if feature in _SHOWN and not np.isnan(value) and not (feature == "missing" and value == 0):
                entry["comparisons"][feature] = round(float(value), 4)
        return {
            "score": float(self._scores(features)[0]),
            "base": float(contributions[-1]),
            "fields": sorted(
                fields.values(), key=lambda entry: (-abs(entry["contribution"]), entry["field"])
            ),
        }

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
