"""Weights by logistic regression on pairs.

Five columns sum up a pair (product of rows weighed by rarity, plain product, sum of differences, the smaller and the
larger size); one more a feature holds its own difference. Differences are small numbers, so the penalty, which is the
same on all, holds single features near what the sums say of all of them until many pairs speak against it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import expit

from pairmark.models.core.arrays import Bool, Float64
from pairmark.models.logistic.rows import PreparedRows, RowPreparation, is_sparse

_ITERATIONS, _GRADIENT = 100, 1e-6
N_TERMS = 5


class LogisticWeights(NamedTuple):
    """What a score is made of.

    Attributes
    ----------
    weights : (width,) of differences.
    terms : (5,) intercept, and the weights of products, plain products, the smaller and the larger size.
    """

    weights: Float64
    terms: Float64


def fit_weights(
    rows: RowPreparation,
    left: PreparedRows,
    right: PreparedRows,
    same: Bool,
    weight: Float64 | None,
    C: float,
) -> LogisticWeights:
    """From prepared pairs; ``weight`` (n,) of pairs, all ones where None."""
    differences, sums = _columns(rows, left, right)
    d = rows.scale.size
    share = np.ones(same.size) if weight is None else weight
    share = share / share.sum()
    sign, kind = np.where(same, 1.0, -1.0), differences.dtype
    # Of the mean loss, where C is of its sum.
    ridge = 1.0 / (C * same.size)

    def loss(coefficients: Float64) -> tuple[float, Float64]:
        w, v, intercept = coefficients[:d], coefficients[d:-1], coefficients[-1]
        margin = sign * (differences @ w.astype(kind) + sums @ v + intercept)
        pull = -sign * share * expit(-margin)
        value = share @ np.logaddexp(0.0, -margin) + 0.5 * ridge * (w @ w + v @ v)
        slopes = [differences.T @ pull.astype(kind) + ridge * w, sums.T @ pull + ridge * v, [pull.sum()]]
        return float(value), np.concatenate(slopes)

    from scipy.optimize import minimize

    options = {"maxiter": _ITERATIONS, "gtol": _GRADIENT, "ftol": 1e-9}
    solver: Any = minimize
    solution = solver(loss, np.zeros(d + N_TERMS + 1), jac=True, method="L-BFGS-B", options=options).x
    product_weight, plain, of_all, small, large, intercept = solution[d:]
    return LogisticWeights(
        rows.padded(solution[:d] + of_all), np.array([intercept, product_weight, plain, small, large])
    )


def _columns(rows: RowPreparation, left: PreparedRows, right: PreparedRows) -> tuple[Any, Float64]:
    """Differences of features (n, d), and the five columns that sum up a pair."""
    csr: Any = sparse
    d = rows.scale.size
    a, b = left.values[:, :d], right.values[:, :d]
    plain = rows.plain[:d]
    scale = left.tails[:, 0] * right.tails[:, 0]
    if rows.kind == "unit" and not is_sparse(a):
        # Mostly zeros.
        a, b = csr.csr_array(a), csr.csr_array(b)
    if is_sparse(a):
        differences, products = csr.csr_array(abs(a - b), dtype=np.float64), csr.csr_array(a.multiply(b))
        product, also = products @ np.ones(d), products @ plain
    else:
        differences, products = np.abs(a - b), a * b
        product, also = products.sum(axis=1, dtype=np.float64), products @ plain
    small, large = (pick(left.tails[:, 1], right.tails[:, 1]) for pick in (np.minimum, np.maximum))
    return differences, np.stack([product, also * scale, differences.sum(axis=1), small, large], axis=1)
