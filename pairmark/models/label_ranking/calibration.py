"""Calibration of pairwise vote shares to probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from pairmark.models.core.arrays import Float32, Float64
from pairmark.models.core.schema import Array, StoredState, refuse, require

_BINS = 64
_MAX_PAIRS = 2_000_000


@dataclass(frozen=True, kw_only=True)
class PairCalibration:
    """An increasing map of shares to probabilities with ``f(1 - s) = 1 - f(s)``.

    Attributes
    ----------
    knots : (2, m) shares above one half and the probability at each; linear between, mirrored below.
    """

    knots: Annotated[Float64, Array(name="calibration", shape=(2, "knots"), low=0, high=1)] = field(
        default_factory=lambda: np.array([[0.5, 1.0], [0.5, 1.0]])
    )

    @classmethod
    def relate(cls, file: StoredState, prefix: str) -> None:
        """Refuse knots that are none, or fall."""
        knots = file.arrays["calibration"]
        if knots.shape[1] < 1:
            raise refuse("calibration", None, "has no columns", "one or more")
        rising = np.diff(knots[0], prepend=knots[0, :1]) >= 0
        require(rising[None, :], "calibration", knots[:1], "shares that never fall")

    def apply(self, before: Float64) -> Float64:
        """Calibrated (n, k, k); the diagonal becomes 0.5."""
        sure = np.maximum(before, 1.0 - before)
        probability = np.interp(sure, self.knots[0], self.knots[1])
        result = np.where(before >= 0.5, probability, 1.0 - probability)
        k = before.shape[1]
        result[:, np.arange(k), np.arange(k)] = 0.5
        return np.asarray(result)

    @classmethod
    def fit(cls, before: Float64, positions: Float32) -> PairCalibration:
        """Learn the map from shares predicted for rows that they were not learned from.

        Isotonic regression of "the order came true" on how sure the share was, in bins of equal count, shrunk
        towards one half by one pair either way so that no finite sample promises certainty. Ties and absent labels
        are left out.

        Parameters
        ----------
        before : (n, k, k) shares, first label before second; rows of NaN are left out.
        positions : (n, k) what was seen; NaN = absent.
        """
        n, k = positions.shape
        rows = np.arange(n)
        pairs = k * (k - 1) // 2
        if n * pairs > _MAX_PAIRS:
            # Evenly spread rows: no chance, and no more than needed for 64 bins.
            rows = np.unique(np.linspace(0, n - 1, max(1, _MAX_PAIRS // pairs)).astype(np.intp))
        i, j = np.triu_indices(k, 1)
        share, difference = before[rows][:, i, j], positions[rows][:, j] - positions[rows][:, i]
        usable = np.isfinite(share) & np.isfinite(difference) & (difference != 0)
        share, first = share[usable], difference[usable] > 0
        sure = np.maximum(share, 1.0 - share)
        right = np.where(share == 0.5, 0.5, (share > 0.5) == first)
        if sure.size < 10:
            return cls()
        from sklearn.isotonic import IsotonicRegression

        order = np.argsort(sure, kind="stable")
        sure, right = sure[order], right[order]
        edges = np.unique(np.linspace(0, sure.size, min(_BINS, max(1, sure.size // 10)) + 1).astype(np.intp))
        count = np.diff(edges).astype(np.float64)
        x = np.add.reduceat(sure, edges[:-1]) / count
        y = (np.add.reduceat(right, edges[:-1]) + 1.0) / (count + 2.0)
        isotonic = IsotonicRegression(y_min=0.5, y_max=1.0).fit_transform(x, y, sample_weight=count)
        xs, first_at = np.unique(np.concatenate([[0.5], x, [1.0]]), return_index=True)
        ys = np.concatenate([[0.5], isotonic, isotonic[-1:]])[first_at]
        return cls(knots=np.stack([xs, np.maximum.accumulate(ys)]))
