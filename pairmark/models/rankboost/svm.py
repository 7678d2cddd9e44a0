"""The linear SVM at the end of the chain, by scikit-learn: plain numbers once it is fitted."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.state import Array


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
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    size = float(np.sqrt(np.mean(np.einsum("ij,ij->i", rows, rows, dtype=np.float64)))) or 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        svm = LinearSVC(C=C, dual=False, max_iter=200, random_state=0).fit(rows / np.float32(size), codes)
    return LinearRule(
        coef=np.ascontiguousarray(svm.coef_, dtype=np.float64) / size,
        intercept=np.asarray(svm.intercept_, dtype=np.float64),
    )
