"""Identities as Gaussians around Gaussian centres (two-covariance model, PLDA), after an asinh per feature.

A pair's log-likelihood ratio of same against different, its cosine and its distance follow from the model's
coordinates alone; see `pairmark.models.core.two_covariance`.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.two_covariance import (
    COORDINATES,
    ClassSums,
    TwoCovariance,
    pair_terms,
    shrinkage,
    shrunk_model,
    two_covariance,
)
from pairmark.models.similarity.pair_features.maps import (
    FOLDS,
    CoordinateMap,
    Forms,
    LearnedFeatures,
    OutOfFold,
    OutOfFoldMaps,
    Scaling,
    folds_of,
)

FIT_ROWS = 100_000
"""Most rows that a covariance is worked out from; quantiles, from four times as many."""
_SCALED_BY = 20_000
"""Rows of listed pairs whose quantiles scale features."""
_FAR, _FAR_SHARE = 4.0, 1e-3
"""Deviations from the median, and the share of values beyond them from which tails are long. Of a Gaussian's: 6e-5."""


def normal_scale(X: Float32) -> tuple[Float64, Float64]:
    """Medians, and one over the normal-consistent interquartile range (else the deviation)."""
    low, middle, high = np.percentile(X[: 4 * FIT_ROWS], (25, 50, 75), axis=0).astype(np.float64)
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


def learn_gaussian(
    X: Float32, codes: Int64, random: np.random.RandomState
) -> tuple[LearnedFeatures, OutOfFold]:
    """Features, and their out-of-fold values."""
    folds = folds_of(codes, random)
    columns: dict[tuple[int, int], tuple[Float32, Float32]] = {}
    for a in range(FOLDS):
        for b in range(a, FOLDS):
            training = (folds != a) & (folds != b)
            row_map = _map(X[training], codes[training], random)
            columns[a, b] = row_map.columns(X[~training]), row_map.forms.forms
    return LearnedFeatures(map=_map(X, codes, random)), OutOfFold(folds, columns)


def learn_gaussian_of_listed(
    X: Float32, codes: Int64, random: np.random.RandomState
) -> tuple[LearnedFeatures, OutOfFoldMaps]:
    """The same of rows of listed pairs, with many identities of a few rows each.

    Folds are of whole identities, so their sums add up: a map that left out two of them costs a solve. All maps share
    one scaling, which needs no labels. A row is mapped for the pairs that it is in, and by no other fold's map.
    """
    folds = folds_of(codes, random)
    sample = np.sort(random.permutation(X.shape[0])[:_SCALED_BY])
    centre, scale = normal_scale(X[sample])
    # An asinh tames long tails; where there are none, it costs more than the rest of scoring a row.
    curved = float((np.abs((X[sample] - centre) * scale) > _FAR).mean()) > _FAR_SHARE
    scaling = Scaling(centre, scale, curved)
    U = scaling.scaled(X)
    sums = [ClassSums.of(U[folds == fold], codes[folds == fold]) for fold in range(FOLDS)]

    def mapped(left_out: tuple[int, ...]) -> CoordinateMap:
        parts = [part for fold, part in enumerate(sums) if fold not in left_out]
        moments = ClassSums.together(parts).moments()
        shrunk = shrinkage(moments.centre.size, moments.freedom)
        model = shrunk_model(moments, shrunk, 0.0, COORDINATES, idle=True)
        return _row_map(scaling, model)

    maps = {(a, b): mapped((a, b)) for a in range(FOLDS) for b in range(a + 1, FOLDS)}
    return LearnedFeatures(map=mapped(())), OutOfFoldMaps(folds, U, maps)


def _map(X: Float32, codes: Int64, random: np.random.RandomState) -> CoordinateMap:
    if X.shape[0] > FIT_ROWS:
        sample = np.sort(random.choice(X.shape[0], FIT_ROWS, replace=False))
        X, codes = X[sample], codes[sample]
    scaling = Scaling(*normal_scale(X), True)
    return _row_map(scaling, two_covariance(scaling.scaled(X).astype(np.float64), codes))


def _row_map(scaling: Scaling, model: TwoCovariance) -> CoordinateMap:
    axes = np.ascontiguousarray(model.axes, dtype=np.float32)
    bias = (-(model.centre @ model.axes)).astype(np.float32)
    return CoordinateMap(scaling, axes, bias, forms_of(model.psi))
