"""The two-covariance model (PLDA): identities are Gaussian around centres that are Gaussian themselves.

A row is ``x = m + c + e`` with the identity's centre ``c ~ N(0, B)`` and the row's own deviation ``e ~ N(0, W)``. Both
covariances become diagonal in latent coordinates: W the identity matrix, B ``psi``. Every likelihood ratio then is a
sum over coordinates (Brummer and de Villiers 2010, "The speaker partitioning problem"; Ioffe 2006, "Probabilistic
linear discriminant analysis").

Boosted trees may correct the ratio for what it leaves unexplained: it enters as an offset, the margin ``slope ratio +
intercept``, and trees learn on ``|u - v|`` of the prepared rows. Ratios of training pairs come from models that left
both rows' folds out (for two rows of one identity, a second fold at random), so that all of them rest on equally much
data and are as good as those of pairs to come. What trees add is bounded, so that a gallery can be scanned by the
ratio alone and few rows need the trees.
"""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.special import expit

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.inputs import feature_names_of
from pairmark.models.core.kernels import LANES
from pairmark.models.core.state import Array, Fact
from pairmark.models.pairs.sampling import sample_pairs
from pairmark.models.plda import kernels
from pairmark.models.trees.boosted import TreeSettings, fit_trees

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
    # Means of n rows vary by W / n around their centers: that part is taken off.
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
    # A generalized problem: its axes make W the identity matrix and B diagonal. It sorts ascending, psi is to fall.
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


# Folds of rows, and pairs drawn; of the trees the rate, the least sum of second derivatives in a leaf, the ridge, and
# the share of columns that each tries.
_FOLDS = 5
_PAIRS = 40_000
_RATE, _LEAST_HESSIAN, _RIDGE, _TRIED_SHARE = 0.05, 20.0, 10.0, 0.3
_LINE_RIDGE = 1e-3
"""Of the squared slope: it ends where classes do not overlap, too."""
_BOUND = 0.5
"""Of the standard deviation of the ratio of different pairs: most that trees may add."""


class Residual(NamedTuple):
    """Fitted trees.

    Attributes
    ----------
    features, thresholds : (T, 15) int32 and float32. values : (T, 16) float64, in units of the ratio.
    bound : most that all trees together add or take.
    """

    features: Annotated[NDArray[np.int32], Array(shape=("trees", kernels.NODES), below="prepared")]
    thresholds: Annotated[Float32, Array(shape=("trees", kernels.NODES))]
    values: Annotated[Float64, Array(shape=("trees", kernels.LEAVES))]
    bound: Annotated[float, Fact(), Field(ge=0.0)]

    def corrections(self, a: Float32, b: Float32) -> Float64:
        """What trees add to pairs of rows, (n,), whichever side is which; one side may have a single row."""
        n = max(a.shape[0], b.shape[0])
        differences = np.zeros((n + -n % LANES, a.shape[1]), dtype=np.float32)
        np.abs(np.subtract(a, b, out=differences[:n]), out=differences[:n])
        sums, node = np.zeros(differences.shape[0]), np.empty(LANES, dtype=np.int64)
        kernels.add_leaves(differences, self.features, self.thresholds, self.values, node, sums)
        return np.clip(sums[:n], -self.bound, self.bound)


def fit_residual(
    U: Float32,
    F: Float32,
    codes: Int64,
    shrinkages: tuple[float, float],
    rounds: int,
    random: np.random.Generator,
) -> Residual:
    """Trees over the ratio of rows with identities.

    Parameters
    ----------
    U : (n, p) rows that the model is fitted to. F : (n, m) rows whose differences trees see.
    """
    left, right, same = sample_pairs(codes, _PAIRS, random_state=int(random.integers(2**31)))
    ratios = _leave_out(U, codes, left, right, shrinkages, random)
    slope, intercept = _logistic(ratios, same)
    settings = TreeSettings(rounds, _RATE, kernels.DEPTH, _LEAST_HESSIAN, _RIDGE, _TRIED_SHARE)
    differences, margin = np.abs(F[left] - F[right]), slope * ratios + intercept
    trees = fit_trees(differences, same, np.ones(left.size), settings, random, margin)
    features, thresholds, values = trees.completed(kernels.DEPTH)
    return Residual(features, thresholds, values / slope, _BOUND * float(ratios[~same].std()))


def _leave_out(
    U: Float32,
    codes: Int64,
    left: Int64,
    right: Int64,
    shrinkages: tuple[float, float],
    random: np.random.Generator,
) -> Float64:
    """Ratios of pairs by models that left out two folds, those of both rows among them."""
    n_classes = int(codes.max()) + 1
    # By identity where there are enough of them for every fold to have two, else by row.
    if n_classes >= 2 * _FOLDS:
        fold = (random.permutation(n_classes) % _FOLDS)[codes]
    else:
        fold = random.permutation(codes.size) % _FOLDS
    a, b = fold[left], fold[right]
    # Any other fold, each as likely.
    second_fold = (a + random.integers(1, _FOLDS, a.size)) % _FOLDS
    b = np.where(a == b, second_fold, b)
    low, high = np.minimum(a, b), np.maximum(a, b)
    ratios = np.zeros(left.size)
    for first in range(_FOLDS):
        for second in range(first + 1, _FOLDS):
            here = np.flatnonzero((low == first) & (high == second))
            training_rows = (fold != first) & (fold != second)
            if not here.size or np.unique(codes[training_rows]).size < 2:
                continue
            model = shrunk_model(moments(U[training_rows], codes[training_rows]), *shrinkages)
            weight, square, constant = pair_terms(model.psi)
            rows = np.unique(np.concatenate([left[here], right[here]]))
            z = (U[rows] - model.centre) @ model.axes
            i, j = np.searchsorted(rows, left[here]), np.searchsorted(rows, right[here])
            offset = (z * z) @ square
            ratios[here] = np.einsum("ij,ij->i", z[i] * weight, z[j]) - offset[i] - offset[j] + constant
    return ratios


def _logistic(ratios: Float64, same: Bool) -> tuple[float, float]:
    """Slope, above 0, and intercept of same against the ratio.

    Not scikit-learn's regression: importing it would take a second of every process that fits.
    """
    centre, scale = float(ratios.mean()), max(float(ratios.std()), 1e-12)
    columns = np.stack([(ratios - centre) / scale, np.ones(ratios.size)])
    signs, ridge = np.where(same, 1.0, -1.0), np.array([_LINE_RIDGE, 1e-12])

    def loss_and_gradient(line: Float64) -> tuple[float, Float64]:
        # Not as matrix products, whose sums go by the number of threads.
        margin = line[0] * columns[0] + line[1]
        loss = np.logaddexp(0.0, -signs * margin).sum() + (ridge * line**2).sum() / 2
        return float(loss), (columns * (expit(margin) - same)).sum(axis=1) + ridge * line

    line = minimize(loss_and_gradient, np.zeros(2), jac=True, method="BFGS").x
    slope = max(float(line[0]), 1e-3) / scale
    return slope, float(line[1]) - slope * centre
