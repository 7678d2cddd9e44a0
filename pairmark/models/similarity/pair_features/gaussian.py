"""Identities as Gaussians around Gaussian centres (two-covariance model, PLDA), after an asinh per feature.

A pair's log-likelihood ratio of same against different, its cosine and its distance follow from the model's
coordinates alone; see `pairmark.models.core.two_covariance`.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.progress import one_blas_thread
from pairmark.models.core.two_covariance import pair_terms, two_covariance
from pairmark.models.similarity.pair_features.maps import (
    FOLDS,
    CoordinateMap,
    Forms,
    LearnedFeatures,
    OutOfFold,
    PairFeatures,
    Scaling,
    folds_of,
)

FIT_ROWS = 100_000
"""Most rows that a covariance is worked out from."""
_SCALED_BY = 20_000
"""Rows whose quantiles scale features."""
MAX_WIDTH = 2_048
"""Most features: the work grows with their cube."""
LISTED_WIDTH = 512
"""Most features of listed pairs whose pair features are learned unasked."""
_FAR, _FAR_SHARE = 4.0, 1e-3
"""Deviations from the median, and the share of values beyond them from which tails are long. Of a Gaussian's: 6e-5."""


def normal_scale(X: Float32) -> tuple[Float64, Float64]:
    """Medians, and one over the normal-consistent interquartile range (else the deviation)."""
    low, middle, high = np.percentile(X, (25, 50, 75), axis=0).astype(np.float64)
    width = (high - low) / 1.349
    deviation = X.std(axis=0, dtype=np.float64)
    width = np.where(width > 0, width, np.where(deviation > 0, deviation, 1.0))
    return middle, 1.0 / np.maximum(width, 1e-30)


def forms_of(psi: Float64) -> Forms:
    """Log-likelihood ratio, up to a constant, cosine and minus the squared distance."""
    unit_weights, nothing = np.ones(psi.size), np.zeros(psi.size)
    weight, square, _ = pair_terms(psi)
    return Forms(
        forms=np.array([weight, weight, 2 * unit_weights], dtype=np.float32),
        norms=np.array([nothing, weight, nothing]),
        offsets=np.array([square, nothing, unit_weights]),
    )


def default_of_listed(X: Float32, codes: Int64) -> PairFeatures:
    """Pair features of listed pairs where none are asked for: learned ones, where there are identities to leave out."""
    enough_identities = int(codes.max()) + 1 >= 3 * FOLDS
    return "discriminant" if enough_identities and X.shape[1] <= LISTED_WIDTH else "raw"


def learn(X: Float32, codes: Int64, random: np.random.RandomState) -> tuple[LearnedFeatures, OutOfFold]:
    """Learn pair features from rows (n, d) with identities 0, 1, ..., and keep their out-of-fold values.

    All maps share one scaling, which needs no labels.

    Raises
    ------
    ValueError
        Where there are more features than `MAX_WIDTH`.
    """
    if X.shape[1] > MAX_WIDTH:
        raise ValueError(
            f"pair_features is 'discriminant' and X has {X.shape[1]} features; expected at most {MAX_WIDTH}: "
            "reduce them first, say by PCA"
        )
    folds = folds_of(codes, random)
    sample = np.sort(random.permutation(X.shape[0])[:_SCALED_BY])
    centre, scale = normal_scale(X[sample])
    # An asinh tames long tails; where there are none, it costs more than the rest of scoring a row.
    curved = float((np.abs((X[sample] - centre) * scale) > _FAR).mean()) > _FAR_SHARE
    scaling = Scaling(centre, scale, curved)
    U = scaling.scaled(X)

    def fitted(training: Bool) -> CoordinateMap:
        rows = np.flatnonzero(training)
        if rows.size > FIT_ROWS:
            rows = np.sort(random.choice(rows, FIT_ROWS, replace=False))
        model = two_covariance(U[rows].astype(np.float64), codes[rows])
        axes = np.ascontiguousarray(model.axes, dtype=np.float32)
        bias = (-(model.centre @ model.axes)).astype(np.float32)
        return CoordinateMap(scaling, axes, bias, forms_of(model.psi))

    columns: dict[tuple[int, int], tuple[Float32, Float32]] = {}
    # Matrices of a few hundred features gain nothing from threads, and wait for each other's.
    with one_blas_thread():
        for a in range(FOLDS):
            for b in range(a + 1, FOLDS):
                left_out = (folds == a) | (folds == b)
                row_map = fitted(~left_out)
                columns[a, b] = row_map.columns(U[left_out], scaled=True), row_map.forms.forms
        learned = LearnedFeatures(map=fitted(np.ones(codes.size, dtype=np.bool_)))
    return learned, OutOfFold(folds, columns)
