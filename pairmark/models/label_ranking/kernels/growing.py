"""Growing label ranking trees, in compiled loops.

A tree is grown on all labels at once: the target of row r is ``y[r]``, (k,) whole numbers, and a cell's error is the
sum over labels of their squared deviations. Rows are sorted by every feature once; splitting a cell parts each of
those orders stably, so no cell is ever sorted again. Targets and weights are mostly whole numbers, so sums are exact
as long as they stay below 2^53, and no order of adding matters: those of few labels are taken eight side by side.

Nodes: ``feature`` (-1 for a leaf), ``threshold`` (values at most that go left), ``left``, ``right``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils as untyped_cgutils
from numba.core import types
from numba.extending import intrinsic

from pairmark.models.core.compiled import kernel
from pairmark.models.core.kernels.random import next_random

BEST, RANDOM = 0, 1
cgutils: Any = untyped_cgutils

LANES = 4
"""Labels that are summed side by side."""
_WEIGHT, _LENGTH, _ONTO = range(3)
"""What the last block of `_weighted_lanes` holds of each row."""
_ROUNDING = 1e-9
"""Far more than rounding can be off by, relatively."""
_ROUNDING32 = 1e-5
"""The same of float32."""
PACKED = 7
"""So many labels' whole sums, and the rows' weight, are added at once."""
_MASS = 2.0**31
_EXACT = 2.0**52
"""Sums of squares below are exact, whichever way they are taken, and the sums fit into 32 bits."""
FEW_DIVIDED, FEW_WHOLE = 5, 8
"""So many rows can be divided in few enough ways to work out each once for all features; more where sums are exact."""
FEW_WAYS = 3
"""Where sums are exact, half the ways are fewer than so many times the features."""


@kernel
def _middle(low, high):
    """A float32 between two values, or the lower where none lies between."""
    middle = np.float32(0.5 * (np.float64(low) + np.float64(high)))
    return middle if low <= middle < high else low


@kernel
def _totals(rows, y, weight, total):
    """Fill ``total`` with the cell's weighted sums; returns its weight and whether its targets differ."""
    k = y.shape[1]
    total[:] = 0.0
    mass = 0.0
    differ = False
    first = rows[0]
    for r in rows:
        w = weight[r]
        mass += w
        for c in range(k):
            total[c] += w * y[r, c]
            differ |= y[r, c] != y[first, c]
    return mass, differ


@kernel
def _projections(rows, y, total, weight, lanes):
    """Inner product of each row's targets with the cell's sums, into ``onto``; returns the sums' squared length."""
    for r in rows:
        dot = 0.0
        for c in range(y.shape[1]):
            dot += total[c] * y[r, c]
        lanes[r, lanes.shape[1] - 1, _ONTO] = weight[r] * dot
    total_norm = 0.0
    for c in range(y.shape[1]):
        total_norm += total[c] * total[c]
    return total_norm


@kernel
def _weighted_lanes(y, norm, weight):
    """What a border needs of each row, side by side: (n, blocks, LANES).

    Targets by the row's weight, `LANES` labels a block and 0 beyond the last; then, in a block of their own, the
    weight, the squared length weighted alike, and a place for the row's projection by its weight.
    """
    n, k = y.shape
    n_blocks = (k + LANES - 1) // LANES
    lanes = np.zeros((n, n_blocks + 1, LANES))
    for r in range(n):
        w = weight[r]
        for c in range(k):
            lanes[r, c // LANES, c % LANES] = w * y[r, c]
        lanes[r, n_blocks, _WEIGHT], lanes[r, n_blocks, _LENGTH] = w, w * w * norm[r]
    return lanes


@kernel
def _growth(order, f, begin, end, lanes, work):
    """By how much the squared length of the sums of a cell's first rows grows with each row: ``2 s.wy`` to ``work``.

    The sums of four labels stay in registers, and their products are added in pairs: one after the other, each addition
    would wait for the one before.
    """
    for block in range(np.uint64(lanes.shape[1] - 1)):
        s0 = s1 = s2 = s3 = 0.0
        for p in range(begin, end):
            r = np.uint64(order[f, p])
            v0, v1, v2, v3 = lanes[r, block, 0], lanes[r, block, 1], lanes[r, block, 2], lanes[r, block, 3]
            product = 2.0 * ((s0 * v0 + s1 * v1) + (s2 * v2 + s3 * v3))
            s0, s1, s2, s3 = s0 + v0, s1 + v1, s2 + v2, s3 + v3
            work[p - begin] = product if block == 0 else work[p - begin] + product


# Slices of arrays would count references, which costs as much as a small cell: hence rows by number.


@kernel
def _best_of_feature(values, order, f, start, stop, lanes, mass, total_norm, min_leaf, floor, work):
    """The border of largest between-children sum of squares, of feature ``f`` in the cell ``start:stop``.

    The squared length of the left sums grows row by row (`_growth`) and that of the right sums follows from it and the
    projections, so a border costs one inner product. ``work`` (rows,) is scratch.

    Returns
    -------
    the sum of squares (``floor`` where none is larger) and the number of rows on the left (0: none).
    """
    column, begin, last = np.uint64(f), np.uint64(start), np.uint64(lanes.shape[1] - 1)
    n = np.uint64(stop - start)
    _growth(order, column, begin, begin + n, lanes, work)
    left_mass = left_norm = cross = 0.0
    best, best_at = floor, 0
    bar = best - _ROUNDING * abs(best)
    for p in range(n - np.uint64(1)):
        r = np.uint64(order[column, begin + p])
        # |s + wy|^2 = |s|^2 + 2 s.wy + |wy|^2: `_growth` gave the middle term.
        left_norm += work[p] + lanes[r, last, _LENGTH]
        cross += lanes[r, last, _ONTO]
        left_mass += lanes[r, last, _WEIGHT]
        # |S - s|^2 = |S|^2 - 2 S.s + |s|^2, S being the cell's sums and `cross` S.s.
        right_norm, right_mass = total_norm - 2.0 * cross + left_norm, mass - left_mass
        # Two divisions take longer than all the rest: only borders that might be better are divided for.
        if left_norm * right_mass + right_norm * left_mass > bar * (left_mass * right_mass):
            at = np.int64(p) + 1
            gain = left_norm / left_mass + right_norm / right_mass
            # A border lies between two different values, with enough rows on either side.
            new = gain > best and at >= min_leaf and stop - start - at >= min_leaf
            if new and values[order[f, start + at - 1], f] != values[order[f, start + at], f]:
                best, best_at = gain, at
                bar = best - _ROUNDING * abs(best)
    return best, best_at


@kernel
def _is_whole(y, weight):
    """Whether all that counts is whole, and so small that sums of squares are exact, whichever way they are taken."""
    square = 0.0
    for c in range(y.shape[1]):
        size = 0.0
        for r in range(y.shape[0]):
            w, target = weight[r], y[r, c]
            if w > 0.0 and (w != np.floor(w) or target != np.floor(target)):
                return False
            size += abs(w * target)
        square += size * size
    return square < _EXACT and weight.sum() < _MASS


@kernel
def _packed(y, weight):
    """Each row's weighted targets, 0 beyond the last, and its weight, all whole: (n, 8)."""
    packed = np.zeros((y.shape[0], PACKED + 1), np.int32)
    for r in range(y.shape[0]):
        for c in range(y.shape[1]):
            packed[r, c] = np.int32(weight[r] * y[r, c])
        packed[r, PACKED] = np.int32(weight[r])
    return packed


@intrinsic
def _running_sums(typing: Any, order: Any, begin: Any, n: Any, packed: Any, sums: Any) -> Any:
    """Eight running sums over the rows from ``begin`` on in flat ``order``, each to its own row of ``sums``.

    They go on until their number, a multiple of eight, is at least ``n``, with whatever rows follow. In LLVM's words:
    of the additions of a row Numba would make eight instructions, and of eight rows' transposition far more than 24.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        orders, table, out = (
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 3, 4)
        )
        eight = ir.VectorType(ir.IntType(32), 8)
        rows_of = builder.bitcast(table.data, eight.as_pointer())
        start, index = arguments[1], arguments[1].type
        final, width = builder.sub(orders.nitems, index(1)), builder.extract_value(out.shape, 1)
        total = cgutils.alloca_once_value(builder, ir.Constant(eight, None))
        with cgutils.for_range_slice(builder, index(0), arguments[2], index(8), index) as (group, _):
            vectors = []
            for i in range(8):
                at = builder.add(start, builder.add(group, index(i)))
                at = builder.select(builder.icmp_signed("<", at, final), at, final)
                row = builder.zext(builder.load(builder.gep(orders.data, [at])), index)
                added = builder.load(builder.gep(rows_of, [row]), align=4)
                builder.store(builder.add(builder.load(total), added), total)
                vectors.append(builder.load(total))
            # Numbers, then twos, then fours of two rows are put side by side, as processors do it in one step.
            for span, first in (
                (1, (0, 8, 1, 9, 4, 12, 5, 13)),
                (2, (0, 1, 8, 9, 4, 5, 12, 13)),
                (4, (0, 1, 2, 3, 8, 9, 10, 11)),
            ):
                masks = [
                    ir.Constant(eight, [i + shift for i in first]) for shift in (0, 4 if span == 4 else 2)
                ]
                for a in (i for i in range(8) if not i & span):
                    one, other = vectors[a], vectors[a + span]
                    vectors[a], vectors[a + span] = (
                        builder.shuffle_vector(one, other, mask) for mask in masks
                    )
            for i, vector in zip((0, 2, 1, 3, 4, 6, 5, 7), vectors, strict=True):
                place = builder.add(builder.mul(width, index(i)), group)
                target = builder.bitcast(builder.gep(out.data, [place]), eight.as_pointer())
                builder.store(vector, target, align=4)
        return context.get_dummy_value()

    return types.void(order, types.int64, types.int64, packed, sums), build


@kernel
def _best_of_packed(values, order, f, start, stop, packed, total, mass, min_leaf, floor, sums, better):
    """As `_best_of_feature`, of whole numbers (`_packed`). ``sums`` and ``better`` are scratch.

    Float32 tells, of eight borders at once, which might be better; only those are worked out as they are elsewhere.
    """
    n, column = stop - start - 1, np.uint64(f)
    _running_sums(order, f * order.shape[1] + start, n, packed, sums)
    bar, all_mass = np.float32(floor * (1.0 - _ROUNDING32)), np.int32(mass)
    t0, t1, t2, t3, t4, t5, t6 = total[0], total[1], total[2], total[3], total[4], total[5], total[6]
    n_better = np.int32(0)
    for q in range((np.uint64(n) + np.uint64(7)) & ~np.uint64(7)):
        s0, s1, s2, s3, s4 = sums[0, q], sums[1, q], sums[2, q], sums[3, q], sums[4, q]
        s5, s6, s7 = sums[5, q], sums[6, q], sums[7, q]
        a0, a1, a2, a3 = np.float32(s0), np.float32(s1), np.float32(s2), np.float32(s3)
        a4, a5, a6, left = np.float32(s4), np.float32(s5), np.float32(s6), np.float32(s7)
        b0, b1 = np.float32(np.int32(t0 - s0)), np.float32(np.int32(t1 - s1))
        b2, b3 = np.float32(np.int32(t2 - s2)), np.float32(np.int32(t3 - s3))
        b4, b5 = np.float32(np.int32(t4 - s4)), np.float32(np.int32(t5 - s5))
        b6, right = np.float32(np.int32(t6 - s6)), np.float32(np.int32(all_mass - s7))
        a = ((a0 * a0 + a1 * a1) + (a2 * a2 + a3 * a3)) + ((a4 * a4 + a5 * a5) + a6 * a6)
        b = ((b0 * b0 + b1 * b1) + (b2 * b2 + b3 * b3)) + ((b4 * b4 + b5 * b5) + b6 * b6)
        # Beyond the cell nothing is right of the border.
        better[q] = np.int32((right > np.float32(0.0)) & (a * right + b * left > bar * (left * right)))
        n_better = np.int32(n_better + better[q])
    best, best_at = floor, 0
    first = np.uint64(min_leaf - 1)
    for q in range(
        first, np.uint64(max(stop - start - min_leaf, min_leaf - 1) if n_better > 0 else min_leaf - 1)
    ):
        p = np.uint64(start) + q
        r, following = np.uint64(order[column, p]), np.uint64(order[column, p + np.uint64(1)])
        if better[q] and values[r, column] != values[following, column]:
            left_norm = right_norm = 0.0
            for c in range(np.uint64(PACKED)):
                s = np.float64(sums[c, q])
                left_norm += s * s
                right_norm += (total[c] - s) * (total[c] - s)
            left_mass = np.float64(sums[np.uint64(PACKED), q])
            gain = left_norm / left_mass + right_norm / (mass - left_mass)
            if gain > best:
                best, best_at = gain, np.int64(q) + 1
    return best, best_at


@kernel
def _gains_of_few(rows, y, weight, total, mass, min_leaf, whole, bit, sums, gains):
    """The between-children sum of squares of every way to divide few rows, by the bits of those on the left.

    Most nodes hold few rows, and most features divide those alike. ``bit`` gets each row's bit; ``sums`` is scratch:
    of each set of rows the weighted targets, the weight and how many they are. Returns the largest.
    """
    n, k = rows.shape[0], y.shape[1]
    for c in range(k + 2):
        sums[0, c] = 0.0
    top = -1.0
    for q in range(n):
        r, w = rows[q], weight[rows[q]]
        bit[r] = 1 << q
        # Where sums are exact, ways with the last row on the left are those with it on the right, mirrored.
        for earlier in range(0 if whole and q == n - 1 else 1 << q):
            subset = (1 << q) | earlier
            left_norm = right_norm = 0.0
            for c in range(k):
                s = sums[earlier, c] + w * y[r, c]
                sums[subset, c] = s
                left_norm += s * s
                right_norm += (total[c] - s) * (total[c] - s)
            sums[subset, k] = sums[earlier, k] + w
            sums[subset, k + 1] = sums[earlier, k + 1] + 1.0
            left_mass, n_left = sums[subset, k], sums[subset, k + 1]
            if min(n_left, n - n_left) >= min_leaf:
                gains[subset] = left_norm / left_mass + right_norm / (mass - left_mass)
                top = max(top, gains[subset])
            else:
                gains[subset] = -1.0
            if whole:
                gains[(1 << n) - 1 - subset] = gains[subset]
    return top


@kernel
def _best_of_few(values, order, f, start, stop, bit, gains, floor):
    """As `_best_of_feature`, where `_gains_of_few` are there, of those rows of ``start:stop`` that have a bit.

    Returns
    -------
    the sum of squares, the set of rows on the left (0: none), the threshold, and whether the feature varies.
    """
    best, best_subset, threshold = floor, 0, np.float32(0.0)
    subset, before, varies = 0, np.float32(0.0), False
    for p in range(start, stop):
        r = order[f, p]
        if bit[r] == 0:
            continue
        value = values[r, f]
        if subset > 0 and value != before:
            varies = True
            if gains[subset] > best:
                best, best_subset, threshold = gains[subset], subset, _middle(before, value)
        subset, before = subset | bit[r], value
    return best, best_subset, threshold, varies


@kernel
def _masked_rows(order, start, stop, mask, bit, rows):
    """The rows of a cell, of ``start:stop`` those in ``mask``, to ``rows``; returns how many. Others lose their bit."""
    n = 0
    for p in range(start, stop):
        rows[n] = order[0, p]
        bit[rows[n]] = 0
        n += (mask >> (p - start)) & 1
    return n


@kernel
def _random_of_feature(values, rows, y, weight, mass, total, min_leaf, low, state):
    """As `_best_of_feature`, for one border drawn uniformly between the least and the largest value."""
    k = y.shape[1]
    n = rows.shape[0]
    lowest, highest = values[rows[0]], values[rows[n - 1]]
    # The upper 53 bits: every float64 that is a multiple of 2^-53, evenly, below 1.
    share = np.float64(next_random(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
    border = lowest + share * (np.float64(highest) - np.float64(lowest))
    # How many rows are at most the border, by bisection: at least one stays on either side.
    at, high = 1, n - 1
    while at < high:
        middle = (at + high) // 2
        if values[rows[middle]] <= border:
            at = middle + 1
        else:
            high = middle
    if at < min_leaf or n - at < min_leaf or values[rows[at - 1]] == values[rows[at]]:
        return -1.0, 0
    low[:] = 0.0
    left_mass = 0.0
    for p in range(at):
        r = rows[p]
        w = weight[r]
        left_mass += w
        for c in range(k):
            low[c] += w * y[r, c]
    a = b = 0.0
    for c in range(k):
        a += low[c] * low[c]
        b += (total[c] - low[c]) * (total[c] - low[c])
    return a / left_mass + b / (mass - left_mass), at


@kernel
def _part(order, skip, start, at, stop, goes_left, spare):
    """Part every feature's order of the cell ``start:stop`` as feature ``skip`` already is at ``at``."""
    for p in range(start, stop):
        goes_left[order[skip, p]] = np.uint8(p < at)
    begin, end = np.uint64(start), np.uint64(stop)
    for f in range(order.shape[0]):
        if f == skip:
            continue
        next_left, n_right = begin, np.uint64(0)
        for p in range(begin, end):
            # Both places are written and one of them counts: a branch would be guessed wrong half the time.
            r = order[f, p]
            left = np.uint64(goes_left[np.uint64(r)])
            order[f, next_left], spare[n_right] = r, r
            next_left += left
            n_right += np.uint64(1) - left
        for q in range(n_right):
            order[f, next_left + q] = spare[q]


@kernel
def sampled_order(order, weight, sample):
    """Copy from each feature's ``order`` the rows that have a weight to ``sample`` (features, their number)."""
    m = sample.shape[1]
    for f in range(order.shape[0]):
        n = 0
        for p in range(order.shape[1]):
            if n == m:
                break
            # Written always, counted where it is in the sample: a branch would be guessed wrong half the time.
            sample[f, n] = order[f, p]
            n += weight[order[f, p]] > 0.0


@kernel
def _shuffled(features, n_done, state):
    """Bring a uniformly drawn remaining feature to place ``n_done`` and return it."""
    j = n_done + np.int64(next_random(state) % np.uint64(features.shape[0] - n_done))
    features[n_done], features[j] = features[j], features[n_done]
    return features[n_done]


class Nodes(NamedTuple):
    """A growing tree: what each node tests, its children, and the places of its rows in each feature's order."""

    feature: Any
    threshold: Any
    left: Any
    right: Any
    start: Any
    stop: Any


@kernel
def _root(m):
    """Space for a tree of m rows, which are all in its first node."""
    size = max(1, 2 * m - 1)
    children = np.zeros((2, size), np.int32)
    places = np.zeros((2, size), np.int64)
    places[1, 0] = m
    return Nodes(
        np.full(size, -1, np.int32),
        np.zeros(size, np.float32),
        children[0],
        children[1],
        places[0],
        places[1],
    )


@kernel
def _branch(nodes, node, n_nodes, f, threshold):
    nodes.feature[node], nodes.threshold[node] = f, threshold
    nodes.left[node], nodes.right[node] = n_nodes, n_nodes + 1


@kernel
def _split_few(nodes, node, n_nodes, f, threshold, subset, order, bit, masks):
    """Make two children of a cell of few rows. No order is parted: they hold the same places, each its own of them."""
    _branch(nodes, node, n_nodes, f, threshold)
    a, b = nodes.start[node], nodes.stop[node]
    for child in range(n_nodes, n_nodes + 2):
        nodes.start[child], nodes.stop[child] = a, b
    for p in range(a, b):
        own = bit[order[0, p]]
        if own > 0:
            masks[n_nodes if own & subset else n_nodes + 1] |= 1 << (p - a)


@kernel
def _split(nodes, node, n_nodes, f, at, values, order, goes_left, spare):
    """Make two children of a node, numbers ``n_nodes`` and one more, by feature ``f`` before the place ``at``."""
    a, b = nodes.start[node], nodes.stop[node]
    _branch(nodes, node, n_nodes, f, _middle(values[order[f, at - 1], f], values[order[f, at], f]))
    nodes.start[n_nodes], nodes.stop[n_nodes] = a, at
    nodes.start[n_nodes + 1], nodes.stop[n_nodes + 1] = at, b
    _part(order, f, a, at, b, goes_left, spare)


@kernel
def grow_by_cell(values, order, y, norm, weight, max_depth, min_leaf, n_tried, splitter, seed):
    """Grow one tree, each cell by a feature of its own: Algorithm 10 (Breiman) of the paper's appendix D.

    Parameters
    ----------
    values : (n, d) float32 features: those of a small cell's rows stay in the processor's cache.
    order : (d, m) int32 the rows that are learned from, sorted by each feature; parted in place.
    y, norm : (n, k) float64 targets and their squared lengths.
    weight : (n,) float64 how often each row counts.
    max_depth : levels at most. min_leaf : rows a leaf holds at least. n_tried : features tried, constant ones not
        counted.
    splitter : ``BEST`` or ``RANDOM`` borders.
    seed : of the features drawn.

    Returns
    -------
    feature, threshold, left, right : of each node.
    """
    d, m = order.shape
    nodes, n_nodes = _root(m), 1
    depth = np.zeros(nodes.feature.size, np.int64)
    whole = _is_whole(y, weight)
    packs = whole and y.shape[1] <= PACKED
    few_rows = FEW_DIVIDED
    while whole and few_rows < FEW_WHOLE and 1 << few_rows < FEW_WAYS * d:
        few_rows += 1
    lanes, work = _weighted_lanes(y[:0] if packs else y, norm, weight), np.empty(m)
    packed, totals = _packed(y if packs else y[:0], weight), np.zeros(PACKED, np.int32)
    packed_sums, better = np.zeros((PACKED + 1, m + 7), np.int32), np.zeros(m + 7, np.int32)
    goes_left, spare = np.zeros(values.shape[0], np.uint8), np.empty(m, np.int32)
    total, low = np.zeros(y.shape[1]), np.zeros(y.shape[1])
    bit, gains = np.zeros(values.shape[0], np.uint8), np.zeros(1 << FEW_WHOLE)
    sums, cell_rows = np.zeros((1 << FEW_WHOLE, y.shape[1] + 2)), np.zeros(FEW_WHOLE + 1, np.int32)
    # Which places of a cell's are a node's, where they are few enough for a mask.
    masks = np.zeros(nodes.feature.size, np.int64)
    features = np.arange(d)
    state = np.array([seed], np.uint64)
    # Nodes that may still be split, the left child of the last split on top.
    waiting, n_waiting = np.zeros(nodes.feature.size, np.int64), 1
    while n_waiting > 0:
        n_waiting -= 1
        node = waiting[n_waiting]
        a, b = nodes.start[node], nodes.stop[node]
        if splitter == BEST and masks[node] == 0 and b - a <= few_rows:
            masks[node] = (1 << (b - a)) - 1
        few = masks[node] > 0
        rows = cell_rows[: _masked_rows(order, a, b, masks[node], bit, cell_rows)] if few else order[0, a:b]
        if rows.size < 2 * min_leaf or rows.size < 2 or depth[node] >= max_depth:
            continue
        mass, differ = _totals(rows, y, weight, total)
        if not differ:
            continue
        total_norm, top = 0.0, np.inf
        if few:
            top = _gains_of_few(rows, y, weight, total, mass, min_leaf, whole, bit, sums, gains)
        elif packs:
            for c in range(total.size):
                totals[c] = np.int32(total[c])
        else:
            total_norm = _projections(rows, y, total, weight, lanes)
        best, best_feature, best_at, threshold = -1.0, -1, 0, np.float32(0.0)
        n_drawn = n_varying = 0
        # Constant features do not count as tried, and where none of those tried can split, more are drawn.
        while n_drawn < d and (n_varying < n_tried or best_feature < 0):
            f = _shuffled(features, n_drawn, state)
            n_drawn += 1
            # What divides few rows best of all cannot be surpassed; the draws are as ever.
            if best == top and n_tried >= d:
                continue
            if few:
                gain, at, border, varies = _best_of_few(values, order, f, a, b, bit, gains, best)
                n_varying += varies
                if at > 0:
                    best, best_feature, best_at, threshold = gain, f, at, border
                continue
            if values[order[f, a], f] == values[order[f, b - 1], f]:
                continue
            n_varying += 1
            if splitter == RANDOM:
                rows = order[f, a:b]
                gain, at = _random_of_feature(
                    values[:, f], rows, y, weight, mass, total, min_leaf, low, state
                )
                if at == 0 or gain <= best:
                    continue
            elif packs:
                gain, at = _best_of_packed(
                    values, order, f, a, b, packed, totals, mass, min_leaf, best, packed_sums, better
                )
            else:
                gain, at = _best_of_feature(
                    values, order, f, a, b, lanes, mass, total_norm, min_leaf, best, work
                )
            if at > 0:
                best, best_feature, best_at = gain, f, at
        if best_feature < 0:
            continue
        if few:
            _split_few(nodes, node, n_nodes, best_feature, threshold, best_at, order, bit, masks)
        else:
            _split(nodes, node, n_nodes, best_feature, a + best_at, values, order, goes_left, spare)
        depth[n_nodes] = depth[n_nodes + 1] = depth[node] + 1
        waiting[n_waiting], waiting[n_waiting + 1] = n_nodes + 1, n_nodes
        n_waiting += 2
        n_nodes += 2
    return nodes.feature[:n_nodes], nodes.threshold[:n_nodes], nodes.left[:n_nodes], nodes.right[:n_nodes]


@kernel
def grow_by_level(values, order, y, norm, weight, max_depth, min_leaf, n_tried, seed):
    """Grow one tree, all cells of a level by one feature: Algorithm 9 (Level-Splits) of the paper's appendix D.

    Parameters and what is returned are those of `grow_by_cell`.
    """
    d, m = order.shape
    nodes, n_nodes = _root(m), 1
    lanes, work = _weighted_lanes(y, norm, weight), np.empty(m)
    goes_left, spare = np.zeros(values.shape[0], np.uint8), np.empty(m, np.int32)
    total = np.zeros(y.shape[1])
    features = np.arange(d)
    state = np.array([seed], np.uint64)
    cells, n_cells = np.zeros(m, np.int64), 1
    level = 0
    while n_cells > 0 and level < max_depth:
        level += 1
        gains, splits = np.zeros(d), np.zeros(d, np.int64)
        # Cells outside, features inside: sums and projections of a cell serve all features.
        n_open = 0
        for q in range(n_cells):
            node = cells[q]
            a, b = nodes.start[node], nodes.stop[node]
            rows = order[0, a:b]
            mass, differ = _totals(rows, y, weight, total)
            if not differ or b - a < 2 * min_leaf:
                continue
            cells[n_open] = node
            n_open += 1
            total_norm = _projections(rows, y, total, weight, lanes)
            for f in range(d):
                gain, at = _best_of_feature(
                    values, order, f, a, b, lanes, mass, total_norm, min_leaf, -1.0, work
                )
                if at > 0:
                    splits[f] += 1
                    # Gains of different cells add up only once what a cell holds unsplit is taken off.
                    gains[f] += gain - total_norm / mass
        n_cells = n_open
        best, best_feature = -1.0, -1
        n_drawn = n_varying = 0
        while n_drawn < d and (n_varying < n_tried or best_feature < 0):
            f = _shuffled(features, n_drawn, state)
            n_drawn += 1
            if splits[f] == 0:
                continue
            n_varying += 1
            if best_feature < 0 or gains[f] > best:
                best, best_feature = gains[f], f
        if best_feature < 0:
            break
        f = best_feature
        next_cells, n_next = np.zeros(m, np.int64), 0
        for q in range(n_cells):
            node = cells[q]
            a, b = nodes.start[node], nodes.stop[node]
            rows = order[f, a:b]
            mass, differ = _totals(rows, y, weight, total)
            total_norm = _projections(rows, y, total, weight, lanes)
            gain, at = _best_of_feature(values, order, f, a, b, lanes, mass, total_norm, min_leaf, -1.0, work)
            if at == 0:
                # This cell cannot be split by the level's feature; it waits for the next.
                next_cells[n_next] = node
                n_next += 1
                continue
            _split(nodes, node, n_nodes, f, a + at, values, order, goes_left, spare)
            next_cells[n_next], next_cells[n_next + 1] = n_nodes, n_nodes + 1
            n_next += 2
            n_nodes += 2
        cells, n_cells = next_cells, n_next
    return nodes.feature[:n_nodes], nodes.threshold[:n_nodes], nodes.left[:n_nodes], nodes.right[:n_nodes]
