"""The linear SVM at the end of the chain, as plain numbers once it is fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.schema import Array

_WIDEST = 2_048
"""Columns whose matrix of products is kept; beyond, liblinear's products with vectors are cheaper."""
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
    gram = X.T @ X
    classes = np.unique(codes)
    positive = classes[1:] if classes.size == 2 else classes
    planes = np.stack([_squared_hinge(X, gram, np.where(codes == code, 1.0, -1.0), C) for code in positive])
    return LinearRule(coef=np.ascontiguousarray(planes[:, :width]) / size, intercept=planes[:, width].copy())


def _squared_hinge(X: Float64, gram: Float64, signs: Float64, C: float) -> Float64:
    """The w of least ``|w|^2 / 2 + C sum max(0, 1 - sign w.x)^2``: Newton's method (Keerthi and DeCoste 2005).

    The loss is quadratic as long as the same rows lie within the margin, so a whole step that changes none of them ends
    at the minimum. ``gram`` is ``X.T @ X``; rows that change sides are added to it or taken off.
    """
    in_margin, hessian = np.ones(signs.size, dtype=np.bool_), gram.copy()
    pull = X.T @ signs
    plane, outputs = np.zeros(X.shape[1]), np.zeros(signs.size)
    loss = C * signs.size
    for _ in range(_MOST_STEPS):
        system = hessian.copy()
        system[np.diag_indices_from(system)] += 0.5 / C
        step = np.linalg.solve(system, pull) - plane
        along, share = X @ step, 1.0
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
        crossing_rows = X[crossings]
        hessian += (crossing_rows * sides[:, None]).T @ crossing_rows
        pull += crossing_rows.T @ (sides * signs[crossings])
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
