"""Weights by logistic regression on pairs.

Five columns sum up a pair (product of rows weighed by rarity, plain product, sum of differences, the smaller and the
larger size); one more a feature holds its own difference. Differences are small numbers, so the penalty, which is the
same on all, holds single features near what the sums say of all of them until many pairs speak against it.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pairmark.models.logistic.rows import RowMap, Rows, is_sparse

Float64 = NDArray[np.float64]
_ITERATIONS = 100
N_TERMS = 5


class Weights(NamedTuple):
    """What a score is made of.

    Attributes
    ----------
    weights : (width,) of differences.
    terms : (5,) intercept, and the weights of products, plain products, the smaller and the larger size.
    """

    weights: Float64
    terms: Float64


def fit_weights(
    rows: RowMap, left: Rows, right: Rows, same: NDArray[np.bool_], weight: Float64 | None, C: float
) -> Weights:
    """From prepared pairs; ``weight`` (n,) of pairs, all ones where None."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    d = rows.scale.size
    columns = _columns(rows, left, right)
    model = LogisticRegression(C=C, max_iter=_ITERATIONS)
    with warnings.catch_warnings():
        # Stopping early is one more penalty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(columns, same, sample_weight=weight)
    found = model.coef_[0].astype(np.float64)
    both, plain, apart, small, large = found[d:]
    return Weights(
        rows.padded(found[:d] + apart), np.array([float(model.intercept_[0]), both, plain, small, large])
    )


def _columns(rows: RowMap, left: Rows, right: Rows) -> Any:
    stacked: Any = sparse
    d = rows.scale.size
    a, b = left.values[:, :d], right.values[:, :d]
    plain = rows.plain[:d]
    scale = left.tails[:, 0] * right.tails[:, 0]
    if is_sparse(a):
        apart, products = stacked.csr_array(abs(a - b)), stacked.csr_array(a.multiply(b))
        both, also = products @ np.ones(d), products @ plain
    else:
        apart, products = np.abs(a - b), a * b
        both, also = products.sum(axis=1, dtype=np.float64), products @ plain
    small, large = (pick(left.tails[:, 1], right.tails[:, 1]) for pick in (np.minimum, np.maximum))
    sums = np.stack([both, also * scale, apart @ np.ones(d), small, large], axis=1)
    if is_sparse(apart):
        return stacked.csr_array(stacked.hstack([apart, stacked.csr_array(sums)]), dtype=np.float64)
    return np.hstack([apart, sums.astype(np.float32)])
