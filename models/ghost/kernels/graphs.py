"""Compiled loops over paths."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def paths_to_all(paths, places, lengths, far, out):
    """Shortest paths of new points to all points of a graph, over the points they are linked to."""
    for i in range(out.shape[0]):
        row = out[i]
        row[:] = far
        for a in range(places.shape[1]):
            length = lengths[i, a]
            if np.isfinite(length):
                over = paths[places[i, a]]
                for j in range(row.shape[0]):
                    row[j] = min(row[j], np.float32(length + over[j]))


@kernel
def _between(paths, far, a_places, a_lengths, b_places, b_lengths, direct):
    least = far
    for i in range(a_places.shape[0]):
        if not np.isfinite(a_lengths[i]):
            continue
        for j in range(b_places.shape[0]):
            if np.isfinite(b_lengths[j]):
                # The two ends are added first, so that either order of the points gives the same bits.
                ends = np.float64(a_lengths[i]) + np.float64(b_lengths[j])
                least = min(least, ends + np.float64(paths[a_places[i], b_places[j]]))
    reach_a = reach_b = 0.0
    for i in range(a_lengths.shape[0]):
        if np.isfinite(a_lengths[i]):
            reach_a = max(reach_a, np.float64(a_lengths[i]))
    for j in range(b_lengths.shape[0]):
        if np.isfinite(b_lengths[j]):
            reach_b = max(reach_b, np.float64(b_lengths[j]))
    # Each would have the other among its nearest.
    if direct <= max(reach_a, reach_b):
        least = min(least, direct)
    return least


@kernel
def paths_of_pairs(paths, far, a_places, a_lengths, step_a, b_places, b_lengths, step_b, direct, out):
    """Shortest path between the two new points of each pair; ``direct`` is (n,), their distance."""
    for i in range(out.shape[0]):
        a, b = i * step_a, i * step_b
        out[i] = _between(paths, far, a_places[a], a_lengths[a], b_places[b], b_lengths[b], direct[i])


@kernel
def paths_of_grid(paths, far, a_places, a_lengths, b_places, b_lengths, direct, out):
    """The same for every new point of one side with every one of the other."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = _between(
                paths, far, a_places[i], a_lengths[i], b_places[j], b_lengths[j], direct[i, j]
            )
