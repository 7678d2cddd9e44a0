"""Subjects of several samples: what of them the model needs to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairmark.models.core.base import Float32

Samples = Sequence[ArrayLike]
Float64 = NDArray[np.float64]


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

    counts: NDArray[np.int64]
    sums: Float64 = field(repr=False)
    psi: Float64 = field(repr=False)
    rows: Float32 | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return int(self.counts.size)

    @classmethod
    def of(cls, latent: Float32, rows: Float32 | None, counts: NDArray[np.int64], psi: Float64) -> Subjects:
        """From the latent coordinates of all samples, subject after subject, and their prepared rows."""
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        sums = np.add.reduceat(latent.astype(np.float64), starts, axis=0)
        if rows is not None:
            totals = np.add.reduceat(rows.astype(np.float64), starts, axis=0)
            rows = (totals / counts[:, None]).astype(np.float32)
        return cls(counts=counts, sums=sums, psi=psi, rows=rows)

    @property
    def precision(self) -> Float64:
        """(n, q) posterior precision of each subject's centre."""
        return np.asarray(self.counts[:, None] + 1.0 / np.maximum(self.psi, 1e-300))

    @property
    def mean(self) -> Float64:
        """(n, q) posterior mean of each subject's centre, ``psi sum / (k psi + 1)``."""
        return np.asarray(self.psi * self.sums / (self.counts[:, None] * self.psi + 1.0))


def summed(samples: Samples) -> tuple[Any, NDArray[np.int64]]:
    """All samples in one array, and how many each subject has.

    Raises
    ------
    ValueError
        Where a subject has none, or they are no rows of numbers.
    """
    parts = [np.asarray(part) for part in samples]
    if not parts:
        raise ValueError("samples names no subject; expected one (k, d) array of samples a subject")
    for number, part in enumerate(parts):
        if part.ndim != 2 or part.shape[0] < 1:
            raise ValueError(
                f"subject {number} has samples of shape {part.shape}; expected (k, d) with at least one row"
            )
    if len({part.shape[1] for part in parts}) > 1:
        raise ValueError("subjects have samples of different numbers of features; expected one number")
    return np.concatenate(parts), np.array([part.shape[0] for part in parts], dtype=np.int64)


def sides_of(left: Subjects, right: Subjects) -> tuple[int, int, int]:
    """How many scores two sides make, and each side's step: 0 where its one subject meets all."""
    n, m = len(left), len(right)
    if n != m and 1 not in (n, m):
        raise ValueError(
            f"left has {n} subjects and right {m}: expected equal numbers, or a single one on one side"
        )
    return max(n, m), int(n > 1), int(m > 1)
