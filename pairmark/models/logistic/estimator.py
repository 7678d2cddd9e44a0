"""Logistic regression on pairs as a similarity."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64, Matrix
from pairmark.models.core.base import PairScorerMixin
from pairmark.models.core.inputs import by_feature, csr_parts, feature_names_of, one_of_equals
from pairmark.models.core.progress import one_blas_thread
from pairmark.models.core.scores import PairsOfRows
from pairmark.models.core.search import GalleryIndex
from pairmark.models.core.search import Rows as RowNumbers
from pairmark.models.core.spec import RandomState, document_parameters
from pairmark.models.core.state import Array, DeclaredState, Fact, StateRecord, StoredState, require
from pairmark.models.logistic import kernels
from pairmark.models.pairs.sampling import sample_pairs
from pairmark.models.pairs.splits import some_pairs

RowScale = Literal["unit", "standard"]
_csr: Any = sparse.csr_array
MOST = 1e4
"""Standardised values are held within this many standard deviations, over the root of their number."""
_SIZE = 0.1


class PreparedRows(NamedTuple):
    """Prepared rows: (n, d) float32, or (``unit``) CSR with ascending columns; tails (n, 2)."""

    values: Any
    tails: Float64

    def take(self, at: Any) -> PreparedRows:
        """Those of some numbers."""
        return PreparedRows(self.values[at], self.tails[at])


@dataclass(frozen=True, kw_only=True)
class RowPreparation:
    """How rows are prepared, each as if alone.

    Attributes
    ----------
    centre : (d,); zeros for ``unit``. scale : (d,): rarity of features (``unit``), or one over their spread.
    """

    kind: Annotated[RowScale, Fact(name="rows")]
    centre: Annotated[Float64, Array(shape=("features",))] = field(repr=False)
    scale: Annotated[Float64, Array(shape=("features",), low=0)] = field(repr=False)

    @classmethod
    def of_rows(cls, X: Any, kind: str) -> RowPreparation:
        """From rows (n, d), dense or CSR."""
        n, d = X.shape
        if kind == "auto":
            kind = "unit" if is_sparse(X) or _counts_like(X) else "standard"
        if kind == "standard" and is_sparse(X):
            X = X.toarray()
        if kind == "unit":
            n_nonzero = (
                np.bincount(X.indices[X.data != 0], minlength=d) if is_sparse(X) else (X != 0).sum(axis=0)
            )
            rarity = 1.0 + np.log((1.0 + n) / (1.0 + n_nonzero))
            return cls(kind="unit", centre=np.zeros(d), scale=rarity)
        centre, deviations = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
        # What never varies says nothing; nor does what varies by less than float32 can tell.
        varies = deviations > 1e-6 * np.maximum(np.abs(centre), 1e-30)
        scale = np.divide(1.0, deviations, out=np.zeros(d), where=varies) / np.sqrt(d)
        return cls(kind="standard", centre=centre, scale=scale)

    @property
    def plain(self) -> Float64:
        """(d,) what a product of prepared values is multiplied by to be one of plain features."""
        return 1.0 / self.scale**2 if self.kind == "unit" else np.ones(self.scale.size)

    def prepared(self, X: Any) -> PreparedRows:
        """Of rows (n, d)."""
        tails = np.zeros((X.shape[0], 2))
        if self.kind == "standard":
            values = (np.asarray(_dense(X), dtype=np.float64) - self.centre) * self.scale
            np.clip(values, -MOST, MOST, out=values)
            tails[:, 1] = np.sqrt((values * values).sum(axis=1))
            np.divide(1.0, tails[:, 1], out=tails[:, 0], where=tails[:, 1] > 0)
            return PreparedRows(values.astype(np.float32), tails)
        rows = _csr(X, dtype=np.float32)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        starts, columns, data = csr_parts(rows)
        values = data.astype(np.float64)
        weighed = self.scale[columns] * values

        def sums(data: Float64) -> Float64:
            # Of each row by itself, in the order of its columns.
            return np.asarray(_csr((data, columns, starts), shape=rows.shape) @ np.ones(rows.shape[1]))

        length, plain = np.sqrt(sums(weighed**2)), np.sqrt(sums(values**2))
        holds = length > 0
        np.divide(length, plain, out=tails[:, 0], where=holds)
        np.divide(_SIZE * sums(np.abs(values)), plain, out=tails[:, 1], where=holds)
        weighed /= np.repeat(np.where(holds, length, 1.0), np.diff(starts))
        return PreparedRows(_csr((weighed.astype(np.float32), columns, starts), shape=rows.shape), tails)


def is_sparse(rows: Any) -> bool:
    """Whether rows are sparse, of whatever kind."""
    return bool(sparse.issparse(rows))


def _counts_like(X: Float32) -> bool:
    return bool(X.min() >= 0) and bool(np.count_nonzero(X) <= X.size / 2)


def fit_weights(
    rows: RowPreparation,
    left: PreparedRows,
    right: PreparedRows,
    same: Bool,
    weight: Float64 | None,
    C: float,
) -> tuple[Float64, Float64]:
    """Weights (d,) of differences, and (5,) terms: intercept, products, plain products, smaller and larger size.

    ``weight`` : (n,) of pairs, of mean 1; all ones where None.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    regression = LogisticRegression(C=C, max_iter=100, tol=1e-5)
    with warnings.catch_warnings():
        # More steps change no score by more than another sample of pairs would.
        warnings.simplefilter("ignore", ConvergenceWarning)
        regression.fit(_columns(rows, left, right), same, weight)
    *weights, product, plain, of_all, small, large = regression.coef_[0]
    return np.array(weights) + of_all, np.array([regression.intercept_[0], product, plain, small, large])


def _columns(rows: RowPreparation, left: PreparedRows, right: PreparedRows) -> Any:
    """Differences of features, and the five columns that sum up a pair: (n, d + 5)."""
    a, b = left.values, right.values
    differences, products = (abs(a - b), a.multiply(b)) if is_sparse(a) else (np.abs(a - b), a * b)
    sums = np.column_stack(
        [
            products.sum(axis=1, dtype=np.float64),
            (products @ rows.plain) * left.tails[:, 0] * right.tails[:, 0],
            differences.sum(axis=1, dtype=np.float64),
            np.minimum(left.tails[:, 1], right.tails[:, 1]),
            np.maximum(left.tails[:, 1], right.tails[:, 1]),
        ]
    )
    stack: Any = sparse.hstack
    return stack([differences, sums], format="csr") if is_sparse(a) else np.hstack([differences, sums])


_MOST_RARE = 1e3


_PREPARED, _TAILS = "prepared", "tails"
MOST_CELLS = 5_000_000
"""Pairs of standard rows that hold so many numbers are learned from at most."""
_MOST_SPARSE = 1_000_000
_LISTED = 50


@document_parameters
class SimilarityLogistic(DeclaredState, PairScorerMixin, BaseEstimator):
    """Same or different by logistic regression on the differences of two rows.

    A score is the log-odds of same: a weighted sum of each feature's difference, of two cosines (of plain rows, and of
    rows weighed by how rare features are), and of how large both rows are. It suits rows of words and n-grams, sparse
    ones too, where a cosine treats every feature alike; and listed pairs whose different pairs are hard.

    Half of the pairs drawn from identities are same, where there are as many; of ``standard`` rows at most so many are
    drawn that they hold 5 million numbers, of ``unit`` rows at most a million.

    Attributes
    ----------
    rows_ : ``unit`` or ``standard``.
    coef_ : (d,) weight of each feature's difference.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import SimilarityLogistic
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(30), 4)  # 30 people, 4 samples each
    >>> X = rng.normal(size=(30, 6))[y] + 0.3 * rng.normal(size=(120, 6))
    >>> model = SimilarityLogistic(n_pairs=2000).fit(X[:80], y[:80])
    >>> same, different = model.pair_score(X[[80, 80]], X[[81, 84]])
    >>> bool(same > different)
    True
    >>> model.score(X[80:], y[80:]) > 0.9  # the AUC of pairs of people never seen
    True
    """

    coef_: Annotated[Float64, Array(name="weights", shape=("features",))]
    _map: Annotated[RowPreparation, StateRecord()]
    _terms: Annotated[Float64, Array(shape=(5,))]

    _accepts_sparse = True
    _gone = frozenset({"sparse"})

    def __init__(
        self,
        *,
        rows: Annotated[
            Literal["auto"] | RowScale,
            Field(
                description="unit: rows weighed by the rarity of their features and scaled to length one, "
                "for counts of words and n-grams; standard: features centred and scaled one by one; auto: "
                "unit where rows are sparse, or never negative and at least half zeros"
            ),
        ] = "auto",
        C: Annotated[
            float,
            Field(
                gt=0.0,
                le=1e6,
                description="inverse strength of the penalty on the weights of single features",
            ),
        ] = 30.0,
        n_pairs: Annotated[
            int,
            Field(
                ge=2,
                le=10_000_000,
                description="maximum number of training pairs drawn from identities; listed pairs are all used",
            ),
        ] = 20_000,
        random_state: Annotated[RandomState, Field(description="seed of the pairs")] = 0,
    ) -> None:
        self.rows = rows
        self.C = C
        self.n_pairs = n_pairs
        self.random_state = random_state

    def _learn_identities(self, rows: Any, codes: Int64, identities: NDArray[Any]) -> None:
        seed = int(check_random_state(self.random_state).randint(2**31))
        self._map = RowPreparation.of_rows(rows, self.rows)
        pairs = sample_pairs(codes, min(self.n_pairs, self._max_pairs), random_state=seed)
        prepared = self._map.prepared(rows)
        left, right = (prepared.take(side.astype(np.int64)) for side in (pairs.left, pairs.right))
        self._learn(left, right, pairs.same.astype(bool), None)

    def _learn_pairs(self, left: Any, right: Any, same: Bool, weight: Float64) -> None:
        if is_sparse(left) != is_sparse(right):
            left, right = (_dense(side) for side in (left, right))
        rows = np.flatnonzero(weight > 0)
        self._map = RowPreparation.of_rows(_stacked(left[rows], right[rows]), self.rows)
        random = np.random.default_rng(int(check_random_state(self.random_state).randint(2**31)))
        rows = some_pairs(same, weight, self._max_pairs, random)
        share = weight[rows] / weight[rows].mean()
        self._learn(self._map.prepared(left[rows]), self._map.prepared(right[rows]), same[rows], share)

    @property
    def _max_pairs(self) -> int:
        """Pairs that are learned from at most: those of rows that are mostly zeros are learned from as sparse ones."""
        return _MOST_SPARSE if self._map.kind == "unit" else max(_LISTED, MOST_CELLS // self._map.scale.size)

    def _learn(self, left: PreparedRows, right: PreparedRows, same: Any, weight: Any) -> None:
        with one_blas_thread():
            self.coef_, self._terms = fit_weights(self._map, left, right, same, weight, self.C)

    @property
    def rows_(self) -> RowScale:
        """How rows are prepared."""
        check_is_fitted(self)
        return self._map.kind

    def explain(
        self, left: ArrayLike, right: ArrayLike, feature_names: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """What each feature contributes to one pair's log-odds.

        Parameters
        ----------
        left, right : (d,) or (1, d), one pair.
        feature_names : (d,) names to use; those of training when None.

        Returns
        -------
        ``features``, the largest contributions first; ``rest``: what all others, sizes and the intercept add.
        """
        left_rows, right_rows = self._one_pair(left, right)
        rows = self._map.prepared(left_rows), self._map.prepared(right_rows)
        score = float(self._pair_score(left_rows, right_rows)[0])
        a, b = (_dense(side.values)[0].astype(np.float64) for side in rows)
        _, cosine_weight, plain, _, _ = self._terms
        lengths = rows[0].tails[0, 0] * rows[1].tails[0, 0]
        contributions = (
            self.coef_ * np.abs(a - b) + (cosine_weight + plain * self._map.plain * lengths) * a * b
        )
        features, total = by_feature(feature_names_of(self, feature_names), a, b, contributions)
        return {"score": score, "rows": self._map.kind, "features": features, "rest": score - total}

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        rows = self._map.prepared(vectors)
        return {_PREPARED: rows.values, _TAILS: rows.tails}

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: RowNumbers) -> Float32:
        gallery = PreparedRows(index.arrays[_PREPARED][rows], index.arrays[_TAILS][rows])
        return self._scores(self._map.prepared(queries), gallery, queries.shape[0], gallery.tails.shape[0])

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        a, b = (self._map.prepared(one_of_equals(side)) for side in (left, right))
        return self._scores(a, b, left.shape[0], 1)[:, 0]

    def _pairs_of(self, rows: Matrix) -> PairsOfRows:
        prepared = self._map.prepared(rows)
        return lambda left, right: self._scores(prepared.take(left), prepared.take(right), left.size, 1)[:, 0]

    def _scores(self, a: PreparedRows, b: PreparedRows, n: int, width: int) -> Float32:
        """(n, 1) of pairs, or (n, width) of all pairs of two sets of rows."""
        out = np.empty((n, width), dtype=np.float32)
        score = kernels.score_sparse if self._map.kind == "unit" else kernels.score_dense
        sides = (*self._parts(a), *self._parts(b))
        score(*sides, self.coef_, self._map.plain, self._terms, out)
        return out

    def _parts(self, rows: PreparedRows) -> tuple[Any, ...]:
        """Arrays of the one kind that kernels are compiled for; those of a mapped index are read-only."""
        tails = np.require(rows.tails, requirements=["C", "W"])
        if self._map.kind == "unit":
            return (*csr_parts(rows.values), tails)
        return np.require(rows.values, requirements=["C", "W"]), tails

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_terms")

    @classmethod
    def _relate(cls, file: StoredState) -> None:
        if file.facts.rows == "unit":
            scale = file.arrays["scale"]
            valid = (scale > 0) & (scale <= _MOST_RARE)
            require(valid, "scale", scale, f"a number above 0, at most {_MOST_RARE:g}")


def _dense(rows: Any) -> Any:
    return rows.toarray() if is_sparse(rows) else rows


def _stacked(a: Any, b: Any) -> Any:
    csr: Any = sparse
    return csr.csr_array(csr.vstack([a, b])) if is_sparse(a) else np.concatenate([a, b])
