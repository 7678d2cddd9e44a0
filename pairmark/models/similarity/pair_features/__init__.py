"""Learning pair features from rows and their identities, by the kind asked for."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.arrays import Float32, Int64
from pairmark.models.core.blas import one_blas_thread
from pairmark.models.similarity.pair_features.distances import learn_distances
from pairmark.models.similarity.pair_features.gaussian import learn_gaussian, learn_gaussian_of_listed
from pairmark.models.similarity.pair_features.maps import (
    FOLDS,
    LearnedFeatures,
    OutOfFold,
    OutOfFoldMaps,
    PairFeatures,
)
from pairmark.models.similarity.pair_features.waves import learn_kernel_discriminant, learn_posteriors

MAX_CLASSES = 1_000
"""Most classes whose posteriors are estimated; beyond it identities are rather met anew than known."""
MAX_WIDTH = 2_048
"""Most features that are whitened: the work grows with their cube."""
LISTED_WIDTH = 512
"""Most features of listed pairs whose pair features are learned unasked."""


def default_of_listed(X: Float32, codes: Int64) -> PairFeatures:
    """Pair features of listed pairs where none are asked for: learned ones, where there are identities to leave out."""
    enough_identities = int(codes.max()) + 1 >= 3 * FOLDS
    return "discriminant" if enough_identities and X.shape[1] <= LISTED_WIDTH else "raw"


def learn(
    kind: PairFeatures,
    X: Float32,
    codes: Int64,
    random: np.random.RandomState,
    *,
    from_pairs: bool = False,
) -> tuple[LearnedFeatures, OutOfFold | OutOfFoldMaps]:
    """Learn pair features from rows (n, d) with identities 0, 1, ..., and keep their out-of-fold values.

    ``from_pairs`` : whether identities are those that listed pairs tell of.

    Raises
    ------
    ValueError
        Where there are more classes than `MAX_CLASSES` (posteriors), or more features than `MAX_WIDTH` (those that
        whiten them).
    """
    n_classes = int(codes.max()) + 1
    if kind == "posteriors":
        if n_classes > MAX_CLASSES:
            raise ValueError(
                f"pair_features is 'posteriors' and y holds {n_classes} classes; expected at most {MAX_CLASSES}: "
                "use 'discriminant', which needs no posterior a class"
            )
        return learn_posteriors(X, codes, n_classes, random)
    if kind == "distances":
        return learn_distances(X, codes, random)
    if kind == "kernel-discriminant":
        return learn_kernel_discriminant(X, codes, n_classes, random)
    if X.shape[1] > MAX_WIDTH:
        raise ValueError(
            f"pair_features is {kind!r} and X has {X.shape[1]} features; expected at most {MAX_WIDTH}: "
            "reduce them first, say by PCA"
        )
    if from_pairs and n_classes >= 3 * FOLDS:
        # Products of narrow matrices: several threads would only wait for each other.
        with one_blas_thread():
            return learn_gaussian_of_listed(kind, X, codes, random)
    return learn_gaussian(kind, X, codes, random)
