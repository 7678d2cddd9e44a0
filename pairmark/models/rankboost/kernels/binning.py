"""Bins of sparse columns, compiled."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def bin_columns(starts, values, max_bins, codes, edges, owners, offsets):
    """Bins of each column of a CSC matrix without zeros, in ascending order of values.

    Parameters
    ----------
    starts, values : of the columns, none of them empty.
    codes : (nnz,) out, the bin of each value; -1 - column for all values of a column that needs one bin only.
    edges : out, the upper edge of each bin; values v of bin b have edges[b - 1] < v <= edges[b].
    owners : out, the column of each bin.
    offsets : (columns + 1,) out, where the bins of each column begin.

    Returns
    -------
    The number of bins.
    """
    n_bins = 0
    offsets[0] = 0
    for column in range(starts.shape[0] - 1):
        begin, end = starts[column], starts[column + 1]
        low, high = np.float32(np.inf), np.float32(-np.inf)
        for at in range(begin, end):
            low, high = min(low, values[at]), max(high, values[at])
        # One value only: being there is all that can be asked.
        if low == high:
            for at in range(begin, end):
                codes[at] = -1 - column
            offsets[column + 1] = n_bins
            continue
        ascending = np.sort(values[begin:end])
        distinct = 1
        for at in range(1, ascending.shape[0]):
            if ascending[at] != ascending[at - 1]:
                distinct += 1
        first = n_bins
        max_of_column = distinct if distinct <= max_bins else max_bins
        at_bin = 0
        for at in range(1, ascending.shape[0]):
            if ascending[at] == ascending[at - 1]:
                continue
            # All boundaries between distinct values, or those where another of the equal shares is full.
            if distinct > max_bins and at * max_of_column < (at_bin + 1) * ascending.shape[0]:
                continue
            if at_bin == max_of_column - 1:
                break
            below, above = np.float64(ascending[at - 1]), np.float64(ascending[at])
            middle = np.float32(below + (above - below) / 2)
            # Where float32 has nothing in between, the lower value itself.
            edges[n_bins] = middle if middle < ascending[at] else ascending[at - 1]
            n_bins += 1
            at_bin += 1
        edges[n_bins] = np.inf
        n_bins += 1
        owners[first:n_bins] = column
        for at in range(begin, end):
            codes[at] = first + np.searchsorted(edges[first : n_bins - 1], values[at])
        offsets[column + 1] = n_bins
    return n_bins
