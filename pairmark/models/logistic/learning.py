"""Weights by scikit-learn's logistic regression on pairs.

Five columns sum up a pair (product of rows weighed by rarity, plain product, sum of differences, the smaller and the
larger size); one more a feature holds its own difference. Differences are small numbers, so the penalty, which is the
same on all, holds single features near what the sums say of all of them until many pairs speak against it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse

from pairmark.models.core.arrays import Bool, Float64
from pairmark.models.logistic.rows import PreparedRows, RowPreparation, is_sparse


def fit_weights(
    rows: RowPreparation,
    left: PreparedRows,
    right: PreparedRows,
    same: Bool,
    weight: Float64 | None,
    C: float,
) -> tuple[Float64, Float64]:
    """Weights (d,) of differences, and (5,) terms: intercept, products, plain products, smaller and larger size.

    ``weight`` : (n,) of pairs, of mean 1; all ones where None.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    regression = LogisticRegression(C=C, max_iter=100, tol=1e-5)
    with warnings.catch_warnings():
        # More steps change no score by more than another sample of pairs would.
        warnings.simplefilter("ignore", ConvergenceWarning)
        regression.fit(_columns(rows, left, right), same, weight)
    *weights, product, plain, of_all, small, large = regression.coef_[0]
    return np.array(weights) + of_all, np.array([regression.intercept_[0], product, plain, small, large])


def _columns(rows: RowPreparation, left: PreparedRows, right: PreparedRows) -> Any:
    """Differences of features, and the five columns that sum up a pair: (n, d + 5)."""
    csr: Any = sparse.csr_array
    a, b = left.values, right.values
    if rows.kind == "unit" and not is_sparse(a):
        # Mostly zeros.
        a, b = csr(a), csr(b)
    differences, products = (abs(a - b), a.multiply(b)) if is_sparse(a) else (np.abs(a - b), a * b)
    sums = np.column_stack(
        [
            products.sum(axis=1, dtype=np.float64),
            (products @ rows.plain) * left.tails[:, 0] * right.tails[:, 0],
            differences.sum(axis=1, dtype=np.float64),
            np.minimum(left.tails[:, 1], right.tails[:, 1]),
            np.maximum(left.tails[:, 1], right.tails[:, 1]),
        ]
    )
    stack: Any = sparse.hstack
    return stack([differences, sums], format="csr") if is_sparse(a) else np.hstack([differences, sums])
