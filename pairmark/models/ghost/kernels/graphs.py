"""Compiled loops over paths."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def paths_to_all(paths, places, lengths, farthest, out):
    """Shortest paths of new points to all points of a graph, over the points they are linked to."""
    for i in range(out.shape[0]):
        row = out[i]
        row[:] = farthest
        for a in range(places.shape[1]):
            length = lengths[i, a]
            # Infinite: no link in this place.
            if np.isfinite(length):
                over = paths[places[i, a]]
                for j in range(row.shape[0]):
                    row[j] = min(row[j], np.float32(length + over[j]))


@kernel
def _between(paths, farthest, a_places, a_lengths, b_places, b_lengths, direct):
    # Over one linked point of each side, or, where either would count the other among its nearest, directly.
    shortest = farthest
    for i in range(a_places.shape[0]):
        if not np.isfinite(a_lengths[i]):
            continue
        for j in range(b_places.shape[0]):
            if np.isfinite(b_lengths[j]):
                # The two ends are added first, so that either order of the points gives the same bits.
                ends = np.float64(a_lengths[i]) + np.float64(b_lengths[j])
                shortest = min(shortest, ends + np.float64(paths[a_places[i], b_places[j]]))
    reach_a = reach_b = 0.0
    for i in range(a_lengths.shape[0]):
        if np.isfinite(a_lengths[i]):
            reach_a = max(reach_a, np.float64(a_lengths[i]))
    for j in range(b_lengths.shape[0]):
        if np.isfinite(b_lengths[j]):
            reach_b = max(reach_b, np.float64(b_lengths[j]))
    # Each would have the other among its nearest.
    if direct <= max(reach_a, reach_b):
        shortest = min(shortest, direct)
    return shortest


@kernel
def paths_between(paths, farthest, a_places, a_lengths, b_places, b_lengths, grid, direct, out):
    """Shortest paths between new points, ``direct`` their distances: all of one side with all of the other, (n_a, n_b).

    Without ``grid`` of pairs, (n, 1), in which a side's only point meets all of the other's.
    """
    step_a, step_b = np.int64(a_places.shape[0] > 1), np.int64(b_places.shape[0] > 1)
    for p in range(out.shape[0]):
        for q in range(out.shape[1]):
            i, j = (p, q) if grid else (p * step_a, p * step_b)
            out[p, q] = _between(
                paths, farthest, a_places[i], a_lengths[i], b_places[j], b_lengths[j], direct[p, q]
            )
