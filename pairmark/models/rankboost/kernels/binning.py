"""Loops that make sparse rows ready for boosting, compiled: turned by column and back, binned, paired."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def count_columns(columns, counts):
    """Entries of each column, added to ``counts``."""
    for column in columns:
        counts[column] += 1


@kernel
def turn(starts, columns, values, numbers, cursors, rows, transposed):
    """Entries by feature, ascending by row. ``numbers``: of each column. ``cursors``: in, where each feature begins."""
    for row in range(starts.shape[0] - 1):
        for at in range(starts[row], starts[row + 1]):
            feature = numbers[columns[at]]
            to = cursors[feature]
            cursors[feature] = to + 1
            rows[to] = row
            transposed[to] = values[at]


@kernel
def turn_back(column_rows, column_codes, cursors, codes):
    """Codes by row, ascending by feature. ``cursors``: in, where each row begins."""
    for at in range(column_rows.shape[0]):
        row = column_rows[at]
        codes[cursors[row]] = column_codes[at]
        cursors[row] += 1


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


@kernel
def shared_columns(starts, indices, values, left, right, width, out_starts, out_indices, out_values):
    """Pairs as rows of 2 width columns: where both sides hold a value, the lesser in column j and minus the greater in
    column width + j. "Both above a" is then one condition, and so is "both below b". Returns the number of entries."""
    n = 0
    out_starts[0] = 0
    for pair in range(left.shape[0]):
        for turn in range(2):
            i, j = starts[left[pair]], starts[right[pair]]
            i_end, j_end = starts[left[pair] + 1], starts[right[pair] + 1]
            while i < i_end and j < j_end:
                if indices[i] < indices[j]:
                    i += 1
                elif indices[j] < indices[i]:
                    j += 1
                else:
                    # Called twice: first with no room, to count.
                    if out_indices.shape[0] > 0:
                        if turn == 0:
                            out_indices[n], out_values[n] = indices[i], min(values[i], values[j])
                        else:
                            out_indices[n], out_values[n] = width + indices[i], -max(values[i], values[j])
                    n += 1
                    i += 1
                    j += 1
        out_starts[pair + 1] = n
    return n
