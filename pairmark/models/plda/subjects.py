"""Sufficient statistics of subjects with several samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.kernels import subjects as kernels
from pairmark.models.core.subjects import SampleSets


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """Sufficient statistics of subjects in latent coordinates; new samples add to both.

    Attributes
    ----------
    counts : (n,) int64, samples of each.
    sums : (n, q) float64, sums of their latent coordinates.
    psi : (q,) the model's variances between identities.
    rows : (n, p) float32, means of prepared rows, whose differences boosted trees see; None where there are no trees.
    """

    counts: Int64
    sums: Float64 = field(repr=False)
    psi: Float64 = field(repr=False)
    rows: Float32 | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return int(self.counts.size)

    @classmethod
    def of(cls, sets: SampleSets, latent: Float32, rows: Float32 | None, psi: Float64) -> Subjects:
        """From the latent coordinates of all rows of `sets` and, where there are trees, their prepared rows."""
        sums = np.empty((len(sets), latent.shape[1]))
        kernels.sums(latent, sets.index, sets.ends, sums)
        if rows is not None:
            totals = np.empty((len(sets), rows.shape[1]))
            kernels.sums(rows, sets.index, sets.ends, totals)
            rows = (totals / sets.counts[:, None]).astype(np.float32)
        return cls(counts=sets.counts, sums=sums, psi=psi, rows=rows)

    def take(self, which: NDArray[Any]) -> Subjects:
        return Subjects(
            counts=self.counts[which],
            sums=self.sums[which],
            psi=self.psi,
            rows=None if self.rows is None else self.rows[which],
        )
