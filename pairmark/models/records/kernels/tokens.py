"""Tokens of strings, and rarity-weighted soft comparison of them, in compiled loops.

A token is a run of letters and digits; a point between two digits belongs to it. Tokens of a cell lie end to end in its
squeezed text. A token of one side matches the other side by as much as 1 where it is there, .95 where it has three or
more characters and lies inside the other's squeezed text, or by its best Jaro-Winkler similarity of .9 or more where
neither holds a digit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32, Int64
from pairmark.models.core.compiled import kernel

FNV_START, FNV_PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)
"""Hashes are FNV-1a: from the start, each character is mixed in by exclusive or, then multiplied by the prime."""
MAX_TOKENS = 256
"""Tokens of a cell that are compared."""
TOKEN_CHARS = 64
"""Characters of a token that tell it from others; longer runs are cut into tokens of so many."""
DIGIT, NUMBER, MODEL = 1, 2, 4
"""Flags of a token: holds a digit; is digits alone; mixes letters and digits, or is five or longer with a digit."""
INSIDE, ALIKE = 0.95, 0.9
N_SOFT = 19
"""Features that tokens add; the comparators name them."""
N_CROSSED = 4
"""Features of two crossed fields."""


class Cells(NamedTuple):
    """Strings of several fields and their tokens, field after field; see `tokenise`."""

    chars: NDArray[np.int32]
    starts: Int64
    squeezed: NDArray[np.int32]
    squeezed_starts: Int64
    token_starts: Int64
    hashes: Int64
    flags: NDArray[np.uint8]
    weights: Float32
    row_tokens: Int64


@kernel
def _kind(char):
    """0 for what parts tokens, 1 for a letter, 2 for a digit."""
    if 48 <= char <= 57:
        return 2
    if 97 <= char <= 122 or 65 <= char <= 90:
        return 1
    # Above ASCII all but spaces, punctuation and symbols of the common blocks are letters.
    if (
        char < 0xAA
        or char in (0xAB, 0xBB, 0xD7, 0xF7)
        or 0x2000 <= char <= 0x206F
        or 0x3000 <= char <= 0x3004
    ):
        return 0
    if 0xAB < char < 0xC0 and char != 0xB5 and char != 0xBA:
        return 0
    return 0 if 0x3008 <= char <= 0x3020 or 0xFF00 <= char <= 0xFF0F else 1


@kernel
def tokenise(chars, starts, squeezed, squeezed_starts, token_starts, hashes, flags, row_tokens):
    """Tokens of the cells ``chars[starts[i]:starts[i + 1]]``.

    Parameters
    ----------
    squeezed : as long as ``chars``. token_starts : room for one more than there may be tokens, into ``squeezed``.
    hashes : int64 of each token (FNV-1a). flags : uint8.
    row_tokens : (n + 1,), where each cell's tokens begin.

    Returns
    -------
    how many tokens there are.
    """
    n_tokens, end = 0, 0
    token_starts[0] = 0
    for row in range(starts.shape[0] - 1):
        row_tokens[row], squeezed_starts[row] = n_tokens, end
        first = n_tokens
        i, stop = starts[row], starts[row + 1]
        while i < stop and n_tokens - first < MAX_TOKENS:
            if _kind(chars[i]) == 0:
                i += 1
                continue
            code = FNV_START
            letters, digits, begin = 0, 0, end
            while i < stop and end - begin < TOKEN_CHARS:
                kind = _kind(chars[i])
                if kind == 0:
                    # A point belongs to the token only between two digits: 1.5, but not a full stop.
                    point = chars[i] == 46 and i + 1 < stop and end > begin
                    if not (point and _kind(chars[i - 1]) == 2 and _kind(chars[i + 1]) == 2):
                        break
                letters += np.int64(kind == 1)
                digits += np.int64(kind == 2)
                code = (code ^ np.uint64(chars[i])) * FNV_PRIME
                squeezed[end] = chars[i]
                end += 1
                i += 1
            if letters == 0 and end - begin > digits:
                # 7.0 is 7: zeros at the end of a fraction say nothing.
                while squeezed[end - 1] == 48:
                    end -= 1
                end -= np.int64(squeezed[end - 1] == 46)
                code = FNV_START
                for k in range(begin, end):
                    code = (code ^ np.uint64(squeezed[k])) * FNV_PRIME
            flag = 0
            if digits > 0:
                flag = DIGIT
                if letters == 0:
                    flag |= NUMBER
                if letters > 0 or end - begin >= 5:
                    flag |= MODEL
            hashes[n_tokens], flags[n_tokens] = np.int64(code), flag
            n_tokens += 1
            token_starts[n_tokens] = end
    row_tokens[starts.shape[0] - 1], squeezed_starts[starts.shape[0] - 1] = n_tokens, end
    return n_tokens


@kernel
def _weight(code, field, rarity):
    """Weight of a token: of its place in its field's sorted part of the table, else what is unseen there."""
    low, high = rarity.starts[field], rarity.starts[field + 1]
    last = high
    while low < high:
        middle = (low + high) >> 1
        if rarity.hashes[middle] < code:
            low = middle + 1
        else:
            high = middle
    return rarity.weights[low] if low < last and rarity.hashes[low] == code else rarity.unseen[field]


@kernel
def weigh(hashes, row_tokens, n_rows, rarity, out):
    """Weight of each token in its field; ``rarity`` is a `Rarity`."""
    for field in range(rarity.unseen.shape[0]):
        for i in range(row_tokens[field * n_rows], row_tokens[(field + 1) * n_rows]):
            out[i] = _weight(hashes[i], field, rarity)


@kernel
def _characters(side, first, last, masks):
    """Of each token without a digit a bit for each of its characters modulo 64; 0 of the others."""
    for i in range(first, last):
        masks[i - first] = 0
        if not side.flags[i] & DIGIT:
            for at in range(side.token_starts[i], side.token_starts[i + 1]):
                masks[i - first] |= np.uint64(1) << np.uint64(side.squeezed[at] & 63)


@kernel
def _bits(word):
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def jaro_winkler(a, b):
    """Jaro-Winkler similarity of two tokens with weight .1 for at most four equal first characters (Winkler 1990);
    wrong below .7, where it is too high."""
    # Of each character the first free place in reach is taken, from the left: which places that are is the same from
    # either side, and so is every sum below.
    n, m, unit = a.shape[0], b.shape[0], np.uint64(1)
    reach = max(max(n, m) // 2 - 1, 0)
    bits_a, bits_b = np.uint64(0), np.uint64(0)
    for i in range(n):
        for j in range(max(0, i - reach), min(m, i + reach + 1)):
            if b[j] == a[i] and not (bits_b >> np.uint64(j)) & unit:
                bits_b |= unit << np.uint64(j)
                bits_a |= unit << np.uint64(i)
                break
    # Matched characters of both in their order: where they differ they are out of order.
    share, n_swapped, j = 1e-300, 0, 0
    for i in range(n):
        if (bits_a >> np.uint64(i)) & unit:
            while not (bits_b >> np.uint64(j)) & unit:
                j += 1
            n_swapped += np.int64(a[i] != b[j])
            j += 1
            share += 1.0
    jaro = (share / n + share / m + (share - n_swapped // 2) / share) / 3.0
    prefix = 0
    while prefix < min(4, min(n, m)) and a[prefix] == b[prefix]:
        prefix += 1
    return jaro + 0.1 * prefix * (1.0 - jaro)


@kernel
def levenshtein(a, b, row):
    """Levenshtein similarity of two tokens, one less the distance over the longer length; ``row`` is scratch."""
    n, m = a.shape[0], b.shape[0]
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
    return 1.0 - row[m] / max(n, m)


@kernel
def _inside(token, text):
    """Whether a token lies inside a text."""
    n = token.shape[0]
    first = token[0]
    for i in range(text.shape[0] - n + 1):
        if text[i] == first:
            k = 1
            while k < n and text[i + k] == token[k]:
                k += 1
            if k == n:
                return True
    return False


@kernel
def _match(a, i0, i1, b, j0, j1, text, masks, others, shares):
    """How well each token of one cell is matched by the other cell, whose squeezed text is ``text``; ``masks`` and
    ``others`` are of their `_characters`."""
    for i in range(i0, i1):
        token, mask, best = a.squeezed[a.token_starts[i] : a.token_starts[i + 1]], masks[i - i0], 0.0
        for j in range(j0, j1):
            if b.hashes[j] == a.hashes[i]:
                best = 1.0
                break
        n = token.shape[0]
        if best == 0.0 and n >= 3 and _inside(token, text):
            best = INSIDE
        if best == 0.0 and mask != 0:
            for j in range(j0, j1):
                other, m = others[j - j0], b.token_starts[j + 1] - b.token_starts[j]
                # Characters that only one side has cannot match: at most `common` do. With four equal first
                # characters too, tokens are alike only from 3/4 of the mean length on (harmonic).
                common = min(n - _bits(mask & ~other), m - _bits(other & ~mask))
                if other != 0 and 2 * common * (n + m) >= 3 * n * m:
                    alike = jaro_winkler(token, b.squeezed[b.token_starts[j] : b.token_starts[j + 1]])
                    if alike >= ALIKE:
                        best = max(best, alike)
        shares[i - i0] = best


@kernel
def _masses(side, first, last, shares):
    """Total mass, matched mass, rarest matched and rarest unmatched of one side."""
    total, hits, rarest, rarest_lost = 0.0, 0.0, 0.0, 0.0
    for i in range(first, last):
        weight, share = np.float64(side.weights[i]), shares[i - first]
        total += weight
        hits += weight * share
        if share >= INSIDE:
            rarest = max(rarest, weight)
        if share == 0.0:
            rarest_lost = max(rarest_lost, weight)
    return total, hits, rarest, rarest_lost


@kernel
def _count(side, first, last, shares, flag, min_share):
    """Tokens of a kind, how many are on the other side at least so well, and the mass of the others."""
    count, hits, lost = 0, 0, 0.0
    for i in range(first, last):
        if (side.flags[i] & flag) == flag:
            count += 1
            if shares[i - first] >= min_share:
                hits += 1
            else:
                lost += side.weights[i]
    return count, hits, lost


@kernel
def _best_model(a, i0, i1, b, j0, j1, row):
    """Best Levenshtein similarity of two model tokens; NaN where a side has none."""
    best = -1.0
    for i in range(i0, i1):
        if a.flags[i] & MODEL == 0:
            continue
        s = a.squeezed[a.token_starts[i] : a.token_starts[i + 1]]
        for j in range(j0, j1):
            if b.flags[j] & MODEL == 0:
                continue
            if a.hashes[i] == b.hashes[j]:
                return 1.0
            n, m = s.shape[0], b.token_starts[j + 1] - b.token_starts[j]
            if 1.0 - abs(n - m) / max(n, m) > best:
                best = max(best, levenshtein(s, b.squeezed[b.token_starts[j] : b.token_starts[j + 1]], row))
    return best if best >= 0.0 else np.nan


@kernel
def _shares(count_a, hits_a, count_b, hits_b, out):
    """Jaccard and containment of the sets that two sides have of a kind; NaN where they do not apply."""
    in_both = min(hits_a, hits_b)
    all_kinds, fewest = count_a + count_b - in_both, min(count_a, count_b)
    out[0] = in_both / all_kinds if all_kinds > 0 else np.nan
    out[1] = in_both / fewest if fewest > 0 else np.nan


@kernel
def _soft(a, p, b, q, unit, shares, masks, row, out):
    """The `N_SOFT` features of two cells' tokens; NaN where either is missing."""
    i0, i1, j0, j1 = a.row_tokens[p], a.row_tokens[p + 1], b.row_tokens[q], b.row_tokens[q + 1]
    if i0 == i1 or j0 == j1:
        out[:] = np.nan
        return
    _characters(a, i0, i1, masks[0])
    _characters(b, j0, j1, masks[1])
    text_a = a.squeezed[a.squeezed_starts[p] : a.squeezed_starts[p + 1]]
    text_b = b.squeezed[b.squeezed_starts[q] : b.squeezed_starts[q + 1]]
    _match(a, i0, i1, b, j0, j1, text_b, masks[0], masks[1], shares[0])
    _match(b, j0, j1, a, i0, i1, text_a, masks[1], masks[0], shares[1])
    total_a, hits_a, rarest_a, rarest_lost_a = _masses(a, i0, i1, shares[0])
    total_b, hits_b, rarest_b, rarest_lost_b = _masses(b, j0, j1, shares[1])
    share_a = hits_a / total_a if total_a > 0 else 1.0
    share_b = hits_b / total_b if total_b > 0 else 1.0
    lost_a, lost_b = total_a - hits_a, total_b - hits_b
    out[0], out[1] = min(share_a, share_b), max(share_a, share_b)
    out[2] = max(rarest_a, rarest_b) / unit
    out[3], out[4] = min(rarest_lost_a, rarest_lost_b) / unit, max(rarest_lost_a, rarest_lost_b) / unit
    out[5], out[6] = min(lost_a, lost_b) / unit, max(lost_a, lost_b) / unit
    out[7] = max(hits_a, hits_b) / unit
    out[8] = (hits_a + hits_b) / max(total_a + total_b, 1e-12)
    numbers_a, numbers_b = (
        _count(a, i0, i1, shares[0], NUMBER, 1.0),
        _count(b, j0, j1, shares[1], NUMBER, 1.0),
    )
    _shares(numbers_a[0], numbers_a[1], numbers_b[0], numbers_b[1], out[9:11])
    models_a = _count(a, i0, i1, shares[0], MODEL, INSIDE)
    models_b = _count(b, j0, j1, shares[1], MODEL, INSIDE)
    _shares(models_a[0], models_a[1], models_b[0], models_b[1], out[11:13])
    in_both = models_a[0] > 0 and models_b[0] > 0
    out[13] = _best_model(a, i0, i1, b, j0, j1, row) if in_both else np.nan
    out[14] = min(models_a[2], models_b[2]) / unit if in_both else np.nan
    out[15] = max(models_a[2], models_b[2]) / unit if models_a[0] + models_b[0] > 0 else np.nan
    fewest, larger = min(i1 - i0, j1 - j0), max(i1 - i0, j1 - j0)
    out[16], out[17] = fewest, fewest / larger
    out[18] = 1.0 if a.hashes[i0] == b.hashes[j0] else 0.0


@kernel
def _room(n_tokens):
    """`Cells` of one row, with room for so many tokens."""
    texts, ends = np.empty(n_tokens * TOKEN_CHARS, dtype=np.int32), np.empty(2, dtype=np.int64)
    starts, hashes = np.empty(n_tokens + 1, dtype=np.int64), np.empty(n_tokens, dtype=np.int64)
    flags, weights = np.empty(n_tokens, dtype=np.uint8), np.empty(n_tokens, dtype=np.float32)
    return Cells(texts[:0], ends, texts, ends.copy(), starts, hashes, flags, weights, ends.copy())


@kernel
def _join(side, n, row, lacked, rarity, out):
    """The tokens of a row's fields that are not ``lacked``, as all cells joined would have them if these were all."""
    n_tokens, end, joined = 0, 0, lacked.shape[0]
    out.token_starts[0] = 0
    for field in range(joined):
        cell = field * n + row
        if lacked[field]:
            continue
        for i in range(side.row_tokens[cell], side.row_tokens[cell + 1]):
            if n_tokens == MAX_TOKENS:
                break
            for at in range(side.token_starts[i], side.token_starts[i + 1]):
                out.squeezed[end] = side.squeezed[at]
                end += 1
            out.hashes[n_tokens], out.flags[n_tokens] = side.hashes[i], side.flags[i]
            out.weights[n_tokens] = _weight(side.hashes[i], joined, rarity)
            n_tokens += 1
            out.token_starts[n_tokens] = end
    out.row_tokens[0], out.row_tokens[1] = 0, n_tokens
    out.squeezed_starts[0], out.squeezed_starts[1] = 0, end


@kernel
def compare(a, b, n_a, n_b, left, right, fields, rarity, places, crossed, lacked, out):
    """Features of the tokens of pairs of rows, field by field; NaN where either cell is missing.

    Parameters
    ----------
    a, b : `Cells` of the two sides, field after field, ``n_a`` and ``n_b`` rows each.
    left, right : (n,) int64 rows.
    fields : (F,) which fields' tokens are compared. places : (F,) the first of each one's `N_SOFT` columns in ``out``.
    rarity : `Rarity`; masses are divided by the weight of a token of a single record.
    lacked : (n, d) which fields a pair lacks on one side only, or (0, d): field d, all others joined, leaves them out.
    crossed : two fields that are compared with each other, and the first of their `N_CROSSED` columns; -1: none.
    """
    row = np.empty(TOKEN_CHARS + 1, dtype=np.int64)
    shares, masks = np.empty((2, MAX_TOKENS)), np.empty((2, MAX_TOKENS), dtype=np.uint64)
    room = MAX_TOKENS if lacked.shape[0] > 0 else 0
    spare = _room(room), _room(room)
    for k in range(left.shape[0]):
        for at in range(fields.shape[0]):
            field, own = fields[at], out[k, places[at] : places[at] + N_SOFT]
            p, q, unit = field * n_a + left[k], field * n_b + right[k], rarity.unseen[field]
            if field == lacked.shape[1] and lacked.shape[0] > 0 and lacked[k].any():
                _join(a, n_a, left[k], lacked[k], rarity, spare[0])
                _join(b, n_b, right[k], lacked[k], rarity, spare[1])
                _soft(spare[0], 0, spare[1], 0, unit, shares, masks, row, own)
            else:
                _soft(a, p, b, q, unit, shares, masks, row, own)
    first, second, place = crossed
    if first < 0:
        return
    # Low and high, over both ways to cross the two fields, of the low and the high share of mass.
    ways = np.empty((2, N_SOFT), dtype=np.float32)
    for k in range(left.shape[0]):
        if lacked.shape[0] > 0 and (lacked[k, first] or lacked[k, second]):
            # Either way would read a field that the other side lacks.
            out[k, place : place + N_CROSSED] = np.nan
            continue
        p, q = left[k], right[k]
        _soft(a, first * n_a + p, b, second * n_b + q, 1.0, shares, masks, row, ways[0])
        _soft(a, second * n_a + p, b, first * n_b + q, 1.0, shares, masks, row, ways[1])
        for at in range(2):
            x, y = ways[0, at], ways[1, at]
            if np.isnan(x):
                x = y
            if np.isnan(y):
                y = x
            out[k, place + 2 * at], out[k, place + 2 * at + 1] = min(x, y), max(x, y)
