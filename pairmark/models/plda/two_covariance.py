"""The two-covariance model (PLDA): identities are Gaussian around centres that are Gaussian themselves.

A row is ``x = m + c + e`` with the identity's centre ``c ~ N(0, B)`` and the row's own deviation ``e ~ N(0, W)``. Both
covariances become diagonal in latent coordinates: W the identity matrix, B ``psi``. Every likelihood ratio then is a
sum over coordinates (Brummer and de Villiers 2010, "The speaker partitioning problem"; Ioffe 2006, "Probabilistic
linear discriminant analysis").
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.core.inputs import feature_names_of

MAX_COORDINATES = 256
"""Most latent coordinates that are kept, those of the largest psi."""
_LEAST_VARIANCE = 1e-6
_LEAST_PSI = 1e-6
"""Of the largest: coordinates below carry nothing that float32 could tell."""
_CELLS = 1 << 17
"""Coordinates of subjects looked at at a time."""


class Moments(NamedTuple):
    """Unbiased estimates from rows with identities.

    Attributes
    ----------
    centre : (d,) mean of the rows.
    within, between : (d, d) covariances W and B; B need not be positive where identities are few.
    """

    centre: Float64
    within: Float64
    between: Float64


class TwoCovariance(NamedTuple):
    """``z = (x - centre) axes`` has covariance 1 within identities and ``psi``, falling, between them."""

    centre: Float64
    axes: Float64
    psi: Float64


def moments(U: NDArray[np.floating], codes: Int64) -> Moments:
    """Moments of rows (n, d) with identities (any integers)."""
    n = U.shape[0]
    _, codes, counts = np.unique(codes, return_inverse=True, return_counts=True)
    overall = U.mean(axis=0, dtype=np.float64)
    centred = U - overall
    order = np.argsort(codes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    sums = np.add.reduceat(centred[order], starts, axis=0)
    means = sums / counts[:, None]
    residual = centred - means[codes]
    within = residual.T @ residual / max(n - counts.size, 1)
    deviations = means - means.mean(axis=0)
    between = deviations.T @ deviations / max(counts.size - 1, 1) - within * (1.0 / counts).mean()
    return Moments(overall, within, between)


def shrunk_model(
    sample: Moments,
    shrink_within: float,
    shrink_between: float,
) -> TwoCovariance:
    """The model of moments whose covariances are shrunk, each towards the ball of the same trace.

    Parameters
    ----------
    shrink_within, shrink_between : 0 (as estimated) to 1 (the ball).
    """
    d = sample.centre.size
    mean_variance = max(float(np.trace(sample.within)) / d, _LEAST_VARIANCE)
    within = (1 - shrink_within) * sample.within
    within[np.diag_indices(d)] += max(shrink_within, _LEAST_VARIANCE) * mean_variance
    between = (1 - shrink_between) * sample.between
    between[np.diag_indices(d)] += shrink_between * max(float(np.trace(sample.between)) / d, 0.0)
    psi, axes = eigh(between, within, check_finite=False, driver="gvd")
    psi, axes = np.maximum(psi[::-1], 0.0), axes[:, ::-1]
    n_informative = int(np.count_nonzero(psi > _LEAST_PSI * max(psi[0], _LEAST_PSI)))
    n_kept = max(min(n_informative, MAX_COORDINATES), 1)
    return TwoCovariance(sample.centre, orient(axes[:, :n_kept]), psi[:n_kept])


def orient(axes: Float64) -> Float64:
    """An axis has no sign of its own: the largest entry positive, so that runs agree."""
    return axes * np.where(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])] < 0, -1.0, 1.0)


def pair_terms(psi: Float64) -> tuple[Float64, Float64, float]:
    """The log-likelihood ratio of two rows, same identity against different, by coordinates.

    It is ``sum weight z z' - sum square (z^2 + z'^2) + constant``.

    Returns
    -------
    weight, square : (q,). constant : float.
    """
    total = psi + 1.0
    weight = psi / (2 * psi + 1)
    square = psi**2 / (2 * total * (2 * psi + 1))
    return weight, square, float(np.sum(np.log(total) - 0.5 * np.log(2 * psi + 1)))


def subject_ratios(n: Int64, a: Float64, m: Int64, b: Float64, psi: Float64) -> Float64:
    """Log-likelihood ratios of subjects of several samples; a side of one subject meets all of the other's.

    ``log p(all) - log p(left) - log p(right)``, where ``log p`` of n samples that sum to s is, by coordinate and up to
    what cancels, ``psi s^2 / (n psi + 1) / 2 - log(n psi + 1) / 2``. Swapped sides give the same bits.

    Parameters
    ----------
    n, m : (k,) samples of each subject. a, b : (k, q) sums of their latent coordinates.
    """
    # What follows from the numbers alone is worked out once for each two of them.
    base = int(m.max(initial=0)) + 1
    numbers, which = np.unique(n * base + m, return_inverse=True)
    first, second = (part[:, None] for part in np.divmod(numbers, base))
    left, right, both = first * psi + 1.0, second * psi + 1.0, (first + second) * psi + 1.0
    ratios: Float64 = (np.log(left * right) - np.log(both)).sum(axis=1)[which]
    of_left, of_right, of_both = psi / left, psi / right, psi / both
    rows = max(1, _CELLS // psi.size)
    for start in range(0, ratios.size, rows):
        block = slice(start, start + rows)
        x, y = (side if len(side) == 1 else side[block] for side in (a, b))
        apart = of_left[which[block]] * x**2 + of_right[which[block]] * y**2
        ratios[block] += (of_both[which[block]] * (x + y) ** 2 - apart).sum(axis=1)
    return ratios / 2


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
    weight, square, _ = pair_terms(psi)
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
