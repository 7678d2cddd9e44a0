"""Strings of pairs of rows compared in compiled loops: whole, and by tokens that are weighed by their rarity.

A token is a run of letters and digits; a point between two digits belongs to it. The tokens of some fields of one side
are compared with those of the other: a token matches by as much as 1 where it is there, .95 where it has three or more
characters and lies inside the other side's tokens end to end, or by its best Jaro-Winkler similarity of .9 or more to
one with the same first two characters, where neither holds a digit.
"""

from typing import NamedTuple

import numpy as np

from pairmark.models.core.arrays import Float32, Int64, NDArray
from pairmark.models.core.compiled import inner_kernel, kernel

FNV_START, FNV_PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)
"""Hashes are FNV-1a: from the start, each character is mixed in by exclusive or, then multiplied by the prime."""
MAX_TOKENS = 256
"""Tokens of a side that are compared."""
TOKEN_CHARS = 64
"""Characters of a token that tell it from others; longer runs are cut into tokens of so many."""
TEXT_CHARS = 64
"""Characters of a whole string that Jaro-Winkler and Levenshtein look at."""
DIGIT, NUMBER, MODEL = 1, 2, 4
"""Flags of a token: holds a digit; is digits alone; mixes letters and digits, or is five or longer with a digit."""
INSIDE, ALIKE = 0.95, 0.9
_TRIGRAMS = 4_096
N_SOFT = 19
"""Features that tokens add; the comparators name them."""


class Cells(NamedTuple):
    """Strings of several fields and their tokens, field after field; see `tokenize`."""

    chars: NDArray[np.int32]
    starts: Int64
    squeezed: NDArray[np.int32]
    token_starts: Int64
    hashes: Int64
    flags: NDArray[np.uint8]
    weights: Float32
    row_tokens: Int64


@inner_kernel
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
def tokenize(chars, starts, squeezed, token_starts, hashes, flags, row_tokens):
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
        row_tokens[row] = n_tokens
        i, stop = starts[row], starts[row + 1]
        while i < stop and n_tokens - row_tokens[row] < MAX_TOKENS:
            if _kind(chars[i]) == 0:
                i += 1
                continue
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
                squeezed[end] = chars[i]
                end += 1
                i += 1
            # No letter, and more than digits: there is a point, at which the loop below ends at the latest.
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
    row_tokens[starts.shape[0] - 1] = n_tokens
    return n_tokens


@kernel
def weigh(hashes, rarity, out):
    """Weight of each token; ``rarity`` is a `Rarity`."""
    for i in range(hashes.shape[0]):
        at = np.searchsorted(rarity.hashes, hashes[i])
        is_common = at < rarity.hashes.shape[0] and rarity.hashes[at] == hashes[i]
        out[i] = rarity.weights[at] if is_common else rarity.unseen[0]


@inner_kernel
def _places(text, char):
    """Bits of the places where a text of `TEXT_CHARS` characters or fewer has one: as many as a word has."""
    bits = np.uint64(0)
    for j in range(text.shape[0]):
        bits |= np.uint64(text[j] == char) << np.uint64(j)
    return bits


@kernel
def jaro_winkler(a, b):
    """Jaro-Winkler similarity of two strings of `TEXT_CHARS` characters or fewer: the weight is .1 for at most four
    equal first characters, from .7 on (Winkler 1990)."""
    # Of each character the first free place in reach is taken, from the left: which places that are is the same from
    # either side, and so is every sum below.
    n, m, unit, zero = a.shape[0], b.shape[0], np.uint64(1), np.uint64(0)
    reach = max(max(n, m) // 2 - 1, 0)
    bits_a, bits_b, every = zero, zero, ~zero
    for i in range(n):
        first, stop = max(0, i - reach), i + reach + 1
        near = every << np.uint64(first) if first < TEXT_CHARS else zero
        near &= ~(every << np.uint64(stop)) if stop < TEXT_CHARS else every
        free = _places(b, a[i]) & near & ~bits_b
        # The lowest bit that is set.
        bits_b |= free & (~free + unit)
        bits_a |= np.uint64(free != zero) << np.uint64(i)
    # Matched characters of both in their order: where they differ they are out of order.
    share, n_swapped, j = 0.0, 0, 0
    for i in range(n):
        if (bits_a >> np.uint64(i)) & unit:
            while not (bits_b >> np.uint64(j)) & unit:
                j += 1
            n_swapped += np.int64(a[i] != b[j])
            j += 1
            share += 1.0
    if share == 0.0:
        return 0.0
    # Two characters out of order make one transposition.
    jaro = (share / n + share / m + (share - n_swapped // 2) / share) / 3.0
    prefix = 0
    while jaro > 0.7 and prefix < min(4, min(n, m)) and a[prefix] == b[prefix]:
        prefix += 1
    return jaro + 0.1 * prefix * (1.0 - jaro)


@kernel
def levenshtein(a, b):
    """Levenshtein similarity of two strings of 1 to `TEXT_CHARS` characters: one less the distance over the longer
    length."""
    # Columns of the table of distances as bits (Hyyro 2003, figure 8): where an entry is one more than that above it,
    # or one less; ``up`` and ``down`` say the same of that to its left.
    n, m, unit = a.shape[0], b.shape[0], np.uint64(1)
    more, less, last, distance = ~np.uint64(0), np.uint64(0), unit << np.uint64(n - 1), n
    for j in range(m):
        same = _places(a, b[j])
        diagonal = (((same & more) + more) ^ more) | same | less
        up, down = less | ~(diagonal | more), more & diagonal
        distance += np.int64((up & last) != 0) - np.int64((down & last) != 0)
        up = (up << unit) | unit
        more, less = (down << unit) | ~(diagonal | up), up & diagonal
    return 1.0 - distance / max(n, m)


@kernel
def compare_texts(chars, starts, others, other_starts, n_a, n_b, left, right, places, out):
    """Jaro-Winkler and Levenshtein similarity of whole strings; NaN where either is missing.

    Parameters
    ----------
    chars, starts, others, other_starts : of the `Cells` of the two sides, ``n_a`` and ``n_b`` rows of each string.
    left, right : (n,) int64 rows. places : (S,) the first column of each string in ``out``.
    """
    for k in range(left.shape[0]):
        for string in range(places.shape[0]):
            p, q, features = string * n_a + left[k], string * n_b + right[k], out[k, places[string] :]
            one, other = chars[starts[p] : starts[p + 1]], others[other_starts[q] : other_starts[q + 1]]
            if one.shape[0] == 0 or other.shape[0] == 0:
                features[:2] = np.nan
                continue
            one, other = one[:TEXT_CHARS], other[:TEXT_CHARS]
            features[0], features[1] = jaro_winkler(one, other), levenshtein(one, other)


@inner_kernel
def _is_inside(token, text):
    """Whether a token lies inside a text."""
    n = token.shape[0]
    for start in range(text.shape[0] - n + 1):
        n_equal = 0
        while n_equal < n and text[start + n_equal] == token[n_equal]:
            n_equal += 1
        if n_equal == n:
            return True
    return False


@inner_kernel
def _trigram(text, at):
    """A number below `_TRIGRAMS` that three characters following each other have."""
    return ((text[at] * 31 + text[at + 1]) * 31 + text[at + 2]) % _TRIGRAMS


@inner_kernel
def _find(side, tokens, text, shares, trigrams):
    """Note which tokens lie inside the other side's text."""
    trigrams[:] = False
    for at in range(text.shape[0] - 2):
        trigrams[_trigram(text, at)] = True
    for x in range(tokens.shape[0]):
        token = side.squeezed[side.token_starts[tokens[x]] : side.token_starts[tokens[x] + 1]]
        # Most tokens begin with three characters that are nowhere in the text.
        is_open = shares[x] == 0.0 and token.shape[0] >= 3 and trigrams[_trigram(token, 0)]
        if is_open and _is_inside(token, text):
            shares[x] = INSIDE


@inner_kernel
def _alike(one, other):
    """How alike two tokens of letters are that begin with the same two characters; 0 below `ALIKE`."""
    n, m = one.shape[0], other.shape[0]
    # Of tokens that differ that much in length none are alike.
    alike = jaro_winkler(one, other) if 2 * n >= m and 2 * m >= n else 0.0
    return alike if alike >= ALIKE else 0.0


@inner_kernel
def _mark_heads(side, tokens, heads, none):
    """The first two characters of each token as a number; ``none`` for one with a digit, which is alike to none, and
    for one of a character, to its equal only."""
    for x in range(tokens.shape[0]):
        start, stop = side.token_starts[tokens[x]], side.token_starts[tokens[x] + 1]
        heads[x] = none
        if stop - start > 1 and not side.flags[tokens[x]] & DIGIT:
            heads[x] = (np.int64(side.squeezed[start]) << 32) + side.squeezed[start + 1]


@inner_kernel
def _match(a, tokens, b, others, texts, shares, heads, trigrams):
    """How well each token of either side is matched by the other: the rows of ``shares``."""
    shares[0, : tokens.shape[0]], shares[1, : others.shape[0]] = 0.0, 0.0
    _mark_heads(a, tokens, heads[0], -1)
    _mark_heads(b, others, heads[1], -2)
    for x in range(tokens.shape[0]):
        for y in range(others.shape[0]):
            if a.hashes[tokens[x]] == b.hashes[others[y]]:
                shares[0, x], shares[1, y] = 1.0, 1.0
    _find(a, tokens, texts[1], shares[0], trigrams)
    _find(b, others, texts[0], shares[1], trigrams)
    for x in range(tokens.shape[0]):
        for y in range(others.shape[0]):
            # Where both are matched that well already, likeness is not looked for: it costs most.
            if heads[0, x] == heads[1, y] and (shares[0, x] < INSIDE or shares[1, y] < INSIDE):
                i, j = tokens[x], others[y]
                one = a.squeezed[a.token_starts[i] : a.token_starts[i + 1]]
                alike = _alike(one, b.squeezed[b.token_starts[j] : b.token_starts[j + 1]])
                shares[0, x], shares[1, y] = max(shares[0, x], alike), max(shares[1, y], alike)


@inner_kernel
def _sums(side, tokens, shares):
    """Of some tokens: total and matched mass, rarest matched and unmatched; numbers, and how many of them are on the
    other side; model tokens, how many are there, and the mass of the others."""
    total, matched, rarest, rarest_lost = 0.0, 0.0, 0.0, 0.0
    numbers, same_numbers, models, same_models, lost_models = 0, 0, 0, 0, 0.0
    for at in range(tokens.shape[0]):
        weight, flags, share = np.float64(side.weights[tokens[at]]), side.flags[tokens[at]], shares[at]
        total += weight
        matched += weight * share
        if share >= INSIDE:
            rarest = max(rarest, weight)
        if share == 0.0:
            rarest_lost = max(rarest_lost, weight)
        if flags & NUMBER:
            numbers += 1
            same_numbers += np.int64(share == 1.0)
        if flags & MODEL:
            models += 1
            same_models += np.int64(share >= INSIDE)
            lost_models += 0.0 if share >= INSIDE else weight
    return total, matched, rarest, rarest_lost, numbers, same_numbers, models, same_models, lost_models


@inner_kernel
def _best_model(a, tokens, b, others):
    """Best Levenshtein similarity of two model tokens; 0 where a side has none."""
    best = 0.0
    for i in tokens:
        for j in others:
            if a.flags[i] & b.flags[j] & MODEL:
                one = a.squeezed[a.token_starts[i] : a.token_starts[i + 1]]
                other = b.squeezed[b.token_starts[j] : b.token_starts[j + 1]]
                best = max(best, levenshtein(one, other))
    return best


@inner_kernel
def _shares(count_a, hits_a, count_b, hits_b, out):
    """Jaccard and containment of the sets that two sides have of a kind; NaN where they do not apply."""
    in_both = min(hits_a, hits_b)
    all_kinds, fewest = count_a + count_b - in_both, min(count_a, count_b)
    out[0] = in_both / all_kinds if all_kinds > 0 else np.nan
    out[1] = in_both / fewest if fewest > 0 else np.nan


@inner_kernel
def _soft(a, tokens, b, others, texts, unit, shares, heads, trigrams, out):
    """The `N_SOFT` features of tokens of two sides; NaN where either has none."""
    n, m = tokens.shape[0], others.shape[0]
    if n == 0 or m == 0:
        out[:] = np.nan
        return
    _match(a, tokens, b, others, texts, shares, heads, trigrams)
    total_a, hits_a, rarest_a, lost_a, numbers_a, same_numbers_a, models_a, same_models_a, lost_models_a = (
        _sums(a, tokens, shares[0])
    )
    total_b, hits_b, rarest_b, lost_b, numbers_b, same_numbers_b, models_b, same_models_b, lost_models_b = (
        _sums(b, others, shares[1])
    )
    share_a, share_b = hits_a / total_a, hits_b / total_b
    out[0], out[1] = min(share_a, share_b), max(share_a, share_b)
    out[2] = max(rarest_a, rarest_b) / unit
    out[3], out[4] = min(lost_a, lost_b) / unit, max(lost_a, lost_b) / unit
    rest_a, rest_b = total_a - hits_a, total_b - hits_b
    out[5], out[6] = min(rest_a, rest_b) / unit, max(rest_a, rest_b) / unit
    out[7] = max(hits_a, hits_b) / unit
    out[8] = (hits_a + hits_b) / (total_a + total_b)
    _shares(numbers_a, same_numbers_a, numbers_b, same_numbers_b, out[9:11])
    _shares(models_a, same_models_a, models_b, same_models_b, out[11:13])
    in_both = models_a > 0 and models_b > 0
    out[13] = _best_model(a, tokens, b, others) if in_both else np.nan
    out[14] = min(lost_models_a, lost_models_b) / unit if in_both else np.nan
    out[15] = max(lost_models_a, lost_models_b) / unit if models_a + models_b > 0 else np.nan
    out[16], out[17] = min(n, m), min(n, m) / max(n, m)
    out[18] = a.hashes[tokens[0]] == b.hashes[others[0]]


@inner_kernel
def _tokens(side, n_rows, row, strings, lacked, numbers, text):
    """Numbers of a row's tokens in some strings, those left out that are ``lacked``, and these tokens end to end."""
    size, end = 0, 0
    for string in range(strings.shape[0]):
        if strings[string] >= 0 and not lacked[strings[string]]:
            cell = string * n_rows + row
            for token in range(side.row_tokens[cell], side.row_tokens[cell + 1]):
                if size < MAX_TOKENS:
                    numbers[size] = token
                    size += 1
                    for at in range(side.token_starts[token], side.token_starts[token + 1]):
                        text[end] = side.squeezed[at]
                        end += 1
    return numbers[:size], text[:end]


@kernel
def compare_tokens(a, b, n_a, n_b, left, right, groups, unit, places, lacked, out):
    """Features of the tokens of pairs of rows; NaN where either side has none.

    Parameters
    ----------
    a, b : `Cells` of the two sides, ``n_a`` and ``n_b`` rows of each string. left, right : (n,) int64 rows.
    groups : (G, S) the fields of the strings that are taken together, -1 where a string is not among them.
    unit : weight of a token that no record has: masses are divided by it.
    places : (G,) the first of each group's `N_SOFT` columns in ``out``.
    lacked : (n, d) which fields a pair lacks on one side only: their tokens are left out.
    """
    numbers, shares = np.empty((2, MAX_TOKENS), dtype=np.int64), np.empty((2, MAX_TOKENS))
    chars = np.empty((2, MAX_TOKENS * TOKEN_CHARS), dtype=np.int32)
    heads, trigrams = np.empty((2, MAX_TOKENS), dtype=np.int64), np.empty(_TRIGRAMS, dtype=np.bool_)
    for group in range(groups.shape[0]):
        for k in range(left.shape[0]):
            tokens, text = _tokens(a, n_a, left[k], groups[group], lacked[k], numbers[0], chars[0])
            others, other = _tokens(b, n_b, right[k], groups[group], lacked[k], numbers[1], chars[1])
            own = out[k, places[group] : places[group] + N_SOFT]
            _soft(a, tokens, b, others, (text, other), unit, shares, heads, trigrams, own)
