"""Hashed character n-grams of strings, in compiled loops."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.records.kernels.strings import FNV_PRIME, FNV_START

LENGTHS = (3, 4)
"""Characters of an n-gram; each string is taken with a space on either side."""


@kernel
def _char(chars, first, last, at):
    return np.uint64(chars[at]) if first <= at < last else np.uint64(32)


@kernel
def count_grams(chars, starts, n_columns, columns, counts, ends):
    """Columns of each string's distinct n-grams, ascending, and how often each occurs.

    Parameters
    ----------
    columns, counts : room for two n-grams a character and four a string. ends : (n,) where each string's entries end.
    """
    size = 0
    for row in range(starts.shape[0] - 1):
        first, last, begin = starts[row], starts[row + 1], size
        if last > first:
            for length in LENGTHS:
                # From the space before the string to that after it.
                for at in range(first - 1, last - length + 2):
                    code = FNV_START
                    for k in range(length):
                        code = (code ^ _char(chars, first, last, at + k)) * FNV_PRIME
                    columns[size] = np.int64((code >> np.uint64(17)) % np.uint64(n_columns))
                    size += 1
        own = np.sort(columns[begin:size])
        size = begin
        for k in range(own.shape[0]):
            if k == 0 or own[k] != own[k - 1]:
                columns[size], counts[size] = own[k], 1.0
                size += 1
            else:
                counts[size - 1] += 1.0
        ends[row] = size
