"""Features mapped to a normal distribution, each by its own quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.special import ndtr, ndtri

from pairmark.models.core.arrays import Float32
from pairmark.models.core.kernels import rows as row_kernels
from pairmark.models.core.schema import Array, StoredState, refuse, require

MAX_NORMAL = 4.0
"""Values beyond all training values become plus or minus this."""
_KNOTS = 128
_ROWS = 100_000


@dataclass(frozen=True)
class NormalMarginals:
    """Broken lines from values to normal quantiles.

    Attributes
    ----------
    knots : (d, k) float32, each row ascending, padded with +inf.
    values : (d, k) float32, what the knots become; 0 where padded.
    """

    knots: Annotated[Float32, Array(shape=("features", "knots"), infinite=True)]
    values: Annotated[Float32, Array(shape=("features", "knots"))]

    @classmethod
    def relate(cls, file: StoredState, prefix: str) -> None:
        """Refuse knots that are none."""
        name = f"{prefix}knots"
        knots = file.arrays[name]
        if knots.shape[1] < 1:
            raise refuse(name, None, "has no columns", "one or more")
        require(np.isfinite(knots[:, :1]), name, knots[:, :1], "a finite number first")
        require(knots[:, 1:] >= knots[:, :-1], name, knots[:, 1:], "numbers that never fall within a row")

    @classmethod
    def of_rows(cls, X: Float32) -> NormalMarginals:
        """From rows (n, d); equal values share the mean of their quantiles."""
        n, d = min(X.shape[0], _ROWS), X.shape[1]
        reach = min(MAX_NORMAL, float(-ndtri(0.5 / max(n, 2))))
        inner = ndtr(np.linspace(-reach, reach, _KNOTS - 2))
        levels = np.concatenate([[0.0], inner, [1.0]])
        knots = np.full((d, _KNOTS), np.inf, dtype=np.float32)
        values = np.zeros((d, _KNOTS), dtype=np.float32)
        for start in range(0, d, 64):
            block = slice(start, min(start + 64, d))
            quantiles = np.quantile(X[:n, block], levels, axis=0).astype(np.float32)
            for j in range(quantiles.shape[1]):
                distinct, first, counts = np.unique(quantiles[:, j], return_index=True, return_counts=True)
                middle = (levels[first] + levels[first + counts - 1]) / 2
                knots[start + j, : distinct.size] = distinct
                values[start + j, : distinct.size] = np.clip(ndtri(middle), -MAX_NORMAL, MAX_NORMAL)
        return cls(knots, values)

    def transform(self, X: Float32) -> Float32:
        """(n, d) float32 within `MAX_NORMAL` of 0; each row as if alone."""
        out = np.empty(X.shape, dtype=np.float32)
        row_kernels.broken_lines(np.ascontiguousarray(X), self.knots, self.values, out)
        return out
