"""Comparison of numbers, dates, flags and places, in compiled loops."""

from __future__ import annotations

import math

import numpy as np

from pairmark.models.core.compiled import kernel

NUMBER, FLAG, PLACE = 0, 1, 2
WIDTHS = (3, 1, 1)
"""Features of a pair by kind: equal, difference and ratio; equal; kilometres."""
_EARTH_KM = 6371.0088


@kernel
def _kilometres(a0, a1, b0, b1):
    """Great-circle distance (haversine) of two places in degrees; the two sides enter alike."""
    # Sides in a fixed order, so that rounding is the same either way round.
    if a0 > b0 or (a0 == b0 and a1 > b1):
        a0, a1, b0, b1 = b0, b1, a0, a1
    low, high = math.radians(a0), math.radians(b0)
    up, across = math.sin((high - low) / 2), math.sin(math.radians(b1 - a1) / 2)
    return (
        2
        * _EARTH_KM
        * math.asin(min(1.0, math.sqrt(up * up + math.cos(low) * math.cos(high) * across * across)))
    )


@kernel
def compare_numbers(a, b, left, right, kinds, columns, places, out):
    """Features of pairs; NaN where either value is missing.

    Parameters
    ----------
    a, b : (n, c) float64, NaN where missing. kinds : (F,), `NUMBER`, `FLAG` or `PLACE` (two columns).
    columns : (F,) the first column of each field. places : (F,) its first column in ``out``.
    """
    for k in range(left.shape[0]):
        for field in range(kinds.shape[0]):
            x, y = a[left[k], columns[field]], b[right[k], columns[field]]
            at, kind = places[field], kinds[field]
            if kind == PLACE:
                x1, y1 = a[left[k], columns[field] + 1], b[right[k], columns[field] + 1]
                out[k, at] = np.nan if np.isnan(x) or np.isnan(y) else _kilometres(x, x1, y, y1)
                continue
            absent = np.isnan(x) or np.isnan(y)
            out[k, at] = np.nan if absent else np.float64(x == y)
            if kind == NUMBER:
                larger, smaller = max(abs(x), abs(y)), min(abs(x), abs(y))
                ratio = 1.0 if larger == 0 else smaller / larger
                # Beyond float32 a difference is as good as any other that large.
                out[k, at + 1] = np.nan if absent else min(abs(x - y), 3e38)
                out[k, at + 2] = np.nan if absent else (ratio if (x < 0) == (y < 0) else -ratio)
