"""One BLAS thread where digits or speed depend on their number."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import scipy.linalg  # noqa: F401  (its BLAS is found below)
from threadpoolctl import ThreadpoolController


@cache
def _libraries() -> ThreadpoolController:
    """NumPy's and SciPy's BLAS. Looking through all that a process has loaded takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")


def one_blas_thread() -> AbstractContextManager[Any]:
    """Within it, BLAS works on one thread in this process."""
    limited: AbstractContextManager[Any] = _libraries().limit(limits=1)
    return limited
