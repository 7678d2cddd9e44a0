"""Learned pair features: symmetric numbers of a pair, added to the raw features f.

The best similarity is any increasing transform of ``eta(x, x') = sum_k eta_k(x) eta_k(x')`` (Clemencon & Vogel,
section 2.1), which axis-parallel splits of (|x - x'|, x + x') approach slowly. ``discriminant`` features stand in for
it where identities to come are unknown: identities are Gaussian around Gaussian centres, after an asinh per feature; a
pair's features are that model's log-likelihood ratio of same against different (two-covariance, or PLDA), the cosine
of its discriminant coordinates and their distance.

Trees learn from out-of-fold values: a training pair's features come from maps that saw neither of its rows (with
enough identities: neither of its identities), so trees trust them no more than they will deserve.

Every feature has one form, ``r r' sum_i D_i z_i z'_i + c + c'``, of a row's coordinates z, factor r and offset c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core import kernels as row_kernels
from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.similarity.kernels import scoring as scoring_kernels

PairFeatures = Literal["raw", "discriminant"]
NAMES = ("log-likelihood ratio", "discriminant cosine", "discriminant nearness")
_TIE_SHARE = 1e-3
FOLDS = 4
"""Parts of the rows (of the identities, where there are enough) that maps leave out in turn."""
_ROW_BLOCK = 4_096


class Scaling(NamedTuple):
    """How features become comparable; ``curved`` by an asinh as well."""

    centre: Float64
    scale: Float64
    curved: bool

    def scaled(self, X: Float32) -> Float32:
        out = np.empty(X.shape, dtype=np.float32)
        row_kernels.squash(np.ascontiguousarray(X), self.centre, self.scale, self.curved, out)
        return out


class Forms(NamedTuple):
    """Pair features of coordinates, see above: (m, q) each."""

    forms: Float32
    norms: Float64
    offsets: Float64

    @property
    def width(self) -> int:
        """Columns of a row."""
        m, q = self.forms.shape
        return int(q + 2 * m)

    def columns(self, coordinates: Float32, out: Float32 | None = None) -> Float32:
        """Coordinates (n, q), held within bounds in place, then factors and offsets of rows."""
        q = self.forms.shape[1]
        columns = np.empty((coordinates.shape[0], self.width), dtype=np.float32) if out is None else out
        row_kernels.clip(coordinates)
        columns[:, :q] = coordinates
        row_kernels.complete(columns, q, self.norms, self.offsets)
        return columns


class CoordinateMap(NamedTuple):
    """Rows to coordinates, by an affine layer, and the forms of a pair's features."""

    scaling: Scaling
    weights: Float32
    bias: Float32
    forms: Forms

    def columns(self, X: Float32, *, scaled: bool = False) -> Float32:
        """(n, q + 2 m): coordinates, factors, offsets; each row as if alone. ``scaled``: whether rows are already."""
        out = np.empty((X.shape[0], self.forms.width), dtype=np.float32)
        for start in range(0, X.shape[0], _ROW_BLOCK):
            # Plain arrays: one compiled version serves matrices that are mapped, read-only or views.
            block = np.array(X[start : start + _ROW_BLOCK], dtype=np.float32, order="C")
            coordinates = np.empty((block.shape[0], self.bias.size), dtype=np.float32)
            row_kernels.affine(
                block if scaled else self.scaling.scaled(block), self.weights, self.bias, coordinates
            )
            self.forms.columns(coordinates, out[start : start + _ROW_BLOCK])
        return out


@dataclass(frozen=True, kw_only=True)
class LearnedFeatures:
    """Fitted learned features."""

    map: CoordinateMap

    @property
    def forms(self) -> Float32:
        """(m, q), see `scoring_kernels.pair_forms`."""
        return self.map.forms.forms

    def columns(self, X: Float32) -> Float32:
        """Learned columns of rows, (n, q + 2 m) float32; worked out once for equal rows, of which pairs have many."""
        if X.shape[0] > 1 and X.strides[0] == 0:
            return np.asarray(np.broadcast_to(self.map.columns(X[:1]), (X.shape[0], self.map.forms.width)))
        if X.shape[0] < 64:
            return self.map.columns(X)
        X = np.ascontiguousarray(X)
        _, first, number = np.unique(
            row_kernels.row_hashes(X.view(np.uint32)), return_index=True, return_inverse=True
        )
        if 2 * first.size > X.shape[0]:
            return self.map.columns(X)
        columns = self.map.columns(X[first])[number]
        # Rows that only share a hash are worked out after all.
        strangers = np.flatnonzero((X[first][number] != X).any(axis=1))
        if strangers.size:
            columns[strangers] = self.map.columns(X[strangers])
        return columns

    def values(self, left: Float32, right: Float32) -> Float32:
        """A pair's features, (n, m)."""
        return pair_values(
            self.columns(left), self.columns(right), np.arange(len(left)), np.arange(len(right)), self.forms
        )

    def tie_breaks(self, left: Float32, right: Float32) -> Float64:
        """What parts pairs in the same leaves, (n,): thousandths that rise with the first feature.

        Parameters
        ----------
        left, right : (n, q + 2 m) columns of either side's rows.

        Features of new identities may lie beyond all that trees learned from, so that many pairs share the best leaf of
        every tree: those are still more or less alike.
        """
        n = left.shape[0]
        steps = [np.arange(n) if side.strides[0] else np.zeros(n, dtype=np.int64) for side in (left, right)]
        rows = [side if side.strides[0] else np.ascontiguousarray(side[:1]) for side in (left, right)]
        values = pair_values(rows[0], rows[1], steps[0], steps[1], self.forms)
        return np.asarray(_TIE_SHARE * np.arcsinh(values[:, 0].astype(np.float64)))


class OutOfFold(NamedTuple):
    """Features of training pairs, from maps that saw neither row.

    Pairs within a fold take a map that left out another fold as well: maps of more rows would give values of another
    scale, and same pairs, which lie within a fold, would be known by it.

    Attributes
    ----------
    folds : (n,) the fold of each row.
    columns : the rows' columns, and forms, under a map that left out two folds ``(a, b)``, a < b, in rows' order.
    """

    folds: Int64
    columns: dict[tuple[int, int], tuple[Float32, Float32]]

    def values(self, left: NDArray[np.integer[Any]], right: NDArray[np.integer[Any]]) -> Float32:
        """(n, m) float32 of pairs of training rows."""
        m = next(iter(self.columns.values()))[1].shape[0]
        out = np.empty((left.shape[0], m), dtype=np.float32)
        left_fold, right_fold = self.folds[left], self.folds[right]
        right_fold = np.where(
            left_fold == right_fold, (left_fold + 1 + left % (FOLDS - 1)) % FOLDS, right_fold
        )
        low, high = np.minimum(left_fold, right_fold), np.maximum(left_fold, right_fold)
        for (a, b), (columns, forms) in self.columns.items():
            at = np.flatnonzero((low == a) & (high == b))
            place = np.cumsum((self.folds == a) | (self.folds == b)) - 1
            out[at] = pair_values(columns, columns, place[left[at]], place[right[at]], forms)
        return out


def folds_of(codes: Int64, random: np.random.RandomState | np.random.Generator) -> Int64:
    """(n,) folds of rows: whole identities, or where there are too few, each one's rows spread evenly."""
    n_classes = int(codes.max()) + 1
    if n_classes >= 3 * FOLDS:
        return np.asarray((random.permutation(n_classes) % FOLDS)[codes])
    order = random.permutation(codes.size)
    order = order[np.argsort(codes[order], kind="stable")]
    folds = np.empty(codes.size, dtype=np.int64)
    folds[order] = np.arange(codes.size) % FOLDS
    return folds


def pair_values(
    left_columns: Float32, right_columns: Float32, left: NDArray[Any], right: NDArray[Any], forms: Float32
) -> Float32:
    """(n, m) features of the pairs of rows ``left`` and ``right``, from their columns."""
    out = np.empty((left.shape[0], forms.shape[0]), dtype=np.float32)
    scoring_kernels.forms_of_pairs(
        left_columns, right_columns, left.astype(np.int64), right.astype(np.int64), forms, out
    )
    return out
