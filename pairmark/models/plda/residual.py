"""Boosted trees on what the log-likelihood ratio leaves unexplained.

The ratio enters as an offset: trees start from the margin ``slope ratio + intercept`` and learn on ``|u - v|`` of the
prepared rows. Ratios of training pairs come from models that left both rows' folds out (for two rows of one identity, a
second fold at random), so that all of them rest on equally much data and are as good as those of pairs to come. What
trees add is bounded, so that a gallery can be scanned by the ratio alone and few rows need the trees.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import expit

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.state import Array, Fact
from pairmark.models.pairs.sampling import sample_pairs
from pairmark.models.plda import kernels
from pairmark.models.plda.two_covariance import moments, pair_terms, shrunk_model
from pairmark.models.trees.boosted import TreeSettings, fit_trees

_FOLDS = 5
_PAIRS = 40_000
_RATE, _LEAST_HESSIAN, _RIDGE, _TRIED_SHARE = 0.05, 20.0, 10.0, 0.3
_LINE_RIDGE = 1e-3
"""Of the squared slope: it ends where classes do not overlap, too."""
_MOST_STEPS = 100
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
        """What trees add to pairs of rows, (n,); one side may have a single row."""
        numbers = np.arange(max(a.shape[0], b.shape[0]))
        out: Float64 = np.empty(numbers.size)
        kernels.corrections(
            a, numbers * (a.shape[0] > 1), b, numbers * (b.shape[0] > 1),
            self.features, self.thresholds, self.values, self.bound, out,
        )  # fmt: skip
        return out


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
    if n_classes >= 2 * _FOLDS:
        fold = (random.permutation(n_classes) % _FOLDS)[codes]
    else:
        fold = random.permutation(codes.size) % _FOLDS
    a, b = fold[left], fold[right]
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
    """Slope, above 0, and intercept of same against the ratio, by Newton's method.

    Not scikit-learn's regression: importing it would take a second of every process that fits.
    """
    centre, scale = float(ratios.mean()), max(float(ratios.std()), 1e-12)
    columns = np.stack([(ratios - centre) / scale, np.ones(ratios.size)])
    signs = np.where(same, 1.0, -1.0)
    ridge = np.array([_LINE_RIDGE, 1e-12])
    line: Float64 = np.zeros(2)

    def loss(line: Float64) -> float:
        return float(np.logaddexp(0.0, -signs * (line @ columns)).sum() + ridge @ line**2 / 2)

    before = loss(line)
    for _ in range(_MOST_STEPS):
        chance = expit(line @ columns)
        # Not as matrix products, whose sums go by the number of threads.
        gradient = (columns * (chance - same)).sum(axis=1) + ridge * line
        weighed = columns * (chance * (1 - chance))
        hessian = np.diag((weighed * columns).sum(axis=1) + ridge)
        hessian[[0, 1], [1, 0]] = weighed[0].sum()
        step: NDArray[Any] = np.linalg.solve(hessian, gradient)
        # Where classes hardly overlap, a whole step would leave the region in which it gains; it ends where none does.
        while (after := loss(line - step)) > before:
            step /= 2
        line, before = line - step, after
        if np.abs(step).max() <= 1e-9 * (1.0 + np.abs(line).max()):
            break
    slope = max(float(line[0]), 1e-3) / scale
    return slope, float(line[1]) - slope * centre
