"""Scoring pairs with packed trees, in compiled loops.

A node is one 64-bit word where the trees allow it (see `score_narrow`). From its lowest bit: the low child, the high
child, the pair feature, and the threshold's place among 65,536 even steps over its feature's thresholds. Features are
turned into such places by the same function, which never falls: where two places differ they tell what comparing the
floats would; where they are equal, which is rare, the floats themselves are compared.

A wider node is two words side by side: the children (high child in the upper half), and the pair feature (upper half)
with the threshold. Thresholds and features are compared as integers that order like the floats they come from.

A tree's leaves are numbered after its nodes. What the speed rests on: no select that depends on data (the child is
reached by a shift), unsigned indices, a list of pairs still under way from which finished ones drop out, and a tree
streamed into the second-level cache before many pairs walk it, instead of fetched from afar in the order they step.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.similarity.kernels.layout import MAX_MIN

BLOCK = 512
"""Pairs at a time: their features stay in the second-level cache while every tree is walked."""

FEW = 16
"""Fewer pairs than this are walked one at a time through all trees at once: waits for memory overlap either way."""

CHILD_BITS, FEATURE_BITS = 19, 10
"""Bits of a narrow node that number a child and a pair feature."""
TOP_PLACE = 65_535

_CHILD = np.uint64((1 << CHILD_BITS) - 1)
_FEATURE = np.uint64((1 << FEATURE_BITS) - 1)
_CHILD_BITS = np.uint64(CHILD_BITS)
_SIGN = np.uint64(32)
_TO_FEATURE = np.uint64(2 * CHILD_BITS)
_TO_PLACE = np.uint64(2 * CHILD_BITS + FEATURE_BITS)
_LOW_HALF = np.uint64(0xFFFFFFFF)


@kernel
def ordered_bits(values):
    """Float32 values, viewed as int32, become integers in the same order; in place. Expects no negative zero.

    Negative floats fall as their bits rise: all bits but the sign are turned over. Doing it twice changes nothing.
    """
    for i in range(values.shape[0]):
        b = values[i]
        values[i] = b ^ ((b >> np.int32(31)) & np.int32(0x7FFFFFFF))


@kernel
def pair_forms(a, b, forms, out):
    """Learned features of one pair from its rows' learned columns ``z, r, c``, see `similarity.pair_features.maps`.

    Feature k is ``r_k r'_k sum_i forms[k, i] z_i z'_i + (c_k + c'_k)``: a sum in one order, of products that commute.
    """
    m, q = forms.shape
    for k in range(m):
        total = np.float32(0.0)
        form = forms[k]
        for i in range(q):
            total += form[i] * (a[i] * b[i])
        out[k] = (a[q + k] * b[q + k]) * total + (a[q + m + k] + b[q + m + k]) + np.float32(0.0)


@kernel
def forms_of_pairs(left_rows, right_rows, left, right, forms, out):
    """`pair_forms` of many pairs: ``left[p]``, ``right[p]`` number the rows; ``out`` is (n, m)."""
    for p in range(left.shape[0]):
        pair_forms(left_rows[left[p]], right_rows[right[p]], forms, out[p])


@kernel
def fill_pair_row(a, b, pair_map, row):
    """The raw features of one pair of rows (d,): both halves of its pair map, into the first 2 d of ``row``."""
    d = a.shape[0]
    if pair_map == MAX_MIN:
        for f in range(d):
            row[f] = max(a[f], b[f])
        for f in range(d):
            row[d + f] = min(a[f], b[f])
    else:
        for f in range(d):
            row[f] = abs(a[f] - b[f])
        for f in range(d):
            row[d + f] = a[f] + b[f]


@kernel
def _fill_features(
    block, left, right, step_left, step_right, start, n, pair_map, learned_left, learned_right, forms
):  # fmt: skip
    """All features of ``n`` pairs, from pair ``start`` on, as ordered integers."""
    d = left.shape[1]
    floats = block.view(np.float32)
    for p in range(n):
        a, b, row = left[(start + p) * step_left], right[(start + p) * step_right], floats[p]
        fill_pair_row(a, b, pair_map, row)
        if forms.shape[0] > 0:
            pair_forms(
                learned_left[(start + p) * step_left],
                learned_right[(start + p) * step_right],
                forms,
                row[2 * d :],
            )
        bits = block[p]
        for f in range(2 * d + forms.shape[0]):
            # `ordered_bits` in place: integers in the order of the floats.
            bits[f] ^= (bits[f] >> np.int32(31)) & np.int32(0x7FFFFFFF)


@kernel
def _walk(nodes, n_nodes, block, n, at, active):
    """Take ``n`` pairs from the root of one tree to their leaves; ``at`` ends as node count + leaf number."""
    width = np.uint64(block.shape[1])
    cells = block.reshape(block.size)
    for p in range(n):
        at[p] = 0
        active[p] = p
    n_active = np.uint64(n) if n_nodes > 0 else np.uint64(0)
    while n_active > 0:
        # Pairs that have reached a leaf drop out; the others move up in the list, which may be written while
        # it is read: the place written never passes the one read.
        n_left = np.uint64(0)
        for q in range(n_active):
            p = np.uint64(active[q])
            node = np.uint64(at[p])
            # Both words of a node: children (high in the upper half); feature (upper half) and threshold.
            children, test = nodes[np.uint64(2) * node], nodes[np.uint64(2) * node + np.uint64(1)]
            value = cells[p * width + (test >> np.uint64(32))]
            high = np.uint64(value > np.int32(test & _LOW_HALF))
            # A shift by 0 or 32 picks the child without a branch.
            to = (children >> (high << np.uint64(5))) & _LOW_HALF
            at[p] = np.uint32(to)
            active[n_left] = np.uint32(p)
            n_left += np.uint64(to < n_nodes)
        n_active = n_left


@kernel
def _walk_trees(nodes, node_starts, row, at, active):
    """Take one pair to its leaf in every tree; ``at`` (n_trees,) ends as `_walk` leaves it."""
    n_active = np.uint64(0)
    for t in range(node_starts.shape[0] - 1):
        at[t] = 0
        active[n_active] = np.uint32(t)
        n_active += np.uint64(node_starts[t + 1] > node_starts[t])
    while n_active > 0:
        n_left = np.uint64(0)
        for q in range(n_active):
            t = np.uint64(active[q])
            base = np.uint64(node_starts[t])
            node = base + np.uint64(at[t])
            children, test = nodes[np.uint64(2) * node], nodes[np.uint64(2) * node + np.uint64(1)]
            high = np.uint64(row[test >> np.uint64(32)] > np.int32(test & _LOW_HALF))
            to = (children >> (high << np.uint64(5))) & _LOW_HALF
            at[t] = np.uint32(to)
            active[n_left] = np.uint32(t)
            n_left += np.uint64(to < np.uint64(node_starts[t + np.uint64(1)]) - base)
        n_active = n_left


@kernel
def score_pairs(
    nodes, node_starts, values, value_starts, left, right, step_left, step_right, start, stop, pair_map,
    learned_left, learned_right, forms, out,
):  # fmt: skip
    """Sum of leaf values over trees for pairs ``start:stop``, tree by tree in order.

    Parameters
    ----------
    nodes : (2 n_nodes,) uint64; tree t has nodes ``node_starts[t]`` to ``node_starts[t + 1]``, children counted in it.
    values : (n_leaves,) float64; tree t has those from ``value_starts[t]``.
    left, right : (n or 1, d) float32; a step of 0 repeats the only row.
    learned_left, learned_right, forms : learned columns of the rows, and the forms of `pair_forms`.
    out : (n,) float64, filled at ``start:stop``.
    """
    n_trees = node_starts.shape[0] - 1
    one_block = stop - start < FEW
    block = np.empty((min(BLOCK, stop - start), 2 * left.shape[1] + forms.shape[0]), dtype=np.int32)
    slots = n_trees if one_block else BLOCK
    at, active = np.empty(slots, dtype=np.uint32), np.empty(slots, dtype=np.uint32)
    for first in range(start, stop, BLOCK):
        n = min(BLOCK, stop - first)
        _fill_features(
            block, left, right, step_left, step_right, first, n, pair_map, learned_left, learned_right, forms
        )
        # Trees are added in their order, so that a sum has the same bits in any batch.
        out[first : first + n] = 0.0
        if one_block:
            for p in range(n):
                _walk_trees(nodes, node_starts, block[p], at, active)
                for t in range(n_trees):
                    leaf = np.int64(at[t]) - (node_starts[t + 1] - node_starts[t])
                    out[first + p] += values[value_starts[t] + leaf]
            continue
        for t in range(n_trees):
            n_nodes = np.uint64(node_starts[t + 1] - node_starts[t])
            _walk(nodes[2 * node_starts[t] : 2 * node_starts[t + 1]], n_nodes, block, n, at, active)
            shift = value_starts[t] - np.int64(n_nodes)
            for p in range(n):
                out[first + p] += values[shift + np.int64(at[p])]


@kernel
def _place(value, low, scale):
    """The step that a value falls in; it never falls as the value rises, whatever is rounded."""
    return np.uint16(np.int32(min(max((value - low) * scale, np.float32(0.0)), np.float32(TOP_PLACE))))


@kernel
def pack_narrow(features, thresholds, low_children, high_children, lows, scales, words):
    """Write nodes as words; children number nodes, then leaves."""
    for i in range(words.shape[0]):
        f = features[i]
        place = np.uint64(_place(thresholds[i], lows[f], scales[f]))
        words[i] = (
            (place << _TO_PLACE)
            | (np.uint64(f) << _TO_FEATURE)
            | (high_children[i] << _CHILD_BITS)
            | low_children[i]
        )


@kernel
def _fill_places(
    places, extra, left, right, step_left, step_right, start, n, pair_map, lows, scales, learned_left,
    learned_right, forms,
):  # fmt: skip
    """Places of all features of ``n`` pairs from pair ``start`` on; ``extra`` gets the learned ones as they are."""
    d = left.shape[1]
    for p in range(n):
        a, b, row = left[(start + p) * step_left], right[(start + p) * step_right], places[p]
        if pair_map == MAX_MIN:
            for f in range(d):
                row[f] = _place(max(a[f], b[f]), lows[f], scales[f])
            for f in range(d):
                row[d + f] = _place(min(a[f], b[f]), lows[d + f], scales[d + f])
        else:
            for f in range(d):
                row[f] = _place(abs(a[f] - b[f]), lows[f], scales[f])
            for f in range(d):
                row[d + f] = _place(a[f] + b[f], lows[d + f], scales[d + f])
        if forms.shape[0] > 0:
            pair_forms(
                learned_left[(start + p) * step_left],
                learned_right[(start + p) * step_right],
                forms,
                extra[p],
            )
            for k in range(forms.shape[0]):
                row[2 * d + k] = _place(extra[p, k], lows[2 * d + k], scales[2 * d + k])


@kernel
def _by_value(word, threshold, a, b, extra, pair_map):
    """The child where places are equal: by the floats."""
    f, d = np.int64((word >> _TO_FEATURE) & _FEATURE), a.shape[0]
    if f >= 2 * d:
        value = extra[f - 2 * d]
    elif f >= d:
        value = min(a[f - d], b[f - d]) if pair_map == MAX_MIN else a[f - d] + b[f - d]
    elif pair_map == MAX_MIN:
        value = max(a[f], b[f])
    else:
        value = abs(a[f] - b[f])
    return ((word >> _CHILD_BITS) if value > threshold else word) & _CHILD


@kernel
def _walk_narrow(
    nodes, thresholds, places, extra, left, right, step_left, step_right, start, n, pair_map, at, active
):  # fmt: skip
    """Take ``n`` pairs from the root of one tree to their leaves; ``at`` ends as node count + leaf number."""
    width = np.uint64(places.shape[1])
    cells = places.reshape(places.size)
    n_nodes = np.uint64(nodes.shape[0])
    for p in range(n):
        at[p] = 0
        active[p] = p
    n_active = np.uint64(n) if n_nodes > 0 else np.uint64(0)
    while n_active > 0:
        n_left = np.uint64(0)
        for q in range(n_active):
            p = np.uint64(active[q])
            node = np.uint64(at[p])
            word = nodes[node]
            # Below zero, so with its upper bits set, where the pair's place is the higher one. A comparison here ends
            # as a branch that is a coin toss.
            gap = (word >> _TO_PLACE) - np.uint64(cells[p * width + ((word >> _TO_FEATURE) & _FEATURE)])
            to = (word >> ((gap >> _SIGN) & _CHILD_BITS)) & _CHILD
            if gap == 0:
                pair, row = start + np.int64(p), np.int64(p)
                a, b = left[pair * step_left], right[pair * step_right]
                to = _by_value(word, thresholds[node], a, b, extra[row], pair_map)
            at[p] = np.uint32(to)
            active[n_left] = np.uint16(p)
            n_left += np.uint64(to < n_nodes)
        n_active = n_left


@kernel
def _walk_trees_narrow(nodes, thresholds, node_starts, row, extra, a, b, pair_map, at, active):
    """Take one pair to its leaf in every tree; ``at`` (n_trees,) ends as `_walk` leaves it."""
    n_active = np.uint64(0)
    for t in range(node_starts.shape[0] - 1):
        at[t] = 0
        active[n_active] = np.uint32(t)
        n_active += np.uint64(node_starts[t + 1] > node_starts[t])
    while n_active > 0:
        n_left = np.uint64(0)
        for q in range(n_active):
            t = np.uint64(active[q])
            base = np.uint64(node_starts[t])
            node = base + np.uint64(at[t])
            word = nodes[node]
            gap = (word >> _TO_PLACE) - np.uint64(row[(word >> _TO_FEATURE) & _FEATURE])
            to = (word >> ((gap >> _SIGN) & _CHILD_BITS)) & _CHILD
            if gap == 0:
                to = _by_value(word, thresholds[node], a, b, extra, pair_map)
            at[t] = np.uint32(to)
            active[n_left] = np.uint32(t)
            n_left += np.uint64(to < np.uint64(node_starts[t + np.uint64(1)]) - base)
        n_active = n_left


@kernel
def score_narrow(
    nodes, thresholds, lows, scales, node_starts, values, value_starts, left, right, step_left, step_right,
    start, stop, pair_map, learned_left, learned_right, forms, out,
):  # fmt: skip
    """`score_pairs` for trees of narrow nodes: the same sums to the last bit.

    Parameters
    ----------
    nodes, thresholds : (n_nodes,) uint64 and float32; tree t has those from ``node_starts[t]`` to
        ``node_starts[t + 1]``, children counted in it.
    lows, scales : (features,) float32, of places.

    Returns
    -------
    a number that means nothing: what was read so as to stream trees has to be used.
    """
    n_trees = node_starts.shape[0] - 1
    one_block = stop - start < FEW
    size = min(BLOCK, stop - start)
    places = np.empty((size, 2 * left.shape[1] + forms.shape[0]), dtype=np.uint16)
    extra = np.empty((size, forms.shape[0]), dtype=np.float32)
    at, active = np.empty(max(size, n_trees), dtype=np.uint32), np.empty(BLOCK, dtype=np.uint16)
    trees_under_way = np.empty(n_trees, dtype=np.uint32)
    sink = np.uint64(0)
    for first in range(start, stop, BLOCK):
        n = min(BLOCK, stop - first)
        _fill_places(
            places, extra, left, right, step_left, step_right, first, n, pair_map, lows, scales,
            learned_left, learned_right, forms,
        )  # fmt: skip
        out[first : first + n] = 0.0
        if one_block:
            for p in range(n):
                a, b = left[(first + p) * step_left], right[(first + p) * step_right]
                _walk_trees_narrow(
                    nodes, thresholds, node_starts, places[p], extra[p], a, b, pair_map, at, trees_under_way
                )
                for t in range(n_trees):
                    leaf = np.int64(at[t]) - (node_starts[t + 1] - node_starts[t])
                    out[first + p] += values[value_starts[t] + leaf]
            continue
        for t in range(n_trees):
            tree = nodes[node_starts[t] : node_starts[t + 1]]
            n_nodes = tree.shape[0]
            if n_nodes <= 64 * n:
                # One read a cache line.
                for i in range(np.uint64(0), np.uint64(n_nodes), np.uint64(8)):
                    sink += tree[i]
            _walk_narrow(
                tree, thresholds[node_starts[t] : node_starts[t + 1]], places, extra, left, right, step_left,
                step_right, first, n, pair_map, at, active,
            )  # fmt: skip
            leaves = values[value_starts[t] : value_starts[t + 1]]
            for p in range(n):
                out[first + p] += leaves[np.int64(at[p]) - n_nodes]
    return sink
