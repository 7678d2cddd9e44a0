"""Whitening: removes the covariance within identities from vectors."""

from __future__ import annotations

from typing import Literal

import numpy as np

from pairmark.models.core.arrays import Float32, Float64, Int64

MAX_FEATURES = 8192
"""A (d, d) matrix of more takes over half a GiB and minutes to decompose."""
_SMALLEST_EIGENVALUE = 1e-6
"""Of the mean eigenvalue. What never varies within identities would otherwise be divided by zero."""


def whitening_matrix(deviations: Float64, shrinkage: Literal["auto"] | float) -> Float64:
    """The symmetric inverse square root of the shrunk covariance within identities.

    Symmetric, so that feature j of a whitened vector is the one closest to feature j of the vector (Kessy, Lewin and
    Strimmer 2018, "Optimal whitening and decorrelation": ZCA).

    Parameters
    ----------
    deviations : (n, d) whose second moment is that covariance.
    shrinkage : weight of the multiple of the identity with the same trace; ``auto`` is Ledoit and Wolf's (2004).

    Returns
    -------
    (d, d) float64, of full rank whatever the rank of ``deviations``.

    Raises
    ------
    ValueError
        When nothing varies within identities, or d is beyond `MAX_FEATURES`.
    """
    n, d = deviations.shape
    if d > MAX_FEATURES:
        raise ValueError(
            f"whiten takes at most {MAX_FEATURES} features, X has {d}: reduce them, or whiten=False"
        )
    # Numbers of any size: squares of large ones must not overflow, nor those of small ones vanish.
    size = float(np.abs(deviations).max(initial=0.0))
    if size == 0.0:
        raise ValueError(
            "rows of one identity are all equal, so there is no variation within identities to whiten by: use "
            "whiten=False"
        )
    scaled = deviations / size
    covariance = scaled.T @ scaled / n
    share = ledoit_wolf_share(scaled, covariance) if shrinkage == "auto" else shrinkage
    mean = float(np.trace(covariance)) / d
    if 2 * n < d:
        # All directions but those of the rows are alike: theirs alone are worked out.
        vectors = np.linalg.svd(scaled, full_matrices=False)[2].T
        variances = np.einsum("ij,ij->j", vectors, covariance @ vectors)
        floors = np.maximum(
            (1 - share) * np.append(variances, 0.0) + share * mean, _SMALLEST_EIGENVALUE * mean
        )
        *roots, fallback = 1.0 / np.sqrt(floors)
        root: Float64 = ((vectors * (np.array(roots) - fallback)) @ vectors.T + fallback * np.eye(d)) / size
    else:
        values, vectors = np.linalg.eigh((1 - share) * covariance + share * mean * np.eye(d))
        lengths = np.maximum(values, _SMALLEST_EIGENVALUE * mean)
        root = (vectors / np.sqrt(lengths)) @ vectors.T / size
    return (root + root.T) / 2


def ledoit_wolf_share(X: Float64, covariance: Float64) -> float:
    """Ledoit and Wolf's (2004, lemma 3.3) weight of the identity for centred rows and their covariance.

    scikit-learn's imports all of `scipy.stats`: a second of each training job, which fits a whitened baseline.
    """
    n, d = X.shape
    squares = float(np.sum(covariance**2))
    off_target = squares - float(np.trace(covariance)) ** 2 / d
    noise = (float(np.sum(np.sum(X**2, axis=1) ** 2)) / n - squares) / n
    return min(noise / off_target, 1.0) if noise > 0 and off_target > 0 else 0.0


def within_deviations(X: Float32, codes: Int64) -> Float64:
    """Rows minus the mean of their identity, each identity's scaled to the unbiased covariance."""
    counts = np.bincount(codes)
    sums = np.zeros((counts.size, X.shape[1]))
    np.add.at(sums, codes, X)
    deviations = X - (sums / counts[:, None])[codes]
    # Identities with a single row say nothing of the variation within.
    repeated: Float64 = deviations[counts[codes] > 1]
    degrees = repeated.shape[0] - int((counts > 1).sum())
    return np.asarray(repeated * np.sqrt(repeated.shape[0] / degrees), dtype=np.float64)
