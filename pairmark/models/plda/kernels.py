"""Log-likelihood ratios of pairs, and what boosted trees add to them, in compiled loops.

Columns of a row are its weighted latent coordinates, padded with zeros to a multiple of eight, then its offset at
place ``width``. Sums run in eight lanes in float64, so a score is the same to the last bit in either order, in a pair
or a grid.
"""

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.core.kernels import LANES, dot, rows_at


@kernel
def complete(latent, roots, square, width, out):
    """Columns from latent coordinates: ``roots`` weigh them, the offset is minus the sum of ``square z^2``."""
    for p in range(latent.shape[0]):
        row, total = out[p], 0.0
        for j in range(latent.shape[1]):
            z = np.float64(latent[p, j])
            row[j] = np.float32(z * roots[j])
            total += square[j] * z * z
        row[width] = np.float32(-total)
        row[width + 1] = np.float32(1.0)


@kernel
def score(a, b, grid, width, constant, out):
    """Ratios of all pairs of rows of two arrays of columns, (n_a, n_b), or of pairs side by side, (n, 1).

    Side by side, a single row meets all of the other side's.
    """
    for p in range(out.shape[0]):
        for q in range(out.shape[1]):
            u, v = rows_at(p, q, grid, a, b)
            # Two offsets are added first, then to the product: either order of the rows gives the same bits.
            offsets = np.float64(u[width]) + np.float64(v[width])
            out[p, q] = (dot(u[:width], v[:width]) + offsets) + constant


DEPTH = 4
NODES, LEAVES = 2**DEPTH - 1, 2**DEPTH


@kernel
def add_leaves(differences, features, thresholds, values, node, out):
    """Add to each pair, ``out`` (n,), the leaves that its differences lead to.

    Trees are of one depth, every node in its place: node k's children are 2 k + 1 and 2 k + 2.

    Parameters
    ----------
    differences : (n, m) float32, n a multiple of `LANES`.
    features : (T, NODES) int32. thresholds : (T, NODES) float32. values : (T, LEAVES). node : (LANES,) int64, memory.
    """
    for first in range(0, out.shape[0], LANES):
        for t in range(values.shape[0]):
            # Several pairs walk down a tree together: one alone would wait for memory at every node.
            for lane in range(LANES):
                node[lane] = 0
            for _ in range(DEPTH):
                for lane in range(LANES):
                    k = node[lane]
                    is_above = differences[first + lane, features[t, k]] > thresholds[t, k]
                    node[lane] = 2 * k + 1 + np.int64(is_above)
            for lane in range(LANES):
                out[first + lane] += values[t, node[lane] - NODES]
