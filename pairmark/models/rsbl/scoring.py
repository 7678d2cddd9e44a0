"""Scores of pairs in the space that has grown, and rows embedded in it."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.arrays import Float32, Matrix
from pairmark.models.core.base import EmbedderMixin, GalleryIndex, PairScorerMixin
from pairmark.models.core.inputs import checked_matrix, one_of_equals
from pairmark.models.core.kernels import unit_rows
from pairmark.models.core.search import LENGTHS, Rows, SearchForm, lengths, same_measure, sealed
from pairmark.models.rsbl.growth import Layer, walked
from pairmark.models.rsbl.inputs import Inputs
from pairmark.models.rsbl.kernels import spaces as kernels

Metric = Literal["euclidean", "manhattan", "chebyshev", "mahalanobis", "cosine", "correlation", "hamming"]
BLOCK_BYTES: Final = 64 * 1024 * 1024
"""Most memory for the rows of the space that are computed at a time."""


class RSBLScores(PairScorerMixin, EmbedderMixin):
    """What a fitted RSBL says of pairs; the classes are `pairmark.models.rsbl.estimator`'s."""

    metric: Metric
    n_jobs: int | None
    n_components_: int
    layers_: list[Layer]
    _inputs: Inputs
    _refs: list[Float32]

    def transform(self, X: ArrayLike) -> Float32:
        """Rows in the space that has grown: the inputs as prepared, and each layer's features.

        A row that is c training rows' neighbour gives one feature, multiplied by sqrt(c).

        Returns
        -------
        (n, n_components_) float32.
        """
        check_is_fitted(self)
        return np.concatenate(self._walked(self._validated(X, "X")), axis=1)

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        """The gallery embedded, once."""
        prepared = self._prepared(vectors)
        return {"prepared": prepared, LENGTHS: lengths(prepared)}

    def _search_form(self, queries: Matrix, index: GalleryIndex) -> SearchForm | None:
        return SearchForm(
            measure="inner",
            queries=self._prepared(queries),
            gallery=index.arrays["prepared"],
            least_measure=same_measure,
            lengths=index.arrays.get(LENGTHS),
        )

    def _walked(self, X: Float32) -> list[Float32]:
        """Blocks of the space, computed some rows at a time."""
        rows_a_time = max(1, BLOCK_BYTES // (4 * max(self.n_components_, 1)))
        inputs = self._inputs.transform(X)
        parts = [
            walked(inputs[at : at + rows_a_time], self._refs, self.layers_, self.metric, n_jobs=self.n_jobs)
            for at in range(0, inputs.shape[0], rows_a_time)
        ]
        if len(parts) == 1:
            return parts[0]
        return [np.concatenate(blocks) for blocks in zip(*parts, strict=True)]

    def _prepared(self, X: Float32) -> Float32:
        """Embedded rows as the kernels compare them: padded with zeros, of length one."""
        lanes = kernels.LANES
        padded = np.zeros((X.shape[0], -(-self.n_components_ // lanes) * lanes), dtype=np.float32)
        padded[:, : self.n_components_] = np.concatenate(self._walked(X), axis=1)
        unit_rows(padded)
        return padded

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        a, b = self._prepared(one_of_equals(left)), self._prepared(one_of_equals(right))
        scores: Float32 = np.empty(left.shape[0], dtype=np.float32)
        kernels.cosines(a, b, False, scores[:, None])
        return scores

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        gallery = sealed(index.arrays["prepared"][rows])
        scores = np.empty((queries.shape[0], gallery.shape[0]), dtype=np.float32)
        kernels.cosines(self._prepared(queries), gallery, True, scores)
        return scores

    def _validated(self, X: Any, name: str) -> Float32:
        return self._training_rows(X, name)

    def _training_rows(self, X: Any, name: str, *, reset: bool = False) -> Float32:
        if issparse(X):
            raise ValueError(
                f"{name} is sparse and {type(self).__name__} compares dense rows: pass {name}.toarray(), "
                "or reduce the dimension first"
            )
        rows: Float32 = checked_matrix(self, X, name, reset=reset)
        # Kernels are compiled for one kind of array.
        return np.require(rows, requirements=["C", "W"])
