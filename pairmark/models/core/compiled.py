"""How kernels are compiled: cached on disk, free of the GIL, and never in need of a writable disk."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel at its first call and keep the machine code in numba's cache.

    Numba looks for a writable folder (``NUMBA_CACHE_DIR``, then beside the source, then the user's cache) while it
    decorates. Where none is to be had, the kernel is compiled in each process instead of failing at import.
    """
    return _compiled(function)


def estimating_kernel(function: Callable[..., Any]) -> Any:
    """As `kernel`, for sums that may be taken in any order: several times faster, and never to be shown as a score."""
    return _compiled(function, fastmath={"reassoc", "contract"})


def is_cached(compiled: Any) -> bool:
    """Whether numba's cache holds machine code of a kernel as its source is now."""
    index = getattr(compiled._cache, "_cache_file", None)
    return index is not None and bool(index._load_index())


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)
    # Numba only looks at the file of the kernel itself, which may call helpers from other files of its folder.
    index = compiled._cache._cache_file
    index._source_stamp = (index._source_stamp, _folder_digest(Path(inspect.getfile(function)).parent))
    return compiled


@cache
def _folder_digest(folder: Path) -> str:
    """SHA-256 of the sources of a folder of kernels."""
    digest = hashlib.sha256()
    for source in sorted(folder.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()
