"""Sparse rows: checked, and as numbers of bins by row and by column, which is what boosting reads."""

import warnings
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.sparse import csc_array, csr_array, issparse

from pairmark.models.core.arrays import Float32, Int32, Int64, Matrix
from pairmark.models.core.inputs import checked_matrix, csr_parts
from pairmark.models.rankboost import kernels

MOST_BINS = 256
"""Thresholds tried in a feature, where it has more distinct values."""


@dataclass(frozen=True, kw_only=True)
class BinnedRows:
    """Rows as bins. Zeros, stored or not, are absent values and have no bin.

    Attributes
    ----------
    names : (d,) int64, which column each feature was: the columns that hold anything, the most frequent first.
    support : (d,) int64, rows that hold each feature.
    starts, codes : of the rows, (n + 1,) int64 and (nnz,) int32: the bin of each value, features ascending. A feature
        whose values all share one bin has no bins: its code is -1 - feature.
    column_starts, column_rows, column_codes : the same by feature.
    offsets : (d + 1,) int64, where each feature's bins begin. owners : (bins,) int32, the feature of each.
    edges : (bins,) float32, upper edges: bin b of a feature holds values v with edges[b - 1] < v <= edges[b], without
        bound at either end of the feature.
    """

    names: Int64
    support: Int64
    starts: Int64
    codes: Int32
    column_starts: Int64
    column_rows: Int32
    column_codes: Int32
    offsets: Int64
    owners: Int32
    edges: Float32

    @property
    def n_rows(self) -> int:
        return int(self.starts.size - 1)

    def all_of(self, feature: int) -> tuple[int, int]:
        """A feature's first and last code."""
        begin, end = int(self.offsets[feature]), int(self.offsets[feature + 1])
        return (begin, end - 1) if begin < end else (-1 - feature, -1 - feature)

    def bounds(self, feature: int, low: int, high: int) -> tuple[float, float]:
        """The values v, below < v <= upto, that a feature's codes ``low`` to ``high`` stand for."""
        if high < 0:
            return -np.inf, np.inf
        below = -np.inf if low == self.offsets[feature] else float(self.edges[low - 1])
        return below, float(self.edges[high])

    def rows_within(self, feature: int, low: int, high: int) -> Int32:
        """Rows whose value of a feature has a code from ``low`` to ``high``, ascending."""
        part = slice(int(self.column_starts[feature]), int(self.column_starts[feature + 1]))
        if high < 0:
            return self.column_rows[part]
        codes = self.column_codes[part]
        return self.column_rows[part][(low <= codes) & (codes <= high)]


def sparse_rows(X: Any) -> csr_array:
    """Rows as CSR with sorted, distinct columns and no stored zeros; what was given is not changed."""
    is_sparse = issparse(X)
    rows = csr_array(X, dtype=np.float32)
    if is_sparse and (not rows.has_canonical_format or not np.all(rows.data)):
        rows = rows.copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
    return rows


def bin_rows(rows: csr_array, max_bins: int = MOST_BINS) -> BinnedRows:
    """Bin every feature of rows that `sparse_rows` made: exactly, where it has at most ``max_bins`` distinct values.

    Features with more get as many bins of about equally many rows.
    """
    counts = np.bincount(rows.indices, minlength=rows.shape[1])
    names = np.flatnonzero(counts)
    names = names[np.argsort(-counts[names], kind="stable")]
    support = counts[names]
    columns = csc_array(rows)[:, names]
    column_starts, column_rows, values = csr_parts(columns)
    column_codes = np.empty(values.size, dtype=np.int32)
    # No column has more bins than values, nor more than there may be.
    capacity = int(np.minimum(support, max_bins).sum())
    edges, owners = np.empty(capacity, np.float32), np.empty(capacity, np.int32)
    offsets = np.empty(column_starts.size, dtype=np.int64)
    n_bins = kernels.bin_columns(column_starts, values, max_bins, column_codes, edges, owners, offsets)
    codes = csr_array(csc_array((column_codes, column_rows, column_starts), shape=columns.shape))
    return BinnedRows(
        names=names,
        support=support,
        starts=codes.indptr.astype(np.int64),
        codes=codes.data,
        column_starts=column_starts,
        column_rows=column_rows,
        column_codes=column_codes,
        offsets=offsets,
        owners=owners[:n_bins].copy(),
        edges=edges[:n_bins].copy(),
    )


def places_of(columns: Int32, known: Int64) -> Int64:
    """Where each column is among some ascending ones; -1 for nowhere."""
    places = np.minimum(np.searchsorted(known, columns), known.size - 1)
    places[known[places] != columns] = -1
    return places


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
