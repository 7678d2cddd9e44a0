"""What weak rankers make of sparse rows, and inner products of that, compiled.

Coordinates come in ascending order and products are summed in that order in float64, so a kernel value is the same to
the last bit in either order of its rows, in a pair or a grid, and for dense or sparse input.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel

_FEW = 16
"""Where one in so many rankers or more is touched, looking at all is faster than sorting those."""


@kernel
def _place(lookup, features, feature):
    """Where a feature is among those that some ranker looks at; -1 for nowhere."""
    if lookup.shape[0] > 0:
        return lookup[feature]
    at = np.searchsorted(features, feature)
    if at < features.shape[0] and features[at] == feature:
        return at
    return -1


@kernel
def apply_rules(
    starts, columns, values, lookup, features, begins, rankers, low, high, n_conditions, value, out_starts,
    out_at, out_value,
):  # fmt: skip
    """Coordinates of each row, as CSR.

    Parameters
    ----------
    begins, rankers, low, high : of the i-th of the ``features``, conditions begins[i] to begins[i + 1]: the ranker
        each is part of, and its bounds, low < x <= high.
    n_conditions : (rankers,) conditions that each ranker has. value : what it is where they are met.
    out_starts : (n + 1,), out_at, out_value : (capacity,) out.

    Returns
    -------
    Entries written; or minus the rows done, when the next one might not fit.
    """
    n_rankers = n_conditions.shape[0]
    n_met = np.zeros(n_rankers, dtype=np.int32)
    touched = np.empty(n_rankers + 1, dtype=np.int64)
    n = 0
    out_starts[0] = 0
    for row in range(starts.shape[0] - 1):
        # No row can fill more than all coordinates: with less room than that, the caller makes more.
        if n + n_rankers > out_at.shape[0]:
            return -row
        n_touched = 0
        for at in range(starts[row], starts[row + 1]):
            place = _place(lookup, features, columns[at])
            if place < 0:
                continue
            x = values[at]
            for number in range(begins[place], begins[place + 1]):
                if low[number] < x <= high[number]:
                    ranker = np.uint64(rankers[number])
                    # Only rankers that were touched are looked at, and reset, at the end of the row.
                    touched[n_touched] = ranker
                    n_touched += n_met[ranker] == 0
                    n_met[ranker] += 1
        if n_touched * _FEW > n_rankers:
            n_touched = 0
            for ranker in range(n_rankers):
                touched[n_touched] = ranker
                n_touched += n_met[ranker] > 0
        else:
            touched[:n_touched].sort()
        for ranker in touched[:n_touched]:
            if n_met[ranker] == n_conditions[ranker]:
                out_at[n], out_value[n] = ranker, value[ranker]
                n += 1
            n_met[ranker] = 0
        out_starts[row + 1] = n
    return n


@kernel
def means(starts, at, values, centre, out):
    """Each row's inner product with the centre."""
    for row in range(starts.shape[0] - 1):
        mean = 0.0
        for entry in range(starts[row], starts[row + 1]):
            mean += values[entry] * centre[at[entry]]
        out[row] = mean


@kernel
def pair_products(a_starts, a_at, a_values, a_means, b_starts, b_at, b_values, b_means, centre_norm, out):
    """Kernel of each pair of rows. ``centre_norm``: the centre's square."""
    for row in range(out.shape[0]):
        i, j = a_starts[row], b_starts[row]
        i_end, j_end = a_starts[row + 1], b_starts[row + 1]
        total = 0.0
        # Both rows ascend: a merge finds what they share.
        while i < i_end and j < j_end:
            if a_at[i] == b_at[j]:
                total += a_values[i] * b_values[j]
                i += 1
                j += 1
            elif a_at[i] < b_at[j]:
                i += 1
            else:
                j += 1
        # (a - c)(b - c) = ab - ac - bc + cc, c being the centre.
        out[row] = total - (a_means[row] + b_means[row]) + centre_norm


@kernel
def grid_products(
    a_starts, a_at, a_values, a_means, b_starts, b_at, b_values, b_means, rows, width, centre_norm, out
):  # fmt: skip
    """Kernel of each query with some gallery rows."""
    # The query laid out once, cleared by its own entries: a gallery row then costs its entries alone.
    line = np.zeros(width)
    for query in range(out.shape[0]):
        for at in range(a_starts[query], a_starts[query + 1]):
            line[a_at[at]] = a_values[at]
        for column in range(rows.shape[0]):
            row = rows[column]
            total = 0.0
            for at in range(b_starts[row], b_starts[row + 1]):
                total += line[b_at[at]] * b_values[at]
            out[query, column] = total - (a_means[query] + b_means[row]) + centre_norm
        for at in range(a_starts[query], a_starts[query + 1]):
            line[a_at[at]] = 0.0


@kernel
def project(starts, at, values, matrix, out):
    """Rows times a dense matrix, (coordinates, k); a row's result does not depend on the others."""
    total = np.empty(matrix.shape[1])
    for row in range(starts.shape[0] - 1):
        total[:] = 0.0
        for entry in range(starts[row], starts[row + 1]):
            x, line = values[entry], matrix[at[entry]]
            for k in range(total.shape[0]):
                total[k] += x * line[k]
        for k in range(total.shape[0]):
            out[row, k] = total[k]
