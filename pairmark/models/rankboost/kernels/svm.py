"""Sums over sparse rows for the linear SVM, compiled."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def add_products(starts, at, values, rows, weights, out):
    """Add to the upper triangle of ``out`` some rows' products with themselves, weighed.

    Coordinates of a row ascend; the last line and column of ``out`` are of a coordinate that is 1 in every row.
    """
    constant = out.shape[0] - 1
    for number in range(rows.shape[0]):
        part = slice(starts[rows[number]], starts[rows[number] + 1])
        places, entries, weight = at[part], values[part], weights[number]
        for i in range(places.shape[0]):
            x, line = weight * entries[i], out[places[i]]
            for j in range(i, places.shape[0]):
                # Unsigned numbers index faster: they need no look at whether they count from the end.
                line[np.uint64(places[j])] += x * entries[j]
            line[constant] += x
        out[constant, constant] += weight
