"""From rows to latent coordinates: marginals, principal components, lengths, the model's axes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from pairmark.models.core import kernels as row_kernels
from pairmark.models.core.arrays import Float32, Float64
from pairmark.models.core.scaling import NormalMarginals
from pairmark.models.core.state import Array, Fact, StateRecord
from pairmark.models.core.two_covariance import orient

Marginals = Literal["raw", "normal"]
MAX_COMPONENTS = 1_024
_ROW_BLOCK = 4_096
_DIRECT_WIDTH = 2_048
"""Up to so many features their covariance is worked out."""
_OVERSAMPLED, _POWERS = 20, 3


class Shape(NamedTuple):
    """How rows are prepared for the model."""

    marginals: Marginals
    length_norm: bool
    n_components: int


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Marginals and principal components, which need no labels.

    Attributes
    ----------
    normal : broken lines to normal quantiles, or None: then ``(x - centre) * scale``.
    centre, scale : (d,).
    components : (d, p) orthonormal, of the largest variance first; None where features are used as they are.
    """

    normal: Annotated[NormalMarginals | None, StateRecord()] = field(repr=False)
    centre: Annotated[Float64, Array(shape=("features",))] = field(repr=False)
    scale: Annotated[Float64, Array(shape=("features",))] = field(repr=False)
    components: Annotated[Float32 | None, Array(shape=("features", "prepared"))] = field(repr=False)

    @classmethod
    def of_marginals(cls, X: Float32, marginals: Marginals) -> Preparation:
        """From rows (n, d), without components."""
        d = X.shape[1]
        if marginals == "normal":
            normal = NormalMarginals.of_rows(X)
            scale = np.ones(d)
            preparation = cls(normal=normal, centre=np.zeros(d), scale=scale, components=None)
            centre = preparation.comparable(X).mean(axis=0, dtype=np.float64)
        else:
            normal = None
            centre = X.mean(axis=0, dtype=np.float64)
            # One unit for all: how much features vary is theirs to tell.
            deviation = float(np.sqrt(np.mean(X.var(axis=0, dtype=np.float64))))
            scale = np.full(d, 1.0 / max(deviation, 1e-30))
        return cls(normal=normal, centre=centre, scale=scale, components=None)

    def comparable(self, X: Float32) -> Float32:
        """Rows with marginals made comparable, centred, (n, d)."""
        if self.normal is not None:
            return np.asarray(self.normal.transform(X) - self.centre.astype(np.float32))
        out = np.empty(X.shape, dtype=np.float32)
        row_kernels.squash(np.ascontiguousarray(X), self.centre, self.scale, out)
        return out


@dataclass(frozen=True, kw_only=True)
class LatentMap:
    """Rows to latent coordinates, each row as if alone.

    Attributes
    ----------
    length : what centred rows are scaled to, or None.
    weights, bias : (p, q) and (q,), the model's axes; of the features themselves where nothing comes in between.
    """

    preparation: Annotated[Preparation, StateRecord()]
    length: Annotated[float | None, Fact(), Field(gt=0.0, le=1e6)]
    weights: Annotated[Float32, Array(shape=("prepared", "coordinates"))] = field(repr=False)
    bias: Annotated[Float32, Array(shape=("coordinates",))] = field(repr=False)

    def prepared(self, X: Float32) -> Float32:
        """Rows in principal components, where there are any, before lengths: (n, p) float32."""
        # Plain arrays: one compiled version serves matrices that are mapped, read-only or views.
        rows = self.preparation.comparable(np.array(X, dtype=np.float32, order="C"))
        components = self.preparation.components
        if components is None:
            return rows
        return _affine(rows, components, np.zeros(components.shape[1], dtype=np.float32))

    def of_prepared(self, rows: Float32) -> Float32:
        """Latent coordinates of `prepared` rows, (n, q) float32."""
        if self.length is not None:
            rows = rows.copy()
            row_kernels.unit_lengths(rows, self.length)
        coordinates = _affine(rows, self.weights, self.bias)
        row_kernels.clip(coordinates)
        return coordinates

    def latent(self, X: Float32) -> Float32:
        """(n, q) float32."""
        out = np.empty((X.shape[0], self.weights.shape[1]), dtype=np.float32)
        for start in range(0, X.shape[0], _ROW_BLOCK):
            block = slice(start, start + _ROW_BLOCK)
            out[block] = self.of_prepared(self.prepared(X[block]))
        return out


def shaped(rows: Float32, shape: Shape) -> Float32:
    """What the model is fitted to, (n, p), from rows in as many principal components or more."""
    rows = rows[:, : shape.n_components]
    if not shape.length_norm:
        return np.asarray(rows)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(
        rows * (np.sqrt(rows.shape[1]) / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    )


def row_map(
    preparation: Preparation, shape: Shape, centre: Float64, axes: Float64, *, keeps_rows: bool
) -> LatentMap:
    """The map of a model fitted to `shaped` rows; ``keeps_rows``: whether rows in components are needed too."""
    bias, components, length = (-(centre @ axes)).astype(np.float32), preparation.components, None
    if shape.length_norm:
        length = float(np.sqrt(centre.size))
    elif components is not None and not keeps_rows:
        # Without lengths in between, two linear maps are one.
        axes, preparation = components.astype(np.float64) @ axes, replace(preparation, components=None)
    weights = np.ascontiguousarray(axes, dtype=np.float32)
    return LatentMap(preparation=preparation, length=length, weights=weights, bias=bias)


def _affine(rows: Float32, weights: Float32, bias: Float32) -> Float32:
    out = np.empty((rows.shape[0], weights.shape[1]), dtype=np.float32)
    row_kernels.affine(rows, weights, bias, out)
    return out


def principal_components(rows: Float32, n_components: int, random: np.random.Generator) -> Float32:
    """Directions of most variance of rows, (d, p), orthonormal; p is ``n_components`` at most."""
    d = rows.shape[1]
    p = min(n_components, d)
    rows = rows - rows.mean(axis=0)
    # Halko, Martinsson and Tropp 2011, algorithm 4.4: random projections, three power iterations.
    basis = random.standard_normal((d, min(p + _OVERSAMPLED, d))).astype(np.float32)
    wide = d > _DIRECT_WIDTH
    covariance = rows if wide else rows.T @ rows
    for _ in range(_POWERS):
        basis = np.linalg.qr(rows.T @ (rows @ basis) if wide else covariance @ basis)[0]
    inner = rows @ basis
    turned = basis @ np.linalg.eigh((inner.T @ inner).astype(np.float64))[1][:, ::-1][:, :p]
    return np.ascontiguousarray(orient(turned), dtype=np.float32)
