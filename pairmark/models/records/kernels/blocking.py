"""Hashes of whole cells, in compiled loops."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def hash_cells(chars, starts, salt, out):
    """FNV-1a of each cell of a field: ``out`` (n,) int64."""
    for row in range(starts.shape[0] - 1):
        code = np.uint64(14695981039346656037) ^ np.uint64(salt)
        for i in range(starts[row], starts[row + 1]):
            code = (code ^ np.uint64(chars[i])) * np.uint64(1099511628211)
        out[row] = np.int64(code)
