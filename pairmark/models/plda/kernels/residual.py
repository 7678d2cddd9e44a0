"""What boosted trees on absolute differences of two rows add to pairs, in compiled loops.

Trees are of one depth, every node in its place: node k's children are 2 k + 1 and 2 k + 2. A difference does not care
which side is which, so a correction is the same to the last bit in either order.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel

DEPTH = 4
NODES, LEAVES = 2**DEPTH - 1, 2**DEPTH
LANES = 8


@kernel
def corrections(a, step_a, b, step_b, features, thresholds, values, bound, out):
    """Add each pair's sum of leaves, held within ``bound``, to ``out`` (n,) float64.

    Parameters
    ----------
    a, b : (n or 1, m) float32 rows. features : (T, NODES) int32. thresholds : (T, NODES) float32. values : (T, LEAVES).
    """
    differences = np.empty(a.shape[1], dtype=np.float32)
    for p in range(out.shape[0]):
        left, right = a[p * step_a], b[p * step_b]
        for f in range(differences.shape[0]):
            differences[f] = abs(left[f] - right[f])
        total = 0.0
        for t in range(features.shape[0]):
            k = 0
            for _ in range(DEPTH):
                # Nodes of all levels count on: children of k are 2 k + 1 and 2 k + 2, and leaves follow the
                # last node.
                k = 2 * k + 1 + np.int64(differences[features[t, k]] > thresholds[t, k])
            total += values[t, k - NODES]
        out[p] += min(max(total, -bound), bound)


@kernel
def square_corrections(rows, features, thresholds, values, bound, marks, out):
    """Corrections of all pairs of rows above the diagonal by the first ``marks`` trees: ``out`` (n_marks, n, n)."""
    n, m = rows.shape
    differences = np.zeros((LANES, m), dtype=np.float32)
    node = np.empty(LANES, dtype=np.int64)
    total = np.empty(LANES)
    for i in range(n):
        for first in range(i + 1, n, LANES):
            # Several pairs walk down a tree together: one alone would wait for memory at every node.
            width = min(LANES, n - first)
            for lane in range(width):
                for f in range(m):
                    differences[lane, f] = abs(rows[i, f] - rows[first + lane, f])
            total[:] = 0.0
            t = 0
            for at in range(marks.shape[0]):
                while t < marks[at]:
                    node[:] = 0
                    for _ in range(DEPTH):
                        # All lanes, also those beyond the last pair, whose sums nobody reads: a fixed number
                        # unrolls.
                        for lane in range(LANES):
                            k = node[lane]
                            node[lane] = (
                                2 * k + 1 + np.int64(differences[lane, features[t, k]] > thresholds[t, k])
                            )
                    for lane in range(LANES):
                        total[lane] += values[t, node[lane] - NODES]
                    t += 1
                for lane in range(width):
                    out[at, i, first + lane] = min(max(total[lane], -bound), bound)
