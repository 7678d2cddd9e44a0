"""Scoring pairs with packed trees, in compiled loops.

A node is one 64-bit word. From its lowest bit: the low child, the high child, the pair feature, and the threshold's
place among up to 65,536 even steps over its feature's thresholds. How many bits each has is the forest's (see
`packed_nodes`): large trees and many features leave few for places. Features are turned into such places by the same
function, which never falls: where two places differ they tell what comparing the floats would; where they are equal,
which is rare, the floats themselves are compared.

A tree's leaves are numbered after its nodes. What the speed rests on: no select that depends on data (the child is
reached by a shift), unsigned indices, a list of pairs still under way from which finished ones drop out, and a tree
streamed into the second-level cache before many pairs walk it, instead of fetched from afar in the order they step.
"""

import numpy as np

from pairmark.models.core.compiled import inlined_kernel, inner_kernel, kernel
from pairmark.models.core.kernels import larger, smaller
from pairmark.models.similarity.kernels.layout import MAX_MIN

BLOCK, _PLACES = 512, 1 << 17
"""Pairs, and places of theirs, at a time: they stay in the second-level cache while every tree is walked."""

CHILD_BITS, FEATURE_BITS = 19, 10
"""Bits of a node that number a child, and a pair feature where there are no more of them: constants, since shifts and
masks that vary cost a quarter of a walk."""

_CHILD = np.uint64((1 << CHILD_BITS) - 1)
_CHILD_BITS = np.uint64(CHILD_BITS)
_SIGN = np.uint64(32)
_TO_FEATURE, _TO_PLACE = np.uint64(2 * CHILD_BITS), np.uint64(2 * CHILD_BITS + FEATURE_BITS)
_FEATURE = np.uint64((1 << FEATURE_BITS) - 1)


@inner_kernel
def pair_value(a, b, half, pair_map):
    """One of the two symmetric features of a pair's values."""
    if pair_map == MAX_MIN:
        return larger(a, b) if half == 0 else smaller(a, b)
    return abs(a - b) if half == 0 else a + b


@inner_kernel
def _place(value, low, scale, top):
    """The step that a value falls in, up to ``top``; it never falls as the value rises, whatever is rounded."""
    steps = (value - low) * scale
    # Not by min and max, whose care for NaN keeps compilers from wide vectors.
    steps = steps if steps > np.float32(0.0) else np.float32(0.0)
    return np.uint16(np.int32(steps if steps < top else top))


@kernel
def pack(features, thresholds, low_children, high_children, lows, scales, feature_bits, top, words):
    """Write nodes as words; children number nodes, then leaves."""
    to_place = np.uint64(2 * CHILD_BITS + feature_bits)
    for i in range(words.shape[0]):
        f = features[i]
        place = np.uint64(_place(thresholds[i], lows[f], scales[f], np.float32(top)))
        words[i] = (
            (place << to_place)
            | (np.uint64(f) << _TO_FEATURE)
            | (high_children[i] << _CHILD_BITS)
            | low_children[i]
        )


@inner_kernel
def _fill_places(places, left, right, step_left, step_right, start, n, pair_map, lows, scales, top):
    """Places of all features of ``n`` pairs from pair ``start`` on."""
    d = np.uint64(left.shape[1])
    for p in range(n):
        a, b, row = left[(start + p) * step_left], right[(start + p) * step_right], places[p]
        for f in range(d):
            row[f] = _place(pair_value(a[f], b[f], 0, pair_map), lows[f], scales[f], top)
        for f in range(d):
            row[d + f] = _place(pair_value(a[f], b[f], 1, pair_map), lows[d + f], scales[d + f], top)


@inner_kernel
def _is_above(f, threshold, a, b, pair_map):
    """Where a pair goes whose place is the threshold's: whether its feature, the float, is above."""
    half = np.int64(f >= a.shape[0])
    f -= half * a.shape[0]
    return pair_value(a[f], b[f], half, pair_map) > threshold


@inlined_kernel
def _walk(
    nodes,
    thresholds,
    to_place,
    feature_mask,
    places,
    left,
    right,
    step_left,
    step_right,
    start,
    n,
    pair_map,
    alive,
    ends,
    active,
):
    """Take the ``n`` pairs ``alive`` from the root of one tree to their leaves; ``ends`` become node count + leaf."""
    width = np.uint64(places.shape[1])
    cells = places.reshape(places.size)
    n_nodes = np.uint64(nodes.shape[0])
    for q in range(n):
        ends[alive[q]], active[q] = 0, alive[q]
    n_active = np.uint64(n) if n_nodes > 0 else np.uint64(0)
    while n_active > 0:
        n_left = np.uint64(0)
        for q in range(n_active):
            p = np.uint64(active[q])
            node = np.uint64(ends[p])
            word = nodes[node]
            # Below zero, so with its upper bits set, where the pair's place is the higher one. A comparison here ends
            # as a branch that is a coin toss.
            feature = (word >> _TO_FEATURE) & feature_mask
            gap = (word >> to_place) - np.uint64(cells[p * width + feature])
            # Ones masked make a shift by `CHILD_BITS`, to the high child; zeros make none, and leave the low one.
            child = (word >> ((gap >> _SIGN) & _CHILD_BITS)) & _CHILD
            if gap == 0:
                pair = start + np.int64(p)
                a, b = left[pair * step_left], right[pair * step_right]
                if _is_above(np.int64(feature), thresholds[node], a, b, pair_map):
                    child = (word >> _CHILD_BITS) & _CHILD
            ends[p] = np.uint32(child)
            # Written in any case: only the count says whether the pair stays. One that came to a leaf is written over.
            active[n_left] = np.uint16(p)
            n_left += np.uint64(child < n_nodes)
        n_active = n_left


@kernel
def score_pairs(
    nodes, thresholds, lows, scales, feature_bits, top, node_starts, values, value_starts, left,
    right, step_left, step_right, start, stop, pair_map, least, to_come, out,
):  # fmt: skip
    """Sum of leaf values over trees for pairs ``start:stop``, tree by tree in order.

    A pair is given up, and its sum -inf, once what the trees still to come can add leaves it below ``least``.

    Parameters
    ----------
    nodes, thresholds : (n_nodes,) uint64 and float32; tree t has those from ``node_starts[t]`` to
        ``node_starts[t + 1]``, children counted in it.
    lows, scales : (features,) float32, of places up to ``top``. feature_bits : of a word.
    values : (n_leaves,) float64; tree t has those from ``value_starts[t]``.
    left, right : (n or 1, d) float32; a step of 0 repeats the only row.
    least : the sum that matters; -inf: all. to_come : (n_trees + 1,) float64, the most that trees from each on can add.
    out : (n,) float64, filled at ``start:stop``.

    Returns
    -------
    a number that means nothing: what was read so as to stream trees has to be used.
    """
    n_trees = node_starts.shape[0] - 1
    to_place = np.uint64(2 * CHILD_BITS + feature_bits)
    feature_mask = (np.uint64(1) << np.uint64(feature_bits)) - np.uint64(1)
    width = 2 * left.shape[1]
    size = max(1, min(stop - start, BLOCK, max(BLOCK // 8, _PLACES // width)))
    places = np.empty((size, width), dtype=np.uint16)
    ends, active = np.empty(size, dtype=np.uint32), np.empty(size, dtype=np.uint16)
    alive = np.empty(size, dtype=np.uint16)
    sink = np.uint64(0)
    for first in range(start, stop, size):
        n = min(size, stop - first)
        _fill_places(
            places, left, right, step_left, step_right, first, n, pair_map, lows, scales, np.float32(top)
        )
        # Trees are added in their order, so that a sum has the same bits in any batch.
        for p in range(n):
            out[first + p], alive[p] = 0.0, p
        n_alive = n
        for t in range(n_trees):
            if n_alive == 0:
                break
            tree = nodes[node_starts[t] : node_starts[t + 1]]
            n_nodes = tree.shape[0]
            # Of a large tree few pairs touch little: then it is not worth being read whole.
            if n_nodes <= 64 * n_alive:
                # One read a cache line.
                for i in range(np.uint64(0), np.uint64(n_nodes), np.uint64(8)):
                    sink += tree[i]
            borders = thresholds[node_starts[t] : node_starts[t + 1]]
            # Two calls, since the function is written out at each: here with constants for the shift and the mask.
            if feature_bits == FEATURE_BITS:
                _walk(
                    tree, borders, _TO_PLACE, _FEATURE, places, left, right, step_left, step_right, first, n_alive,
                    pair_map, alive, ends, active,
                )  # fmt: skip
            else:
                _walk(
                    tree, borders, to_place, feature_mask, places, left, right, step_left, step_right, first, n_alive,
                    pair_map, alive, ends, active,
                )  # fmt: skip
            leaves = values[value_starts[t] : value_starts[t + 1]]
            if least == -np.inf:
                # Nobody is given up: the list stays as it is.
                for p in range(n):
                    out[first + p] += leaves[np.int64(ends[p]) - n_nodes]
                continue
            n_left = 0
            for q in range(n_alive):
                p = np.uint64(alive[q])
                total = out[first + p] + leaves[np.int64(ends[p]) - n_nodes]
                is_left = total + to_come[t + 1] >= least
                out[first + p] = total if is_left else -np.inf
                alive[n_left] = p
                n_left += np.int64(is_left)
            n_alive = n_left
    return sink
