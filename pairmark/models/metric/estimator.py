"""Known metrics as a learner: for vectors that are good embeddings already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.base import EmbedderMixin, GalleryIndex, Matrix, PairScorerMixin
from pairmark.models.core.inputs import csr_parts, one_of_equals
from pairmark.models.core.kernels import unit_rows
from pairmark.models.core.scores import PairsOfRows
from pairmark.models.core.search import (
    LENGTHS,
    Measure,
    Rows,
    SearchForm,
    lengths,
    root_measure,
    same_measure,
    sealed,
)
from pairmark.models.core.spec import check_params, document_parameters
from pairmark.models.core.state import Array, DeclaredState, StoredState
from pairmark.models.metric import explain
from pairmark.models.metric.kernels import distances as kernels
from pairmark.models.metric.whitening import whitening_matrix, within_deviations

Metric = Literal[
    "cosine",
    "correlation",
    "dot",
    "euclidean",
    "sqeuclidean",
    "manhattan",
    "chebyshev",
    "minkowski",
    "canberra",
    "braycurtis",
    "hamming",
]
_CODES: Final = {
    "cosine": kernels.DOT,
    "correlation": kernels.DOT,
    "dot": kernels.DOT,
    "euclidean": kernels.EUCLIDEAN,
    "sqeuclidean": kernels.SQEUCLIDEAN,
    "manhattan": kernels.MANHATTAN,
    "chebyshev": kernels.CHEBYSHEV,
    "minkowski": kernels.MINKOWSKI,
    "canberra": kernels.CANBERRA,
    "braycurtis": kernels.BRAYCURTIS,
    "hamming": kernels.HAMMING,
}
_FORMS: Final[dict[int, tuple[Measure, Callable[[float], float]]]] = {
    kernels.DOT: ("inner", same_measure),
    kernels.EUCLIDEAN: ("sqeuclidean", root_measure),
    kernels.SQEUCLIDEAN: ("sqeuclidean", same_measure),
    kernels.MANHATTAN: ("manhattan", same_measure),
}
_DENSE_BLOCK_BYTES = 64 * 1024 * 1024


def _whitens(file: StoredState) -> bool:
    return bool(file.params["whiten"])


@document_parameters
class MetricSimilarity(DeclaredState, PairScorerMixin, EmbedderMixin, BaseEstimator):
    """A known metric, optionally after whitening within identities; nothing else is learned.

    From explicit pairs, the same ones are what varies within identities; ``sample_weight`` weighs them.

    Scores, higher is more similar: the cosine, Pearson's correlation of the two rows, or the inner product (``dot``);
    else the negated distance, as `scipy.spatial.distance` defines it, except that Bray and Curtis's is
    ``sum |x - x'| / sum (|x| + |x'|)``, which is the same for vectors without negative numbers and defined for all.
    A row of zeros (for ``correlation``, of equal numbers) has cosine 0 with everything.

    With ``whiten`` rows are compared as ``W (x - mean)``, W being the inverse square root of the covariance within
    identities: the Mahalanobis distance of Fisher's discriminant analysis for ``euclidean``; within-class covariance
    normalisation (Hatch, Kajarekar and Stolcke, Interspeech 2006) for ``cosine``. ``shrinkage="auto"`` is by Ledoit and
    Wolf (2004).

    Attributes
    ----------
    mean_, whitening_ : (d,) and (d, d) float64, when ``whiten``.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import MetricSimilarity
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(30), 4)  # 30 people, 4 samples each
    >>> X = rng.normal(size=(30, 6))[y] + 0.3 * rng.normal(size=(120, 6))
    >>> model = MetricSimilarity("euclidean", whiten=True).fit(X[:80], y[:80])
    >>> same, different = model.pair_score(X[[80, 80]], X[[81, 84]])
    >>> bool(same > different)
    True
    >>> model.score(X[80:], y[80:]) > 0.9  # the AUC of pairs of people never seen
    True
    """

    mean_: Annotated[Float64, Array(shape=("features",), when=_whitens)]
    whitening_: Annotated[Float64, Array(shape=("features", "features"), when=_whitens)]
    _accepts_sparse = True
    _missing = "median"

    def __init__(
        self,
        metric: Annotated[
            Metric,
            Field(
                description="how two vectors are compared; distances are scored negated, so that higher is more similar"
            ),
        ] = "cosine",
        p: Annotated[float, Field(ge=1.0, le=100.0, description="exponent of the Minkowski distance")] = 2.0,
        whiten: Annotated[
            bool,
            Field(
                description="whiten by the covariance within identities first (learned from the training part)"
            ),
        ] = False,
        shrinkage: Annotated[
            Literal["auto"] | Annotated[float, Field(ge=0.0, le=1.0)],
            Field(
                description="how far the covariance within identities is shrunk to a multiple of the "
                "identity before whitening: 0 to 1, or auto (Ledoit and Wolf)"
            ),
        ] = "auto",
    ) -> None:
        self.metric = metric
        self.p = p
        self.whiten = whiten
        self.shrinkage = shrinkage

    def _learn_identities(self, rows: Matrix, codes: Int64, identities: NDArray[Any]) -> None:
        if self.whiten:
            rows = _dense(rows)
            self.mean_ = rows.mean(axis=0, dtype=np.float64)
            self.whitening_ = whitening_matrix(within_deviations(rows, codes), self.shrinkage)
        self._restored()

    def _learn_pairs(self, left: Matrix, right: Matrix, same: Bool, weight: Float64) -> None:
        if self.whiten:
            a, b = _dense(left), _dense(right)
            share = weight / weight.sum()
            self.mean_ = (share @ a.astype(np.float64) + share @ b.astype(np.float64)) / 2
            # The covariance within is half that of the difference of two rows of one identity.
            of_same = weight[same] / weight[same].mean()
            differences = a[same].astype(np.float64) - b[same]
            self.whitening_ = whitening_matrix(differences * np.sqrt(of_same / 2)[:, None], self.shrinkage)
        self._restored()

    def transform(self, X: ArrayLike) -> Float32:
        """The vectors that the metric compares: whitened where asked for, of length one for ``cosine``, centred too
        for ``correlation``. The inner product of two of them is the score, for these and ``dot``.

        Returns
        -------
        (n, d) float32.
        """
        check_is_fitted(self)
        prepared: Any = self._prepared(self._validated(X, "X"))
        if _is_csr(prepared):
            return np.asarray(prepared.toarray(), dtype=np.float32)
        return np.ascontiguousarray(prepared[:, : self.n_features_in_])

    def explain(
        self, left: ArrayLike, right: ArrayLike, feature_names: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """What each feature contributes to one pair's score; see `pairmark.models.metric.explain`.

        Parameters
        ----------
        left, right : (d,) or (1, d), one pair.
        feature_names : (d,) names to use; those of training when None.
        """
        a, b = self._one_pair(left, right)
        left_vector, right_vector = (np.asarray(self.transform(side))[0] for side in (a, b))
        return explain.contributions(
            self,
            left_vector,
            right_vector,
            float(self._pair_score(a, b)[0]),
            feature_names,
        )

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        """The gallery whitened and scaled, once."""
        if self._compares_as_given(vectors):
            return {LENGTHS: lengths(vectors)} if self._code == kernels.DOT else {}
        prepared = self._prepared(vectors)
        if _is_csr(prepared) or self._code != kernels.DOT:
            return {"prepared": prepared}
        return {"prepared": prepared, LENGTHS: lengths(prepared)}

    def _compares_as_given(self, vectors: Matrix) -> bool:
        """Whether rows are prepared already: then an index need not hold them twice."""
        return (
            not self.whiten
            and not _is_csr(vectors)
            and self.metric not in ("cosine", "correlation")
            and self.n_features_in_ % kernels.LANES == 0
        )

    def _search_form(self, queries: Matrix, index: GalleryIndex) -> SearchForm | None:
        gallery, prepared = index.arrays.get("prepared", index.vectors), self._prepared(queries)
        if self._code not in _FORMS or _is_csr(gallery) or _is_csr(prepared):
            return None
        measure, least_measure = _FORMS[self._code]
        return SearchForm(
            measure=measure,
            queries=prepared,
            gallery=gallery,
            least_measure=least_measure,
            lengths=index.arrays.get(LENGTHS),
        )

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        a, b = self._prepared(one_of_equals(left)), self._prepared(one_of_equals(right))
        return self._score_prepared(a, b, left.shape[0])

    def _pairs_of(self, rows: Matrix) -> PairsOfRows:
        prepared = self._prepared(rows)
        return lambda left, right: self._score_prepared(prepared[left], prepared[right], left.size)

    def _score_prepared(self, a: Any, b: Any, n: int) -> Float32:
        if _is_csr(a) or _is_csr(b):
            column: Float32 = np.empty((n, 1), dtype=np.float32)
            self._score_sparse(a, b, column, grid=False)
            return column[:, 0]
        scores: Float32 = np.empty(n, dtype=np.float32)
        steps = [int(side.shape[0] > 1) for side in (a, b)]
        kernels.score_pairs(self._code, float(self.p), a, steps[0], b, steps[1], self.n_features_in_, scores)
        return scores

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        gallery, prepared = index.arrays.get("prepared", index.vectors)[rows], self._prepared(queries)
        scores = np.empty((queries.shape[0], gallery.shape[0]), dtype=np.float32)
        if _is_csr(prepared) or _is_csr(gallery):
            self._score_sparse(prepared, gallery, scores, grid=True)
        else:
            kernels.score_grid(
                self._code, float(self.p), prepared, sealed(gallery), self.n_features_in_, scores
            )
        return scores

    def _score_sparse(self, a: Any, b: Any, out: Float32, *, grid: bool) -> None:
        a, b = _sorted_csr(a, self.n_features_in_), _sorted_csr(b, self.n_features_in_)
        kernels.score_sparse(
            self._code, float(self.p), *csr_parts(a), *csr_parts(b), self.n_features_in_, grid, out
        )

    def _prepared(self, X: Any) -> Any:
        """Rows as the kernels compare them: new, and padded with zeros (dense) or with ascending indices (CSR)."""
        d = self.n_features_in_
        if _is_csr(X):
            if not self.whiten and self.metric != "correlation":
                rows = _sorted_csr(X, d).copy()
                if self.metric == "cosine":
                    kernels.unit_sparse(*csr_parts(rows))
                return rows
            return self._prepared_in_blocks(X)
        padded = np.zeros((X.shape[0], -(-d // kernels.LANES) * kernels.LANES), dtype=np.float32)
        if self.whiten:
            kernels.whitened(np.require(X, requirements=["C", "W"]), self.mean_, self.whitening_, padded)
        else:
            padded[:, :d] = X
        if self.metric == "correlation":
            kernels.centre_rows(padded, d)
        if self.metric in ("cosine", "correlation"):
            unit_rows(padded)
        return padded

    def _prepared_in_blocks(self, X: Any) -> Float32:
        """Sparse rows that whitening or centring makes dense, some at a time."""
        rows = max(1, _DENSE_BLOCK_BYTES // (4 * self.n_features_in_))
        X = csr_array(X)
        blocks = [self._prepared(X[at : at + rows].toarray()) for at in range(0, X.shape[0], rows)]
        return np.concatenate(blocks)

    def _check_params(self) -> None:
        check_params(self)
        if self.whiten and self.metric == "hamming":
            raise ValueError(
                "metric 'hamming' counts features that differ, which whitening makes all of them: "
                "use whiten=False or another metric"
            )

    def _restored(self) -> None:
        self._code = _CODES[self.metric]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_code")


def _is_csr(rows: Any) -> bool:
    # Of an array the class says it at once: most rows are arrays.
    return not isinstance(rows, np.ndarray) and bool(issparse(rows))


def _dense(X: Any) -> Float32:
    return np.asarray(X.toarray() if _is_csr(X) else X, dtype=np.float32)


def _sorted_csr(X: Any, width: int) -> Any:
    rows = csr_array(X if _is_csr(X) else X[:, :width])
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows
