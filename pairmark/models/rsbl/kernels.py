"""The hot loops: distances in a growing space, nearest rows, Gaussian features.

A row's result never depends on the rows beside it (a library's matrix product rounds differently for other numbers of
rows), so that one pair, a batch and a whole gallery score alike to the last bit.
"""

import numpy as np

from pairmark.models.core.compiled import kernel

SQUARES, ABSOLUTES, DOT = 0, 1, 2

TILE = 128
BIG = 3e38
"""Sums are kept as float32 between layers; beyond its range they stay here."""


@kernel
def accumulate(code, rows, factor, refs, acc):
    """Add some features' share to what each row and each reference differ by, in place.

    ``rows`` (n, p) and ``refs`` (p, u) hold these features, ``refs`` multiplied by ``factor`` already; ``acc``
    is (n, u) float32.
    """
    n, p = rows.shape
    u = refs.shape[1]
    totals = np.empty(TILE)
    # A tile of sums stays in the nearest cache while all features are gone through.
    for start in range(0, u, TILE):
        width = min(TILE, u - start)
        # Read and written once a tile: float64 while features are added, float32 between layers.
        for i in range(n):
            for t in range(width):
                totals[t] = acc[i, start + t]
            for j in range(p):
                x = np.float64(rows[i, j] * factor[j])
                line = refs[j, start : start + width]
                if code == SQUARES:
                    for t in range(width):
                        gap = x - line[t]
                        totals[t] += gap * gap
                elif code == DOT:
                    for t in range(width):
                        totals[t] += x * line[t]
                else:
                    for t in range(width):
                        totals[t] += abs(x - line[t])
            for t in range(width):
                acc[i, start + t] = max(-BIG, min(BIG, totals[t]))


@kernel
def squared_distances(code, acc, squares, ref_squares, out):
    """Squared distances from what `accumulate` added up (`SQUARES` are squared already), (n, u) float32.

    For `DOT`, ``squares`` are the sums of squares of each row's features: one minus the cosine.
    """
    for i in range(acc.shape[0]):
        for t in range(acc.shape[1]):
            total = np.float64(acc[i, t])
            if code == DOT:
                # A row of zeros has no direction.
                cosine = 0.0
                if squares[i] > 0.0 and ref_squares[t] > 0.0:
                    cosine = max(-1.0, min(1.0, total / np.sqrt(squares[i]) / np.sqrt(ref_squares[t])))
                total = 1.0 - cosine
            out[i, t] = min(total * total, BIG)


@kernel
def add_squares(rows, squares):
    """Add each row's squares, in place."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            x = np.float64(rows[i, j])
            squares[i] += x * x


@kernel
def nearest(distances, place, k, out):
    """The k nearest references of each row, (n, k), nearest first, ties by the reference's number.

    ``place`` is the reference that a row is itself, or -1: no row is its own neighbour.
    """
    best = np.empty(k)
    for i in range(distances.shape[0]):
        n_found = 0
        for t in range(distances.shape[1]):
            if t == place[i]:
                continue
            distance = np.float64(distances[i, t])
            # Most references are farther than all k so far, and cost one comparison.
            if n_found == k and distance >= best[k - 1]:
                continue
            # Insertion from the far end; a strict comparison keeps the reference of the smaller number in front.
            slot = min(n_found, k - 1)
            while slot > 0 and distance < best[slot - 1]:
                best[slot] = best[slot - 1]
                out[i, slot] = out[i, slot - 1]
                slot -= 1
            best[slot] = distance
            out[i, slot] = t
            n_found = min(n_found + 1, k)


@kernel
def gaussians(beta, distances, columns, scale, out):
    """``scale * exp(-beta * distance^2)`` to the references ``columns``, (n, p) float32."""
    for i in range(distances.shape[0]):
        for c in range(columns.shape[0]):
            out[i, c] = scale[c] * np.exp(-beta * np.float64(distances[i, columns[c]]))
