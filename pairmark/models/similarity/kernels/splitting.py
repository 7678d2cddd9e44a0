"""The best split of a LeafRank node by its histogram, in bins."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.similarity.kernels.counting import count_learned, count_words, n_learned_bins
from pairmark.models.similarity.kernels.layout import LANES, LEARNED, MAX_MIN, PRODUCTS


@kernel
def least_gain(sums, costs):
    """Below this a gain is the rounding of none."""
    return 1e-9 * (sums[0] * costs[0]) * (sums[1] * costs[1])


@kernel
def best_split(histogram, bins, learned, sums, costs, scratch, origin, first, last, best_gain):
    """The split of least Gini impurity under the cell's costs.

    With A, C the costs of the same and the different pairs, a, c those of the low side and s = a + c, the impurity
    ``a c / s + (A - a)(C - c) / (A + C - s)`` is ``(A C - gain) / (A + C)``, gain = (a C - c A)^2 / (s (A + C - s)):
    the gain is what is looked for, all of a feature's borders at a time.

    Parameters
    ----------
    sums, costs : (2,), weights of the node's same and different pairs, and the cost of each kind.
    origin : number of the histogram's first bin.
    first, last : which pair features are looked at: 2 for each feature tried, then the learned ones.
    best_gain : only a gain above this counts; see `least_gain`.

    Returns
    -------
    which half of the pair map (0 or 1, or `LEARNED`; -1 when no split lowers the impurity), the feature's place among
    those tried (or learned), last bin of the low side, the gain.
    """
    same, different = histogram[0], histogram[1]
    same_cost, different_cost = costs[0], costs[1]
    all_same, all_different = np.float64(sums[0]), np.float64(sums[1])
    scale = same_cost * different_cost
    below, under, gains = scratch.low_sums[0], scratch.low_sums[1], scratch.gains
    n_tried = bins.shift.shape[0]
    bits = gains.view(np.int64)
    best_half, best_place, best_bin = -1, -1, -1
    for at in range(first, last):
        if at < 2 * n_tried:
            k, half = at >> 1, at & 1
            offset, size = np.uint64(np.int64(bins.starts[half, k]) - origin), np.uint64(bins.sizes[half, k])
        else:
            k, half = at - 2 * n_tried, LEARNED
            offset, size = np.uint64(bins.learned_starts[k] - origin), np.uint64(learned.n_bins[k])
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
    return best_half, best_place, best_bin, best_gain


@kernel
def split_by_word(parent, points, pairs, learned, segment, bins, sums, costs, scratch):
    """`best_split` of a node whose histogram nobody needs: counted and looked at eight features at a time.

    ``parent`` : the histogram that its counts are taken off, which leaves its sibling's.
    """
    half, place, last_bin = -1, -1, -1
    splits = sums[0] > 0 and sums[1] > 0
    best_gain = least_gain(sums, costs)
    buffer, n_tried = scratch.word, bins.shift.shape[0]
    n_words, n_own = points.words.shape[0], learned.n_bins.shape[0]
    # Bins of eight features at a time fit the nearest cache; the learned features come last.
    for q in range(n_words + (1 if n_own > 0 else 0)):
        if q < n_words:
            first, last = 2 * LANES * q, min(2 * LANES * (q + 1), 2 * n_tried)
            origin, final = np.int64(bins.starts[0, first >> 1]), (last >> 1) - 1
            size = np.int64(bins.starts[1, final]) + bins.sizes[1, final] - origin
        else:
            first, last = 2 * n_tried, 2 * n_tried + n_own
            origin, size = bins.learned_starts[0], n_learned_bins(learned)
        for kind in range(2):
            for b in range(size):
                buffer[kind, b] = 0
        if q < n_words:
            count_words(buffer, points, pairs, segment, bins, q, q + 1)
        else:
            count_learned(buffer, pairs, learned, segment, bins, origin)
        if splits:
            its_half, its_place, its_bin, best_gain = best_split(
                buffer, bins, learned, sums, costs, scratch, origin, first, last, best_gain
            )
            if its_half >= 0:
                half, place, last_bin = its_half, its_place, its_bin
        for kind in range(2):
            for b in range(size):
                # The sibling, next on the stack, finds its own counts there.
                parent[kind, origin + b] -= buffer[kind, b]
    return half, place, last_bin


@kernel
def threshold_of(points, half, feature, last_bin, halvings):
    """The border between a bin of ``2^halvings`` codes and the next, in the feature's units."""
    if points.pair_map == PRODUCTS and half == 0:
        low, step = points.product_bins[0, feature], points.product_bins[1, feature]
        return np.float32(low + (((last_bin + 1) << halvings) - 0.5) * step) + np.float32(0.0)
    low, step = points.low[feature], points.step[feature]
    # Codes count steps from `low` for a maximum or minimum, from 2 low for a sum, from 0 for a difference.
    base = low if points.pair_map == MAX_MIN else (2.0 * low if half == 1 else 0.0)
    return np.float32(base + (((last_bin + 1) << halvings) - 0.5) * step) + np.float32(0.0)
