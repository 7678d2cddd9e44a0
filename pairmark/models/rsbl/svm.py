"""Linear support vector machines: exact ones from inner products, iterative ones for many rows; and probabilities."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.special import log_softmax

from pairmark.models.core.arrays import Float32, Float64, Int64

MAX_EXACT_CLASSES = 20
"""One exact machine a class; with more classes all are solved together, iteratively."""
_MAX_STEPS = 200_000
"""What no plane separates can take libsvm many millions; the machine that it has by then serves."""
_CACHE_MB = 200


def exact_dual(gram: Float64, codes: Int64, n_classes: int, C: float) -> tuple[Float64, Float64]:
    """Machines of one class against the rest, hinge loss, with free intercepts (libsvm).

    Parameters
    ----------
    gram : (n, n) inner products. codes : (n,) classes.

    Returns
    -------
    weights (n_machines, n) of the rows, and intercepts: decisions are ``gram @ weights.T + intercepts``. Two classes
    take one machine, positive for class 1. A class without rows never wins.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import SVC

    machines = [1] if n_classes == 2 else list(range(n_classes))
    weights, intercepts = np.zeros((len(machines), gram.shape[0])), np.zeros(len(machines))
    for at, positive in enumerate(machines):
        is_it = codes == positive
        if is_it.all() or not is_it.any():
            intercepts[at] = 1.0 if is_it.any() else -1.0
            continue
        # Its bound on steps ends what does not settle; the machine at hand then serves.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine = SVC(kernel="precomputed", C=C, cache_size=_CACHE_MB, max_iter=_MAX_STEPS).fit(
                gram, is_it
            )
        weights[at, machine.support_] = machine.dual_coef_[0]
        intercepts[at] = machine.intercept_[0]
    return weights, intercepts


def iterative_primal(rows: Float32, codes: Int64, C: float) -> tuple[Float64, Float64]:
    """Machines of one class against the rest, squared hinge loss (liblinear): for many rows or classes.

    Returns
    -------
    coefficients (n_machines, p) and intercepts, which are hardly regularised.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # More steps change next to no answer.
        machines = LinearSVC(C=C, dual=False, tol=1e-2, intercept_scaling=10.0).fit(rows, codes)
    return machines.coef_.astype(np.float64), machines.intercept_.astype(np.float64)


def by_class(decisions: Float64, n_classes: int) -> Float64:
    """Decisions (n, n_classes) from those of the machines."""
    return np.hstack([-decisions, decisions]) if n_classes == 2 else decisions


def fitted_sharpness(decisions: Float64, codes: Int64) -> float:
    """The one number that decisions are multiplied by before the softmax, from rows that did not train them.

    One number for all classes, so that the most probable class is the one with the highest decision. Targets are
    smoothed as Platt's (1999), so that rows separated without an error do not give certainty.
    """
    from scipy.optimize import minimize_scalar

    n, n_classes = decisions.shape
    if n == 0:
        return 1.0
    sure = (n + 1.0) / (n + n_classes)
    targets = np.full(decisions.shape, (1.0 - sure) / max(n_classes - 1, 1))
    targets[np.arange(n), codes] = sure
    size = float(np.abs(decisions - decisions.max(axis=1, keepdims=True)).mean()) or 1.0

    def loss(log_factor: float) -> float:
        return -float((targets * log_softmax(decisions * (np.exp(log_factor) / size), axis=1)).sum())

    optimum = minimize_scalar(loss, bounds=(-12.0, 12.0), method="bounded")
    return float(np.exp(optimum.x) / size)
