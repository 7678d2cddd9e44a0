"""Growing one similarity tree: TreeRank with symmetric LeafRank, in compiled loops.

``pairs`` is (3, n) int32: left row, right row and weight of each pair, pairs of one identity first; where pairs have
learned features, which no two rows' codes tell, a fourth line numbers their entries in those arrays. Either kind is
parted in place as cells are split, so a set of pairs is a segment ``start, stop, start, stop``: its same pairs, then
its different ones. Histograms of pair features are counted from byte codes, never from a written-out pair matrix.
Weights are integers, so every sum is exact and no order of adding matters.

Layout of the results (see `grow`): ``cells`` has one row a TreeRank cell, ``nodes`` one row a LeafRank node. A
child of a node is another node (>= 0) or a cell, written as ``-1 - cell``.
"""

from __future__ import annotations

import numpy as np

from models.compiled import kernel

CELL_DEPTH, CELL_POSITION, CELL_NODE, CELL_SAME, CELL_DIFFERENT, CELL_LEFT, CELL_RIGHT, CELL_FIELDS = range(8)
DIFF_SUM, MAX_MIN, PRODUCTS = 0, 1, 2
LEARNED = 2
"""Third kind of pair feature, after the two halves of the pair map."""
EXACT_PAIRS = 48
"""Cells of at most so many pairs are split by sorting their values: no grid, and cheaper than scanning its bins."""
_INNER, _LEFT, _RIGHT = 1, 2, 3


@kernel
def _next_random(state):
    """Splitmix64: advances ``state[0]`` and returns 64 random bits."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def _draw_first(features, n_first, state):
    """Bring a uniformly drawn subset of ``features`` to its first ``n_first`` places, in order of number."""
    n = features.shape[0]
    for i in range(n_first):
        j = i + np.int64(_next_random(state) % np.uint64(n - i))
        features[i], features[j] = features[j], features[i]
    # In order, so that gathers of codes run forward.
    for i in range(1, n_first):
        feature, q = features[i], i
        while q > 0 and features[q - 1] > feature:
            features[q] = features[q - 1]
            q -= 1
        features[q] = feature


@kernel
def _count(
    histogram, codes, pairs, segment, tried, n_tried, bases, shift, pair_map, places, own_codes, own_bases
):
    """Count both pair features of every feature tried, and all learned ones, of same pairs and of different ones.

    The bins of a pair are first worked out for all features, which the compiler does for many at a time, then
    counted. ``places`` is room for them. Unsigned indices: a signed one costs a wrap-around test on each access.
    """
    n_tried = np.uint64(n_tried)
    first, second = places[0], places[1]
    below, above = bases[0], bases[1]
    whole = n_tried == np.uint64(codes.shape[1])
    for kind in range(2):
        counts = histogram[kind]
        for p in range(np.uint64(segment[2 * kind]), np.uint64(segment[2 * kind + 1])):
            i, j, w = np.uint64(pairs[0, p]), np.uint64(pairs[1, p]), pairs[2, p]
            row, other = codes[i], codes[j]
            if whole and pair_map == DIFF_SUM:
                for k in range(n_tried):
                    a, b = np.int32(row[k]), np.int32(other[k])
                    first[k] = np.uint32((np.uint32(abs(np.int32(a - b))) >> shift[k]) + below[k])
                    second[k] = np.uint32((np.uint32(np.int32(a + b)) >> shift[k]) + above[k])
            elif pair_map == DIFF_SUM:
                for k in range(n_tried):
                    f = tried[k]
                    a, b = np.int32(row[f]), np.int32(other[f])
                    first[k] = np.uint32((np.uint32(abs(np.int32(a - b))) >> shift[k]) + below[k])
                    second[k] = np.uint32((np.uint32(np.int32(a + b)) >> shift[k]) + above[k])
            else:
                for k in range(n_tried):
                    f = tried[k]
                    a, b = np.uint32(row[f]), np.uint32(other[f])
                    first[k] = np.uint32((max(a, b) >> shift[k]) + below[k])
                    second[k] = np.uint32((min(a, b) >> shift[k]) + above[k])
            for k in range(n_tried):
                counts[np.uint64(first[k])] += w
                counts[np.uint64(second[k])] += w
            for k in range(own_codes.shape[1]):
                counts[own_bases[k] + np.int64(own_codes[pairs[3, p], k])] += w


@kernel
def _count_products(
    histogram,
    codes,
    pairs,
    segment,
    tried,
    n_tried,
    bases,
    shift,
    low,
    step,
    product_bins,
    own_codes,
    own_bases,
):
    """`_count` for products and sums: products of the values that codes stand for, in even bins of their own."""
    for kind in range(2):
        counts = histogram[kind]
        for p in range(segment[2 * kind], segment[2 * kind + 1]):
            row, other, w = codes[pairs[0, p]], codes[pairs[1, p]], pairs[2, p]
            for k in range(n_tried):
                f = tried[k]
                a, b = np.int64(row[f]), np.int64(other[f])
                product = (low[f] + step[f] * a) * (low[f] + step[f] * b)
                place = np.int64((product - product_bins[0, f]) / product_bins[1, f] + 0.5)
                place = min(max(place, 0), np.int64(product_bins[2, f]) - 1)
                counts[np.int64(bases[0, k]) + (place >> np.int64(shift[k]))] += w
                counts[np.int64(bases[1, k]) + ((a + b) >> np.int64(shift[k]))] += w
            for k in range(own_codes.shape[1]):
                counts[own_bases[k] + np.int64(own_codes[pairs[3, p], k])] += w


@kernel
def _best_split(
    histogram, n_tried, bases, n_bins, own_bases, own_bins, n_same, n_different, same_cost, different_cost
):
    """The split of least Gini impurity under the cell's costs.

    Returns
    -------
    which half of the pair map (0 or 1, or `LEARNED`; -1 when no split lowers the impurity), the feature's place among
    those tried (or learned), last bin of the low side.
    """
    same, different = histogram[0], histogram[1]
    a_all, b_all = n_same * same_cost, n_different * different_cost
    least = a_all * b_all / (a_all + b_all) * (1.0 - 1e-9)
    best_half, best_place, best_bin = -1, -1, -1
    for which in range(2 * n_tried + own_bins.shape[0]):
        if which < 2 * n_tried:
            k, half = which >> 1, which & 1
            offset, size = np.int64(bases[half, k]), n_bins[half, k]
        else:
            k, half = which - 2 * n_tried, LEARNED
            offset, size = own_bases[k], own_bins[k]
        if size > 1:
            low_same, low_different = np.int64(0), np.int64(0)
            for b in range(size - 1):
                s, d = same[offset + b], different[offset + b]
                if s == 0 and d == 0:
                    continue
                low_same += s
                low_different += d
                if low_same == n_same and low_different == n_different:
                    break
                a, c = low_same * same_cost, low_different * different_cost
                e, g = a_all - a, b_all - c
                low, high = a + c, e + g
                # Compared without dividing: divisions would be most of the scan.
                above = a * c * high + e * g * low
                below = low * high
                if above < least * below:
                    least = above / below
                    best_half, best_place, best_bin = half, k, b
    return best_half, best_place, best_bin


@kernel
def _value(a, b, half, pair_map):
    """A pair feature: the float32 value that training and scoring both decide on."""
    if pair_map == DIFF_SUM:
        return abs(a - b) if half == 0 else a + b
    if pair_map == PRODUCTS:
        return a * b if half == 0 else a + b
    return max(a, b) if half == 0 else min(a, b)


@kernel
def _value_of(column, pairs, p, half, pair_map):
    """A feature of pair ``p``: of two rows' entries of a column, or its own entry."""
    if half == LEARNED:
        return column[pairs[3, p]]
    return _value(column[pairs[0, p]], column[pairs[1, p]], half, pair_map)


@kernel
def _sort(values, owners, n):
    """Shell sort of the first ``n`` values, their owners along; numba's own sort costs seconds to compile."""
    gap = 1
    while 3 * gap + 1 < n:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            value, owner, q = values[i], owners[i], i
            while q >= gap and values[q - gap] > value:
                values[q], owners[q] = values[q - gap], owners[q - gap]
                q -= gap
            values[q], owners[q] = value, owner
        gap //= 3


@kernel
def _best_border(
    column, half, pair_map, pairs, n_same, segment, low, high, totals, costs, least, values, owners
):  # fmt: skip
    """The border of least Gini impurity between the values in ``(low, high]`` of one pair feature.

    Parameters
    ----------
    totals : weights of the segment's same and different pairs, times ``costs``.
    least : only a border below this impurity counts.
    values, owners : room for the segment.

    Returns
    -------
    the least impurity, the border, whether there is one.
    """
    below = np.zeros(2)
    n = 0
    for kind in range(2):
        for p in range(segment[2 * kind], segment[2 * kind + 1]):
            value = _value_of(column, pairs, p, half, pair_map)
            if value <= low:
                below[kind] += pairs[2, p]
            elif value <= high:
                values[n], owners[n] = value, p
                n += 1
    _sort(values, owners, n)
    border, found = np.float32(0.0), False
    for q in range(n - 1):
        below[0 if owners[q] < n_same else 1] += pairs[2, owners[q]]
        if values[q] == values[q + 1]:
            continue
        a, c = below[0] * costs[0], below[1] * costs[1]
        e, g = totals[0] - a, totals[1] - c
        above, under = a * c * (e + g) + e * g * (a + c), (a + c) * (e + g)
        if above < least * under:
            least, found = above / under, True
            middle = np.float32(0.5 * (np.float64(values[q]) + np.float64(values[q + 1])))
            # Where no float lies between, the lower value itself is the border.
            border = middle if values[q] <= middle < values[q + 1] else values[q]
    # Adding +0.0 rids it of a negative zero, which scoring's integer order would tell from zero.
    return least, border + np.float32(0.0), found


@kernel
def _part(column, threshold, half, pair_map, pairs, start, stop, spare):
    """Stable in-place parting of pairs ``start:stop``: features at most the threshold first; returns the border."""
    kept, moved, numbered = start, 0, pairs.shape[0] > 3
    for p in range(start, stop):
        i, j, w = pairs[0, p], pairs[1, p], pairs[2, p]
        if _value_of(column, pairs, p, half, pair_map) > threshold:
            spare[0, moved], spare[1, moved], spare[2, moved] = i, j, w
            if numbered:
                spare[3, moved] = pairs[3, p]
            moved += 1
        else:
            if numbered:
                pairs[3, kept] = pairs[3, p]
            pairs[0, kept], pairs[1, kept], pairs[2, kept] = i, j, w
            kept += 1
    for q in range(moved):
        for row in range(pairs.shape[0]):
            pairs[row, kept + q] = spare[row, q]
    return kept


@kernel
def _gather_leaves(segments, side, n_heap, pairs, spare, borders):
    """Bring the pairs of a cell's kept leaves to the front, either kind; ``borders`` is where the others begin."""
    for kind in range(2):
        start = segments[1, 2 * kind]
        written = 0
        for wanted in (_LEFT, _RIGHT):
            for h in range(1, n_heap):
                if side[h] == wanted and (h == 1 or side[h >> 1] == _INNER):
                    for p in range(segments[h, 2 * kind], segments[h, 2 * kind + 1]):
                        for row in range(pairs.shape[0]):
                            spare[row, written] = pairs[row, p]
                        written += 1
            if wanted == _LEFT:
                borders[kind] = start + written
        for q in range(written):
            for row in range(pairs.shape[0]):
                pairs[row, start + q] = spare[row, q]


@kernel
def _total(pairs, start, stop):
    total = np.int64(0)
    for p in range(start, stop):
        total += pairs[2, p]
    return total


@kernel
def _threshold(half, bin_, halvings, pair_map, low, step, product_bins):
    """The border between a bin of ``2^halvings`` codes and the next, in the feature's units."""
    if pair_map == PRODUCTS and half == 0:
        return np.float32(product_bins[0] + (((bin_ + 1) << halvings) - 0.5) * product_bins[1]) + np.float32(
            0.0
        )
    base = low if pair_map == MAX_MIN else (2.0 * low if half == 1 else 0.0)
    return np.float32(base + (((bin_ + 1) << halvings) - 0.5) * step) + np.float32(0.0)


@kernel
def _coarseness(n_pairs):
    """How many halvings of the grid leave enough bins for so many pairs: empty bins cost time and tell nothing."""
    if n_pairs >= 8192:
        return 0
    return 1 if n_pairs >= 2048 else (2 if n_pairs >= 512 else 3)


@kernel
def _lay_out(n_codes, coarser, pair_map, product_bins, tried, n_tried, shift, n_bins, bases):
    """Place the bins of the features tried one after the other; returns how many there are."""
    size = 0
    for k in range(n_tried):
        last = n_codes[tried[k]] - 1
        halvings = 0 if last < 64 else coarser
        shift[k] = halvings
        n_bins[0, k] = (last >> halvings) + 1
        n_bins[1, k] = ((last if pair_map == MAX_MIN else 2 * last) >> halvings) + 1
        if pair_map == PRODUCTS:
            n_bins[0, k] = ((np.int64(product_bins[2, tried[k]]) - 1) >> halvings) + 1
        for half in range(2):
            bases[half, k] = size
            size += n_bins[half, k]
    return size


@kernel
def _clear(histogram):
    for kind in range(2):
        for b in range(histogram.shape[1]):
            histogram[kind, b] = 0


@kernel
def _subtract(histogram, less):
    for kind in range(2):
        for b in range(histogram.shape[1]):
            histogram[kind, b] -= less[kind, b]


@kernel
def _longer(table):
    """The table with room for twice as many rows."""
    longer = np.empty((2 * table.shape[0], table.shape[1]), dtype=table.dtype)
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            longer[row, column] = table[row, column]
    return longer


@kernel
def _grow_leaf_rank(
    codes, columns, low, step, exact_grid, n_codes, pair_map, product_bins, pairs, n_same, leaf_depth, tried, n_tried,
    side, segments, sums, features, thresholds, histograms, spare, values, owners, bases, shift, n_bins, places,
    own_codes, own_values, own_edges, own_bins, own_bases,
):  # fmt: skip
    """LeafRank: split the cell in node 1 of the heap greedily, depth first, and say for each leaf which way it goes.

    Fills ``side``, ``segments``, ``sums``, ``features`` (place of the feature, and half) and ``thresholds``.
    """
    for h in range(side.shape[0]):
        side[h] = 0
    costs, totals = np.empty(2), np.empty(2)
    costs[0], costs[1] = 1.0 / sums[1, 0], 1.0 / sums[1, 1]
    borders = np.empty(2, dtype=np.int64)
    free = np.arange(leaf_depth + 1)
    stack = np.empty((2 * leaf_depth + 2, 2), dtype=np.int64)
    cell = segments[1]
    n_pairs = cell[1] - cell[0] + cell[3] - cell[2]
    sort = n_pairs <= EXACT_PAIRS
    n_free, n_bins_all = leaf_depth, 0
    if not sort:
        n_bins_all = _lay_out(
            n_codes, _coarseness(n_pairs), pair_map, product_bins, tried, n_tried, shift, n_bins, bases
        )
        for k in range(own_bins.shape[0]):
            own_bases[k] = n_bins_all
            n_bins_all += own_bins[k]
    # What is on the stack: a node, and the buffer of its histogram: -1 for none, -2 - b for one to be counted into b.
    stack[0, 0], stack[0, 1] = 1, -1 if sort else -2 - free[n_free]
    top = 1
    while top > 0:
        top -= 1
        h, buffer = stack[top, 0], stack[top, 1]
        if buffer < -1:
            buffer = -2 - buffer
            histogram = histograms[buffer, :, :n_bins_all]
            _clear(histogram)
            if pair_map == PRODUCTS:
                _count_products(
                    histogram, codes, pairs, segments[h], tried, n_tried, bases, shift, low, step, product_bins,
                    own_codes, own_bases,
                )  # fmt: skip
            else:
                _count(
                    histogram, codes, pairs, segments[h], tried, n_tried, bases, shift, pair_map, places,
                    own_codes, own_bases,
                )  # fmt: skip
            if h > 1:
                # The larger child, next on the stack, has its parent's histogram less the smaller one's.
                _subtract(histograms[stack[top - 1, 1], :, :n_bins_all], histogram)
        half, f, threshold = -1, 0, np.float32(0.0)
        if h < (1 << leaf_depth) and sums[h, 0] > 0 and sums[h, 1] > 0:
            totals[0], totals[1] = sums[h, 0] * costs[0], sums[h, 1] * costs[1]
            least = totals[0] * totals[1] / (totals[0] + totals[1]) * (1.0 - 1e-9)
            if sort:
                for k in range(n_tried):
                    for candidate in range(2):
                        least, border, found = _best_border(
                            columns[tried[k]], candidate, pair_map, pairs, n_same, segments[h], -np.inf, np.inf,
                            totals, costs, least, values, owners,
                        )  # fmt: skip
                        if found:
                            half, f, threshold = candidate, np.int64(tried[k]), border
                for k in range(own_bins.shape[0]):
                    least, border, found = _best_border(
                        own_values[k], LEARNED, pair_map, pairs, n_same, segments[h], -np.inf, np.inf,
                        totals, costs, least, values, owners,
                    )  # fmt: skip
                    if found:
                        half, f, threshold = LEARNED, k, border
            else:
                half, place, b = _best_split(
                    histograms[buffer], n_tried, bases, n_bins, own_bases, own_bins,
                    sums[h, 0], sums[h, 1], costs[0], costs[1],
                )  # fmt: skip
                if half == LEARNED:
                    f, threshold = place, own_edges[place, b]
                    # Bins are no finer than their number allows: settle the border among the values around it.
                    least, border, found = _best_border(
                        own_values[f], LEARNED, pair_map, pairs, n_same, segments[h],
                        own_edges[f, b - 1] if b > 0 else -np.inf, own_edges[f, b + 1],
                        totals, costs, np.inf, values, owners,
                    )  # fmt: skip
                    if found:
                        threshold = border
                elif half >= 0:
                    f, halvings = np.int64(tried[place]), np.int64(shift[place])
                    threshold = _threshold(half, b, halvings, pair_map, low[f], step[f], product_bins[:, f])
                    product = pair_map == PRODUCTS and half == 0
                    if halvings > 0 or (product_bins[3, f] > 0.0 if product else not exact_grid[f]):
                        # Each code is off by up to half a step, which blurs bins: the best border between the values
                        # themselves is close to the bins' best, but not the same.
                        reach = 2.0 * step[f] * (1 << halvings)
                        if product:
                            reach = max(product_bins[3, f], 2.0 * product_bins[1, f]) * (1 << halvings)
                        least, border, found = _best_border(
                            columns[f], half, pair_map, pairs, n_same, segments[h], threshold - reach,
                            threshold + reach, totals, costs, np.inf, values, owners,
                        )  # fmt: skip
                        if found:
                            threshold = border
        if half >= 0:
            for kind in range(2):
                borders[kind] = _part(
                    own_values[f] if half == LEARNED else columns[f],
                    threshold,
                    half,
                    pair_map,
                    pairs,
                    segments[h, 2 * kind],
                    segments[h, 2 * kind + 1],
                    spare,
                )
            n_low = borders[0] - segments[h, 0] + borders[1] - segments[h, 2]
            n_high = segments[h, 1] - borders[0] + segments[h, 3] - borders[1]
            # Values that share a code by rounding can all fall on one side.
            if n_low == 0 or n_high == 0:
                half = -1
        if half < 0:
            # Kept when the gain alpha-range * F+ - beta-range * F- of the leaf is not negative.
            side[h] = _LEFT if sums[h, 0] * sums[1, 1] >= sums[h, 1] * sums[1, 0] else _RIGHT
        else:
            side[h] = _INNER
            features[h, 0], features[h, 1], thresholds[h] = f, half, threshold
            c = 2 * h
            for kind in range(2):
                segments[c, 2 * kind], segments[c, 2 * kind + 1] = segments[h, 2 * kind], borders[kind]
                segments[c + 1, 2 * kind], segments[c + 1, 2 * kind + 1] = (
                    borders[kind],
                    segments[h, 2 * kind + 1],
                )
                sums[c, kind] = _total(pairs, segments[c, 2 * kind], segments[c, 2 * kind + 1])
                sums[c + 1, kind] = sums[h, kind] - sums[c, kind]
            smaller = c if n_low <= n_high else c + 1
            stack[top, 0], stack[top, 1] = 2 * c + 1 - smaller, -1
            stack[top + 1, 0], stack[top + 1, 1] = smaller, -1
            if not sort and c < (1 << leaf_depth):
                n_free -= 1
                stack[top, 1], stack[top + 1, 1] = buffer, -2 - free[n_free]
                buffer = -1
            top += 2
        if buffer >= 0:
            free[n_free] = buffer
            n_free += 1
    # Nodes whose children go the same way decide nothing.
    for h in range((1 << leaf_depth) - 1, 0, -1):
        if side[h] == _INNER and side[2 * h] == side[2 * h + 1] and side[2 * h] != _INNER:
            side[h] = side[2 * h]


@kernel
def grow(
    codes, columns, low, step, n_codes, exact_grid, used, d, pair_map, product_bins, pairs, n_same,
    own_codes, own_values, own_edges, own_bins,
    max_depth, leaf_depth, n_tried, seed,
):  # fmt: skip
    """Grow a similarity tree (Clemencon & Vogel, "The Similarity TreeRank Algorithm").

    Parameters
    ----------
    codes : (n, u) uint8 and ``columns`` : (u, n) float32, the same rows coded and as they are.
    low, step, n_codes, exact_grid : the grid, (u,) each.
    used : (u,) numbers of those features among all ``d``.
    product_bins : (4, u), see `binning.product_bins`; of use for products only.
    pairs : (3 or 4, n_pairs) int32, ``n_same`` pairs of one identity first; reordered in place.
    own_codes, own_values : (n, m) uint16 and (m, n) float32, learned features of pairs, coded and as they are.
    own_edges, own_bins : (m, most bins) float32 and (m,): the largest value of each bin, and how many bins there are.
    n_tried : features drawn for each cell; each brings its two pair features.
    seed : uint64, of the draws of features.

    Returns
    -------
    cells : (n_cells, 7) int64, parents before children.
    nodes : (n_nodes, 4) float64: ``half * d + feature`` (``2 d`` + number for a learned one), the threshold, and the
        child for a pair feature at most, or above, it.
    """
    n_used = codes.shape[1]
    tried = np.arange(n_used).astype(np.uint64)
    n_tried = min(n_tried, n_used)
    state = np.array([seed], dtype=np.uint64)
    shift = np.zeros(n_tried, dtype=np.uint32)
    n_bins = np.zeros((2, n_tried), dtype=np.int64)
    bases = np.zeros((2, n_tried), dtype=np.uint32)
    places = np.empty((2, n_tried), dtype=np.uint32)

    # LeafRank's nodes, as a heap with its root at 1.
    n_heap = 2 << leaf_depth
    side = np.zeros(n_heap, dtype=np.int64)
    segments = np.zeros((n_heap, 4), dtype=np.int64)
    sums = np.zeros((n_heap, 2), dtype=np.int64)
    split_feature = np.zeros((n_heap, 2), dtype=np.int64)
    split_threshold = np.zeros(n_heap, dtype=np.float32)
    numbered = np.zeros(n_heap, dtype=np.int32)
    borders = np.empty(2, dtype=np.int64)
    # Wide enough for any draw of features.
    widest = 3 * n_codes.max() if n_used > 0 else 0
    if pair_map == PRODUCTS and n_used > 0:
        widest = 2 * n_codes.max() + np.int64(product_bins[2].max())
    n_own_bins = own_bins.sum()
    own_bases = np.zeros(own_bins.shape[0], dtype=np.int64)
    histograms = np.empty((leaf_depth + 1, 2, n_tried * widest + n_own_bins), dtype=np.int32)
    n_pairs = pairs.shape[1]
    spare = np.empty((pairs.shape[0], max(n_same, n_pairs - n_same)), dtype=np.int32)
    values, owners = np.empty(n_pairs, dtype=np.float32), np.empty(n_pairs, dtype=np.int32)

    cells = np.empty((64, CELL_FIELDS), dtype=np.int64)
    # Feature, threshold, low and high child: 32-bit numbers, all exact in float64.
    nodes = np.empty((64, 4), dtype=np.float64)
    cells[0, CELL_DEPTH], cells[0, CELL_POSITION], cells[0, CELL_NODE] = 0, 0, -1
    cells[0, CELL_LEFT], cells[0, CELL_RIGHT] = -1, -1
    cells[0, CELL_SAME], cells[0, CELL_DIFFERENT] = _total(pairs, 0, n_same), _total(pairs, n_same, n_pairs)
    n_cells, n_nodes = 1, 0
    todo = np.empty((max_depth + 2, 5), dtype=np.int64)
    todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3], todo[0, 4] = 0, 0, n_same, n_same, n_pairs
    n_todo = 1
    while n_todo > 0:
        n_todo -= 1
        cell = todo[n_todo, 0]
        segments[1] = todo[n_todo, 1:]
        sums[1, 0], sums[1, 1] = cells[cell, CELL_SAME], cells[cell, CELL_DIFFERENT]
        if cells[cell, CELL_DEPTH] >= max_depth or sums[1, 0] == 0 or sums[1, 1] == 0 or n_tried == 0:
            continue
        if n_tried < n_used:
            _draw_first(tried, n_tried, state)
        _grow_leaf_rank(
            codes, columns, low, step, exact_grid, n_codes, pair_map, product_bins, pairs, n_same, leaf_depth, tried,
            n_tried, side, segments, sums, split_feature, split_threshold, histograms, spare, values, owners,
            bases, shift, n_bins, places, own_codes, own_values, own_edges, own_bins, own_bases,
        )  # fmt: skip
        if side[1] != _INNER:
            continue
        _gather_leaves(segments, side, n_heap, pairs, spare, borders)
        left_same = _total(pairs, segments[1, 0], borders[0])
        left_other = _total(pairs, segments[1, 2], borders[1])
        if left_same * sums[1, 1] <= left_other * sums[1, 0]:
            continue

        if n_cells + 2 > cells.shape[0]:
            cells = _longer(cells)
        children = (n_cells, n_cells + 1)
        for right in range(2):
            child = children[right]
            cells[child, CELL_DEPTH] = cells[cell, CELL_DEPTH] + 1
            cells[child, CELL_NODE], cells[child, CELL_LEFT], cells[child, CELL_RIGHT] = -1, -1, -1
            cells[child, CELL_POSITION] = 2 * cells[cell, CELL_POSITION] + right
            cells[child, CELL_SAME] = sums[1, 0] - left_same if right else left_same
            cells[child, CELL_DIFFERENT] = sums[1, 1] - left_other if right else left_other
            cells[cell, CELL_LEFT + right] = child
            # The left child goes on top: cells are grown from left to right.
            line = todo[n_todo + 1 - right]
            line[0] = child
            for kind in range(2):
                line[1 + 2 * kind] = borders[kind] if right else segments[1, 2 * kind]
                line[2 + 2 * kind] = segments[1, 2 * kind + 1] if right else borders[kind]
        n_cells += 2
        n_todo += 2

        # Number the nodes level by level, then write them.
        cells[cell, CELL_NODE] = n_nodes
        while n_nodes + n_heap > nodes.shape[0]:
            nodes = _longer(nodes)
        for h in range(1, 1 << leaf_depth):
            numbered[h] = -1
            if side[h] == _INNER and (h == 1 or side[h >> 1] == _INNER):
                numbered[h] = n_nodes
                n_nodes += 1
        for h in range(1, 1 << leaf_depth):
            n = numbered[h]
            if n < 0:
                continue
            if split_feature[h, 1] == LEARNED:
                nodes[n, 0] = 2 * d + split_feature[h, 0]
            else:
                nodes[n, 0] = split_feature[h, 1] * d + used[split_feature[h, 0]]
            nodes[n, 1] = split_threshold[h]
            for above in range(2):
                c = 2 * h + above
                nodes[n, 2 + above] = numbered[c] if side[c] == _INNER else -1 - children[side[c] - _LEFT]
    return cells[:n_cells], nodes[:n_nodes]
