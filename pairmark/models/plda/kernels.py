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
def corrections(a, at_a, b, at_b, features, thresholds, values, bound, out):
    """Each pair's sum of leaves, held within ``bound``, into ``out`` (n,).

    Trees are of one depth, every node in its place: node k's children are 2 k + 1 and 2 k + 2. They see absolute
    differences, which do not care for sides.

    Parameters
    ----------
    a, b : rows, float32. at_a, at_b : (n,) the rows of each pair.
    features : (T, NODES) int32. thresholds : (T, NODES) float32. values : (T, LEAVES).
    """
    n, m = out.size, a.shape[1]
    differences = np.zeros((LANES, m), dtype=np.float32)
    node = np.empty(LANES, dtype=np.int64)
    total = np.empty(LANES)
    for first in range(0, n, LANES):
        # Several pairs walk down a tree together: one alone would wait for memory at every node.
        width = min(LANES, n - first)
        for lane in range(width):
            left, right = a[at_a[first + lane]], b[at_b[first + lane]]
            for f in range(m):
                differences[lane, f] = abs(left[f] - right[f])
        total[:] = 0.0
        for t in range(values.shape[0]):
            node[:] = 0
            for _ in range(DEPTH):
                # All lanes, also those beyond the last pair, whose sums nobody reads: a fixed number unrolls.
                for lane in range(LANES):
                    k = node[lane]
                    node[lane] = 2 * k + 1 + np.int64(differences[lane, features[t, k]] > thresholds[t, k])
            for lane in range(LANES):
                total[lane] += values[t, node[lane] - NODES]
        for lane in range(width):
            out[first + lane] = min(max(total[lane], -bound), bound)
