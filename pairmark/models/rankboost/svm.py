"""The linear SVM at the end of the chain, as plain numbers once it is fitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
from scipy.sparse import csr_array

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.blas import one_blas_thread
from pairmark.models.core.schema import Array
from pairmark.models.rankboost.kernels.svm import add_products
from pairmark.models.rankboost.rules import Coordinates

_WIDEST = 2_048
"""Columns whose matrix of products is kept; beyond, liblinear's products with vectors are cheaper."""
_SHORTEST = 16
"""Products of coordinates to a row, at most, for the products to be a small part of the work."""
_MOST_STEPS = 100


@dataclass(frozen=True, kw_only=True)
class LinearRule:
    """Scores are rows @ coef.T + intercept: one column for two classes, else one a class."""

    coef: Annotated[Float64, Array(shape=("machines", "embedded"))]
    intercept: Annotated[Float64, Array(shape=("machines",))]

    def score(self, rows: Float32) -> Float64:
        """(n,) for two classes, positive for the second; (n, classes) for more."""
        scores = rows.astype(np.float64) @ self.coef.T + self.intercept
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, rows: Float32) -> Int64:
        """Codes of the classes."""
        scores = self.score(rows)
        codes = scores > 0 if scores.ndim == 1 else np.argmax(scores, axis=1)
        return np.asarray(codes, dtype=np.int64)


def linear_svm(rows: Float32, codes: Int64, C: float) -> LinearRule:
    """Fit with the squared hinge loss, in the primal; several classes one against the rest.

    Rows are divided by their root mean square length first, so that C means the same whatever the kernel's scale.
    """
    size = float(np.sqrt(np.mean(np.einsum("ij,ij->i", rows, rows, dtype=np.float64)))) or 1.0
    n, width = rows.shape
    if width > min(n, _WIDEST):
        return _by_liblinear(rows / np.float32(size), codes, C, size)
    # The last column is the intercept's, whose square is part of the penalty, as in liblinear.
    X = np.ones((n, width + 1))
    np.divide(rows, np.float32(size), out=X[:, :width], casting="same_kind")
    return _by_newton(_Dense(X), codes, C, size)


def is_narrow(n: int, width: int, n_coordinates: int, sample: Callable[[], Coordinates]) -> bool:
    """Whether `linear_svm_of_map` is the faster one for n rows of a width; some are looked at where that decides."""
    if width > min(n, _WIDEST) or n_coordinates**2 > _SHORTEST * n:
        return False
    rows = sample()
    return 2 * rows.at.size <= width * len(rows)


def linear_svm_of_map(rows: csr_array, matrix: Float64, codes: Int64, C: float) -> LinearRule:
    """`linear_svm` of ``rows @ matrix``, which is never made: only the few coordinates of each row are looked at."""
    with one_blas_thread():
        mapped = _Mapped(rows, matrix)
        return _by_newton(mapped, codes, C, mapped.size)


class _Rows(Protocol):
    """Rows with a last column of ones. ``gram``: the sum of their products with themselves."""

    gram: Float64

    def outputs(self, plane: Float64) -> Float64:
        """Every row times the plane."""

    def pull(self, at: Int64, weights: Float64) -> Float64:
        """Sum of some rows, weighed."""

    def products(self, at: Int64, weights: Float64) -> Float64:
        """Sum of some rows' products with themselves, weighed."""


class _Dense:
    def __init__(self, X: Float64) -> None:
        self._X, self.gram = X, X.T @ X

    def outputs(self, plane: Float64) -> Float64:
        return np.asarray(self._X @ plane)

    def pull(self, at: Int64, weights: Float64) -> Float64:
        return np.asarray(weights @ self._X[at])

    def products(self, at: Int64, weights: Float64) -> Float64:
        X = self._X[at]
        return np.asarray((X * weights[:, None]).T @ X)


class _Mapped:
    """Rows of few entries times a matrix, divided by their root mean square length, ``size``."""

    def __init__(self, rows: csr_array, matrix: Float64) -> None:
        self._rows, n = rows, rows.shape[0]
        self._matrix = np.zeros((matrix.shape[0] + 1, matrix.shape[1] + 1))
        self._matrix[:-1, :-1], self._matrix[-1, -1] = matrix, 1.0
        gram = self.products(np.arange(n), np.ones(n))
        self.size = float(np.sqrt(max(np.trace(gram[:-1, :-1]), 0.0) / n)) or 1.0
        self._matrix[:-1, :-1] /= self.size
        gram[:-1] /= self.size
        gram[:, :-1] /= self.size
        self.gram = gram

    def outputs(self, plane: Float64) -> Float64:
        along = self._matrix @ plane
        return np.asarray(self._rows @ along[:-1] + along[-1])

    def pull(self, at: Int64, weights: Float64) -> Float64:
        return np.asarray(np.append(weights @ self._rows[at], weights.sum()) @ self._matrix)

    def products(self, at: Int64, weights: Float64) -> Float64:
        rows, size = self._rows, self._matrix.shape[0]
        total = np.zeros((size, size))
        add_products(rows.indptr, rows.indices, rows.data, at, weights, total)
        total += np.triu(total, 1).T
        return np.asarray(self._matrix.T @ total @ self._matrix)


def _by_newton(rows: _Rows, codes: Int64, C: float, size: float) -> LinearRule:
    classes = np.unique(codes)
    positive = classes[1:] if classes.size == 2 else classes
    planes = np.stack([_squared_hinge(rows, np.where(codes == code, 1.0, -1.0), C) for code in positive])
    return LinearRule(coef=np.ascontiguousarray(planes[:, :-1]) / size, intercept=planes[:, -1].copy())


def _squared_hinge(rows: _Rows, signs: Float64, C: float) -> Float64:
    """The w of least ``|w|^2 / 2 + C sum max(0, 1 - sign w.x)^2``: Newton's method (Keerthi and DeCoste 2005).

    The loss is quadratic as long as the same rows lie within the margin, so a whole step that changes none of them ends
    at the minimum. The products of rows that change sides are added to the Hessian or taken off.
    """
    in_margin, hessian = np.ones(signs.size, dtype=np.bool_), rows.gram.copy()
    pull = rows.pull(np.arange(signs.size), signs)
    plane, outputs = np.zeros(pull.size), np.zeros(signs.size)
    loss = C * signs.size
    for _ in range(_MOST_STEPS):
        system = hessian.copy()
        system[np.diag_indices_from(system)] += 0.5 / C
        step = np.linalg.solve(system, pull) - plane
        along, share = rows.outputs(step), 1.0
        # The loss falls from its slope on: half steps until it does so by enough.
        slope = float(plane @ step) - 2.0 * C * float(np.dot(in_margin * (signs - outputs), along))
        while True:
            new_plane, new_outputs = plane + share * step, outputs + share * along
            short = np.maximum(0.0, 1.0 - signs * new_outputs)
            new_loss = 0.5 * float(new_plane @ new_plane) + C * float(short @ short)
            if new_loss <= loss + 1e-4 * share * slope or share < 1e-6:
                break
            share *= 0.5
        plane, outputs, loss = new_plane, new_outputs, new_loss
        is_short = short > 0.0
        crossings = np.flatnonzero(is_short != in_margin)
        if not crossings.size and share == 1.0:
            break
        sides = np.where(is_short[crossings], 1.0, -1.0)
        hessian += rows.products(crossings, sides)
        pull += rows.pull(crossings, sides * signs[crossings])
        in_margin = is_short
    return plane


def _by_liblinear(rows: Float32, codes: Int64, C: float, size: float) -> LinearRule:
    """The same where there are more columns than rows, or too many for their products."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        svm = LinearSVC(C=C, dual=False, max_iter=200).fit(rows, codes)
    return LinearRule(
        coef=np.ascontiguousarray(svm.coef_, dtype=np.float64) / size,
        intercept=np.asarray(svm.intercept_, dtype=np.float64),
    )
