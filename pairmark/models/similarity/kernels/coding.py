"""Byte codes of columns on even grids, in compiled loops."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel

_ROWS = 4_096


@kernel
def furthest_off(column, low, step):
    """How far a value is from a step of the grid, in steps, at most."""
    furthest = 0.0
    for p in range(column.shape[0]):
        place = (np.float64(column[p]) - low) / step
        furthest = max(furthest, abs(place - np.rint(place)))
    return furthest


@kernel
def code_columns(columns, low, step, n_codes, codes):
    """The nearest step of each value, held within the grid: ``columns`` (u, n) float32, ``codes`` (n, u) uint8."""
    for first in range(0, columns.shape[1], _ROWS):
        last = min(first + _ROWS, columns.shape[1])
        for k in range(columns.shape[0]):
            column, start, width, top = columns[k], low[k], step[k], np.float64(n_codes[k] - 1)
            for p in range(first, last):
                place = np.rint((np.float64(column[p]) - start) / width)
                codes[p, k] = np.uint8(min(max(place, 0.0), top))
