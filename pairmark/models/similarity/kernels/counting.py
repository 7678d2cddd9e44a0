"""Histograms of pair features, counted from byte codes and never from a written-out pair matrix."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.similarity.kernels.layout import DIFF_SUM, LANES, MAX_MIN, PRODUCTS

_TILE = 64


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
def _coarseness(n_pairs):
    """How many halvings of the grid leave enough bins for so many pairs: empty bins cost time and carry nothing."""
    if n_pairs >= 8192:
        return 0
    return 1 if n_pairs >= 2048 else (2 if n_pairs >= 512 else 3)


@kernel
def n_learned_bins(learned):
    total = np.int64(0)
    for k in range(learned.n_bins.shape[0]):
        total += learned.n_bins[k]
    return total


@kernel
def lay_out(points, learned, bins, n_pairs):
    """Place the bins of the features tried in a cell of ``n_pairs`` one after the other; returns how many there are.

    Learned features come last, after one bin that nothing reads, for the spare lanes of `count_words`.
    """
    coarser, pair_map = _coarseness(n_pairs), points.pair_map
    size = 0
    for k in range(bins.shift.shape[0]):
        feature = bins.features[k]
        last = points.n_codes[feature] - 1
        # Short grids stay whole: their bins are few already.
        halvings = 0 if last < 64 else coarser
        bins.shift[k] = halvings
        bins.sizes[0, k] = (last >> halvings) + 1
        bins.sizes[1, k] = ((last if pair_map == MAX_MIN else 2 * last) >> halvings) + 1
        if pair_map == PRODUCTS:
            bins.sizes[0, k] = ((np.int64(points.product_bins[2, feature]) - 1) >> halvings) + 1
        for half in range(2):
            bins.starts[half, k] = size
            size += bins.sizes[half, k]
    # The bin that nothing reads.
    size += 1
    for k in range(learned.n_bins.shape[0]):
        bins.learned_starts[k] = size
        size += learned.n_bins[k]
    return size


@kernel
def _count(histogram, points, pairs, learned, segment, bins):
    """Count both pair features of every feature tried, and all learned ones, by kind of pair.

    The bins of a pair are first worked out for all features, which the compiler does for many at a time, then
    counted. Unsigned indices: a signed one costs a wrap-around test on each access.
    """
    codes, rows, weight, stride = points.codes, pairs.rows, pairs.weight, pairs.stride
    own_codes, own_bases, features, shift = learned.codes, bins.learned_starts, bins.features, bins.shift
    n_tried, pair_map = np.uint64(shift.shape[0]), points.pair_map
    first, second = bins.places[0], bins.places[1]
    below, above = bins.starts[0], bins.starts[1]
    for kind in range(2):
        counts = histogram[kind]
        for p in range(np.uint64(segment[2 * kind]), np.uint64(segment[2 * kind + 1])):
            i, j, w = np.uint64(rows[0, p]), np.uint64(rows[1, p]), weight[p * stride]
            left_row, right_row = codes[i], codes[j]
            if pair_map == DIFF_SUM:
                for k in range(n_tried):
                    f = features[k]
                    a, b = np.int32(left_row[f]), np.int32(right_row[f])
                    first[k] = np.uint32((np.uint32(abs(np.int32(a - b))) >> shift[k]) + below[k])
                    second[k] = np.uint32((np.uint32(np.int32(a + b)) >> shift[k]) + above[k])
            else:
                for k in range(n_tried):
                    f = features[k]
                    a, b = np.uint32(left_row[f]), np.uint32(right_row[f])
                    first[k] = np.uint32((max(a, b) >> shift[k]) + below[k])
                    second[k] = np.uint32((min(a, b) >> shift[k]) + above[k])
            for k in range(n_tried):
                counts[np.uint64(first[k])] += w
                counts[np.uint64(second[k])] += w
            # Learned features have a code of their own for each pair, which stands at its number.
            for k in range(own_codes.shape[1]):
                counts[own_bases[k] + np.int64(own_codes[rows[2, p], k])] += w


@kernel
def _count_products(histogram, points, pairs, learned, segment, bins):
    """`_count` for products and sums: products of the values that codes stand for, in even bins of their own."""
    codes, low, step, product_bins = points.codes, points.low, points.step, points.product_bins
    rows, weight, stride = pairs.rows, pairs.weight, pairs.stride
    own_codes, own_bases = learned.codes, bins.learned_starts
    features, shift, starts = bins.features, bins.shift, bins.starts
    for kind in range(2):
        counts = histogram[kind]
        for p in range(segment[2 * kind], segment[2 * kind + 1]):
            left_row, right_row, w = codes[rows[0, p]], codes[rows[1, p]], weight[np.uint64(p) * stride]
            for k in range(shift.shape[0]):
                f = features[k]
                a, b = np.int64(left_row[f]), np.int64(right_row[f])
                # Codes stand for values on the grid: the bin nearest to their product, held within the feature's bins.
                product = (low[f] + step[f] * a) * (low[f] + step[f] * b)
                place = np.int64((product - product_bins[0, f]) / product_bins[1, f] + 0.5)
                place = min(max(place, 0), np.int64(product_bins[2, f]) - 1)
                counts[np.int64(starts[0, k]) + (place >> np.int64(shift[k]))] += w
                counts[np.int64(starts[1, k]) + ((a + b) >> np.int64(shift[k]))] += w
            for k in range(own_codes.shape[1]):
                counts[own_bases[k] + np.int64(own_codes[rows[2, p], k])] += w


@kernel
def _high_half(a, b):
    """Upper half of a product of uint16: one instruction for many at a time, which a shift by a variable is not."""
    return np.uint16((np.uint32(a) * np.uint32(b)) >> np.uint32(16))


@kernel
def _fill_lanes(bins, q, below, above, coarser):
    """What each lane of word ``q`` adds and shifts by, for eight pairs at once; returns the word's first bin."""
    n_tried = bins.shift.shape[0]
    start = np.int64(bins.starts[0, LANES * q])
    for e in range(LANES):
        k = LANES * q + e
        if k < n_tried:
            below[e] = np.uint16(np.int64(bins.starts[0, k]) - start)
            above[e] = np.uint16(np.int64(bins.starts[1, k]) - start)
            # The lane's value is doubled first, then multiplied by 2^(15 - shift): its upper half is the
            # value shifted right.
            coarser[e] = np.uint16(1 << (15 - np.int64(bins.shift[k])))
        else:
            spare_bin = np.uint16(np.int64(bins.starts[1, n_tried - 1]) + bins.sizes[1, n_tried - 1] - start)
            below[e], above[e], coarser[e] = spare_bin, spare_bin, np.uint16(0)
    for e in range(LANES, below.shape[0]):
        below[e], above[e], coarser[e] = below[e - LANES], above[e - LANES], coarser[e - LANES]
    return start


@kernel
def count_words(histogram, points, pairs, segment, bins, first_word, last_word):
    """`_count` where every feature is tried: eight features at a time, so that their bins stay in the nearest cache.

    Those of words ``first_word:last_word``, whose first bin is the histogram's first.
    Two increments a pair and feature are nearly all of the time: one store a cycle. Bins are worked out for a tile of
    pairs before they are counted; those of spare lanes go to a bin that nothing reads.
    """
    words, left, right = points.words, pairs.rows[0], pairs.rows[1]
    weight, stride, pair_map = pairs.weight, pairs.stride, points.pair_map
    origin = np.int64(bins.starts[0, LANES * first_word])
    left_word, right_word = np.empty(_TILE, dtype=np.uint64), np.empty(_TILE, dtype=np.uint64)
    x, y = left_word.view(np.uint8), right_word.view(np.uint8)
    first, second = np.empty(LANES * _TILE, dtype=np.uint16), np.empty(LANES * _TILE, dtype=np.uint16)
    # As wide as vectors are.
    span = LANES * 8
    below, above = np.empty(span, dtype=np.uint16), np.empty(span, dtype=np.uint16)
    coarser = np.empty(span, dtype=np.uint16)
    tile, lanes = np.uint64(_TILE), np.uint64(LANES)
    for q in range(first_word, last_word):
        line = words[q]
        start_bin = _fill_lanes(bins, q, below, above, coarser)
        for kind in range(2):
            counts = histogram[kind, start_bin - origin :]
            stop = np.uint64(segment[2 * kind + 1])
            for start in range(np.uint64(segment[2 * kind]), stop, tile):
                n = min(tile, stop - start)
                # Gathered first: what follows reads both sides in a row.
                for t in range(n):
                    left_word[t] = line[np.uint64(left[start + t])]
                    right_word[t] = line[np.uint64(right[start + t])]
                # Bins of the whole tile, lanes of its end that hold no pair included: a loop of fixed length,
                # without a branch, is done for many at a time.
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
                    # A stride of 0 reads the one weight that even pairs share.
                    w = weight[(start + t) * stride]
                    for k in range(lanes):
                        counts[np.uint64(first[t * lanes + k])] += w
                        counts[np.uint64(second[t * lanes + k])] += w


@kernel
def count_learned(histogram, pairs, learned, segment, bins, origin):
    """Count the learned features; the histogram's first bin is number ``origin``."""
    rows, weight, stride = pairs.rows, pairs.weight, pairs.stride
    codes, starts = learned.codes, bins.learned_starts
    for kind in range(2):
        counts = histogram[kind]
        for p in range(segment[2 * kind], segment[2 * kind + 1]):
            w = weight[np.uint64(p) * stride]
            for k in range(codes.shape[1]):
                counts[starts[k] - origin + np.int64(codes[rows[2, p], k])] += w


@kernel
def clear(histogram, size):
    """Set the first ``size`` bins to 0."""
    for kind in range(2):
        for b in range(size):
            histogram[kind, b] = 0


@kernel
def count_all(histogram, size, points, pairs, learned, segment, bins):
    """Fill the first ``size`` bins of a histogram with the counts of a segment."""
    clear(histogram, size)
    if points.words.shape[0] > 0:
        count_words(histogram, points, pairs, segment, bins, 0, points.words.shape[0])
        count_learned(histogram, pairs, learned, segment, bins, 0)
    elif points.pair_map == PRODUCTS:
        _count_products(histogram, points, pairs, learned, segment, bins)
    else:
        _count(histogram, points, pairs, learned, segment, bins)


@kernel
def take_counts(histogram, size, counts, bins):
    """Fill a histogram with counts (2, 2, u, codes) of each code's bin, `all_pairs.pair_counts`."""
    clear(histogram, size)
    for kind in range(2):
        for k in range(bins.shift.shape[0]):
            halvings = np.int64(bins.shift[k])
            for half in range(2):
                column = counts[kind, half, np.int64(bins.features[k])]
                # Codes past the last bin have no pairs.
                for b in range(min(column.shape[0], bins.sizes[half, k] << halvings)):
                    histogram[kind, np.int64(bins.starts[half, k]) + (b >> halvings)] += np.int32(column[b])


@kernel
def subtract(histogram, part, size):
    """Take the first ``size`` bins of one histogram off another's."""
    for kind in range(2):
        for b in range(size):
            histogram[kind, b] -= part[kind, b]


@kernel
def copy(histogram, to, size):
    """Copy the first ``size`` bins of a histogram."""
    for kind in range(2):
        for b in range(size):
            to[kind, b] = histogram[kind, b]
