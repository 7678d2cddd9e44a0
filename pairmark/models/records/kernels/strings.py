"""Comparison of short and long strings, given as code points, in compiled loops.

Every function treats its two sides alike: `jaro_winkler` puts the shorter string first (of equal lengths the one whose
first differing character is smaller), the others are symmetric by their definition.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel

FNV_START, FNV_PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)
"""Hashes are FNV-1a: from the start, each character is mixed in by exclusive or, then multiplied by the prime."""
MAX_CHARS = 256
"""Characters of a string that Levenshtein looks at."""
_WORD = 64
_BOOSTED = 0.7
"""Jaro similarity above which equal first characters count (Winkler 1990)."""
_BYTES = 256


@kernel
def same_text(a, b):
    if a.shape[0] != b.shape[0]:
        return False
    for i in range(a.shape[0]):  # noqa: SIM110
        if a[i] != b[i]:
            return False
    return True


@kernel
def _matched_by_table(s, n, t, m, reach, peq):
    """Characters of two strings that match, as bits, and how many of them are out of order; all below 256."""
    unit = np.uint64(1)
    for j in range(m):
        peq[t[j], 0] |= unit << np.uint64(j)
    bits_s, bits_t = np.uint64(0), np.uint64(0)
    for i in range(n):
        # Bits from i - reach to i + reach.
        first, last = max(0, i - reach), min(m - 1, i + reach)
        if last < first:
            break
        window = (~np.uint64(0) >> np.uint64(63 - (last - first))) << np.uint64(first)
        # Places of t with this character, in reach, that no earlier character took; the lowest is taken.
        free = peq[s[i], 0] & window & ~bits_t
        if free != 0:
            bits_t |= free & (~free + unit)
            bits_s |= unit << np.uint64(i)
    # Matched characters of both strings in their order: where they differ they are out of order.
    matches, n_swapped, open_bits = 0, 0, bits_t
    for i in range(n):
        if (bits_s >> np.uint64(i)) & unit:
            lowest = open_bits & (~open_bits + unit)
            n_swapped += np.int64((peq[s[i], 0] & lowest) == 0)
            open_bits ^= lowest
            matches += 1
    for j in range(m):
        peq[t[j], 0] = np.uint64(0)
    return matches, n_swapped


@kernel
def _matched_by_search(s, n, t, m, reach):
    """The same of any characters."""
    unit = np.uint64(1)
    bits_s, bits_t = np.uint64(0), np.uint64(0)
    for i in range(n):
        for j in range(max(0, i - reach), min(m, i + reach + 1)):
            if t[j] == s[i] and not (bits_t >> np.uint64(j)) & unit:
                bits_t |= unit << np.uint64(j)
                bits_s |= unit << np.uint64(i)
                break
    matches, n_swapped, j = 0, 0, 0
    for i in range(n):
        if (bits_s >> np.uint64(i)) & unit:
            while not (bits_t >> np.uint64(j)) & unit:
                j += 1
            n_swapped += np.int64(s[i] != t[j])
            j += 1
            matches += 1
    return matches, n_swapped


@kernel
def _wide(a, n):
    wide = False
    for i in range(n):
        wide |= a[i] >= _BYTES
    return wide


@kernel
def jaro_winkler(a, b, peq):
    """Jaro-Winkler similarity with weight .1 for at most four equal first characters (Winkler 1990), 0 to 1.

    Of longer strings it compares the first 64 characters. ``peq`` (256, _) uint64 is all 0 at entry and exit.
    """
    n, m = min(a.shape[0], _WORD), min(b.shape[0], _WORD)
    if n == 0 or m == 0:
        return 1.0 if n == m else 0.0
    # Of each character the first free place in reach is taken, from the left: which places that are is the same from
    # either side, and so is every sum below.
    reach = max(max(n, m) // 2 - 1, 0)
    if _wide(a, n) or _wide(b, m):
        matches, n_swapped = _matched_by_search(a, n, b, m, reach)
    else:
        matches, n_swapped = _matched_by_table(a, n, b, m, reach, peq)
    if matches == 0:
        return 0.0
    share = np.float64(matches)
    jaro = (share / n + share / m + (share - n_swapped // 2) / share) / 3.0
    if jaro <= _BOOSTED:
        return jaro
    prefix = 0
    while prefix < min(4, min(n, m)) and a[prefix] == b[prefix]:
        prefix += 1
    return jaro + 0.1 * prefix * (1.0 - jaro)


@kernel
def _plain_distance(a, b, n, m, row):
    for j in range(m + 1):
        row[j] = j
    for i in range(1, n + 1):
        # One row of the table, overwritten: `before` is the entry up and to the left.
        before, row[0] = row[0], i
        for j in range(1, m + 1):
            here = row[j]
            best = before + np.int64(a[i - 1] != b[j - 1])
            best = min(best, here + 1)
            row[j] = min(best, row[j - 1] + 1)
            before = here
    return row[m]


@kernel
def levenshtein(a, b, peq, row):
    """Levenshtein similarity, one less the distance over the longer length, 0 to 1.

    Bit-parallel (Myers 1999, with Hyyro's blocks) where all characters are below 256, else by the plain recurrence.

    Parameters
    ----------
    peq : (256, `MAX_CHARS` / 64) uint64, all 0 at entry and exit. row : (`MAX_CHARS` + 1,) int64, scratch.
    """
    n, m = min(a.shape[0], MAX_CHARS), min(b.shape[0], MAX_CHARS)
    longest = max(n, m)
    if longest == 0:
        return 1.0
    # Equal ends cost nothing, and are common.
    first = 0
    while first < n and first < m and a[first] == b[first]:
        first += 1
    while n > first and m > first and a[n - 1] == b[m - 1]:
        n -= 1
        m -= 1
    if n == first or m == first:
        return 1.0 - (n + m - 2 * first) / longest
    if _wide(a, n) or _wide(b, m):
        return 1.0 - _plain_distance(a[first:n], b[first:m], n - first, m - first, row) / longest
    s, t = (a[first:n], b[first:m]) if n <= m else (b[first:m], a[first:n])
    size, unit = s.shape[0], np.uint64(1)
    blocks = (size + _WORD - 1) // _WORD
    for i in range(size):
        peq[s[i], i // _WORD] |= unit << np.uint64(i % _WORD)
    positive = np.empty(MAX_CHARS // _WORD, dtype=np.uint64)
    negative = np.empty(MAX_CHARS // _WORD, dtype=np.uint64)
    for k in range(blocks):
        positive[k], negative[k] = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0)
    distance = size
    last = unit << np.uint64((size - 1) % _WORD)
    top = np.uint64(_WORD - 1)
    for j in range(t.shape[0]):
        # What the first row of the table adds at each column: 1 more.
        up, down = unit, np.uint64(0)
        for k in range(blocks):
            pv, mv, equal = positive[k], negative[k], peq[t[j], k]
            # Myers' names: pv, mv vertical steps of +1 and -1, ph, mh horizontal ones, a bit each.
            xv = equal | mv
            equal |= down
            xh = (((equal & pv) + pv) ^ pv) | equal
            ph = mv | ~(xh | pv)
            mh = pv & xh
            if k == blocks - 1:
                distance += np.int64((ph & last) != 0) - np.int64((mh & last) != 0)
            # The block's last horizontal step is carried into the next block.
            next_up, next_down = ph >> top, mh >> top
            ph = (ph << unit) | up
            mh = (mh << unit) | down
            positive[k] = mh | ~(xv | ph)
            negative[k] = ph & xv
            up, down = next_up, next_down
    for i in range(size):
        peq[s[i], i // _WORD] = np.uint64(0)
    return 1.0 - distance / longest


LENGTHS = (3, 4)
"""Characters of an n-gram; each string is taken with a space on either side."""


@kernel
def _char(chars, first, last, at):
    return np.uint64(chars[at]) if first <= at < last else np.uint64(32)


@kernel
def count_grams(chars, starts, n_columns, columns, counts, ends):
    """Columns of each string's distinct n-grams, ascending, and how often each occurs.

    Parameters
    ----------
    columns, counts : room for two n-grams a character and four a string. ends : (n,) where each string's entries end.
    """
    size = 0
    for row in range(starts.shape[0] - 1):
        first, last, begin = starts[row], starts[row + 1], size
        if last > first:
            for length in LENGTHS:
                # From the space before the string to that after it.
                for at in range(first - 1, last - length + 2):
                    code = FNV_START
                    for k in range(length):
                        code = (code ^ _char(chars, first, last, at + k)) * FNV_PRIME
                    columns[size] = np.int64((code >> np.uint64(17)) % np.uint64(n_columns))
                    size += 1
        own = np.sort(columns[begin:size])
        size = begin
        for k in range(own.shape[0]):
            if k == 0 or own[k] != own[k - 1]:
                columns[size], counts[size] = own[k], 1.0
                size += 1
            else:
                counts[size - 1] += 1.0
        ends[row] = size
