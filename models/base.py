"""Mixins that every learner builds on, and the checks they share.

A pair scorer implements `_pair_score` on two validated arrays of equal length; everything else (broadcasting,
blocks, search) is here once. Scores are float32 and symmetric to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

Float32 = NDArray[np.float32]
Matrix = NDArray[Any]

SCORE_BLOCK = 65_536
"""Pairs scored at a time when a query meets a whole gallery: bounds the memory of `score_against`."""


@dataclass(frozen=True, kw_only=True)
class GalleryIndex:
    """What `index` made of a gallery. Families with a faster exact search subclass it."""

    vectors: Matrix

    def __len__(self) -> int:
        return int(self.vectors.shape[0])


class PairScorerMixin:
    """A learned, symmetric similarity: higher is more similar."""

    n_features_in_: int
    _accepts_sparse: bool = False

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from points and their identities (or classes)."""
        raise NotImplementedError

    def fit_pairs(
        self, left: ArrayLike, right: ArrayLike, same: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from explicit pairs."""
        raise NotImplementedError

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        raise NotImplementedError

    def pair_score(self, left: ArrayLike, right: ArrayLike) -> Float32:
        """Similarity of each pair.

        Parameters
        ----------
        left, right : (n, d) arrays; one side may have a single row, which then meets every row of the other.

        Returns
        -------
        (n,) float32; ``pair_score(a, b)`` equals ``pair_score(b, a)`` to the last bit.

        Raises
        ------
        ValueError
            On NaN, infinities, a wrong dimension or lengths that do not fit.
        """
        check_is_fitted(self)
        a, b = self._validated(left, "left"), self._validated(right, "right")
        if a.shape[0] != b.shape[0]:
            if a.shape[0] == 1:
                a = _repeat_row(a, b.shape[0])
            elif b.shape[0] == 1:
                b = _repeat_row(b, a.shape[0])
            else:
                raise ValueError(
                    f"left has {a.shape[0]} rows and right {b.shape[0]}: expected equal numbers, or a single "
                    "row on one side"
                )
        return self._pair_score(a, b)

    def index(self, gallery: ArrayLike) -> GalleryIndex:
        """Prepare a gallery, (n, d), for repeated searches."""
        check_is_fitted(self)
        return GalleryIndex(vectors=self._validated(gallery, "gallery"))

    def score_against(self, query: ArrayLike, gallery: ArrayLike | GalleryIndex) -> Float32:
        """Score every query against every gallery row.

        Returns
        -------
        (n_queries, n_gallery) float32, each entry equal to `pair_score` of that pair to the last bit.
        """
        check_is_fitted(self)
        queries = self._validated(query, "query")
        index = gallery if isinstance(gallery, GalleryIndex) else self.index(gallery)
        return self._score_against(queries, index)

    def _score_against(self, queries: Matrix, index: GalleryIndex) -> Float32:
        scores = np.empty((queries.shape[0], len(index)), dtype=np.float32)
        for row in range(queries.shape[0]):
            for start in range(0, len(index), SCORE_BLOCK):
                block = index.vectors[start : start + SCORE_BLOCK]
                scores[row, start : start + SCORE_BLOCK] = self._pair_score(
                    _repeat_row(queries[row : row + 1], block.shape[0]), block
                )
        return scores

    def top_k(
        self, query: ArrayLike, gallery: ArrayLike | GalleryIndex, k: int
    ) -> tuple[NDArray[np.intp], Float32]:
        """The k most similar gallery rows of each query, exactly; best first, ties by row number.

        Returns
        -------
        ids : (n_queries, min(k, n_gallery)) row numbers
        scores : the same shape, float32
        """
        check_is_fitted(self)
        if k < 1:
            raise ValueError(f"k is {k}; expected at least 1")
        queries = self._validated(query, "query")
        index = gallery if isinstance(gallery, GalleryIndex) else self.index(gallery)
        return self._top_k(queries, index, min(k, len(index)))

    def _top_k(self, queries: Matrix, index: GalleryIndex, k: int) -> tuple[NDArray[np.intp], Float32]:
        ids = np.empty((queries.shape[0], k), dtype=np.intp)
        scores = np.empty((queries.shape[0], k), dtype=np.float32)
        for row in range(queries.shape[0]):
            line = self._score_against(queries[row : row + 1], index)[0]
            # Everything as good as the k-th: sorting these alone leaves ties in the order of rows.
            best = np.flatnonzero(line >= np.partition(line, len(index) - k)[len(index) - k])
            order = best[np.argsort(-line[best], kind="stable")[:k]]
            ids[row], scores[row] = order, line[order]
        return ids, scores

    def _validated(self, X: Any, name: str) -> Matrix:
        return checked_matrix(self, X, name, accept_sparse=self._accepts_sparse)


class EmbedderMixin:
    """A learner with a vector space of its own."""

    def transform(self, X: ArrayLike) -> Float32:
        """Embed points, (n, d) -> (n, n_components) float32."""
        raise NotImplementedError


class LabelRankerMixin:
    """A learner that orders labels for each point."""

    def fit(self, X: ArrayLike, Y: ArrayLike) -> Self:
        """Learn from (n, k) 0-based positions; NaN = label absent, equal values = tied."""
        raise NotImplementedError

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Positions of the labels, (n, k)."""
        raise NotImplementedError


def checked_matrix(
    estimator: Any, X: Any, name: str, *, accept_sparse: bool = False, reset: bool = False
) -> Matrix:
    """A finite float32 matrix of the estimator's width (which ``reset`` sets), or a `ValueError` that names it."""
    if isinstance(X, np.ndarray) and X.ndim == 1:
        raise ValueError(
            f"{name} has one dimension; expected rows of features, shape (n, d): use {name}[None, :] for one row"
        )
    try:
        checked: Matrix = validate_data(
            estimator,
            X,
            reset=reset,
            dtype=np.float32,
            order="C",
            accept_sparse="csr" if accept_sparse else False,
            ensure_all_finite=True,
        )
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return checked


def checked_identities(y: ArrayLike, n_rows: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Distinct identities and each row's code into them.

    Raises
    ------
    ValueError
        When lengths differ, or no two rows share an identity, or all do: then there is nothing to tell apart.
    """
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise ValueError(f"y has shape {labels.shape}; expected ({n_rows},), one identity a row")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("y holds NaN or infinities; expected one identity a row")
    identities, codes = np.unique(labels, return_inverse=True)
    if identities.size < 2:
        raise ValueError("y holds a single identity; expected at least two, to have pairs that differ")
    if np.bincount(codes).max() < 2:
        raise ValueError(
            "every identity has one row; expected at least one with two, to have pairs that are the same"
        )
    return identities, codes.astype(np.int64, copy=False)


def checked_same(same: ArrayLike, n_pairs: int) -> NDArray[np.bool_]:
    """A boolean (n_pairs,) array from 0/1 or booleans."""
    values = np.asarray(same)
    if values.shape != (n_pairs,):
        raise ValueError(f"same has shape {values.shape}; expected ({n_pairs},), one 0 or 1 a pair")
    if values.dtype != np.bool_ and not np.isin(values, (0, 1)).all():
        raise ValueError("same holds values other than 0 and 1")
    return values.astype(np.bool_, copy=False)


def _repeat_row(row: Any, n: int) -> Any:
    if isinstance(row, np.ndarray):
        return np.broadcast_to(row, (n, row.shape[1]))
    return row[np.zeros(n, dtype=np.intp)]
