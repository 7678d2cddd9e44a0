"""The space of depth 0: nominal columns one-hot, features standardised, and whitened for Mahalanobis distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.state import Array, Fact
from pairmark.models.pairs.splits import distinct_rows, joined_identities
from pairmark.models.rsbl.kernels import spaces as kernels

MAX_VALUES = 1_000
"""Distinct values of a nominal column; more are no names but numbers."""
MAX_WHITENED = 4_096
_LARGEST = 1e30
_ROWS = 4_096


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """How a row becomes a point of the space of depth 0.

    Attributes
    ----------
    values : for each nominal column, its (sorted) values in the training rows; another value is none of them.
    mean, scale : (d0,) float64. A constant feature has scale 1.
    whitening : (d0, d0) or None.
    """

    nominal: Annotated[list[int], Fact(kind=list[Annotated[int, Field(ge=0)]])]
    values: Annotated[
        list[Float64],
        Array(name="values_{key}", shape=("values of {key}",), each=lambda file: file.facts.nominal),
    ]
    mean: Annotated[Float64, Array(shape=("width of 0",))]
    scale: Annotated[Float64, Array(shape=("width of 0",), positive=True)]
    whitening: Annotated[
        Float64 | None,
        Array(shape=("width of 0", "width of 0"), when=lambda file: file.params["metric"] == "mahalanobis"),
    ]

    @classmethod
    def of_rows(cls, X: Float32, *, nominal: list[int] | None, whiten: bool) -> Inputs:
        """Learn from training rows, (n, d)."""
        nominal = sorted(set(nominal or []))
        if nominal and nominal[-1] >= X.shape[1]:
            raise ValueError(
                f"nominal names column {nominal[-1]} and X has {X.shape[1]}; expected 0 to {X.shape[1] - 1}"
            )
        values = []
        for column in nominal:
            distinct = np.unique(X[:, column]).astype(np.float64)
            if distinct.size > MAX_VALUES:
                raise ValueError(
                    f"nominal column {column} has {distinct.size} distinct values; expected at most {MAX_VALUES}: "
                    "leave it out of nominal"
                )
            values.append(distinct)
        wide = _widened(X, nominal, values)
        d = wide.shape[1]
        mean = wide.mean(axis=0, dtype=np.float64)
        deviations = wide.std(axis=0, dtype=np.float64)
        # Equal numbers can have a spread by rounding: what does not vary is left as it is.
        varies = (wide.max(axis=0) > wide.min(axis=0)) & (deviations > 0)
        scale, whitening = np.where(varies, deviations, 1.0), None
        if whiten:
            if d > MAX_WHITENED:
                raise ValueError(
                    f"metric 'mahalanobis' takes at most {MAX_WHITENED} features, X has {d}: reduce them, or use "
                    "another metric"
                )
            whitening = _whitening(_scaled(wide, mean, scale))
        return cls(nominal=nominal, values=values, mean=mean, scale=scale, whitening=whitening)

    def transform(self, X: Float32) -> Float32:
        """Rows in the space of depth 0, (n, d0) float32; a row's point does not depend on the rows beside it."""
        scaled = np.empty((X.shape[0], self.mean.size), dtype=np.float32)
        for at in range(0, X.shape[0], _ROWS):
            wide = _widened(X[at : at + _ROWS], self.nominal, self.values)
            scaled[at : at + _ROWS] = _scaled(wide, self.mean, self.scale)
        if self.whitening is None:
            return scaled
        out = np.empty_like(scaled)
        kernels.projected(scaled, self.whitening, out)
        return out


def _scaled(wide: Float32, mean: Float64, scale: Float64) -> Float32:
    return np.clip((wide - mean) / scale, -_LARGEST, _LARGEST).astype(np.float32)


def _widened(X: Float32, nominal: list[int], values: list[Float64]) -> Float32:
    if not nominal:
        return X
    numeric = np.setdiff1d(np.arange(X.shape[1]), nominal)
    coded = [X[:, column, None] == levels for column, levels in zip(nominal, values, strict=True)]
    return np.hstack([X[:, numeric], *coded]).astype(np.float32)


def classes_of_pairs(a: Float32, b: Float32, flags: Bool, weight: Float64) -> tuple[Float32, Int64]:
    """Distinct rows of some pairs, in the order met, and the class of each: same pairs join rows, in chains too."""
    has_weight = weight > 0
    points = np.concatenate([a[has_weight], b[has_weight]])
    first, number = distinct_rows(points)
    codes = joined_identities(first.size, number, flags[has_weight])
    if codes.max() == 0:
        raise ValueError(
            "same pairs join all rows into one class: expected rows that are different; correct the labels, or leave "
            "weak pairs out"
        )
    return points[first], codes


def _whitening(rows: Float32) -> Float64:
    """The inverse square root of the rows' covariance, shrunk (Ledoit & Wolf 2004) so that it has one."""
    from sklearn.covariance import ledoit_wolf

    covariance = ledoit_wolf(rows.astype(np.float64))[0]
    values, vectors = np.linalg.eigh(covariance)
    eigenvalues = np.maximum(values, 1e-6 * max(float(values.mean()), 1e-30))
    return np.ascontiguousarray((vectors / np.sqrt(eigenvalues)) @ vectors.T)
