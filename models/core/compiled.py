"""How kernels are compiled: cached on disk, free of the GIL, and never in need of a writable disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel at its first call and keep the machine code in numba's cache.

    Numba looks for a writable folder (``NUMBA_CACHE_DIR``, then beside the source, then the user's cache) while it
    decorates. Where none is to be had, the kernel is compiled in each process instead of failing at import.
    """
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:
        return numba.njit(nogil=True, error_model="numpy")(function)


def estimating_kernel(function: Callable[..., Any]) -> Any:
    """As `kernel`, for sums that may be taken in any order: several times faster, and never to be shown as a score."""
    freedom = {"reassoc", "contract"}
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=freedom)(function)
    except RuntimeError:
        return numba.njit(nogil=True, error_model="numpy", fastmath=freedom)(function)
