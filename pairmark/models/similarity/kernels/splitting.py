"""The best split of a LeafRank node by its histogram, in bins."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.similarity.kernels.layout import LEARNED, MAX_MIN


@kernel
def best_split(histogram, bins, learned, sums, costs, scratch):
    """The split of least Gini impurity under the cell's costs.

    With A, C the costs of the same and the different pairs, a, c those of the low side and s = a + c, the impurity
    ``a c / s + (A - a)(C - c) / (A + C - s)`` is ``(A C - gain) / (A + C)``, gain = (a C - c A)^2 / (s (A + C - s)):
    the gain is what is looked for, all of a feature's borders at a time.

    Parameters
    ----------
    sums, costs : (2,), weights of the node's same and different pairs, and the cost of each kind.

    Returns
    -------
    which half of the pair map (0 or 1, or `LEARNED`; -1 when no split lowers the impurity), the feature's place among
    those tried (or learned), last bin of the low side.
    """
    same, different = histogram[0], histogram[1]
    same_cost, different_cost = costs[0], costs[1]
    all_same, all_different = np.float64(sums[0]), np.float64(sums[1])
    scale = same_cost * different_cost
    below, under, gains = scratch.low_sums[0], scratch.low_sums[1], scratch.gains
    n_tried = bins.shift.shape[0]
    bits = gains.view(np.int64)
    best_half, best_place, best_bin = -1, -1, -1
    # Below this a gain is the rounding of none.
    best_gain = 1e-9 * (sums[0] * same_cost) * (sums[1] * different_cost)
    for at in range(2 * n_tried + learned.n_bins.shape[0]):
        if at < 2 * n_tried:
            k, half = at >> 1, at & 1
            offset, size = np.uint64(bins.starts[half, k]), np.uint64(bins.sizes[half, k])
        else:
            k, half = at - 2 * n_tried, LEARNED
            offset, size = np.uint64(bins.learned_starts[k]), np.uint64(learned.n_bins[k])
        if size < 2:
            continue
        # Running sums by themselves: each needs the one before, while the gains below do not, and are worked
        # out for many borders at a time.
        low_same, low_different = np.int32(0), np.int32(0)
        for b in range(size - np.uint64(1)):
            low_same = np.int32(low_same + same[offset + b])
            low_different = np.int32(low_different + different[offset + b])
            below[b], under[b] = low_same, low_different
        for b in range(size - np.uint64(1)):
            s, d = np.float64(below[b]), np.float64(under[b])
            # Exactly 0 where a side is empty, and so is the gain.
            cross = (s * all_different - d * all_same) * scale
            low, high = (
                s * same_cost + d * different_cost,
                (all_same - s) * same_cost + (all_different - d) * different_cost,
            )
            gains[b] = cross * cross / max(low * high, 1e-300)
        # Floats that are not negative are in the order of their bits, whose maximum needs no care for NaN.
        top = np.int64(0)
        for b in range(size - np.uint64(1)):
            top = max(top, bits[b])
        # The first of equal gains: the lowest border, in whatever order the maximum was taken.
        for b in range(size - np.uint64(1)):
            if bits[b] == top:
                if gains[b] > best_gain:
                    best_gain = gains[b]
                    best_half, best_place, best_bin = half, k, np.int64(b)
                break
    return best_half, best_place, best_bin


@kernel
def threshold_of(points, half, feature, last_bin, halvings):
    """The border between a bin of ``2^halvings`` codes and the next, in the feature's units."""
    low, step = points.low[feature], points.step[feature]
    # Codes count steps from `low` for a maximum or minimum, from 2 low for a sum, from 0 for a difference.
    base = low if points.pair_map == MAX_MIN else (2.0 * low if half == 1 else 0.0)
    return np.float32(base + (((last_bin + 1) << halvings) - 0.5) * step) + np.float32(0.0)
