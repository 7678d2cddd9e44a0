"""How far two normal forms agree, by the kind of their column, in compiled loops.

The tests are those that `compare.kinds` has in SQL, in the same order: `tests/models/records/test_compare.py` holds the
two together. Levels are 1 apart, 2 weak, 3 close, 4 equal; NaN where a cell is missing.
"""

from typing import Literal, get_args

import numpy as np

from pairmark.models.core.compiled import inner_kernel, kernel
from pairmark.models.records.kernels.tokens import TEXT_CHARS, jaro_winkler

APART, WEAK, CLOSE, EQUAL = 1, 2, 3, 4
ALIKE, LIKELY = 0.8999, 0.7999
"""Jaro-Winkler similarities of .9 and .8, however they are rounded."""
Rule = Literal[
    "person", "company", "phone", "email", "web", "street", "city", "postcode", "edit", "date", "id", "spelled",
    "text", "number", "same", "list",
]  # fmt: skip
RULES: tuple[Rule, ...] = get_args(Rule)
(_PERSON, _COMPANY, _PHONE, _EMAIL, _WEB, _STREET, _CITY, _POSTCODE, _EDIT, _DATE, _ID, _SPELLED, _TEXT,
 _NUMBER, _SAME, _LIST) = range(len(RULES))  # fmt: skip
"""Rules, of which each kind of column follows one."""
_MAX_WORDS = 256
_SPACE, _BAR, _AT, _VALUE = 32, 124, 64, 31
"""Characters between words, parts of a normal form, the two sides of an address, and several values."""
_BY_LETTERS, _BY_INITIALS, _SHORTENED = range(3)
"""What two words may be: spelled alike; that, or one the start of the other; that, or one an abbreviation."""


@inner_kernel
def _is_same(a, b):
    same = a.shape[0] == b.shape[0]
    for i in range(a.shape[0] if same else 0):
        if a[i] != b[i]:
            return False
    return same


@inner_kernel
def _starts(a, b):
    """Whether one of two texts begins with the other."""
    n = min(a.shape[0], b.shape[0])
    return _is_same(a[:n], b[:n])


@inner_kernel
def _one_edit(a, b):
    """Whether at most one character was changed, left out, put in, or swapped with the next."""
    n, m = a.shape[0], b.shape[0]
    if abs(n - m) > 1:
        return False
    # What both begin with is cut off, then what both end with, no further than the shorter text reaches. At most one
    # character of either may be left, or two that are swapped.
    i, k = 0, 0
    while i < min(n, m) and a[i] == b[i]:
        i += 1
    while k < min(n, m) - i and a[n - 1 - k] == b[m - 1 - k]:
        k += 1
    p, q = n - i - k, m - i - k
    return max(p, q) <= 1 or (p == 2 and q == 2 and a[i] == b[i + 1] and a[i + 1] == b[i])


@inner_kernel
def _two_edits(a, b):
    """Whether it is at most two, and the first or the last third is the same."""
    # As the SQL has it, which is spared counting edits by it.
    n, m, third = a.shape[0], b.shape[0], min(a.shape[0], b.shape[0]) // 3
    if not (_is_same(a[:third], b[:third]) or _is_same(a[n - third :], b[m - third :])):
        return False
    i = 0
    while i < min(n, m) and a[i] == b[i]:
        i += 1
    # One edit is where they first differ: swapped, then left out, put in or changed. What follows may take one more.
    if i + 1 < min(n, m) and a[i] == b[i + 1] and a[i + 1] == b[i] and _one_edit(a[i + 2 :], b[i + 2 :]):
        return True
    return _one_edit(a[i + 1 :], b[i:]) or _one_edit(a[i:], b[i + 1 :]) or _one_edit(a[i + 1 :], b[i + 1 :])


@inner_kernel
def _is_alike(a, b, jaro):
    """Whether two texts of some Jaro-Winkler similarity are spelled alike."""
    least = min(a.shape[0], b.shape[0])
    return (least > 2 and jaro >= ALIKE) or (least > 3 and _one_edit(a, b))


@inner_kernel
def _is_spelled(a, b):
    """The same of two words, for which nobody has the similarity yet."""
    if min(a.shape[0], b.shape[0]) < 3:
        return False
    return _is_alike(a, b, jaro_winkler(a[:TEXT_CHARS], b[:TEXT_CHARS]))


@inner_kernel
def _is_abbreviated(a, b):
    """Whether the letters of the shorter word are in the other in their order, the first one first."""
    short, long = (a, b) if a.shape[0] < b.shape[0] else (b, a)
    if short.shape[0] < 2 or short[0] != long[0]:
        return False
    found = 0
    for char in long:
        if found < short.shape[0] and char == short[found]:
            found += 1
    return found == short.shape[0]


@inner_kernel
def _fits(a, b, test):
    if test == _SHORTENED:
        return _one_edit(a, b) or _is_abbreviated(a, b) or _is_spelled(a, b)
    return (test == _BY_INITIALS and _starts(a, b)) or _is_spelled(a, b)


@inner_kernel
def _split_text(text, separator):
    """(k, 2) where the parts of a text begin and end."""
    most = 1
    for char in text:
        most += np.int64(char == separator)
    # Parts beyond `_MAX_WORDS` are left out.
    bounds = np.empty((min(most, _MAX_WORDS), 2), dtype=np.int64)
    start, size = 0, 0
    for i in range(text.shape[0] + 1):
        if size < bounds.shape[0] and (i == text.shape[0] or text[i] == separator):
            bounds[size, 0], bounds[size, 1] = start, i
            start, size = i + 1, size + 1
    return bounds[:size]


@inner_kernel
def _part(text, separator, number):
    start = 0
    for i in range(text.shape[0]):
        if text[i] == separator:
            if number == 0:
                return text[start:i]
            start, number = i + 1, number - 1
    return text[start:] if number == 0 else text[:0]


@inner_kernel
def _rest(a, words, b, others):
    """The words of one side that the other has not."""
    is_rest = np.ones(words.shape[0], dtype=np.bool_)
    for i in range(words.shape[0]):
        for j in range(others.shape[0]):
            if is_rest[i] and _is_same(a[words[i, 0] : words[i, 1]], b[others[j, 0] : others[j, 1]]):
                is_rest[i] = False
    return words[is_rest]


@inner_kernel
def _are_paired(a, rest, b, others, test):
    """Whether each unmatched word of one side has one of the other that it fits."""
    for i in range(rest.shape[0]):
        fits = False
        for j in range(others.shape[0]):
            fits = fits or _fits(a[rest[i, 0] : rest[i, 1]], b[others[j, 0] : others[j, 1]], test)
        if not fits:
            return False
    return True


@inner_kernel
def _either(a, rest, b, others, test):
    """Whether the unmatched words of the side with fewer are paired; of two sides with as many, both."""
    n, m = rest.shape[0], others.shape[0]
    if n <= m and not _are_paired(a, rest, b, others, test):
        return False
    return n < m or _are_paired(b, others, a, rest, test)


@inner_kernel
def _is_acronym(a, words, b, others):
    # One word against several; the acronym is taken to be the shorter side.
    if (words.shape[0] > 1) == (others.shape[0] > 1) or min(a.shape[0], b.shape[0]) < 3:
        return False
    short, long, parts = (a, b, others) if a.shape[0] < b.shape[0] else (b, a, words)
    same = short.shape[0] == parts.shape[0]
    for i in range(parts.shape[0]):
        same = same and short[i] == long[parts[i, 0]]
    return same


@inner_kernel
def _of_words(a, b, rule, jaro):
    """Names of people and firms, of cities, and texts."""
    words, others = _split_text(a, _SPACE), _split_text(b, _SPACE)
    n, m = words.shape[0], others.shape[0]
    if rule == _PERSON and max(n, m) == 1:
        return CLOSE if _is_alike(a, b, jaro) else WEAK if _starts(a, b) else APART
    if rule in (_TEXT, _LIST) and (jaro >= ALIKE or _one_edit(a, b)):
        return CLOSE
    rest, more = _rest(a, words, b, others), _rest(b, others, a, words)
    shared = min(n - rest.shape[0], m - more.shape[0])
    is_squeezed = rule in (_PERSON, _COMPANY) and _is_same(a[a != _SPACE], b[b != _SPACE])
    is_inside = shared > 0 and (rest.shape[0] == 0 or more.shape[0] == 0)
    if rule == _PERSON:
        if is_squeezed or (min(n, m) > 1 and _either(a, rest, b, more, _BY_LETTERS)):
            return CLOSE
        return WEAK if (shared or jaro >= ALIKE) and _either(a, rest, b, more, _BY_INITIALS) else APART
    if rule == _COMPANY:
        # Words that differ on both sides tell firms of one group apart; those that one side lacks do not.
        if not (is_squeezed or _either(a, rest, b, more, _SHORTENED)):
            return WEAK if _is_acronym(a, words, b, others) else APART
        return CLOSE if is_squeezed or rest.shape[0] == more.shape[0] else WEAK
    if rule == _CITY:
        return CLOSE if _is_alike(a, b, jaro) else WEAK if is_inside else APART
    # Dice's coefficient of the words.
    return CLOSE if 2 * shared >= 0.6 * (n + m) else APART


@inner_kernel
def _of_parts(a, b, rule, jaro):
    """Addresses of mail, web and street."""
    if rule == _EMAIL:
        if jaro < LIKELY or not _is_same(a[(a >= 48) & (a <= 57)], b[(b >= 48) & (b <= 57)]):
            return APART
        one, other = _part(a, _AT, 0), _part(b, _AT, 0)
        if _one_edit(a, b) or (_is_same(one, other) and one.shape[0] > 5):
            return CLOSE
        return WEAK if jaro_winkler(one[:TEXT_CHARS], other[:TEXT_CHARS]) >= ALIKE else APART
    one, other = _part(a, _BAR, 0), _part(b, _BAR, 0)
    if rule == _WEB:
        if _is_same(one, other) and one.shape[0] > 2:
            return CLOSE
        return WEAK if one.shape[0] > 5 and _one_edit(one, other) else APART
    name, called = _part(a, _BAR, 1), _part(b, _BAR, 1)
    is_close = _is_spelled(name, called)
    if _is_same(one, other) and is_close:
        return CLOSE
    is_weak = (_is_same(name, called) and name.shape[0] > 0) or (is_close and _one_edit(one, other))
    return WEAK if is_weak else APART


@inner_kernel
def _level(a, b, x, y, rule, jaro):
    """The level of two normal forms that differ, with their Jaro-Winkler similarity; ``x`` and ``y`` are their
    numbers, NaN where they are none."""
    least = min(a.shape[0], b.shape[0])
    if rule in (_PERSON, _COMPANY, _CITY, _TEXT):
        return _of_words(a, b, rule, jaro)
    if rule in (_EMAIL, _WEB, _STREET):
        return _of_parts(a, b, rule, jaro)
    if rule == _SPELLED:
        return CLOSE if _is_alike(a, b, jaro) else APART
    if rule == _NUMBER and abs(x - y) <= 0.1 * max(abs(x), abs(y)):
        is_close = abs(x - y) <= 0.01 * max(abs(x), abs(y)) or (least > 3 and _one_edit(a, b))
        return CLOSE if is_close else WEAK
    if rule == _PHONE and least > 6 and _is_same(a[a.shape[0] - 7 :], b[b.shape[0] - 7 :]):
        return CLOSE
    if rule != _SAME and least >= (5 if rule == _ID else 4 if rule == _NUMBER else 0) and _one_edit(a, b):
        return CLOSE
    if rule == _ID and least > 5 and _is_same(a[a.shape[0] - least :], b[b.shape[0] - least :]):
        return WEAK
    if rule == _POSTCODE:
        return WEAK if least > 3 and _is_same(a[:3], b[:3]) else APART
    if rule != _DATE:
        return APART
    # YYYY-MM-DD: day and month in each other's place.
    swapped = _is_same(a[5:7], b[8:10]) and _is_same(a[8:10], b[5:7])
    return (
        CLOSE if least == 10 and _is_same(a[:4], b[:4]) and swapped else WEAK if _two_edits(a, b) else APART
    )


@inner_kernel
def _best_level(a, b):
    """The best of the pairs of values that two cells of several have."""
    best, values, others = APART, _split_text(a, _VALUE), _split_text(b, _VALUE)
    for i in range(values.shape[0]):
        for j in range(others.shape[0]):
            one, other = a[values[i, 0] : values[i, 1]], b[others[j, 0] : others[j, 1]]
            jaro = jaro_winkler(one[:TEXT_CHARS], other[:TEXT_CHARS])
            best = max(best, EQUAL if _is_same(one, other) else _of_words(one, other, _LIST, jaro))
    return best


@kernel
def compare_levels(
    chars, starts, others, other_starts, x, y, n_a, n_b, left, right, rules, columns, jaros, places, out
):
    """Levels of pairs of rows; NaN where either cell is missing.

    Parameters
    ----------
    chars, starts, others, other_starts : of the `Cells` of the two sides, ``n_a`` and ``n_b`` rows of each string.
    left, right : (n,) int64 rows. x, y : (n_a, c) and (n_b, c) numbers of the two sides.
    columns : (S,) which of them a string is, or -1.
    rules : (S,) by their place in `RULES`.
    places : (S,) the column of each string's level in ``out``. jaros : (S,) that of its Jaro-Winkler similarity, which
        is there already.
    """
    for k in range(left.shape[0]):
        for string in range(places.shape[0]):
            p, q = string * n_a + left[k], string * n_b + right[k]
            one, other = chars[starts[p] : starts[p + 1]], others[other_starts[q] : other_starts[q + 1]]
            rule, column = rules[string], columns[string]
            if one.shape[0] == 0 or other.shape[0] == 0:
                out[k, places[string]] = np.nan
            elif _is_same(one, other):
                out[k, places[string]] = EQUAL
            elif rule == _LIST:
                out[k, places[string]] = _best_level(one, other)
            else:
                number = x[left[k], column] if column >= 0 else np.nan
                beside = y[right[k], column] if column >= 0 else np.nan
                out[k, places[string]] = _level(one, other, number, beside, rule, out[k, jaros[string]])
