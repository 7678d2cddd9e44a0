"""Identities as Gaussians around Gaussian centres (two-covariance model, PLDA), after an asinh per feature.

A pair's log-likelihood ratio of same against different, its cosine and its distance follow from the model's
coordinates alone; see `pairmark.models.core.two_covariance`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.base import Float32
from pairmark.models.core.kernels import rows as row_kernels
from pairmark.models.core.two_covariance import pair_terms, two_covariance
from pairmark.models.similarity.distances import FIT_ROWS, Forms, normal_scale
from pairmark.models.similarity.learned import (
    FOLDS,
    LearnedFeatures,
    OutOfFold,
    PairFeatures,
    RowMap,
    folds_of,
)


def forms_of(psi: NDArray[np.float64]) -> Forms:
    """Log-likelihood ratio, up to a constant, cosine and minus the squared distance."""
    ones, nothing = np.ones(psi.size), np.zeros(psi.size)
    weight, square, _ = pair_terms(psi)
    return Forms(
        forms=np.array([weight, weight, 2 * ones]),
        norms=np.array([nothing, weight, nothing]),
        offsets=np.array([square, nothing, ones]),
    )


def some_rows(
    X: Float32, codes: NDArray[np.int64], random: np.random.RandomState, parts: int = 1
) -> tuple[Float32, NDArray[np.int64]]:
    """At most `FIT_ROWS` rows, or their share where this is one of several parts."""
    if X.shape[0] <= FIT_ROWS // parts:
        return X, codes
    kept = np.sort(random.choice(X.shape[0], FIT_ROWS // parts, replace=False))
    return X[kept], codes[kept]


def learn_gaussian(
    kind: PairFeatures, X: Float32, codes: NDArray[np.int64], n_classes: int, random: np.random.RandomState
) -> tuple[LearnedFeatures, OutOfFold]:
    """``discriminant`` or ``whitened`` features, and their out-of-fold values."""
    folds = folds_of(codes, n_classes, random)
    columns: dict[tuple[int, int], tuple[Float32, Float32]] = {}
    for a in range(FOLDS):
        for b in range(a, FOLDS):
            seen = (folds != a) & (folds != b)
            fitted = _map(kind, X[seen], codes[seen], random)
            columns[a, b] = fitted.columns(X[~seen]), fitted.forms
    return LearnedFeatures(kind=kind, map=_map(kind, X, codes, random)), OutOfFold(folds, columns)


def _map(kind: PairFeatures, X: Float32, codes: NDArray[np.int64], random: np.random.RandomState) -> RowMap:
    X, codes = some_rows(X, codes, random)
    centre, scale = normal_scale(X)
    U = np.empty(X.shape, dtype=np.float32)
    row_kernels.squash(np.ascontiguousarray(X), centre, scale, True, U)
    overall, axes, psi = two_covariance(U.astype(np.float64), codes)
    if kind == "discriminant":
        forms, norms, offsets = forms_of(psi)
    else:
        ones, nothing = np.ones(psi.size), np.zeros(psi.size)
        forms, norms, offsets = (
            np.array(rows) for rows in ([2 * ones, ones], [nothing, ones], [ones, nothing])
        )
    return RowMap(
        centre=centre,
        scale=scale,
        curved=True,
        layers=((np.ascontiguousarray(axes, dtype=np.float32), (-(overall @ axes)).astype(np.float32)),),
        waved=False,
        n_posteriors=0,
        forms=forms.astype(np.float32),
        norms=norms,
        offsets=offsets,
    )
