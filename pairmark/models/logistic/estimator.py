"""Logistic regression on pairs as a similarity."""

import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64, Matrix
from pairmark.models.core.artefact import OutdatedModel
from pairmark.models.core.base import PairScorerMixin
from pairmark.models.core.inputs import by_feature, csr_parts, feature_names_of, one_of_equals
from pairmark.models.core.progress import one_blas_thread
from pairmark.models.core.scores import PairsOfRows
from pairmark.models.core.search import GalleryIndex
from pairmark.models.core.search import Rows as RowNumbers
from pairmark.models.core.spec import LearnerSpec, RandomState, document_parameters, keep_arguments
from pairmark.models.core.state import Array, StoredState
from pairmark.models.logistic import kernels
from pairmark.models.pairs.lists import some_pairs
from pairmark.models.pairs.sampling import sample_pairs

_csr: Any = sparse.csr_array
_SIZE = 0.1
_MOST_RARE = 1e3
_PREPARED, _TAILS = "prepared", "tails"
MOST_PAIRS = 1_000_000


class PreparedRows(NamedTuple):
    """Prepared rows: (n, d) float32 CSR with ascending columns; tails (n, 2)."""

    values: Any
    tails: Float64

    def take(self, rows: Any) -> "PreparedRows":
        """Those of some numbers."""
        return PreparedRows(self.values[rows], self.tails[rows])


def rarity_of(X: Any) -> Float64:
    """(d,) by which features of rows (n, d), dense or CSR, are weighed: more, the fewer rows have them."""
    n, d = X.shape
    dense = isinstance(X, np.ndarray)
    counts = (X != 0).sum(axis=0) if dense else np.bincount(X.indices[X.data != 0], minlength=d)
    return np.asarray(1.0 + np.log((1.0 + n) / (1.0 + counts)))


def prepared_rows(X: Any, rarity: Float64) -> PreparedRows:
    """Rows (n, d) weighed and scaled to length one, each as if alone."""
    tails = np.zeros((X.shape[0], 2))
    rows = _csr(X, dtype=np.float32)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    starts, columns, data = csr_parts(rows)
    values = data.astype(np.float64)
    weighed = rarity[columns] * values

    def sums(data: Float64) -> Float64:
        # Of each row by itself, in the order of its columns.
        return np.asarray(_csr((data, columns, starts), shape=rows.shape) @ np.ones(rows.shape[1]))

    length, plain = np.sqrt(sums(weighed**2)), np.sqrt(sums(values**2))
    holds = length > 0
    np.divide(length, plain, out=tails[:, 0], where=holds)
    np.divide(_SIZE * sums(np.abs(values)), plain, out=tails[:, 1], where=holds)
    weighed /= np.repeat(np.where(holds, length, 1.0), np.diff(starts))
    return PreparedRows(_csr((weighed.astype(np.float32), columns, starts), shape=rows.shape), tails)


def fit_weights(
    rarity: Float64, left: PreparedRows, right: PreparedRows, same: Bool, weight: Float64 | None, C: float
) -> tuple[Float64, Float64]:
    """Weights (d,) of differences, and (5,) terms: intercept, products, plain products, smaller and larger size.

    ``weight`` : (n,) of pairs, of mean 1; all ones where None.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    regression = LogisticRegression(C=C, max_iter=100, tol=1e-5)
    with one_blas_thread(), warnings.catch_warnings():
        # More steps change no score by more than another sample of pairs would.
        warnings.simplefilter("ignore", ConvergenceWarning)
        regression.fit(_columns(rarity, left, right), same, weight)
    *weights, product, plain, of_all, small, large = regression.coef_[0]
    return np.array(weights) + of_all, np.array([regression.intercept_[0], product, plain, small, large])


def _columns(rarity: Float64, left: PreparedRows, right: PreparedRows) -> Any:
    """Differences of features, and the five columns that sum up a pair: (n, d + 5)."""
    a, b = left.values, right.values
    differences, products = abs(a - b), a.multiply(b)
    sums = np.column_stack(
        [
            products.sum(axis=1, dtype=np.float64),
            (products @ (1.0 / rarity**2)) * left.tails[:, 0] * right.tails[:, 0],
            differences.sum(axis=1, dtype=np.float64),
            np.minimum(left.tails[:, 1], right.tails[:, 1]),
            np.maximum(left.tails[:, 1], right.tails[:, 1]),
        ]
    )
    stack: Any = sparse.hstack
    return stack([differences, sums], format="csr")


@document_parameters
class SimilarityLogistic(PairScorerMixin, BaseEstimator):
    """Same or different by logistic regression on the differences of two rows.

    A score is the log-odds of same: a weighted sum of each feature's difference, of two cosines (of plain rows, and of
    rows weighed by how rare features are), and of how large both rows are. It suits rows that are mostly zeros, such as
    counts of words and n-grams, where a cosine treats every feature alike.

    Half of the pairs drawn from identities are same, where there are as many; of listed pairs a million at most is
    learned from.

    Attributes
    ----------
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
    _rarity: Annotated[Float64, Array(name="scale", shape=("features",), positive=True, high=_MOST_RARE)]
    _terms: Annotated[Float64, Array(shape=(5,))]

    _accepts_sparse = True
    _gone = frozenset({"sparse", "centre"})

    def __init__(
        self,
        *,
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
                le=MOST_PAIRS,
                description="maximum number of training pairs drawn from identities",
            ),
        ] = 20_000,
        random_state: Annotated[RandomState, Field(description="seed of the pairs")] = 0,
    ) -> None:
        keep_arguments(self, locals())

    def _learn_identities(self, rows: Any, codes: Int64, identities: NDArray[Any]) -> None:
        seed = int(check_random_state(self.random_state).randint(2**31))
        self._rarity = rarity_of(rows)
        pairs = sample_pairs(codes, self.n_pairs, random_state=seed)
        prepared = prepared_rows(rows, self._rarity)
        left, right = (prepared.take(side) for side in (pairs.left, pairs.right))
        self.coef_, self._terms = fit_weights(self._rarity, left, right, pairs.same, None, self.C)

    def _learn_pairs(self, left: Any, right: Any, same: Bool, weight: Float64) -> None:
        left, right = (_csr(side) for side in (left, right))
        rows = np.flatnonzero(weight > 0)
        self._rarity = rarity_of(_csr(sparse.vstack([left[rows], right[rows]])))
        random = np.random.default_rng(int(check_random_state(self.random_state).randint(2**31)))
        rows = some_pairs(same, weight, MOST_PAIRS, random)
        share = weight[rows] / weight[rows].mean()
        a, b = (prepared_rows(side[rows], self._rarity) for side in (left, right))
        self.coef_, self._terms = fit_weights(self._rarity, a, b, same[rows], share, self.C)

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
        rows = [prepared_rows(side, self._rarity) for side in (left_rows, right_rows)]
        score = float(self._pair_score(left_rows, right_rows)[0])
        a, b = (side.values.toarray()[0].astype(np.float64) for side in rows)
        _, cosine_weight, plain, _, _ = self._terms
        lengths = rows[0].tails[0, 0] * rows[1].tails[0, 0]
        contributions = (
            self.coef_ * np.abs(a - b) + (cosine_weight + plain * lengths / self._rarity**2) * a * b
        )
        features, total = by_feature(feature_names_of(self, feature_names), a, b, contributions)
        return {"score": score, "features": features, "rest": score - total}

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        rows = prepared_rows(vectors, self._rarity)
        return {_PREPARED: rows.values, _TAILS: rows.tails}

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: RowNumbers) -> Float32:
        gallery = PreparedRows(index.arrays[_PREPARED][rows], index.arrays[_TAILS][rows])
        return self._scores(
            prepared_rows(queries, self._rarity), gallery, queries.shape[0], gallery.tails.shape[0]
        )

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        a, b = (prepared_rows(one_of_equals(side), self._rarity) for side in (left, right))
        return self._scores(a, b, left.shape[0], 1)[:, 0]

    def _pairs_of(self, rows: Matrix) -> PairsOfRows:
        prepared = prepared_rows(rows, self._rarity)
        return lambda left, right: self._scores(prepared.take(left), prepared.take(right), left.size, 1)[:, 0]

    def _scores(self, a: PreparedRows, b: PreparedRows, n: int, width: int) -> Float32:
        """(n, 1) of pairs, or (n, width) of all pairs of two sets of rows."""
        out = np.empty((n, width), dtype=np.float32)
        # Arrays of the one kind that kernels are compiled for; those of a mapped index are read-only.
        sides = [
            part
            for rows in (a, b)
            for part in (*csr_parts(rows.values), np.require(rows.tails, requirements=["C", "W"]))
        ]
        kernels.score_pairs(*sides, self.coef_, 1.0 / self._rarity**2, self._terms, out)
        return out

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_terms")

    def _relate(self, file: StoredState) -> None:
        if np.any(file.arrays.get("centre", 0.0)):
            raise OutdatedModel("rows is 'standard', which this version no longer has; expected 'unit'")


LOGISTIC = LearnerSpec(
    kind="similarity-logistic",
    title="Logistic regression on differences of features; for rows that are mostly zeros, such as words and n-grams",
    estimator=SimilarityLogistic,
    capabilities=frozenset({"similarity", "match", "search"}),
    accepts_sparse=True,
    retired={"rows": ...},
)
