"""The model of Fellegi and Sunter, fitted without labels."""

from functools import partial
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from sklearn.utils import check_random_state

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.progress import report
from pairmark.models.core.spec import LearnerSpec, RandomState, document_parameters
from pairmark.models.core.state import Array, Fact
from pairmark.models.linking import mixture
from pairmark.models.linking.mixture import LEVELS, SYMBOL_OF, level_weights, plain_column
from pairmark.models.records.comparators import Prepared
from pairmark.models.records.estimator import COLUMNS, RecordScorer, cell_values, distinct_cells
from pairmark.models.records.kernels.levels import APART, CLOSE, EQUAL
from pairmark.models.records.neighbors import candidate_pairs
from pairmark.models.records.schema import Records

_CLOSE_TEXTS = 0.6
"""Share of the tokens of two texts, weighed by rarity, from which on they are close."""
_BLOCK = 65_536
_PSEUDO = 0.5
_WORDS = ("missing", "different", "weak", "close", "equal")


@document_parameters
class FellegiSunter(RecordScorer):
    """How much likelier the agreement of two records is for one entity than for two, field by field.

    A field of a pair is equal, close, weak or apart, as links have it; texts are close where they share their rare
    words, and a missing cell says nothing. A score is the natural log of the likelihood ratio, the sum of ``log m / u``
    over the fields (Fellegi and Sunter 1969): m is a level's share among same pairs, u among pairs drawn at random.
    `fit` needs no labels: u stays as random pairs have it, and m is found by expectation maximization over candidates,
    the records that share most with each, as a link job does (`pairmark.models.linking.mixture`). More agreement never
    scores less. Scores rank pairs; ``prior_`` makes a cut of them only where fields say much by themselves, as of
    people: elsewhere labels are needed for a cut.

    Attributes
    ----------
    m_, u_ : (d, 4) shares of the levels apart, weak, close and equal of each field.
    prior_ : share of same pairs among all pairs of the training records.

    Examples
    --------
    >>> from pairmark import FellegiSunter
    >>> rows = [{"name": f"name{at}", "town": f"town{at % 7}", "year": str(1950 + at % 40)} for at in range(80)]
    >>> model = FellegiSunter(columns={"name": "text", "town": "category", "year": "category"}).fit(rows + rows)
    >>> same, different = model.score_pairs(rows, [0, 0], [0, 1])
    >>> bool(same > different)
    True
    """

    def __init__(
        self,
        *,
        columns: Annotated[dict[str, str] | None, Field(description=COLUMNS)] = None,
        n_pairs: Annotated[
            int,
            Field(ge=2, le=50_000_000, description="random pairs that say how often strangers agree"),
        ] = 200_000,
        random_state: Annotated[RandomState, Field(description="seed of the random pairs")] = 0,
    ) -> None:
        self.columns = columns
        self.n_pairs = n_pairs
        self.random_state = random_state

    m_: Annotated[Float64, Array(shape=("features", LEVELS), positive=True, high=1.0)]
    u_: Annotated[Float64, Array(shape=("features", LEVELS), positive=True, high=1.0)]
    prior_: Annotated[float, Fact(), Field(ge=0, le=1)]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "prior_")

    @property
    def prior(self) -> float:
        return self.prior_

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Learn from records alone; ``y``, where there is one, is only checked.

        Parameters
        ----------
        X : n records, two or more; see `RecordScorer`.

        Raises
        ------
        ValueError
            On anything else; a `RecordError` names row and column.
        """
        if y is not None:
            return super().fit(X, y)
        self._check_params()
        self._learn_records(self._training_rows(X, "X", reset=True))
        return self

    def _learn_identities(self, rows: Records, codes: Int64, identities: NDArray[Any]) -> None:
        self._learn_records(rows)

    def _learn_records(self, records: Records) -> None:
        n = len(records)
        if n < 2:
            raise ValueError("X has 1 sample; expected at least two, which make a pair")
        prepared = self._comparators.fit(records).prepare(records)
        self.u_ = self._random_shares(prepared)
        report(0.3, "finding candidates")
        n_pairs = n * (n - 1) / 2
        left, right = candidate_pairs(self._comparators, prepared)
        if not left.size or {column.type for column in self.schema_.fields} == {"number"}:
            # Tables of numbers have no words to share: what random pairs show has to do.
            left, right = self._random_pairs(n)
            n_pairs = float(left.size)
        levels, counts = np.unique(self._levels_of(prepared, left, right), axis=0, return_counts=True)
        columns = [plain_column(each) for each in self.u_]
        model = mixture.fit(columns, SYMBOL_OF[levels], counts.astype(np.float64), n_pairs, n)
        self.m_, self.prior_ = model.m, float(model.shares[0])
        self._weigh()

    def _learn_pairs(self, left: Records, right: Records, same: Bool, weight: Float64) -> None:
        # m is counted on the same pairs, u on random pairs of the records.
        cells = np.concatenate([left, right])
        first, number = distinct_cells(cells)
        prepared = self._comparators.fit(cells[first]).prepare(cells[first])
        self.u_ = self._random_shares(prepared)
        same_left, same_right = number[: len(left)][same], number[len(left) :][same]
        levels = self._levels_of(prepared, same_left, same_right)
        self.prior_ = float(min(0.5, same.sum() / max(first.size * (first.size - 1) / 2, 1.0)))
        self.m_ = _shares(levels, weight[same] / weight.mean())
        self._weigh()

    def explain(self, left: Any, right: Any, feature_names: Any = None) -> dict[str, Any]:
        """What each field adds to one pair's log likelihood ratio.

        Returns
        -------
        JSON-able: ``score`` and ``fields``, the largest contributions first, which add up to it; each with both cells
        and the ``level`` of its agreement.
        """
        a, b, features = self._compared_pair(left, right)
        levels = self._levels(features)[0]
        cells = cell_values(self.schema_, a, b)
        fields: list[dict[str, Any]] = [
            {"field": column.name, "left": cells[0].get(column.name), "right": cells[1].get(column.name),
             "level": _WORDS[levels[at]], "contribution": float(self._weights[at, levels[at]])}
            for at, column in enumerate(self.schema_.fields)
        ]  # fmt: skip
        fields.sort(key=lambda entry: (-abs(entry["contribution"]), entry["field"]))
        return {"score": float(self._scores(features)[0]), "fields": fields}

    def _restored(self) -> None:
        super()._restored()
        self._weigh()

    def _weigh(self) -> None:
        self._weights = np.stack([level_weights(m, u) for m, u in zip(self.m_, self.u_, strict=True)])

    def _levels(self, features: Float32) -> NDArray[np.int8]:
        """(n, m) features -> (n, d) levels, 0 where a cell is missing."""
        d = len(self.schema_.fields)
        levels = np.nan_to_num(features[:, d : 2 * d]).astype(np.int8)
        for at, place in self._comparators.rare_words_of.items():
            differ = (levels[:, at] > 0) & (levels[:, at] < EQUAL)
            levels[differ, at] = np.where(features[differ, place] >= _CLOSE_TEXTS, CLOSE, APART)
        return levels

    def _scores(self, features: Float32) -> Float32:
        levels = self._levels(features)
        total: Float64 = self._weights[np.arange(levels.shape[1]), levels].sum(axis=1)
        return total.astype(np.float32)

    def _random_shares(self, prepared: Prepared) -> Float64:
        return _shares(self._levels_of(prepared, *self._random_pairs(prepared.n)))

    def _random_pairs(self, n: int) -> tuple[Int64, Int64]:
        """All pairs of n rows, or `n_pairs` of them."""
        if n * (n - 1) // 2 <= self.n_pairs:
            left, right = np.triu_indices(n, 1)
            return left.astype(np.int64), right.astype(np.int64)
        random = np.random.default_rng(int(check_random_state(self.random_state).randint(2**31)))
        left = random.integers(0, n, self.n_pairs)
        return left, (left + random.integers(1, n, self.n_pairs)) % n

    def _levels_of(self, prepared: Prepared, left: Int64, right: Int64) -> NDArray[np.int8]:
        parts = (slice(start, start + _BLOCK) for start in range(0, left.size, _BLOCK))
        # Levels are of single fields.
        compare = partial(self._comparators.compare, joined=False)
        return np.concatenate(
            [self._levels(compare(prepared, left[part], prepared, right[part])) for part in parts]
        )


def _shares(levels: NDArray[np.int8], weight: Float64 | None = None) -> Float64:
    """(d, 4) shares of each field's levels, missing cells left out; a pseudo-count keeps all of them above 0."""
    out = np.empty((levels.shape[1], LEVELS))
    for field in range(levels.shape[1]):
        out[field] = np.bincount(levels[:, field], weights=weight, minlength=LEVELS + 1)[1:] + _PSEUDO
    return np.asarray(out / out.sum(axis=1, keepdims=True))


FELLEGI_SUNTER = LearnerSpec(
    kind="fellegi-sunter",
    title="Fellegi-Sunter: log likelihood ratios of the agreement of fields; learned without labels",
    estimator=FellegiSunter,
    capabilities=frozenset({"similarity", "match", "search"}),
    takes_records=True,
    retired={"max_frequency": ..., "max_iter": ...},
)
