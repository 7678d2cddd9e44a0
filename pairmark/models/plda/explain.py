"""What each latent coordinate contributes to a log-likelihood ratio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pairmark.models.core.arrays import Float64
from pairmark.models.core.inputs import feature_names_of

LISTED, FEATURES = 50, 5
"""Coordinates listed one by one, and features named of each."""


def contributions(
    estimator: Any,
    left: Float64,
    right: Float64,
    score: float,
    correction: float,
    feature_names: Sequence[str] | None,
) -> dict[str, Any]:
    """Contributions that add up to one pair's score.

    Parameters
    ----------
    left, right : (q,) latent coordinates of the pair.

    Returns
    -------
    ``score``; ``coordinates``, the largest contributions first: the ``coordinate``'s number, its ``left`` and
    ``right`` value, its variance ``between`` identities (1 within them), its ``contribution`` to the log-likelihood
    ratio and the ``features`` that weigh most in it with their ``weight``; ``rest``, what all others add; and
    ``correction``, what boosted trees add.
    """
    psi = estimator.psi_
    weight, square = psi / (2 * psi + 1), psi**2 / (2 * (psi + 1) * (2 * psi + 1))
    parts = (
        left * right
        if estimator.scoring == "cosine"
        else (
            weight * left * right
            - square * (left**2 + right**2)
            + np.log(psi + 1)
            - 0.5 * np.log(2 * psi + 1)
        )
    )
    order = [int(j) for j in np.argsort(-np.abs(parts), kind="stable")[:LISTED]]
    loadings = estimator.loadings_
    names = feature_names_of(estimator, feature_names)
    return {
        "score": score,
        "coordinates": [
            {
                "coordinate": j,
                "left": float(left[j]),
                "right": float(right[j]),
                "between": float(psi[j]),
                "contribution": float(parts[j]),
                "features": [
                    {"feature": names[int(f)], "weight": float(loadings[f, j])}
                    for f in np.argsort(-np.abs(loadings[:, j]), kind="stable")[:FEATURES]
                ],
            }
            for j in order
        ],
        "correction": correction,
        "rest": float(parts.sum() - parts[order].sum()),
    }
