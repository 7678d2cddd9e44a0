"""Subjects of several samples, in compiled loops.

Scores of one pair of subjects are sorted before they are summed, and so are the samples' coordinates: neither the
order of the samples nor which side is which changes a bit of the result.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel

MEAN, BEST, MEDIAN = 0, 1, 2


@kernel
def _combined(values, rule):
    """One score from sorted ones."""
    n = values.shape[0]
    if rule == BEST:
        return values[n - 1]
    if rule == MEDIAN:
        return 0.5 * (values[(n - 1) // 2] + values[n // 2])
    total = 0.0
    for i in range(n):
        total += values[i]
    return total / n


@kernel
def combine(scores, ends, rule, out):
    """One score from those of all rows of ``scores[:, ends[i - 1]:ends[i]]``: a query's samples by a subject's."""
    start = 0
    for s in range(out.shape[0]):
        values = np.sort(scores[:, start : ends[s]].copy().reshape(-1).astype(np.float64))
        out[s] = np.float32(_combined(values, rule))
        start = ends[s]


@kernel
def sums(values, index, ends, out):
    """Sum of the rows ``values[index[ends[i - 1]:ends[i]]]`` of each subject, in float64, coordinate by coordinate."""
    start = 0
    for s in range(out.shape[0]):
        n = ends[s] - start
        if n == 1:
            for j in range(out.shape[1]):
                out[s, j] = np.float64(values[index[start], j])
        else:
            column = np.empty(n)
            for j in range(out.shape[1]):
                for i in range(n):
                    column[i] = np.float64(values[index[start + i], j])
                if n == 2:
                    out[s, j] = column[0] + column[1]
                else:
                    column.sort()
                    total = 0.0
                    for i in range(n):
                        total += column[i]
                    out[s, j] = total
        start = ends[s]
