"""Searching galleries with forests, in compiled loops; `similarity.search` explains what they are for.

A gallery is met as columns of byte codes. Upper bounds of the forest's sum are worked out for `BLOCK` items at a time
by small programs, one a tree: each step compares one column with two ranges of codes and blends what its two branches
gave. All of it is arithmetic on bytes without a branch that depends on data, which compilers turn into wide vectors.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import inner_kernel, kernel
from pairmark.models.similarity.kernels.layout import DIFF_SUM
from pairmark.models.similarity.kernels.scoring import pair_value

BLOCK = 2_048
"""Items at a time: the columns and the scratch of a block stay in the second-level cache."""
MAX_SLOTS = 192
"""Results that a program may hold at once; a tree that would need more is bounded by its greatest leaf."""
_TILE = 256
_CODES = 256
_BOTH, _HALF, _SURE, _LAST = 0, 1, 2, 3
"""Kinds of steps: two arrays; a constant and an array; the same where the constant is the greater; two constants."""
STEP_FIELDS = 9
(
    _KIND, _COLUMN, _FIRST_START, _FIRST_MORE, _SECOND_START, _SECOND_MORE, _FIRST_VALUE, _SECOND_VALUE, _RESULT,
) = range(STEP_FIELDS)  # fmt: skip
"""A step: its kind; the column it reads; for each of two branches the code where those that may take it start and the
number of those less one; each branch's constant or the slot that its result waits in; the step's own slot. The first
branch is the constant one, of two constants the greater, whichever side of the split it is on."""
_MAY_FIRST, _MAY, _MUST_FIRST, _MUST = range(4)
"""Codes that may go low and those that must: the first one and how many."""
_TESTED, _ALL_LOW, _ALL_HIGH = 1, 2, 3
"""What becomes of a node that a program meets: a step, or one of its branches alone. 0: it meets none such."""


@kernel
def encode(vectors, edges, codes, bin_low, bin_high):
    """Code of each value: how many of its feature's ``edges`` (d, 256; ascending, padded with inf) it reaches.

    ``codes`` (blocks, d, BLOCK) uint8: a block's columns lie together. ``bin_low``, ``bin_high`` (d, 256) become the
    least and greatest value of each code.
    """
    n, d = vectors.shape
    for start in range(0, n, _TILE):
        stop = min(start + _TILE, n)
        for f in range(d):
            edge, low, high, column = edges[f], bin_low[f], bin_high[f], codes[start // BLOCK, f]
            shift = start // BLOCK * BLOCK
            for i in range(start, stop):
                x = vectors[i, f]
                # Bisection over 256 edges in eight steps without a branch, each settling one bit of the code.
                at = np.uint32(0)
                at += np.uint32(x >= edge[at + np.uint32(127)]) << np.uint32(7)
                at += np.uint32(x >= edge[at + np.uint32(63)]) << np.uint32(6)
                at += np.uint32(x >= edge[at + np.uint32(31)]) << np.uint32(5)
                at += np.uint32(x >= edge[at + np.uint32(15)]) << np.uint32(4)
                at += np.uint32(x >= edge[at + np.uint32(7)]) << np.uint32(3)
                at += np.uint32(x >= edge[at + np.uint32(3)]) << np.uint32(2)
                at += np.uint32(x >= edge[at + np.uint32(1)]) << np.uint32(1)
                at += np.uint32(x >= edge[at])
                column[i - shift] = np.uint8(at)
                low[at] = min(low[at], x)
                high[at] = max(high[at], x)


@kernel
def greatest(low, high, values, out):
    """The greatest leaf value below each node, whose children come after it; ``out`` (n_nodes + n_leaves,)."""
    n_nodes = low.shape[0]
    for leaf in range(values.shape[0]):
        out[n_nodes + leaf] = values[leaf]
    for node in range(n_nodes - 1, -1, -1):
        out[node] = max(out[low[node]], out[high[node]])


@kernel
def visit(nodes, limits, roots, d, pair_map, query, rows, visits):
    """Walk sampled rows down every tree: count how often each node is passed, and left for its low branch.

    Parameters
    ----------
    nodes : (n_nodes, 4) int32: feature, threshold, low and high child; the same bytes as floats are ``limits``.
    visits : (n_nodes, 2) int32, zeros before.
    """
    n_nodes = nodes.shape[0]
    at, still = np.empty(rows.shape[0], dtype=np.int64), np.empty(rows.shape[0], dtype=np.int64)
    for t in range(roots.shape[0]):
        moving = 0
        for i in range(rows.shape[0]):
            at[i] = roots[t]
            still[moving] = i
            moving += np.int64(at[i] < n_nodes)
        # Level by level, so that waits for memory overlap.
        while moving > 0:
            left = 0
            for j in range(moving):
                i = still[j]
                node = at[i]
                f = np.int64(nodes[node, 0])
                half = np.int64(f >= d)
                f -= half * d
                up = pair_value(query[f], rows[i, f], half, pair_map) > limits[node, 1]
                visits[node, 0] += 1
                visits[node, 1] += 1 - np.int32(up)
                at[i] = nodes[node, 2 + np.int64(up)]
                # Written always, kept only where the row is not yet at a leaf: no branch on data.
                still[left] = i
                left += np.int64(at[i] < n_nodes)
            moving = left


@kernel
def cut_of(nodes, roots, visits, greatest_below, share, mean, expanded):
    """The nodes that a program looks at; returns how many.

    What a node can gain is how far its bound lies above the leaves of the rows that pass it, summed over these. It is
    looked at if that is at least ``share`` of what all roots can gain.

    Parameters
    ----------
    mean : (n_nodes + n_leaves,), the values of leaves; becomes the mean of the leaves that rows come to from each node.
    expanded : (n_nodes,) uint8, zeros before, becomes 1 where a root leads to a node by way of such nodes.
    """
    n_nodes, n, total = nodes.shape[0], 0, 0.0
    # Children come after their parents: backwards for what is below, forwards for what is reached.
    for node in range(n_nodes - 1, -1, -1):
        passed, low = visits[node, 0], visits[node, 1]
        if passed > 0:
            mean[node] = (low * mean[nodes[node, 2]] + (passed - low) * mean[nodes[node, 3]]) / passed
    for root in roots:
        if root < n_nodes:
            expanded[root] = 1
            total += visits[root, 0] * (greatest_below[root] - mean[root])
    for node in range(n_nodes):
        if expanded[node] == 1:
            gain = visits[node, 0] * (greatest_below[node] - mean[node])
            expanded[node] = np.uint8(visits[node, 0] > 1 and gain >= share * total)
            n += expanded[node]
            for side in range(2):
                if expanded[node] == 1 and nodes[node, 2 + side] < n_nodes:
                    expanded[nodes[node, 2 + side]] = 1
    return n


@inner_kernel
def _range_of(lowest, highest, threshold, out):
    """Which codes may go low, and which must: a code stands for the values from ``lowest`` to ``highest``."""
    out[:] = 0
    for c in range(_CODES):
        if lowest[c] <= threshold:
            if out[_MAY] == 0:
                out[_MAY_FIRST] = c
            out[_MAY] += 1
        if highest[c] <= threshold:
            if out[_MUST] == 0:
                out[_MUST_FIRST] = c
            out[_MUST] += 1


@inner_kernel
def _fill_values_of_codes(low, high, q, half, pair_map, lowest, highest):
    """Between which values the pair feature of a query's value ``q`` with each code lies."""
    for c in range(_CODES):
        a, b = low[c], high[c]
        at_low, at_high = pair_value(q, a, half, pair_map), pair_value(q, b, half, pair_map)
        # A difference is least inside the bin where the query's own value is.
        inside = half == 0 and pair_map == DIFF_SUM and a <= q and q <= b
        lowest[c] = np.float32(0.0) if inside else min(at_low, at_high)
        highest[c] = max(at_low, at_high)


@inner_kernel
def _bytes_over(value, lowest, unit):
    """A value in units above the lowest, rounded up."""
    over = np.int64(np.ceil((value - lowest) / unit))
    return over + 1 if lowest + over * unit < value else over


@kernel
def compile_cut(
    nodes, limits, roots, starts, d, pair_map, query, bin_low, bin_high, expanded, greatest_below,
    unit, base, steps, ends,
):  # fmt: skip
    """Write the cut as programs for `evaluate`; returns how many steps.

    Each tree is gone through twice: parents first, to see which nodes some item can reach and what the least bound
    below them is; then children first, to write the steps. Results wait in slots until all that read them are written.

    Parameters
    ----------
    base : (n_trees,) becomes the least that a tree can give; its bytes count units above that.
    steps : (n, STEP_FIELDS) int16, see `STEP_FIELDS`.
    ends : (n_trees,) becomes where each tree's steps end; the last one's result is the tree's.
    """
    n_nodes = nodes.shape[0]
    # By node: the first code of its low branch, of its high branch and how many, on the ring of codes.
    ranges = np.zeros((n_nodes, 2, 2), dtype=np.int16)
    route, uses = np.zeros(n_nodes, dtype=np.uint8), np.zeros(n_nodes, dtype=np.int32)
    lows, highs = np.empty((2, d, _CODES), dtype=np.float32), np.empty((2, d, _CODES), dtype=np.float32)
    ready = np.zeros((2, d), dtype=np.uint8)
    codes = np.zeros(4, dtype=np.int64)
    # Each node's result: -1 - value where it is the same for all items, else its slot.
    results = np.zeros(n_nodes, dtype=np.int64)
    # How many steps still read what is in a slot; 0: it is free.
    readers = np.zeros(MAX_SLOTS, dtype=np.int64)
    sides = np.zeros(2, dtype=np.int64)
    n = 0
    for t in range(roots.shape[0]):
        root, before = roots[t], n
        ends[t], base[t] = n, greatest_below[root]
        if root >= n_nodes or expanded[root] == 0:
            continue
        route[root] = _TESTED
        uses[root] = 1
        lowest = np.inf
        # Parents first: which way items go, and the least bound of what is not looked into.
        for node in range(starts[t], starts[t + 1]):
            if route[node] == 0:
                continue
            f = np.int64(nodes[node, 0])
            half = np.int64(f >= d)
            f -= half * d
            if ready[half, f] == 0:
                ready[half, f] = 1
                _fill_values_of_codes(
                    bin_low[f], bin_high[f], query[f], half, pair_map, lows[half, f], highs[half, f]
                )
            _range_of(lows[half, f], highs[half, f], limits[node, 1], codes)
            ranges[node, 0, 0], ranges[node, 0, 1] = codes[_MAY_FIRST], codes[_MAY]
            # All but those that must go low may go high: they begin where those end.
            ranges[node, 1, 0] = (codes[_MUST_FIRST] + codes[_MUST]) & 255
            ranges[node, 1, 1] = _CODES - codes[_MUST]
            if codes[_MUST] == _CODES:
                route[node] = _ALL_LOW
            elif codes[_MAY] == 0:
                route[node] = _ALL_HIGH
            for side in range(2):
                if route[node] == (_ALL_HIGH if side == 0 else _ALL_LOW):
                    continue
                child = nodes[node, 2 + side]
                if child < n_nodes and expanded[child] == 1:
                    route[child] = _TESTED
                    uses[child] += 1
                else:
                    lowest = min(lowest, greatest_below[child])
        fits = True
        # Children first: one step a tested node.
        for node in range(starts[t + 1] - 1, starts[t] - 1, -1):
            if route[node] == 0 or not fits:
                continue
            for side in range(2):
                if route[node] == (_ALL_HIGH if side == 0 else _ALL_LOW):
                    continue
                child = nodes[node, 2 + side]
                if child < n_nodes and route[child] != 0:
                    sides[side] = results[child]
                else:
                    sides[side] = -1 - _bytes_over(greatest_below[child], lowest, unit)
            if route[node] != _TESTED:
                # Its one branch's result stands for it, and is read by all that would have read its own.
                results[node] = sides[route[node] - _ALL_LOW]
                if results[node] >= 0:
                    readers[results[node]] += uses[node] - 1
                continue
            # Slots that this step reads are still taken, so a result never overwrites what it is made of.
            free = 0
            while free < MAX_SLOTS and readers[free] > 0:
                free += 1
            if free == MAX_SLOTS:
                fits = False
                continue
            # A constant comes first, of two the greater one.
            first = 0
            if (sides[0] >= 0 and sides[1] < 0) or (sides[0] < 0 and sides[1] < 0 and sides[1] < sides[0]):
                first = 1
            step, first_value, second_value = steps[n], sides[first], sides[1 - first]
            step[_COLUMN] = nodes[node, 0] - np.int32(nodes[node, 0] >= d) * d
            step[_FIRST_START], step[_FIRST_MORE] = ranges[node, first, 0], ranges[node, first, 1] - 1
            step[_SECOND_START], step[_SECOND_MORE] = (
                ranges[node, 1 - first, 0],
                ranges[node, 1 - first, 1] - 1,
            )
            step[_FIRST_VALUE] = first_value if first_value >= 0 else -1 - first_value
            step[_SECOND_VALUE] = second_value if second_value >= 0 else -1 - second_value
            if first_value >= 0:
                readers[first_value] -= 1
            if second_value >= 0:
                readers[second_value] -= 1
            if first_value >= 0:
                step[_KIND] = _BOTH
            elif second_value < 0:
                step[_KIND] = _LAST
            elif -1 - first_value >= _bytes_over(greatest_below[nodes[node, 3 - first]], lowest, unit):
                # No item gets more from the other branch than the constant: one test is enough.
                step[_KIND] = _SURE
            else:
                step[_KIND] = _HALF
            step[_RESULT] = free
            readers[free] = uses[node]
            results[node] = free
            n += 1
        readers[:] = 0
        if not fits:
            # Of this tree its greatest leaf will do.
            n = before
        else:
            base[t] = lowest
            if results[root] < 0:
                base[t] += (-1 - results[root]) * unit
                n = before
        ends[t] = n
    return n


# Slices of arrays would count references, which costs as much as a step: hence rows by number.
#
# Steps blend with masks and have no branch: of `x[i] if test else 0` the compiler makes a load under a condition, which
# only AVX-512 has for bytes. Without one every instruction set gets 16, 32 or 64 codes an instruction.


@inner_kernel
def _mask(code, first, size_less_one):
    """255 where a code lies in a range on the ring of codes, else 0; ``size_less_one`` is how many codes
    the range has, less one."""
    return np.uint8(0 - np.int64(np.uint8(code - first) <= size_less_one))


@inner_kernel
def _step(
    columns, f, first_start, first_more, second_start, second_more, slots, first_value, second_value, to
):
    """Two branches that are arrays: the greater of those that a code may take, 0 for one that it may not."""
    for i in range(BLOCK):
        c = columns[f, i]
        # Bounds count upwards from 0, so a branch that a code may not take is masked to 0 and never the
        # greater.
        a = np.uint8(slots[first_value, i] & _mask(c, first_start, first_more))
        b = np.uint8(slots[second_value, i] & _mask(c, second_start, second_more))
        slots[to, i] = max(a, b)


@inner_kernel
def _step_half(
    columns, f, first_start, first_more, second_start, second_more, slots, first_value, second_value, to
):
    """One branch is a constant."""
    for i in range(BLOCK):
        c = columns[f, i]
        a = np.uint8(first_value & _mask(c, first_start, first_more))
        b = np.uint8(slots[second_value, i] & _mask(c, second_start, second_more))
        slots[to, i] = max(a, b)


@inner_kernel
def _step_sure(columns, f, first, size_less_one, slots, inside, outside, to):
    """Where a range of codes gives a constant that no other branch exceeds, one test is enough."""
    for i in range(BLOCK):
        value = slots[outside, i]
        slots[to, i] = np.uint8(value ^ ((inside ^ value) & _mask(columns[f, i], first, size_less_one)))


@inner_kernel
def _step_last(columns, f, first, size_less_one, slots, inside, outside, to):
    """As `_step_sure`, with a constant outside as well."""
    for i in range(BLOCK):
        slots[to, i] = np.uint8(outside ^ ((inside ^ outside) & _mask(columns[f, i], first, size_less_one)))


@inner_kernel
def _evaluate_block(steps, ends, columns, slots, sums):
    """`evaluate` for one block."""
    sums[:] = 0
    at = 0
    for t in range(ends.shape[0]):
        # A tree without steps gives the same to every item: it is in `base`.
        if ends[t] == at:
            continue
        to = np.uint64(0)
        while at < ends[t]:
            kind, f, to = steps[at, _KIND], np.uint64(steps[at, _COLUMN]), np.uint64(steps[at, _RESULT])
            first_start, first_more = np.uint8(steps[at, _FIRST_START]), np.uint8(steps[at, _FIRST_MORE])
            second_start, second_more = np.uint8(steps[at, _SECOND_START]), np.uint8(steps[at, _SECOND_MORE])
            first_value, second_value = steps[at, _FIRST_VALUE], steps[at, _SECOND_VALUE]
            if kind == _LAST:
                _step_last(
                    columns, f, first_start, first_more, slots, np.uint8(first_value), np.uint8(second_value), to
                )  # fmt: skip
            elif kind == _SURE:
                _step_sure(
                    columns, f, first_start, first_more, slots, np.uint8(first_value), np.uint64(second_value), to
                )  # fmt: skip
            elif kind == _HALF:
                _step_half(
                    columns, f, first_start, first_more, second_start, second_more, slots,
                    np.uint8(first_value), np.uint64(second_value), to,
                )  # fmt: skip
            else:
                _step(
                    columns, f, first_start, first_more, second_start, second_more, slots,
                    np.uint64(first_value), np.uint64(second_value), to,
                )  # fmt: skip
            at += 1
        for i in range(BLOCK):
            sums[i] += np.uint16(slots[to, i])


@kernel
def evaluate(steps, ends, codes, blocks, total):
    """Sum of the trees' bytes for every item of some blocks; ``total`` (n_blocks * BLOCK,) uint16."""
    n_slots = 0
    for at in range(steps.shape[0]):
        n_slots = max(n_slots, steps[at, _RESULT] + 1)
    memory = np.empty(n_slots * BLOCK + 64, dtype=np.uint8)
    # Vectors that straddle cache lines cost twice.
    skip = np.int64((64 - (memory.ctypes.data & 63)) & 63)
    slots = memory[skip : skip + n_slots * BLOCK].reshape((n_slots, BLOCK))
    for number in range(blocks.shape[0]):
        block = blocks[number]
        _evaluate_block(steps, ends, codes[block], slots, total[block * BLOCK : (block + 1) * BLOCK])


@kernel
def walk(
    nodes, limits, roots, order, d, pair_map, query, vectors, items, bounds, min_bound, expanded,
    greatest_below, leaf_values,
):  # fmt: skip
    """Walk items down the trees in ``order``, giving each up once its bound falls below ``min_bound``.

    ``bounds`` (n_items,) are of the whole sum, by the cut; each tree walked replaces its bound by its value. Returns
    the places of the items that were not given up, and how often an item walked down a tree.
    """
    n_nodes, n_walks = nodes.shape[0], 0
    active, still = np.arange(items.shape[0]), np.empty(items.shape[0], dtype=np.int64)
    at, bound = np.empty(items.shape[0], dtype=np.int64), np.empty(items.shape[0])
    for t in order:
        moving = active.shape[0]
        n_walks += moving
        for j in range(moving):
            p = active[j]
            at[p], bound[p], still[j] = roots[t], greatest_below[roots[t]], p
        # Level by level, so that waits for memory overlap.
        while moving > 0:
            left = 0
            for j in range(moving):
                p = still[j]
                node = at[p]
                if node < n_nodes:
                    f = np.int64(nodes[node, 0])
                    half = np.int64(f >= d)
                    f -= half * d
                    up = pair_value(query[f], vectors[items[p], f], half, pair_map) > limits[node, 1]
                    at[p] = nodes[node, 2 + np.int64(up)]
                    # Only steps inside the cut tighten the bound: `bounds` holds what the cut gave, and just that is
                    # taken off below.
                    if expanded[node] == 1:
                        bound[p] = greatest_below[at[p]]
                    still[left] = p
                    left += 1
            moving = left
        left = 0
        for p in active:
            # The tree's part of the bound gives way to its value, which is never greater.
            bounds[p] -= bound[p] - leaf_values[at[p] - n_nodes]
            active[left] = p
            left += np.int64(bounds[p] >= min_bound)
        active = active[:left]
    return active, n_walks
