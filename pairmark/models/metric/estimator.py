"""Known metrics as a learner: for vectors that are good embeddings already."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64, Matrix
from pairmark.models.core.base import EmbedderMixin, PairScorerMixin
from pairmark.models.core.inputs import by_feature, csr_parts, feature_names_of, one_of_equals
from pairmark.models.core.kernels import LANES, project_rows, row_products, unit_rows
from pairmark.models.core.scores import PairsOfRows
from pairmark.models.core.search import (
    GalleryIndex,
    Measure,
    Rows,
    SearchForm,
    encode,
    root_measure,
    same_measure,
    seal_array,
)
from pairmark.models.core.spec import LearnerSpec, document_parameters, keep_arguments
from pairmark.models.core.state import Array, StoredState
from pairmark.models.metric import kernels

MAX_FEATURES = 8192
"""A (d, d) matrix of more takes over half a GiB and minutes to decompose."""
PREPARED_ROWS = 1_024
"""Pairs that are scored together."""
_SMALLEST_EIGENVALUE = 1e-6
"""Of the mean eigenvalue. What never varies within identities would otherwise be divided by zero."""


def whitening_matrix(deviations: Float64, shrinkage: Literal["auto"] | float) -> Float64:
    """The symmetric inverse square root of the shrunk covariance within identities.

    Symmetric, so that feature j of a whitened vector is the one closest to feature j of the vector (Kessy, Lewin and
    Strimmer 2018, "Optimal whitening and decorrelation": ZCA).

    Parameters
    ----------
    deviations : (n, d) whose second moment is that covariance.
    shrinkage : weight of the multiple of the identity with the same trace; ``auto`` is Ledoit and Wolf's (2004).

    Returns
    -------
    (d, d) float64, of full rank whatever the rank of ``deviations``.

    Raises
    ------
    ValueError
        When nothing varies within identities, or d is beyond `MAX_FEATURES`.
    """
    n, d = deviations.shape
    if d > MAX_FEATURES:
        raise ValueError(
            f"whiten takes at most {MAX_FEATURES} features, X has {d}: reduce them, or whiten=False"
        )
    # Numbers of any size: squares of large ones must not overflow, nor those of small ones vanish.
    size = float(np.abs(deviations).max(initial=0.0))
    if size == 0.0:
        raise ValueError(
            "rows of one identity are all equal, so there is no variation within identities to whiten by: use "
            "whiten=False"
        )
    scaled = deviations / size
    covariance = scaled.T @ scaled / n
    share = ledoit_wolf_share(scaled, covariance) if shrinkage == "auto" else shrinkage
    mean = float(np.trace(covariance)) / d
    if 2 * n < d:
        # All directions but those of the rows are alike: theirs alone are worked out.
        vectors = np.linalg.svd(scaled, full_matrices=False)[2].T
        variances = np.einsum("ij,ij->j", vectors, covariance @ vectors)
        floors = np.maximum(
            (1 - share) * np.append(variances, 0.0) + share * mean, _SMALLEST_EIGENVALUE * mean
        )
        *roots, fallback = 1.0 / np.sqrt(floors)
        root: Float64 = ((vectors * (np.array(roots) - fallback)) @ vectors.T + fallback * np.eye(d)) / size
    else:
        values, vectors = np.linalg.eigh((1 - share) * covariance + share * mean * np.eye(d))
        lengths = np.maximum(values, _SMALLEST_EIGENVALUE * mean)
        root = (vectors / np.sqrt(lengths)) @ vectors.T / size
    return (root + root.T) / 2


def ledoit_wolf_share(X: Float64, covariance: Float64) -> float:
    """Ledoit and Wolf's (2004, lemma 3.3) weight of the identity for centred rows and their covariance.

    scikit-learn's imports all of `scipy.stats`: a second of each training job, which fits a whitened baseline.
    """
    n, d = X.shape
    squares = float(np.sum(covariance**2))
    off_target = squares - float(np.trace(covariance)) ** 2 / d
    noise = (float(np.sum(np.sum(X**2, axis=1) ** 2)) / n - squares) / n
    return min(noise / off_target, 1.0) if noise > 0 and off_target > 0 else 0.0


def within_deviations(X: Float32, codes: Int64) -> Float64:
    """Rows minus the mean of their identity, each identity's scaled to the unbiased covariance."""
    counts = np.bincount(codes)
    sums = np.zeros((counts.size, X.shape[1]))
    np.add.at(sums, codes, X)
    deviations = X - (sums / counts[:, None])[codes]
    # Identities with a single row say nothing of the variation within.
    repeated: Float64 = deviations[counts[codes] > 1]
    degrees = repeated.shape[0] - int((counts > 1).sum())
    return np.asarray(repeated * np.sqrt(repeated.shape[0] / degrees), dtype=np.float64)


def _shares(metric: str, left: Float64, right: Float64, score: float) -> Float64:
    if metric in ("cosine", "dot"):
        return left * right
    distance = np.abs(left - right)
    if metric == "manhattan" or not distance.any():
        return -distance
    power = (distance / distance.max()) ** 2
    return np.asarray(score * power / power.sum())


Metric = Literal["cosine", "dot", "euclidean", "manhattan"]
_CODES: Final = {
    "cosine": kernels.DOT,
    "dot": kernels.DOT,
    "euclidean": kernels.EUCLIDEAN,
    "manhattan": kernels.MANHATTAN,
}
_FORMS: Final[dict[int, tuple[Measure, Callable[[float], float]]]] = {
    kernels.DOT: ("inner", same_measure),
    kernels.EUCLIDEAN: ("sqeuclidean", root_measure),
    kernels.MANHATTAN: ("manhattan", same_measure),
}


@document_parameters
class MetricSimilarity(PairScorerMixin, EmbedderMixin, BaseEstimator):
    """A known metric, optionally after whitening within identities; nothing else is learned.

    From explicit pairs, the same ones are what varies within identities; ``sample_weight`` weighs them.

    Scores, higher is more similar: the cosine, or the inner product (``dot``); else the negated distance. A row of
    zeros has cosine 0 with everything.

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

    mean_: Float64
    whitening_: Float64
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
        keep_arguments(self, locals())

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
        """The vectors that the metric compares: whitened where asked for, of length one for ``cosine``.

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
        """Contributions of features that add up to one pair's score.

        Parameters
        ----------
        left, right : (d,) or (1, d), one pair.
        feature_names : (d,) names to use; those of training when None.

        Returns
        -------
        ``metric``, ``whitened``, and ``features``, the largest contributions first: ``feature``, its ``left`` and
        ``right`` value as compared (after whitening and scaling, where there is any) and its ``contribution``: the
        product (cosine, dot), or minus its part of the distance (of ``euclidean`` in proportion to the square of the
        difference). ``rest`` is what all others add.
        """
        pair = self._one_pair(left, right)
        a, b = (np.asarray(self.transform(side))[0] for side in pair)
        score = float(self._pair_score(*pair)[0])
        shares = _shares(self.metric, a.astype(np.float64), b.astype(np.float64), score)
        features, total = by_feature(feature_names_of(self, feature_names), a, b, shares)
        return {
            "metric": self.metric,
            "whitened": bool(self.whiten),
            "features": features,
            "rest": float(shares.sum() - total) if features else 0.0,
        }

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        """The gallery whitened, once, and in 8 bits for inner products; rows that are cheap to prepare are not held
        twice."""
        dense = self.whiten or not _is_csr(vectors)
        of_products = self._code == kernels.DOT and dense
        lanes_fit = self.n_features_in_ % LANES == 0
        as_given = dense and lanes_fit and self.metric != "cosine" and not self.whiten
        prepared = vectors if as_given else self._prepared(vectors)
        # A scan of distances reads the vectors themselves, which have to be padded.
        arrays = {} if as_given or (of_products and not self.whiten) else {"prepared": prepared}
        if of_products:
            arrays |= encode(prepared)
        return arrays

    def _search_form(self, queries: Matrix, index: GalleryIndex) -> SearchForm | None:
        gallery, prepared = index.arrays.get("prepared", index.vectors), self._prepared(queries)
        if _is_csr(gallery) or _is_csr(prepared):
            return None
        measure, least_measure = _FORMS[self._code]
        return SearchForm(
            measure=measure,
            queries=prepared,
            gallery=gallery,
            least_measure=least_measure,
        )

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        n = left.shape[0]
        scores = np.empty(n, dtype=np.float32)
        if n == 1 and self._code == kernels.DOT and not _is_csr(left) and not _is_csr(right):
            # A pair alone costs what the calls do: one takes both rows.
            kernels.score_pair(
                self._padded(np.concatenate((left, right), dtype=np.float32)), self.metric == "cosine", scores
            )
            return scores
        sides = one_of_equals(left), one_of_equals(right)
        # Some at a time, so that prepared rows stay in the cache.
        for start in range(0, n, PREPARED_ROWS):
            rows = slice(start, start + PREPARED_ROWS)
            a, b = (self._prepared(side[rows] if side.shape[0] == n else side) for side in sides)
            scores[rows] = self._score_prepared(a, b, scores[rows].size)
        return scores

    def _pairs_of(self, rows: Matrix) -> PairsOfRows:
        prepared = self._prepared(rows)
        return lambda left, right: self._score_prepared(prepared[left], prepared[right], left.size)

    def _score_prepared(self, a: Any, b: Any, n: int) -> Float32:
        return self._scores(a, b, (n, 1), grid=False)[:, 0]

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        prepared = index.arrays.get("prepared")
        gallery = self._prepared(index.vectors[rows]) if prepared is None else prepared[rows]
        return self._scores(self._prepared(queries), gallery, (queries.shape[0], gallery.shape[0]), grid=True)

    def _scores(self, a: Any, b: Any, shape: tuple[int, int], *, grid: bool) -> Float32:
        """Of prepared rows: see `row_products`."""
        scores: Float32 = np.empty(shape, dtype=np.float32)
        if _is_csr(a) or _is_csr(b):
            a, b = (_sorted_csr(side, self.n_features_in_) for side in (a, b))
            kernels.score_sparse(self._code, *csr_parts(a), *csr_parts(b), grid, scores)
        elif self._code == kernels.DOT:
            row_products(a, seal_array(b), grid, scores)
        else:
            kernels.score_distances(self._code, a, seal_array(b), grid, scores)
        return scores

    def _prepared(self, X: Any) -> Any:
        """Rows as the kernels compare them: new, and padded with zeros (dense) or with ascending indices (CSR)."""
        if _is_csr(X) and not self.whiten:
            rows = _sorted_csr(X, self.n_features_in_).copy()
            if self.metric == "cosine":
                kernels.unit_sparse(*csr_parts(rows))
            return rows
        padded = self._padded(_dense(X))
        if self.metric == "cosine":
            unit_rows(padded, seal_array(padded))
        return padded

    def _padded(self, X: Float32) -> Float32:
        """Dense rows, whitened where asked for: new, and padded with zeros."""
        d = self.n_features_in_
        if d % LANES == 0 and not self.whiten:
            padded = np.array(X, order="C")
        else:
            padded = np.zeros((X.shape[0], -(-d // LANES) * LANES), dtype=np.float32)
            if self.whiten:
                project_rows(np.require(X, requirements=["C", "W"]), self.mean_, self.whitening_, padded)
            else:
                padded[:, :d] = X
        return padded

    def _parts(self) -> Mapping[str, Any]:
        return {"mean": self.mean_, "whitening": self.whitening_} if self.whiten else {}

    def _read_parts(self, file: StoredState) -> None:
        if self.whiten:
            self.mean_ = file.array("mean", Array(kind="float64", shape=("features",)))
            self.whitening_ = file.array("whitening", Array(kind="float64", shape=("features", "features")))

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


METRIC = LearnerSpec(
    kind="metric",
    title="Metric: cosine, Euclidean and others, optionally whitened within identities; for good embeddings",
    estimator=MetricSimilarity,
    capabilities=frozenset({"similarity", "match", "search", "embed"}),
    accepts_sparse=True,
    retired={"p": ...},
    learns=lambda params: bool(params.get("whiten")),
)
