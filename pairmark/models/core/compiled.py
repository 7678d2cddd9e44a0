"""How kernels are compiled: at their first call, kept in numba's cache, free of the GIL.

Numba keeps machine code in ``NUMBA_CACHE_DIR``, else beside the source, else in the user's cache. It compiles a kernel
anew when its own file changes, but not when a helper in another file does: remove ``*.nbi`` after such a change.
"""

import gc
from typing import Any, ClassVar

import numba
from numba.core import event


class _WithoutCollections(event.Listener):
    """Lets Python collect no garbage while numba compiles, under its lock: faster, for up to 40 MB until it is done."""

    _were_enabled: ClassVar[list[bool]] = []

    def on_start(self, event: Any) -> None:
        self._were_enabled.append(gc.isenabled())
        gc.disable()

    def on_end(self, event: Any) -> None:
        # Of what began before this module was imported, nothing is known.
        if self._were_enabled and self._were_enabled.pop():
            gc.enable()


event.register("numba:compile", _WithoutCollections())  # type: ignore[no-untyped-call]

# Numba's declaration leaves out options that it takes.
_njit: Any = numba.njit

kernel = _njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
"""Decorates a kernel, or a function that kernels call; division by zero is as in NumPy."""
inner_kernel = _njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True)
"""As `kernel`, for functions that only kernels call: without an entry from Python, which can take as
long to compile as the function, and kept within the kernels that call it."""
inlined_kernel = _njit(nogil=True, error_model="numpy", inline="always")
"""As `inner_kernel`, written out anew at each call, with the constants that it is given there: for one that is called
once or twice. What it calls is optimized once less."""
estimating_kernel = _njit(
    cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True, fastmath={"reassoc", "contract"}
)
"""As `kernel`, for sums that may be taken in any order: several times faster, and never to be shown as a score."""
