"""Prepares rows for comparison: weighted and scaled, with two extra numbers per row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from scipy import sparse

from pairmark.models.core.arrays import Float32, Float64
from pairmark.models.core.inputs import csr_parts
from pairmark.models.core.state import Array, Fact
from pairmark.models.logistic.kernels import scoring as kernels

RowScale = Literal["unit", "standard"]
_csr: Any = sparse.csr_array
MOST = 1e4
"""Standardised values are held within this many standard deviations, over the root of their number."""
_SIZE = 0.1


class PreparedRows(NamedTuple):
    """Prepared rows: (n, d) float32, or CSR with ascending columns; tails (n, 2)."""

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
    sparse : whether prepared rows are CSR.
    centre : (d,); zeros for ``unit``. scale : (d,): rarity of features (``unit``), or one over their spread.
    """

    kind: Annotated[RowScale, Fact(name="rows")]
    sparse: Annotated[bool, Fact()]
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
            return cls(kind="unit", sparse=is_sparse(X), centre=np.zeros(d), scale=rarity)
        centre, deviations = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
        # What never varies says nothing; nor does what varies by less than float32 can tell.
        varies = deviations > 1e-6 * np.maximum(np.abs(centre), 1e-30)
        scale = np.divide(1.0, deviations, out=np.zeros(d), where=varies) / np.sqrt(d)
        return cls(kind="standard", sparse=False, centre=centre, scale=scale)

    @property
    def plain(self) -> Float64:
        """(d,) what a product of prepared values is multiplied by to be one of plain features."""
        return 1.0 / self.scale**2 if self.kind == "unit" else np.ones(self.scale.size)

    def prepared(self, X: Any) -> PreparedRows:
        """Of rows (n, d)."""
        tails = np.zeros((X.shape[0], 2))
        if self.sparse:
            rows = _csr(X)
            if not rows.has_canonical_format:
                rows = rows.copy()
                rows.sum_duplicates()
            starts, columns, values = csr_parts(rows)
            out = np.empty(values.size, dtype=np.float32)
            kernels.unit_sparse(starts, columns, values, self.scale, out, tails)
            tails[:, 1] *= _SIZE
            return PreparedRows(_csr((out, columns, starts), shape=rows.shape), tails)
        rows = np.require(X.toarray() if is_sparse(X) else X, dtype=np.float32, requirements=["C", "W"])
        out = np.zeros(rows.shape, dtype=np.float32)
        if self.kind == "unit":
            kernels.unit_dense(rows, self.scale, out, tails)
            tails[:, 1] *= _SIZE
        else:
            kernels.standard_dense(rows, self.centre, self.scale, MOST, out, tails)
        return PreparedRows(out, tails)


def is_sparse(rows: Any) -> bool:
    """Whether rows are sparse, of whatever kind."""
    return bool(sparse.issparse(rows))


def _counts_like(X: Float32) -> bool:
    return bool(X.min() >= 0) and bool(np.count_nonzero(X) <= X.size / 2)
