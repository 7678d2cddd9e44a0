"""Mean and spread of each row's scores with a cohort, in compiled loops."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def spread_of_rows(scores, top, mean, sd):
    """Mean and standard deviation of the ``top`` greatest scores of each row, in float64, whatever their order."""
    for i in range(scores.shape[0]):
        row = np.sort(scores[i].astype(np.float64))
        start = row.shape[0] - top
        total = 0.0
        for j in range(start, row.shape[0]):
            total += row[j]
        centre = total / top
        squares = 0.0
        for j in range(start, row.shape[0]):
            squares += (row[j] - centre) * (row[j] - centre)
        mean[i] = centre
        sd[i] = np.sqrt(squares / top)
