"""Growing one similarity tree: TreeRank with symmetric LeafRank, in compiled loops.

``pairs`` is (2, n) int32: left row and right row of each pair, pairs of one identity first; where pairs have learned
features, which no two rows' codes tell, a third line numbers their entries in those arrays. Pair ``p`` weighs
``weight[p * stride]``: most often all weigh the same, and one number says so. Either kind is parted in place as cells
are split, so a set of pairs is a segment ``start, stop, start, stop``: its same pairs, then its different ones.
Histograms of pair features are counted from byte codes, never from a written-out pair matrix. Weights are integers, so
every sum is exact, and neither the order of adding nor that of pairs within a segment matters.

Layout of the results (see `grow`): ``cells`` has one row a TreeRank cell, ``nodes`` one row a LeafRank node. A
child of a node is another node (>= 0) or a cell, written as ``-1 - cell``.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel

CELL_DEPTH, CELL_POSITION, CELL_NODE, CELL_SAME, CELL_DIFFERENT, CELL_LEFT, CELL_RIGHT, CELL_FIELDS = range(8)
DIFF_SUM, MAX_MIN, PRODUCTS = 0, 1, 2
LEARNED = 2
"""Third kind of pair feature, after the two halves of the pair map."""
EXACT_PAIRS = 48
"""Cells of at most so many pairs are split by sorting their values: no grid, and cheaper than scanning its bins."""
FEW_PAIRS, FEW_FEATURES = 2_048, 8
"""Trees of at most so many pairs of rows of at most so many features are split so throughout. Sorting them takes
moments, and where much of the data lies in a box narrower than a bin, no other feature or pair makes up for it."""
LANES = 8
"""Features whose codes of a row lie side by side in one 64-bit word."""
SHARED_PAIRS = 16_384
"""Cells of at least so many pairs take their first histogram from their parent's, less their sibling's."""
_TILE = 64
_RUN = 512
_SORTED = 512
_SUB_BINS = 1_024
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
    histogram, codes, pairs, weight, stride, segment, tried, n_tried, bases, shift, pair_map, places, own_codes,
    own_bases,
):  # fmt: skip
    """Count both pair features of every feature tried, and all learned ones, of same pairs and of different ones.

    The bins of a pair are first worked out for all features, which the compiler does for many at a time, then
    counted. ``places`` is room for them. Unsigned indices: a signed one costs a wrap-around test on each access.
    """
    n_tried = np.uint64(n_tried)
    first, second = places[0], places[1]
    below, above = bases[0], bases[1]
    for kind in range(2):
        counts = histogram[kind]
        for p in range(np.uint64(segment[2 * kind]), np.uint64(segment[2 * kind + 1])):
            i, j, w = np.uint64(pairs[0, p]), np.uint64(pairs[1, p]), weight[p * stride]
            row, other = codes[i], codes[j]
            if pair_map == DIFF_SUM:
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
                counts[own_bases[k] + np.int64(own_codes[pairs[2, p], k])] += w


@kernel
def _count_products(
    histogram,
    codes,
    pairs,
    weight,
    stride,
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
            row, other, w = codes[pairs[0, p]], codes[pairs[1, p]], weight[np.uint64(p) * stride]
            for k in range(n_tried):
                f = tried[k]
                a, b = np.int64(row[f]), np.int64(other[f])
                product = (low[f] + step[f] * a) * (low[f] + step[f] * b)
                place = np.int64((product - product_bins[0, f]) / product_bins[1, f] + 0.5)
                place = min(max(place, 0), np.int64(product_bins[2, f]) - 1)
                counts[np.int64(bases[0, k]) + (place >> np.int64(shift[k]))] += w
                counts[np.int64(bases[1, k]) + ((a + b) >> np.int64(shift[k]))] += w
            for k in range(own_codes.shape[1]):
                counts[own_bases[k] + np.int64(own_codes[pairs[2, p], k])] += w


@kernel
def words_of(codes):
    """Codes (n, u), eight features to a 64-bit word: (ceil(u / 8), n) uint64, spare lanes zero."""
    n, u = codes.shape
    words = np.zeros(((u + LANES - 1) // LANES, n), dtype=np.uint64)
    for q in range(words.shape[0]):
        line = words[q].view(np.uint8)
        for i in range(n):
            for k in range(LANES * q, min(LANES * q + LANES, u)):
                line[LANES * i + k - LANES * q] = codes[i, k]
    return words


@kernel
def _high_half(a, b):
    """Upper half of a product of uint16: one instruction for many at a time, which a shift by a variable is not."""
    return np.uint16((np.uint32(a) * np.uint32(b)) >> np.uint32(16))


@kernel
def _count_words(
    histogram, words, first_word, last_word, pairs, weight, stride, segment, n_tried, bases, n_bins, shift, pair_map
):  # fmt: skip
    """`_count` where every feature is tried: eight features at a time, so that their bins stay in the nearest cache.

    Those of words ``first_word:last_word``, whose first bin is the histogram's first.
    Two increments a pair and feature are nearly all of the time: one store a cycle. Bins are worked out for a tile of
    pairs before they are counted; those of spare lanes go to a bin that nothing reads.
    """
    left, right = pairs[0], pairs[1]
    origin = np.int64(bases[0, LANES * first_word])
    one, other = np.empty(_TILE, dtype=np.uint64), np.empty(_TILE, dtype=np.uint64)
    x, y = one.view(np.uint8), other.view(np.uint8)
    first, second = np.empty(LANES * _TILE, dtype=np.uint16), np.empty(LANES * _TILE, dtype=np.uint16)
    # What a lane adds and shifts by, for eight pairs at once: as wide as vectors are.
    span = LANES * 8
    below, above = np.empty(span, dtype=np.uint16), np.empty(span, dtype=np.uint16)
    coarser = np.empty(span, dtype=np.uint16)
    tile, lanes = np.uint64(_TILE), np.uint64(LANES)
    for q in range(first_word, last_word):
        line = words[q]
        start_bin = np.int64(bases[0, LANES * q])
        for e in range(LANES):
            k = LANES * q + e
            if k < n_tried:
                below[e] = np.uint16(np.int64(bases[0, k]) - start_bin)
                above[e] = np.uint16(np.int64(bases[1, k]) - start_bin)
                coarser[e] = np.uint16(1 << (15 - np.int64(shift[k])))
            else:
                spare_bin = np.uint16(np.int64(bases[1, n_tried - 1]) + n_bins[1, n_tried - 1] - start_bin)
                below[e], above[e], coarser[e] = spare_bin, spare_bin, np.uint16(0)
        for e in range(LANES, span):
            below[e], above[e], coarser[e] = below[e - LANES], above[e - LANES], coarser[e - LANES]
        for kind in range(2):
            counts = histogram[kind, start_bin - origin :]
            stop = np.uint64(segment[2 * kind + 1])
            for start in range(np.uint64(segment[2 * kind]), stop, tile):
                n = min(tile, stop - start)
                for t in range(n):
                    one[t] = line[np.uint64(left[start + t])]
                    other[t] = line[np.uint64(right[start + t])]
                for t in range(np.uint64(0), lanes * tile, np.uint64(span)):
                    if pair_map == DIFF_SUM:
                        for e in range(np.uint64(span)):
                            a, b = np.int16(x[t + e]), np.int16(y[t + e])
                            low, high = np.uint16(2 * abs(np.int16(a - b))), np.uint16(2 * np.int16(a + b))
                            first[t + e] = np.uint16(_high_half(low, coarser[e]) + below[e])
                            second[t + e] = np.uint16(_high_half(high, coarser[e]) + above[e])
                    else:
                        for e in range(np.uint64(span)):
                            a, b = np.uint16(x[t + e]), np.uint16(y[t + e])
                            high, low = np.uint16(2 * max(a, b)), np.uint16(2 * min(a, b))
                            first[t + e] = np.uint16(_high_half(high, coarser[e]) + below[e])
                            second[t + e] = np.uint16(_high_half(low, coarser[e]) + above[e])
                for t in range(n):
                    w = weight[(start + t) * stride]
                    for k in range(lanes):
                        counts[np.uint64(first[t * lanes + k])] += w
                        counts[np.uint64(second[t * lanes + k])] += w


@kernel
def _count_own(histogram, pairs, weight, stride, segment, own_codes, own_bases, origin):
    """Count the learned features; the histogram's first bin is number ``origin``."""
    for kind in range(2):
        counts = histogram[kind]
        for p in range(segment[2 * kind], segment[2 * kind + 1]):
            w = weight[np.uint64(p) * stride]
            for k in range(own_codes.shape[1]):
                counts[own_bases[k] - origin + np.int64(own_codes[pairs[2, p], k])] += w


@kernel
def _best_split(
    histogram,
    n_tried,
    bases,
    n_bins,
    own_bases,
    own_bins,
    n_same,
    n_different,
    same_cost,
    different_cost,
    low_sums,
    gains,
    origin,
    first,
    last,
    most,
):
    """The split of least Gini impurity under the cell's costs.

    With A, C the costs of the same and the different pairs, a, c those of the low side and s = a + c, the impurity
    ``a c / s + (A - a)(C - c) / (A + C - s)`` is ``(A C - gain) / (A + C)``, gain = (a C - c A)^2 / (s (A + C - s)):
    the gain is what is looked for, all of a feature's borders at a time.

    Parameters
    ----------
    low_sums : (2, most bins) int32, and gains : (most bins) float64, room.
    origin : number of the histogram's first bin.
    first, last : which pair features are looked at: 2 for each feature tried, then the learned ones.
    most : only a gain above this counts; see `_least_gain`.

    Returns
    -------
    which half of the pair map (0 or 1, or `LEARNED`; -1 when no split lowers the impurity), the feature's place among
    those tried (or learned), last bin of the low side, the gain.
    """
    same, different = histogram[0], histogram[1]
    all_same, all_different = np.float64(n_same), np.float64(n_different)
    scale = same_cost * different_cost
    below, under = low_sums[0], low_sums[1]
    ordered = gains.view(np.int64)
    best_half, best_place, best_bin = -1, -1, -1
    for which in range(first, last):
        if which < 2 * n_tried:
            k, half = which >> 1, which & 1
            offset, size = np.uint64(np.int64(bases[half, k]) - origin), np.uint64(n_bins[half, k])
        else:
            k, half = which - 2 * n_tried, LEARNED
            offset, size = np.uint64(own_bases[k] - origin), np.uint64(own_bins[k])
        if size < 2:
            continue
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
            top = max(top, ordered[b])
        for b in range(size - np.uint64(1)):
            if ordered[b] == top:
                if gains[b] > most:
                    most = gains[b]
                    best_half, best_place, best_bin = half, k, np.int64(b)
                break
    return best_half, best_place, best_bin, most


@kernel
def _least_gain(n_same, n_different, same_cost, different_cost):
    """Below this a gain is the rounding of none."""
    return 1e-9 * (n_same * same_cost) * (n_different * different_cost)


@kernel
def _split_by_word(
    room, parent, words, pairs, weight, stride, segment, n_tried, bases, n_bins, shift, pair_map, own_codes, own_bases,
    own_bins, n_same, n_different, same_cost, different_cost, low_sums, gains,
):  # fmt: skip
    """`_best_split` of a node whose histogram nobody needs: counted and looked at eight features at a time.

    ``parent`` : the histogram that its counts are taken off, which leaves its sibling's. room : bins of eight features,
    or of all learned ones.
    """
    half, place, last_bin = -1, -1, -1
    splits = n_same > 0 and n_different > 0
    most = _least_gain(n_same, n_different, same_cost, different_cost)
    n_words, n_own = words.shape[0], own_bins.shape[0]
    for q in range(n_words + (1 if n_own > 0 else 0)):
        if q < n_words:
            first, last = 2 * LANES * q, min(2 * LANES * (q + 1), 2 * n_tried)
            origin, final = np.int64(bases[0, first >> 1]), (last >> 1) - 1
            size = np.int64(bases[1, final]) + n_bins[1, final] - origin
        else:
            first, last = 2 * n_tried, 2 * n_tried + n_own
            origin, size = own_bases[0], own_bins.sum()
        for kind in range(2):
            for b in range(size):
                room[kind, b] = 0
        if q < n_words:
            _count_words(
                room, words, q, q + 1, pairs, weight, stride, segment, n_tried, bases, n_bins, shift, pair_map
            )
        else:
            _count_own(room, pairs, weight, stride, segment, own_codes, own_bases, origin)
        if splits:
            its_half, its_place, its_bin, most = _best_split(
                room, n_tried, bases, n_bins, own_bases, own_bins, n_same, n_different, same_cost, different_cost,
                low_sums, gains, origin, first, last, most,
            )  # fmt: skip
            if its_half >= 0:
                half, place, last_bin = its_half, its_place, its_bin
        for kind in range(2):
            for b in range(size):
                parent[kind, origin + b] -= room[kind, b]
    return half, place, last_bin


@kernel
def _fill_values(column, half, pair_map, pairs, start, stop, values):
    """A feature of pairs ``start:stop``: the float32 values that training and scoring both decide on."""
    left, right = pairs[0], pairs[1]
    n = np.uint64(stop - start)
    first = np.uint64(start)
    if half == LEARNED:
        numbers = pairs[2]
        for t in range(n):
            values[t] = column[np.uint64(numbers[first + t])]
    elif pair_map == DIFF_SUM and half == 0:
        for t in range(n):
            values[t] = abs(column[np.uint64(left[first + t])] - column[np.uint64(right[first + t])])
    elif pair_map == PRODUCTS and half == 0:
        for t in range(n):
            values[t] = column[np.uint64(left[first + t])] * column[np.uint64(right[first + t])]
    elif pair_map != MAX_MIN:
        for t in range(n):
            values[t] = column[np.uint64(left[first + t])] + column[np.uint64(right[first + t])]
    elif half == 0:
        for t in range(n):
            values[t] = max(column[np.uint64(left[first + t])], column[np.uint64(right[first + t])])
    else:
        for t in range(n):
            values[t] = min(column[np.uint64(left[first + t])], column[np.uint64(right[first + t])])


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
def _narrowed(weight, stride, n_same, below, totals, costs, values, owners, n):
    """Leave of many values only those around their best border by an even grid; adds those left out to ``below``."""
    least_value, most_value = values[0], values[0]
    for q in range(n):
        least_value, most_value = min(least_value, values[q]), max(most_value, values[q])
    if not least_value < most_value:
        return 0
    scale = (_SUB_BINS - 0.5) / (np.float64(most_value) - np.float64(least_value))
    counts = np.zeros((2, _SUB_BINS), dtype=np.int64)
    for q in range(n):
        place = np.int64((np.float64(values[q]) - np.float64(least_value)) * scale)
        counts[0 if owners[q] < n_same else 1, place] += weight[np.uint64(owners[q]) * stride]
    best, most = 0, -1.0
    low_same, low_different = below[0], below[1]
    all_same, all_different = totals[0] / costs[0], totals[1] / costs[1]
    for b in range(_SUB_BINS - 1):
        low_same += counts[0, b]
        low_different += counts[1, b]
        a, c = low_same * costs[0], low_different * costs[1]
        e, g = (all_same - low_same) * costs[0], (all_different - low_different) * costs[1]
        cross = a * totals[1] - c * totals[0]
        gain = cross * cross / max((a + c) * (e + g), 1e-300)
        if gain > most:
            best, most = b, gain
    after = best + 1
    while after < _SUB_BINS - 1 and counts[0, after] == 0 and counts[1, after] == 0:
        after += 1
    kept = 0
    for q in range(n):
        place = np.int64((np.float64(values[q]) - np.float64(least_value)) * scale)
        if best <= place <= after:
            values[kept], owners[kept] = values[q], owners[q]
            kept += 1
    for b in range(best):
        below[0] += counts[0, b]
        below[1] += counts[1, b]
    return kept


@kernel
def _best_border(
    column, half, pair_map, pairs, weight, stride, n_same, segment, low, high, totals, costs, least, values, owners,
    most_sorted,
):  # fmt: skip
    """The border of least Gini impurity between the values in ``(low, high]`` of one pair feature.

    Parameters
    ----------
    totals : weights of the segment's same and different pairs, times ``costs``.
    least : only a border below this impurity counts.
    values, owners : room for the segment.
    most_sorted : more values than so many are narrowed down by a grid before they are sorted.

    Returns
    -------
    the least impurity, the border, whether there is one.
    """
    below = np.zeros(2)
    run = np.empty(_RUN, dtype=np.float32)
    n = 0
    for kind in range(2):
        total = np.int64(0)
        stop = segment[2 * kind + 1]
        for start in range(segment[2 * kind], stop, _RUN):
            m = min(_RUN, stop - start)
            _fill_values(column, half, pair_map, pairs, start, start + m, run)
            if stride == 0:
                n_below = np.int64(0)
                for t in range(m):
                    n_below += np.int64(run[t] <= low)
                total += n_below * np.int64(weight[0])
            else:
                for t in range(m):
                    total += np.int64(weight[start + t]) * np.int64(run[t] <= low)
            for t in range(m):
                # Rarely so: the window is a few steps of the grid.
                if low < run[t] <= high:
                    values[n], owners[n] = run[t], start + t
                    n += 1
        below[kind] = total
    if n > most_sorted:
        n = _narrowed(weight, stride, n_same, below, totals, costs, values, owners, n)
    _sort(values, owners, n)
    border, found = np.float32(0.0), False
    for q in range(n - 1):
        below[0 if owners[q] < n_same else 1] += weight[np.uint64(owners[q]) * stride]
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
def _part(column, threshold, half, pair_map, pairs, weight, stride, start, stop, spare):
    """In-place parting of pairs ``start:stop``: features at most the threshold first; returns the border.

    Runs from either end exchange what is on the wrong side of the border; what is left in between, of at most two
    runs, goes through ``spare``, (4, 2 runs) int32.
    """
    left, right = pairs[0], pairs[1]
    numbered, moves = pairs.shape[0] > 2, stride > 0
    run = np.empty(_RUN, dtype=np.float32)
    high, low = np.empty(_RUN, dtype=np.uint16), np.empty(_RUN, dtype=np.uint16)
    size = np.uint64(_RUN)
    n_high, n_low, next_high, next_low = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    # No branch on a comparison of values, here or below: it is a coin toss.
    while stop - start > 2 * _RUN:
        front, back = np.uint64(start), np.uint64(stop - _RUN)
        if next_high == n_high:
            _fill_values(column, half, pair_map, pairs, start, start + _RUN, run)
            n_high, next_high = np.uint64(0), np.uint64(0)
            for t in range(size):
                high[n_high] = np.uint16(t)
                n_high += np.uint64(run[t] > threshold)
        if next_low == n_low:
            _fill_values(column, half, pair_map, pairs, stop - _RUN, stop, run)
            n_low, next_low = np.uint64(0), np.uint64(0)
            for t in range(size):
                low[n_low] = np.uint16(t)
                n_low += np.uint64(1) - np.uint64(run[t] > threshold)
        m = min(n_high - next_high, n_low - next_low)
        for t in range(m):
            p, q = front + np.uint64(high[next_high + t]), back + np.uint64(low[next_low + t])
            left[p], left[q] = left[q], left[p]
            right[p], right[q] = right[q], right[p]
        if numbered:
            numbers = pairs[2]
            for t in range(m):
                p, q = front + np.uint64(high[next_high + t]), back + np.uint64(low[next_low + t])
                numbers[p], numbers[q] = numbers[q], numbers[p]
        if moves:
            for t in range(m):
                p, q = front + np.uint64(high[next_high + t]), back + np.uint64(low[next_low + t])
                weight[p], weight[q] = weight[q], weight[p]
        next_high += m
        next_low += m
        if next_high == n_high:
            start += _RUN
        if next_low == n_low:
            stop -= _RUN

    kept, moved = np.uint64(start), np.uint64(0)
    spare_left, spare_right = spare[0], spare[1]
    # Written to both places, and only the counts tell which one holds.
    for begin in range(start, stop, _RUN):
        n, first = np.uint64(min(_RUN, stop - begin)), np.uint64(begin)
        _fill_values(column, half, pair_map, pairs, begin, begin + np.int64(n), run)
        if not moves and not numbered:
            for t in range(n):
                above = np.uint64(run[t] > threshold)
                i, j = left[first + t], right[first + t]
                spare_left[moved], spare_right[moved], left[kept], right[kept] = i, j, i, j
                moved += above
                kept += np.uint64(1) - above
        else:
            for t in range(n):
                above = np.uint64(run[t] > threshold)
                i, j = left[first + t], right[first + t]
                spare_left[moved], spare_right[moved], left[kept], right[kept] = i, j, i, j
                if numbered:
                    number = pairs[2, first + t]
                    spare[2, moved], pairs[2, kept] = number, number
                if moves:
                    w = weight[first + t]
                    spare[3, moved], weight[kept] = w, w
                moved += above
                kept += np.uint64(1) - above
    for row in range(pairs.shape[0]):
        line, its = pairs[row], spare[row]
        for q in range(moved):
            line[kept + q] = its[q]
    if moves:
        its = spare[3]
        for q in range(moved):
            weight[kept + q] = its[q]
    return np.int64(kept)


@kernel
def _swap(line, one, other, n):
    """Exchange ``n`` entries from ``one`` on with those from ``other`` on."""
    for t in range(n):
        line[one + t], line[other + t] = line[other + t], line[one + t]


@kernel
def _gather_leaves(segments, side, leaves, pairs, weight, stride, borders):
    """Bring the pairs of a cell's kept leaves to the front, either kind; ``borders`` is where the others begin.

    ``leaves`` : room for their numbers.
    """
    # In the order that their pairs lie in.
    n_leaves, h = 0, 1
    while h > 0:
        while side[h] == _INNER:
            h *= 2
        leaves[n_leaves] = h
        n_leaves += 1
        while h & 1:
            h >>= 1
        if h > 0:
            h += 1
    for kind in range(2):
        first, last = 0, n_leaves - 1
        start, stop = segments[1, 2 * kind], segments[1, 2 * kind + 1]
        borders[kind] = start
        for q in range(n_leaves):
            if side[leaves[q]] == _LEFT:
                borders[kind] += segments[leaves[q], 2 * kind + 1] - segments[leaves[q], 2 * kind]
        # What is to go back, from the front on, for what is to come to the front, from the back on.
        while True:
            while first < last and (
                side[leaves[first]] == _LEFT or start >= segments[leaves[first], 2 * kind + 1]
            ):
                first += 1
                start = segments[leaves[first], 2 * kind]
            while first < last and (side[leaves[last]] != _LEFT or stop <= segments[leaves[last], 2 * kind]):
                last -= 1
                stop = segments[leaves[last], 2 * kind + 1]
            if first >= last:
                break
            n = min(segments[leaves[first], 2 * kind + 1] - start, stop - segments[leaves[last], 2 * kind])
            for row in range(pairs.shape[0]):
                _swap(pairs[row], start, stop - n, n)
            if stride > 0:
                _swap(weight, start, stop - n, n)
            start += n
            stop -= n


@kernel
def _total(weight, stride, start, stop):
    if stride == 0:
        return np.int64(stop - start) * np.int64(weight[0]) if stop > start else np.int64(0)
    total = np.int64(0)
    for p in range(start, stop):
        total += weight[p]
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
    # One more, which nothing reads, for the spare lanes of `_count_words`.
    return size + 1


@kernel
def _count_all(
    histogram, size, codes, words, pairs, weight, stride, segment, tried, n_tried, bases, n_bins, shift, pair_map, low,
    step, product_bins, places, own_codes, own_bases,
):  # fmt: skip
    """Fill the first ``size`` bins of a histogram with the counts of a segment."""
    for kind in range(2):
        for b in range(size):
            histogram[kind, b] = 0
    if words.shape[0] > 0:
        _count_words(
            histogram, words, 0, words.shape[0], pairs, weight, stride, segment, n_tried, bases, n_bins, shift, pair_map
        )  # fmt: skip
        _count_own(histogram, pairs, weight, stride, segment, own_codes, own_bases, 0)
    elif pair_map == PRODUCTS:
        _count_products(
            histogram, codes, pairs, weight, stride, segment, tried, n_tried, bases, shift, low, step, product_bins,
            own_codes, own_bases,
        )  # fmt: skip
    else:
        _count(
            histogram, codes, pairs, weight, stride, segment, tried, n_tried, bases, shift, pair_map, places,
            own_codes, own_bases,
        )  # fmt: skip


@kernel
def _take_counts(histogram, size, counts, tried, n_tried, bases, n_bins, shift):
    """Fill a histogram with counts (2, 2, u, bins) of each code's bin, `all_pairs.pair_counts`."""
    for kind in range(2):
        for b in range(size):
            histogram[kind, b] = 0
        for k in range(n_tried):
            for half in range(2):
                its = counts[kind, half, np.int64(tried[k])]
                for b in range(min(its.shape[0], n_bins[half, k] << np.int64(shift[k]))):
                    histogram[kind, np.int64(bases[half, k]) + (b >> np.int64(shift[k]))] += np.int32(its[b])


@kernel
def _subtract(histogram, less, size):
    for kind in range(2):
        for b in range(size):
            histogram[kind, b] -= less[kind, b]


@kernel
def _copy(histogram, to, size):
    for kind in range(2):
        for b in range(size):
            to[kind, b] = histogram[kind, b]


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
    codes, words, columns, low, step, exact_grid, n_codes, pair_map, product_bins, pairs, weight, stride, n_same,
    leaf_depth, tried, n_tried, side, segments, sums, features, thresholds, histograms, room, spare, values, owners,
    bases, shift, n_bins, places, low_sums, gains, own_codes, own_values, own_edges, own_bins, own_bases, first,
    first_is_known, counts, exact_pairs,
):  # fmt: skip
    """LeafRank: split the cell in node 1 of the heap greedily, depth first, and say for each leaf which way it goes.

    Fills ``side``, ``segments``, ``sums``, ``features`` (place of the feature, and half) and ``thresholds``.
    ``first`` : the cell's own histogram, (2, bins), given when ``first_is_known``, else filled; or without bins.
    ``counts`` : the cell's counts as `_take_counts` takes them, or none.
    ``exact_pairs`` : cells of at most so many pairs are split by sorting.
    """
    for h in range(side.shape[0]):
        side[h] = 0
    costs, totals = np.empty(2), np.empty(2)
    costs[0], costs[1] = 1.0 / sums[1, 0], 1.0 / sums[1, 1]
    borders = np.empty(2, dtype=np.int64)
    free = np.arange(histograms.shape[0])
    by_word = histograms.shape[0]
    stack = np.empty((2 * leaf_depth + 2, 2), dtype=np.int64)
    cell = segments[1]
    n_pairs = cell[1] - cell[0] + cell[3] - cell[2]
    sort = n_pairs <= exact_pairs
    n_free, n_bins_all = histograms.shape[0] - 1, 0
    if not sort:
        n_bins_all = _lay_out(
            n_codes, _coarseness(n_pairs), pair_map, product_bins, tried, n_tried, shift, n_bins, bases
        )
        for k in range(own_bins.shape[0]):
            own_bases[k] = n_bins_all
            n_bins_all += own_bins[k]
    # What is on the stack: a node, and the buffer of its histogram: -1 for none, -2 - b for one to be counted into b,
    # which is beyond them all where eight features at a time are enough.
    stack[0, 0], stack[0, 1] = 1, -1 if sort else -2 - free[n_free]
    top = 1
    while top > 0:
        top -= 1
        h, buffer = stack[top, 0], stack[top, 1]
        half, f, threshold = -1, 0, np.float32(0.0)
        place, b, is_split = -1, -1, False
        if buffer == -2 - by_word:
            buffer, is_split = -1, True
            half, place, b = _split_by_word(
                room, histograms[stack[top - 1, 1]], words, pairs, weight, stride, segments[h], n_tried, bases, n_bins,
                shift, pair_map, own_codes, own_bases, own_bins, sums[h, 0], sums[h, 1], costs[0], costs[1], low_sums,
                gains,
            )  # fmt: skip
        elif buffer < -1:
            buffer = -2 - buffer
            histogram = histograms[buffer]
            if h == 1 and first_is_known:
                _copy(first, histogram, n_bins_all)
            elif h == 1 and counts.shape[0] > 0:
                _take_counts(histogram, n_bins_all, counts, tried, n_tried, bases, n_bins, shift)
                _count_own(histogram, pairs, weight, stride, segments[h], own_codes, own_bases, 0)
            else:
                _count_all(
                    histogram, n_bins_all, codes, words, pairs, weight, stride, segments[h], tried, n_tried, bases,
                    n_bins, shift, pair_map, low, step, product_bins, places, own_codes, own_bases,
                )  # fmt: skip
            if h == 1 and first.shape[1] > 0 and not first_is_known:
                _copy(histogram, first, n_bins_all)
            if h > 1:
                # The larger child, next on the stack, has its parent's histogram less the smaller one's.
                _subtract(histograms[stack[top - 1, 1]], histogram, n_bins_all)
        if h < (1 << leaf_depth) and sums[h, 0] > 0 and sums[h, 1] > 0:
            totals[0], totals[1] = sums[h, 0] * costs[0], sums[h, 1] * costs[1]
            least = totals[0] * totals[1] / (totals[0] + totals[1]) * (1.0 - 1e-9)
            if sort:
                for k in range(n_tried):
                    for candidate in range(2):
                        least, border, found = _best_border(
                            columns[tried[k]], candidate, pair_map, pairs, weight, stride, n_same, segments[h],
                            -np.inf, np.inf, totals, costs, least, values, owners, exact_pairs,
                        )  # fmt: skip
                        if found:
                            half, f, threshold = candidate, np.int64(tried[k]), border
                for k in range(own_bins.shape[0]):
                    least, border, found = _best_border(
                        own_values[k], LEARNED, pair_map, pairs, weight, stride, n_same, segments[h],
                        -np.inf, np.inf, totals, costs, least, values, owners, exact_pairs,
                    )  # fmt: skip
                    if found:
                        half, f, threshold = LEARNED, k, border
            else:
                if not is_split:
                    half, place, b, _ = _best_split(
                        histograms[buffer], n_tried, bases, n_bins, own_bases, own_bins, sums[h, 0], sums[h, 1],
                        costs[0], costs[1], low_sums, gains, 0, 0, 2 * n_tried + own_bins.shape[0],
                        _least_gain(sums[h, 0], sums[h, 1], costs[0], costs[1]),
                    )  # fmt: skip
                if half == LEARNED:
                    f, threshold = place, own_edges[place, b]
                    # Bins are no finer than their number allows: settle the border among the values around it.
                    least, border, found = _best_border(
                        own_values[f], LEARNED, pair_map, pairs, weight, stride, n_same, segments[h],
                        own_edges[f, b - 1] if b > 0 else -np.inf, own_edges[f, b + 1],
                        totals, costs, np.inf, values, owners, _SORTED,
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
                            columns[f], half, pair_map, pairs, weight, stride, n_same, segments[h],
                            threshold - reach, threshold + reach, totals, costs, np.inf, values, owners, _SORTED,
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
                    weight,
                    stride,
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
                sums[c, kind] = _total(weight, stride, segments[c, 2 * kind], segments[c, 2 * kind + 1])
                sums[c + 1, kind] = sums[h, kind] - sums[c, kind]
            smaller = c if n_low <= n_high else c + 1
            stack[top, 0], stack[top, 1] = 2 * c + 1 - smaller, -1
            stack[top + 1, 0], stack[top + 1, 1] = smaller, -1
            if not sort and c < (1 << leaf_depth):
                stack[top, 1] = buffer
                if words.shape[0] > 0 and 2 * c >= (1 << leaf_depth):
                    stack[top + 1, 1] = -2 - by_word
                else:
                    n_free -= 1
                    stack[top + 1, 1] = -2 - free[n_free]
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
    codes, words, columns, low, step, n_codes, exact_grid, used, d, pair_map, product_bins, pairs, weight, stride,
    n_same, own_codes, own_values, own_edges, own_bins,
    max_depth, leaf_depth, n_tried, seed, counts,
):  # fmt: skip
    """Grow a similarity tree (Clemencon & Vogel, "The Similarity TreeRank Algorithm").

    Parameters
    ----------
    codes : (n, u) uint8 and ``columns`` : (u, n) float32, the same rows coded and as they are.
    words : `words_of` the codes where all features are tried, else without lines.
    low, step, n_codes, exact_grid : the grid, (u,) each.
    used : (u,) numbers of those features among all ``d``.
    product_bins : (4, u), see `binning.product_bins`; of use for products only.
    pairs : (2 or 3, n_pairs) int32, ``n_same`` pairs of one identity first; reordered in place.
    weight, stride : int32 weights: of each pair, reordered with them, and 1; or a single one of all, and 0 (uint64).
    own_codes, own_values : (n, m) uint16 and (m, n) float32, learned features of pairs, coded and as they are.
    own_edges, own_bins : (m, most bins) float32 and (m,): the largest value of each bin, and how many bins there are.
    n_tried : features drawn for each cell; each brings its two pair features.
    seed : uint64, of the draws of features.
    counts : (2, 2, u, bins) float64, `all_pairs.pair_counts` where the pairs are all pairs of the rows; else empty.

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
    size = n_tried * widest + n_own_bins + 1
    # Every level of LeafRank but its root keeps one for a sibling to come; the last level's need none of their own
    # where eight features are counted at a time.
    n_histograms = max(leaf_depth - 1, 1) if words.shape[0] > 0 else leaf_depth
    histograms = np.empty((n_histograms, 2, size), dtype=np.int32)
    room = np.empty((2, max(LANES * widest + 1, n_own_bins)), dtype=np.int32)
    longest = widest
    for k in range(own_bins.shape[0]):
        longest = max(longest, own_bins[k])
    low_sums, gains = np.empty((2, longest), dtype=np.int32), np.empty(longest, dtype=np.float64)
    # Histograms of whole cells, for their children's; `todo` says in which line, if in any.
    n_shared = max_depth + 2 if words.shape[0] > 0 and pairs.shape[1] >= 8 * SHARED_PAIRS else 0
    shared = np.empty((n_shared, 2, size), dtype=np.int32)
    free = np.arange(shared.shape[0])
    n_free = shared.shape[0]
    none, no_counts = np.empty((2, 0), dtype=np.int32), np.empty((0, 0, 0, 0))
    n_pairs = pairs.shape[1]
    exact_pairs = n_pairs if n_pairs <= FEW_PAIRS and n_used <= FEW_FEATURES else EXACT_PAIRS
    spare, leaves = np.empty((4, 2 * _RUN), dtype=np.int32), np.empty(n_heap, dtype=np.int64)
    values, owners = np.empty(n_pairs, dtype=np.float32), np.empty(n_pairs, dtype=np.int32)

    cells = np.empty((64, CELL_FIELDS), dtype=np.int64)
    # Feature, threshold, low and high child: 32-bit numbers, all exact in float64.
    nodes = np.empty((64, 4), dtype=np.float64)
    cells[0, CELL_DEPTH], cells[0, CELL_POSITION], cells[0, CELL_NODE] = 0, 0, -1
    cells[0, CELL_LEFT], cells[0, CELL_RIGHT] = -1, -1
    cells[0, CELL_SAME] = _total(weight, stride, 0, n_same)
    cells[0, CELL_DIFFERENT] = _total(weight, stride, n_same, n_pairs)
    n_cells, n_nodes = 1, 0
    todo = np.empty((max_depth + 2, 6), dtype=np.int64)
    todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3], todo[0, 4], todo[0, 5] = 0, 0, n_same, n_same, n_pairs, -1
    n_todo = 1
    while n_todo > 0:
        n_todo -= 1
        cell = todo[n_todo, 0]
        segments[1] = todo[n_todo, 1:5]
        line_of_cell = todo[n_todo, 5]
        known = line_of_cell >= 0
        sums[1, 0], sums[1, 1] = cells[cell, CELL_SAME], cells[cell, CELL_DIFFERENT]
        if cells[cell, CELL_DEPTH] >= max_depth or sums[1, 0] == 0 or sums[1, 1] == 0 or n_tried == 0:
            if known:
                free[n_free] = line_of_cell
                n_free += 1
            continue
        in_cell = segments[1, 1] - segments[1, 0] + segments[1, 3] - segments[1, 2]
        if (
            not known
            and in_cell >= 2 * SHARED_PAIRS
            and n_free > 0
            and cells[cell, CELL_DEPTH] + 1 < max_depth
        ):
            n_free -= 1
            line_of_cell = free[n_free]
        own = shared[line_of_cell] if line_of_cell >= 0 else none
        its_counts = counts if cell == 0 else no_counts
        if n_tried < n_used:
            _draw_first(tried, n_tried, state)
        _grow_leaf_rank(
            codes, words, columns, low, step, exact_grid, n_codes, pair_map, product_bins, pairs, weight, stride,
            n_same, leaf_depth, tried, n_tried, side, segments, sums, split_feature, split_threshold, histograms, room,
            spare, values, owners, bases, shift, n_bins, places, low_sums, gains, own_codes, own_values, own_edges,
            own_bins, own_bases, own, known, its_counts, exact_pairs,
        )  # fmt: skip
        left_same, left_other = np.int64(0), np.int64(0)
        if side[1] == _INNER:
            _gather_leaves(segments, side, leaves, pairs, weight, stride, borders)
            left_same = _total(weight, stride, segments[1, 0], borders[0])
            left_other = _total(weight, stride, segments[1, 2], borders[1])
        if left_same * sums[1, 1] <= left_other * sums[1, 0]:
            if line_of_cell >= 0:
                free[n_free] = line_of_cell
                n_free += 1
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
            line[5] = -1
        n_cells += 2
        n_todo += 2
        if line_of_cell >= 0:
            n_left = borders[0] - segments[1, 0] + borders[1] - segments[1, 2]
            smaller, larger = todo[n_todo - 1], todo[n_todo - 2]
            if 2 * n_left > in_cell:
                smaller, larger = larger, smaller
            n_smaller = min(n_left, in_cell - n_left)
            if in_cell - n_smaller < SHARED_PAIRS or n_free == 0 or cells[cell, CELL_DEPTH] + 1 >= max_depth:
                free[n_free] = line_of_cell
                n_free += 1
            else:
                # All features are tried and the grid is whole in either cell, so their bins are the same.
                n_bins_all = np.int64(bases[1, n_tried - 1]) + n_bins[1, n_tried - 1] + 1 + n_own_bins
                its = shared[free[n_free - 1]]
                _count_all(
                    its, n_bins_all, codes, words, pairs, weight, stride, smaller[1:5], tried, n_tried, bases, n_bins,
                    shift, pair_map, low, step, product_bins, places, own_codes, own_bases,
                )  # fmt: skip
                _subtract(own, its, n_bins_all)
                larger[5] = line_of_cell
                if n_smaller >= SHARED_PAIRS:
                    n_free -= 1
                    smaller[5] = free[n_free]

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
