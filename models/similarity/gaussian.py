"""Identities as Gaussians around Gaussian centres (two-covariance model, PLDA), after an asinh per feature.

Both covariances become diagonal in discriminant coordinates: within identities 1, between them psi. A pair's
log-likelihood ratio of same against different, its cosine and its distance follow from coordinates alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from pairmark.models.core.base import Float32
from pairmark.models.similarity.distances import FIT_ROWS, Forms, normal_scale
from pairmark.models.similarity.kernels import learned as learned_kernels
from pairmark.models.similarity.learned import (
    FOLDS,
    LearnedFeatures,
    OutOfFold,
    PairFeatures,
    RowMap,
    folds_of,
)

COORDINATES = 128
"""Most coordinates kept of the model."""


class TwoCovariance(NamedTuple):
    """``z = (x - centre) axes`` has covariance 1 within identities and ``psi``, falling, between them."""

    centre: NDArray[np.float64]
    axes: NDArray[np.float64]
    psi: NDArray[np.float64]


def forms_of(psi: NDArray[np.float64]) -> Forms:
    """Log-likelihood ratio, up to a constant, cosine and minus the squared distance."""
    ones, nothing = np.ones(psi.size), np.zeros(psi.size)
    weight = psi / (2 * psi + 1)
    return Forms(
        forms=np.array([weight, weight, 2 * ones]),
        norms=np.array([nothing, weight, nothing]),
        offsets=np.array([0.5 * psi**2 / ((psi + 1) * (2 * psi + 1)), nothing, ones]),
    )


def two_covariance(U: NDArray[np.float64], codes: NDArray[np.int64]) -> TwoCovariance:
    """The model of rows (n, d) with identities, its covariance within identities drawn to a ball where rows are few."""
    n, d = U.shape
    _, codes, counts = np.unique(codes, return_inverse=True, return_counts=True)
    overall = U.mean(axis=0, dtype=np.float64)
    U = U - overall
    means = np.zeros((counts.size, d))
    np.add.at(means, codes, U)
    means /= counts[:, None]
    residual = U - means[codes]
    freedom = max(n - counts.size, 1)
    within = residual.T @ residual / freedom
    centred = means - means.mean(axis=0)
    between = centred.T @ centred / max(counts.size - 1, 1) - within * (1.0 / counts).mean()
    spread = max(float(np.trace(within)) / d, 1e-6)
    # Drawn to a ball the more, the fewer rows there are for the directions.
    drawn = 0.01 + 0.2 * min(1.0, d / freedom)
    within = (1 - drawn) * within + drawn * spread * np.eye(d)
    psi, axes = eigh(between, within)
    q = min(d, COORDINATES)
    return TwoCovariance(overall, pointed(axes[:, ::-1][:, :q]), np.maximum(psi[::-1][:q], 0.0))


def pointed(axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """An axis has no sign of its own: the largest entry positive, so that runs agree."""
    return axes * np.where(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])] < 0, -1.0, 1.0)


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
    learned_kernels.squash(np.ascontiguousarray(X), centre, scale, True, U)
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
