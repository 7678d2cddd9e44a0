"""What models of records share: checks, preparation, scoring of pairs and galleries."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, PlainSerializer
from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from pairmark.models.core.arrays import ArrayLike, Bool, Float32, Float64, Int64, Matrix
from pairmark.models.core.artefact import ArtefactError, OutdatedModel
from pairmark.models.core.base import GalleryIndex, PairScorerMixin
from pairmark.models.core.inputs import one_of_equals
from pairmark.models.core.scores import PairsOfRows
from pairmark.models.core.search import Rows, TopK, number_rows, seal_array
from pairmark.models.core.state import Array, Fact, StoredState, add_prefix, without_prefix
from pairmark.models.pairs.sampling import sample_pairs
from pairmark.models.records import neighbors
from pairmark.models.records.comparators import Comparators, Prepared, Rarity
from pairmark.models.records.kernels.tokens import Cells
from pairmark.models.records.neighbors import N_CONTEXT
from pairmark.models.records.schema import Records, Schema
from pairmark.models.records.tables import cells_of, columns_of, schema_of

_SHOWN = ("missing", "level", "Jaro-Winkler", "tokens, lower share", "days between", "ratio", "kilometres",
          "numbers, Jaccard", "model tokens, best")  # fmt: skip
"""Comparisons that people can read."""


def cell_values(schema: Schema, left: Any, right: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    one, other = schema.values(np.stack([left, right]))
    return one, other


def explain_score(
    comparators: Comparators, left: Any, right: Any, features: Float32, contributions: Float64, score: float
) -> dict[str, Any]:
    """Contributions by field, the largest first; see `RecordSimilarity.explain`."""
    cells = cell_values(comparators.schema, left, right)
    fields: dict[str, dict[str, Any]] = {}
    for (field, feature), value, part in zip(comparators.features, features, contributions[:-1], strict=True):
        entry = fields.setdefault(
            field,
            {"field": field, "left": cells[0].get(field), "right": cells[1].get(field), "contribution": 0.0,
             "comparisons": {}},
        )  # fmt: skip
        entry["contribution"] += float(part)
        if feature in _SHOWN and not np.isnan(value) and not (feature == "missing" and value == 0):
            entry["comparisons"][feature] = round(float(value), 4)
    ordered = sorted(fields.values(), key=lambda entry: (-abs(entry["contribution"]), entry["field"]))
    return {"score": score, "base": float(contributions[-1]), "fields": ordered}


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

    def compare_once(self, X: Any, left: Int64, right: Int64) -> ScoreWithout | None:
        """Scores pairs of rows again without some columns, which is faster than blanking them; None where what was
        compared takes too much memory."""
        if left.size * len(self._comparators.features) > _MOST_KEPT:
            return None
        prepared = self._comparators.prepare(self._validated(X, "X"))
        features = self._comparators.compare(prepared, left, prepared, right)

        def score(columns: Bool, numbers: Int64) -> Float32:
            def of(part: Int64) -> Float32:
                rows = left[part], right[part]
                return self._scores(self._comparators.without(features[part], prepared, *rows, columns))

            return score_in_blocks(of, numbers)

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
        gallery, records = _read_gallery(index), self._comparators.prepare(queries)
        right = np.asarray(number_rows(rows), dtype=np.int64)
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


def _read_gallery(index: GalleryIndex) -> Prepared:
    cells = Cells(**{name: index.arrays[name] for name in Cells._fields})
    return Prepared(len(index), cells, index.arrays["numbers"], index.vectors)
