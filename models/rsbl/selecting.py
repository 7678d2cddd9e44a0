"""Feature selection by a sparse linear machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.base import Float32

C_SPARSE = 1.0
_MAX_ITER = 2_000


def used_by_sparse_svm(rows: Float32, codes: NDArray[np.int64], n_last: int) -> NDArray[np.bool_]:
    """Which of the last ``n_last`` features a linear SVM with an L1 penalty gives a weight; at least one.

    The features before them stand in the space whatever it says, and are there so that only what they lack is kept.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    machine = LinearSVC(penalty="l1", dual=False, C=C_SPARSE, max_iter=_MAX_ITER, random_state=0)
    with warnings.catch_warnings():
        # A machine that has not quite settled names the useful features well enough.
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(rows, codes)
    size = np.abs(machine.coef_).max(axis=0)[-n_last:]
    used = size > 0
    used[int(np.argmax(size))] = True
    return np.asarray(used, dtype=np.bool_)
