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
from pairmark.models.similarity.pair_features.common import FIT_ROWS, normal_scale
from pairmark.models.similarity.pair_features.maps import (
    FOLDS,
    CoordinateMap,
    Forms,
    LearnedFeatures,
    OutOfFold,
    OutOfFoldMaps,
    PairFeatures,
    Scaling,
    folds_of,
)

_SCALED_BY = 20_000
"""Rows of listed pairs whose quantiles scale features."""
_FAR, _FAR_SHARE = 4.0, 1e-3
"""Deviations from the median, and the share of values beyond them from which tails are long. Of a Gaussian's: 6e-5."""


def forms_of(psi: Float64) -> Forms:
    """Log-likelihood ratio, up to a constant, cosine and minus the squared distance."""
    unit_weights, nothing = np.ones(psi.size), np.zeros(psi.size)
    weight, square, _ = pair_terms(psi)
    return Forms(
        forms=np.array([weight, weight, 2 * unit_weights], dtype=np.float32),
        norms=np.array([nothing, weight, nothing]),
        offsets=np.array([square, nothing, unit_weights]),
    )


def some_rows(
    X: Float32, codes: Int64, random: np.random.RandomState, parts: int = 1
) -> tuple[Float32, Int64]:
    """At most `FIT_ROWS` rows, or their share where this is one of several parts."""
    if X.shape[0] <= FIT_ROWS // parts:
        return X, codes
    sample = np.sort(random.choice(X.shape[0], FIT_ROWS // parts, replace=False))
    return X[sample], codes[sample]


def learn_gaussian(
    kind: PairFeatures, X: Float32, codes: Int64, random: np.random.RandomState
) -> tuple[LearnedFeatures, OutOfFold]:
    """``discriminant`` or ``whitened`` features, and their out-of-fold values."""
    folds = folds_of(codes, random)
    columns: dict[tuple[int, int], tuple[Float32, Float32]] = {}
    for a in range(FOLDS):
        for b in range(a, FOLDS):
            training = (folds != a) & (folds != b)
            row_map = _map(kind, X[training], codes[training], random)
            columns[a, b] = row_map.columns(X[~training]), row_map.forms.forms
    return LearnedFeatures(kind=kind, map=_map(kind, X, codes, random)), OutOfFold(folds, columns)


def learn_gaussian_of_listed(
    kind: PairFeatures, X: Float32, codes: Int64, random: np.random.RandomState
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
        return _row_map(kind, scaling, model)

    maps = {(a, b): mapped((a, b)) for a in range(FOLDS) for b in range(a + 1, FOLDS)}
    return LearnedFeatures(kind=kind, map=mapped(())), OutOfFoldMaps(folds, U, maps)


def _map(kind: PairFeatures, X: Float32, codes: Int64, random: np.random.RandomState) -> CoordinateMap:
    X, codes = some_rows(X, codes, random)
    scaling = Scaling(*normal_scale(X), True)
    return _row_map(kind, scaling, two_covariance(scaling.scaled(X).astype(np.float64), codes))


def _row_map(kind: PairFeatures, scaling: Scaling, model: TwoCovariance) -> CoordinateMap:
    forms = forms_of(model.psi)
    if kind == "whitened":
        unit_weights, nothing = np.ones(model.psi.size), np.zeros(model.psi.size)
        forms = Forms(
            np.array([2 * unit_weights, unit_weights], dtype=np.float32),
            np.array([nothing, unit_weights]),
            np.array([unit_weights, nothing]),
        )
    return CoordinateMap(scaling, (layer_of(model),), forms)


def layer_of(model: TwoCovariance) -> tuple[Float32, Float32]:
    """Rows to the model's coordinates: weights and bias."""
    axes = np.ascontiguousarray(model.axes, dtype=np.float32)
    return axes, (-(model.centre @ model.axes)).astype(np.float32)
