"""Input checks of both kernels, including sparse rows with other columns than in training."""

from __future__ import annotations

import warnings
from typing import Any, cast

import numpy as np
from scipy.sparse import csr_array, issparse

from pairmark.models.core.arrays import Int64
from pairmark.models.core.base import Matrix
from pairmark.models.core.inputs import checked_matrix
from pairmark.models.rankboost.binning import sparse_rows


class UnknownColumnsWarning(UserWarning):
    """Sparse rows held columns beyond those learned with; they were ignored."""


class KnownColumns:
    """Sparse rows wider than the rows learned with: what was never seen is ignored, and counted in a warning.

    Vocabularies grow, and a weak ranker can look at no column that did not exist. Dense rows have no such excuse: a
    wrong width is an error.
    """

    n_features_in_: int

    def _validated(self, X: Any, name: str) -> Matrix:
        matrix = cast(Any, X)
        if issparse(X) and matrix.ndim == 2 and matrix.shape[1] > self.n_features_in_:
            wide: Any = csr_array(matrix)
            unknown = int(np.count_nonzero((wide.indices >= self.n_features_in_) & (wide.data != 0)))
            X = wide[:, : self.n_features_in_]
            if unknown:
                warnings.warn(
                    f"{name}: {unknown} values in columns from {self.n_features_in_} on, which were not there in "
                    "training, are ignored",
                    UnknownColumnsWarning,
                    stacklevel=3,
                )
        return checked_matrix(self, X, name, accept_sparse=True)

    def _training_rows(self, X: Any, name: str, *, reset: bool = False) -> csr_array:
        return sparse_rows(checked_matrix(self, X, name, accept_sparse=True, reset=reset))

    def _pool(self, unlabelled: Any, rows: csr_array) -> Any:
        """Rows to draw pivots from. Not validated as a whole: only the rows that are drawn are read."""
        if unlabelled is None:
            return rows
        pool = unlabelled if hasattr(unlabelled, "shape") else np.asarray(unlabelled, dtype=np.float32)
        if len(pool.shape) != 2 or pool.shape[1] != self.n_features_in_ or pool.shape[0] == 0:
            raise ValueError(
                f"unlabelled has shape {tuple(pool.shape)}; expected rows of {self.n_features_in_} features, as X"
            )
        return pool

    def _pool_rows(self, pool: Any, at: Int64) -> csr_array:
        return sparse_rows(checked_matrix(self, pool[at], "unlabelled", accept_sparse=True))
