"""Counts of all pairs from histograms of the rows, class by class, in compiled loops."""

from __future__ import annotations

import numpy as np

from models.compiled import kernel

_CODES = 256
_PAD = 32
_ONE_BY_ONE = 48
"""Classes of at most so many rows: going through their pairs is less work than through their histograms."""
_AT_A_TIME = 16
"""Features counted in one go over a class, so that their histograms stay in the nearest cache."""


@kernel
def _add_products(histogram, apart, summed):
    """Add the pairs of rows of two codes: their counts' product, at the codes' difference and at their sum."""
    for t in range(_CODES):
        h = histogram[t]
        if h > 0:
            its_apart, its_summed, beside = apart[1:], summed[2 * t + 1 :], histogram[t + 1 :]
            for u in range(beside.shape[0]):
                both = h * beside[u]
                its_apart[u] += both
                its_summed[u] += both


@kernel
def _add_dots(forward, backward, first, second):
    """`_add_products` by sums of uint32, many at a time, of which none exceeds 2^32.

    ``forward``, ``backward`` : the histogram from its first code and from its last, so that codes of one sum stand side
    by side, between `_PAD` zeros. Sums are over whole multiples of `_PAD` numbers: what is left over costs more.
    """
    for t in range(1, _CODES):
        n = (_CODES - t + _PAD - 1) // _PAD * _PAD
        low, high = forward[_PAD : _PAD + n], forward[_PAD + t : _PAD + t + n]
        total = np.uint32(0)
        for i in range(low.shape[0]):
            total = np.uint32(total + np.uint32(low[i] * high[i]))
        first[t] += total
    for s in range(1, 2 * _CODES - 2):
        end = (s + 1) // 2
        n = (end - max(s - (_CODES - 1), 0) + _PAD - 1) // _PAD * _PAD
        low = forward[_PAD + end - n : _PAD + end]
        high = backward[_PAD + _CODES - 1 - s + end - n :]
        total = np.uint32(0)
        for i in range(low.shape[0]):
            total = np.uint32(total + np.uint32(low[i] * high[i]))
        second[s] += total


@kernel
def _add_from_histogram(histogram, n, max_min, first, second, forward, backward):
    """Add the pairs among ``n`` rows with a histogram of codes, (256,) float64, to the counts of both pair features.

    Whole numbers below 2^53, so sums of floats are exact. ``forward``, ``backward`` : uint32, zeros.
    """
    if max_min:
        below = 0.0
        for t in range(_CODES):
            h = histogram[t]
            within = 0.5 * h * (h - 1.0)
            # The greater of a pair is t: the other one is smaller, or also t.
            first[t] += h * below + within
            below += h
            second[t] += h * (n - below) + within
        return
    for t in range(_CODES):
        within = 0.5 * histogram[t] * (histogram[t] - 1.0)
        first[0] += within
        second[2 * t] += within
        forward[_PAD + t] = backward[_PAD + _CODES - 1 - t] = np.uint32(histogram[t])
    if n > 65_536:
        _add_products(histogram, first, second)
    else:
        _add_dots(forward, backward, first, second)


@kernel
def _add_one_by_one(rows, k, max_min, first, second):
    for i in range(rows.shape[0]):
        a = np.int64(rows[i, k])
        for j in range(i):
            b = np.int64(rows[j, k])
            first[max(a, b) if max_min else abs(a - b)] += 1.0
            second[min(a, b) if max_min else a + b] += 1.0


@kernel
def count_all_pairs(codes, borders, max_min, counts):
    """Fill ``counts`` (2, 2, u, bins), zeros: pairs of one class and of two, by half of the pair map, feature and bin.

    Parameters
    ----------
    codes : (n, u) uint8, class by class. borders : (classes + 1,) rows where each begins, and n.
    """
    n, n_features = codes.shape
    whole = np.zeros((n_features, _CODES))
    room = np.empty((_AT_A_TIME, _CODES), dtype=np.uint32)
    own = np.empty(_CODES)
    forward, backward = np.zeros(_CODES + 2 * _PAD, np.uint32), np.zeros(_CODES + 2 * _PAD, np.uint32)
    for c in range(borders.shape[0] - 1):
        rows = codes[borders[c] : borders[c + 1]]
        few = rows.shape[0] <= _ONE_BY_ONE
        for begin in range(0, n_features, _AT_A_TIME):
            width = min(_AT_A_TIME, n_features - begin)
            room[:] = 0
            first = np.uint64(begin)
            for i in range(rows.shape[0]):
                row = rows[i]
                for k in range(np.uint64(width)):
                    room[k, np.uint64(row[first + k])] += np.uint32(1)
            for k in range(width):
                for t in range(_CODES):
                    own[t] = room[k, t]
                    whole[begin + k, t] += own[t]
                if few:
                    _add_one_by_one(
                        rows, begin + k, max_min, counts[0, 0, begin + k], counts[0, 1, begin + k]
                    )
                else:
                    _add_from_histogram(
                        own, rows.shape[0], max_min, counts[0, 0, begin + k], counts[0, 1, begin + k], forward,
                        backward,
                    )  # fmt: skip
    for k in range(n_features):
        _add_from_histogram(whole[k], n, max_min, counts[1, 0, k], counts[1, 1, k], forward, backward)
        for half in range(2):
            for b in range(counts.shape[3]):
                counts[1, half, k, b] -= counts[0, half, k, b]


@kernel
def best_border(counts):
    """The border of greatest gain, see `kernels._best_split`, under costs that balance both kinds.

    Returns
    -------
    half, feature, bin, gain (the impurity is ``(1 - gain) / 2``), and pairs of one class and of two up to the bin.
    """
    all_same, all_different = 0.0, 0.0
    for b in range(counts.shape[3]):
        all_same += counts[0, 0, 0, b]
        all_different += counts[1, 0, 0, b]
    best = (0, 0, 0, 0.0, 0.0, 0.0)
    most = -1.0
    for half in range(2):
        for k in range(counts.shape[2]):
            same, different = 0.0, 0.0
            for b in range(counts.shape[3]):
                same += counts[0, half, k, b]
                different += counts[1, half, k, b]
                a, c = same / all_same, different / all_different
                under = (a + c) * (2.0 - a - c)
                gain = (a - c) * (a - c) / under if under > 0.0 else 0.0
                if gain > most:
                    most = gain
                    best = (half, k, b, gain, same, different)
    return best
