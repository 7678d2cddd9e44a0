"""Sparse rows as numbers of bins, by row and by column: what boosting reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from models.rankboost import kernels


@dataclass(frozen=True, kw_only=True)
class Binned:
    """Rows as bins. Zeros, stored or not, are absent values and have no bin.

    Attributes
    ----------
    names : (d,) int64, which column each feature was: features are numbered with the most frequent first.
    support : (d,) int64, rows that hold each feature.
    starts, codes : of the rows, (n + 1,) int64 and (nnz,) int32: the bin of each value, ascending.
    column_starts, column_rows, column_codes : the same by feature.
    offsets : (d + 1,) int64, where each feature's bins begin.
    edges : (bins,) float32, upper edges: bin b of a feature holds values v with edges[b - 1] < v <= edges[b], without
        bound at either end of the feature.
    """

    names: NDArray[np.int64]
    support: NDArray[np.int64]
    starts: NDArray[np.int64]
    codes: NDArray[np.int32]
    column_starts: NDArray[np.int64]
    column_rows: NDArray[np.int32]
    column_codes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    edges: NDArray[np.float32]

    @property
    def n_rows(self) -> int:
        """Rows."""
        return int(self.starts.size - 1)

    def bounds(self, feature: int, low: int, high: int) -> tuple[float, float]:
        """The values v, below < v <= upto, that a feature's bins ``low`` to ``high`` stand for."""
        below = -np.inf if low == self.offsets[feature] else float(self.edges[low - 1])
        return below, float(self.edges[high])

    def rows_within(self, feature: int, low: int, high: int) -> NDArray[np.int32]:
        """Rows whose value of a feature is in its bins ``low`` to ``high``, ascending."""
        part = slice(int(self.column_starts[feature]), int(self.column_starts[feature + 1]))
        out = np.empty(part.stop - part.start, dtype=np.int32)
        n = kernels.rows_within(self.column_rows[part], self.column_codes[part], low, high, out)
        return out[:n]


def sparse_rows(X: Any) -> csr_array:
    """Rows as CSR with sorted, distinct columns and no stored zeros; what was given is not changed."""
    given = issparse(X)
    rows = csr_array(X, dtype=np.float32)
    if given and (not rows.has_canonical_format or not np.all(rows.data)):
        rows = rows.copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
    return rows


def binned(rows: csr_array, max_bins: int) -> Binned:
    """Bin every feature of rows that `sparse_rows` made: exactly, where it has at most ``max_bins`` distinct values.

    Features with more get as many bins of about equally many rows.
    """
    counts = np.bincount(rows.indices, minlength=rows.shape[1])
    names = np.argsort(-counts, kind="stable")
    numbers = np.empty(names.size, dtype=rows.indices.dtype)
    numbers[names] = np.arange(names.size, dtype=rows.indices.dtype)
    columns = csr_array((rows.data, numbers[rows.indices], rows.indptr), shape=rows.shape).tocsc()
    starts = columns.indptr.astype(np.int64)
    codes = np.empty(columns.nnz, dtype=np.int32)
    edges = np.empty(columns.nnz, dtype=np.float32)
    offsets = np.empty(starts.size, dtype=np.int64)
    n_bins = kernels.bin_columns(
        starts, np.ascontiguousarray(columns.data, dtype=np.float32), max_bins, codes, edges, offsets
    )
    indices = columns.indices.astype(np.int32, copy=False)
    by_row = type(columns)((codes, indices, columns.indptr), shape=columns.shape).tocsr()
    return Binned(
        names=names,
        support=counts[names],
        starts=by_row.indptr.astype(np.int64),
        codes=by_row.data,
        column_starts=starts,
        column_rows=indices,
        column_codes=codes,
        offsets=offsets,
        edges=edges[:n_bins].copy(),
    )


def parts(rows: csr_array) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Starts, columns and values, of the types that kernels are compiled for."""
    return (
        np.require(rows.indptr, dtype=np.int64, requirements=["C", "W"]),
        np.require(rows.indices, dtype=np.int32, requirements=["C", "W"]),
        np.require(rows.data, dtype=np.float32, requirements=["C", "W"]),
    )
