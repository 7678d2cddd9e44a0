"""The space of depth 0: nominal columns one-hot, features standardised, and whitened for Mahalanobis distances."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.inputs import checked_pairs
from pairmark.models.pairs.identities import distinct_rows, joined_identities
from pairmark.models.rsbl.kernels import spaces as kernels

MAX_VALUES = 1_000
"""Distinct values of a nominal column; more are no names but numbers."""
MAX_WHITENED = 4_096
_LARGEST = 1e30
_ROWS = 4_096


class Inputs:
    """How a row becomes a point of the space of depth 0.

    Attributes
    ----------
    values : for each nominal column, its (sorted) values in the training rows; another value is none of them.
    mean, scale : (d0,) float64. A constant feature has scale 1.
    whitening : (d0, d0) or None.
    """

    nominal: list[int]
    values: list[Float64]
    mean: Float64
    scale: Float64
    whitening: Float64 | None

    def fit(self, X: Float32, *, nominal: list[int] | None, standardize: bool, whiten: bool) -> Self:
        """Learn from training rows, (n, d)."""
        self.nominal = sorted(set(nominal or []))
        if self.nominal and self.nominal[-1] >= X.shape[1]:
            raise ValueError(
                f"nominal names column {self.nominal[-1]} and X has {X.shape[1]}; expected 0 to {X.shape[1] - 1}"
            )
        self.values = []
        for column in self.nominal:
            found = np.unique(X[:, column]).astype(np.float64)
            if found.size > MAX_VALUES:
                raise ValueError(
                    f"nominal column {column} has {found.size} distinct values; expected at most {MAX_VALUES}: leave "
                    "it out of nominal"
                )
            self.values.append(found)
        wide = self._widened(X)
        d = wide.shape[1]
        self.mean, self.scale = np.zeros(d), np.ones(d)
        self.whitening = None
        if standardize:
            self.mean = wide.mean(axis=0, dtype=np.float64)
            spread = wide.std(axis=0, dtype=np.float64)
            # Equal numbers can have a spread by rounding: what does not vary is left as it is.
            varies = (wide.max(axis=0) > wide.min(axis=0)) & (spread > 0)
            self.scale = np.where(varies, spread, 1.0)
        if whiten:
            if d > MAX_WHITENED:
                raise ValueError(
                    f"metric 'mahalanobis' takes at most {MAX_WHITENED} features, X has {d}: reduce them, or use "
                    "another metric"
                )
            self.whitening = _whitening(self._scaled(wide))
        return self

    def transform(self, X: Float32) -> Float32:
        """Rows in the space of depth 0, (n, d0) float32; a row's point does not depend on the rows beside it."""
        scaled = np.empty((X.shape[0], self.mean.size), dtype=np.float32)
        for at in range(0, X.shape[0], _ROWS):
            scaled[at : at + _ROWS] = self._scaled(self._widened(X[at : at + _ROWS]))
        if self.whitening is None:
            return scaled
        out = np.empty_like(scaled)
        kernels.projected(scaled, self.whitening, out)
        return out

    def _scaled(self, wide: Float32) -> Float32:
        moved = (wide - self.mean) / self.scale
        return np.clip(moved, -_LARGEST, _LARGEST).astype(np.float32)

    def _widened(self, X: Float32) -> Float32:
        if not self.nominal:
            return X
        others = np.setdiff1d(np.arange(X.shape[1]), self.nominal)
        coded = [
            X[:, column, None] == values for column, values in zip(self.nominal, self.values, strict=True)
        ]
        return np.hstack([X[:, others], *coded]).astype(np.float32)

    def to_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """As arrays and facts."""
        arrays: dict[str, NDArray[Any]] = {"mean": self.mean, "scale": self.scale}
        if self.whitening is not None:
            arrays["whitening"] = self.whitening
        for column, values in zip(self.nominal, self.values, strict=True):
            arrays[f"values_{column}"] = values
        return arrays, {"nominal": self.nominal}

    @classmethod
    def from_state(cls, arrays: Any, meta: Any) -> Inputs:
        """What `to_state` gave."""
        made = cls()
        made.nominal = [int(column) for column in meta["nominal"]]
        made.values = [np.array(arrays[f"values_{column}"]) for column in made.nominal]
        made.mean, made.scale = np.array(arrays["mean"]), np.array(arrays["scale"])
        made.whitening = np.array(arrays["whitening"], order="C") if "whitening" in arrays else None
        return made


def classes_of_pairs(
    a: Float32, b: Float32, same: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[Float32, Int64]:
    """Distinct rows of some pairs, in the order met, and the class of each: same pairs join rows, in chains too."""
    flags, weight = checked_pairs(a.shape[0], b.shape[0], same, sample_weight)
    used = weight > 0
    both = np.concatenate([a[used], b[used]])
    first, number = distinct_rows(both)
    codes = joined_identities(first.size, number, flags[used])
    if codes.max() == 0:
        raise ValueError(
            "same pairs join all rows into one class: expected rows that are different; correct the labels, or leave "
            "weak pairs out"
        )
    return both[first], codes


def _whitening(rows: Float32) -> Float64:
    """The inverse square root of the rows' covariance, shrunk (Ledoit & Wolf 2004) so that it has one."""
    from sklearn.covariance import ledoit_wolf

    covariance = ledoit_wolf(rows.astype(np.float64))[0]
    values, vectors = np.linalg.eigh(covariance)
    kept = np.maximum(values, 1e-6 * max(float(values.mean()), 1e-30))
    return np.ascontiguousarray((vectors / np.sqrt(kept)) @ vectors.T)
