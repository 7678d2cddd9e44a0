"""Learning pair features from rows and their identities."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.arrays import Float32, Int64
from pairmark.models.core.blas import one_blas_thread
from pairmark.models.similarity.pair_features.gaussian import learn_gaussian, learn_gaussian_of_listed
from pairmark.models.similarity.pair_features.maps import (
    FOLDS,
    LearnedFeatures,
    OutOfFold,
    OutOfFoldMaps,
    PairFeatures,
)

MAX_WIDTH = 2_048
"""Most features: the work grows with their cube."""
LISTED_WIDTH = 512
"""Most features of listed pairs whose pair features are learned unasked."""


def default_of_listed(X: Float32, codes: Int64) -> PairFeatures:
    """Pair features of listed pairs where none are asked for: learned ones, where there are identities to leave out."""
    enough_identities = int(codes.max()) + 1 >= 3 * FOLDS
    return "discriminant" if enough_identities and X.shape[1] <= LISTED_WIDTH else "raw"


def learn(
    X: Float32, codes: Int64, random: np.random.RandomState, *, from_pairs: bool = False
) -> tuple[LearnedFeatures, OutOfFold | OutOfFoldMaps]:
    """Learn pair features from rows (n, d) with identities 0, 1, ..., and keep their out-of-fold values.

    ``from_pairs`` : whether identities are those that listed pairs tell of.

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
    if from_pairs and int(codes.max()) + 1 >= 3 * FOLDS:
        # Products of narrow matrices: several threads would only wait for each other.
        with one_blas_thread():
            return learn_gaussian_of_listed(X, codes, random)
    return learn_gaussian(X, codes, random)
