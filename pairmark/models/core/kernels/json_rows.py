"""Rows of numbers in a JSON object, read into float32 in one pass without the GIL.

Only the plain form is read: an object of unlike keys, whose values are a string without escapes, a list of numbers or a
list of such lists of one length. Of anything else `read_rows` says that it is not plain, and a complete parser takes
over. Decimals are rounded correctly to float64 (Lemire, Number parsing at a gigabyte per second, 2021) and then to
float32, as a parser that makes Python floats of them would.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float64
from pairmark.models.core.compiled import kernel

_LOWEST, _HIGHEST = -65, 38
"""Exponents of ten of a number of at most 19 digits that is neither zero in float32 nor beyond it."""
_DIGITS = 19
"""So many decimal digits fit 64 bits."""
_MAX = float(np.finfo(np.float32).max)
_QUOTE, _BACKSLASH, _COMMA, _COLON, _DOT = 34, 92, 44, 58, 46
_MINUS, _PLUS, _ZERO, _NINE, _SMALL_E, _LARGE_E = 45, 43, 48, 57, 101, 69
_OPEN, _CLOSE, _BEGIN, _END = 91, 93, 123, 125
NOT_PLAIN = -1


def _leading_bits(exponent: int) -> int:
    """The first 128 bits of ``5**exponent``: cut off for positive exponents, rounded up for reciprocals."""
    if exponent >= 0:
        power: int = 5**exponent
        shift = power.bit_length() - 128
        return power >> shift if shift > 0 else power << -shift
    power = int(5**-exponent)
    # Powers that fit 64 bits are rounded up in the last of the 128 bits, so that ties show; others far behind it.
    bits = (1 << ((1 if exponent >= -27 else 2) * power.bit_length() + 127)) // power + 1
    return bits >> (bits.bit_length() - 128)


def _tables() -> tuple[NDArray[np.uint64], NDArray[np.uint64], Float64]:
    powers = [_leading_bits(exponent) for exponent in range(_LOWEST, _HIGHEST + 1)]
    high = np.array([power >> 64 for power in powers], dtype=np.uint64)
    low = np.array([power & (2**64 - 1) for power in powers], dtype=np.uint64)
    # Powers of two by which a mantissa of 53 bits is scaled: all of them are exact.
    return high, low, np.exp2(np.arange(-400, 200, dtype=np.float64))


_HIGH, _LOW, _SCALES = _tables()


@kernel
def _product(a, b):
    """The 128 bits of a product: the upper and the lower half."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & mask, a >> half, b & mask, b >> half
    low, middle, cross, high = a0 * b0, a1 * b0, a0 * b1, a1 * b1
    carry = (low >> half) + (middle & mask) + (cross & mask)
    return high + (middle >> half) + (cross >> half) + (carry >> half), a * b


@kernel
def _scaled(digits, exponent):
    """``digits * 10**exponent`` in float64, rounded to the nearest; NaN where 128 bits do not tell which that is."""
    if digits == np.uint64(0) or exponent < _LOWEST:
        return 0.0
    if exponent > _HIGHEST:
        return np.inf
    # Both factors are exact in float64, so one operation rounds once.
    if digits <= np.uint64(1 << 53) and -22 <= exponent <= 22:
        if exponent < 0:
            return np.float64(digits) / 10.0 ** np.float64(-exponent)
        return np.float64(digits) * 10.0 ** np.float64(exponent)
    shift = 0
    # Shift the first digit bit to the top, halving the step: a count of leading zeros.
    for step in (32, 16, 8, 4, 2, 1):
        if digits >> np.uint64(64 - step) == np.uint64(0):
            digits = digits << np.uint64(step)
            shift += step
    at = exponent - _LOWEST
    high, low = _product(digits, _HIGH[at])
    # The lower half of the power counts only where the upper one leaves the rounding open.
    if (high & np.uint64(0x1FF)) == np.uint64(0x1FF):
        more_high, _ = _product(digits, _LOW[at])
        before = low
        low = low + more_high
        if low < before:
            high = high + np.uint64(1)
    # The cut-off power might carry into the rounding: the complete parser decides.
    if low == np.uint64(0xFFFFFFFFFFFFFFFF) and not -27 <= exponent <= 55:
        return np.nan
    top = high >> np.uint64(63)
    dropped = top + np.uint64(9)
    mantissa = high >> dropped
    # Halfway between two numbers: to the even one.
    exact = low <= np.uint64(1) and -4 <= exponent <= 23 and mantissa << dropped == high
    if exact and (mantissa & np.uint64(3)) == np.uint64(1):
        mantissa = mantissa & np.uint64(0xFFFFFFFFFFFFFFFE)
    # 54 bits to 53: the last one rounds.
    mantissa = (mantissa + (mantissa & np.uint64(1))) >> np.uint64(1)
    # floor(log2(10**exponent)), by a fraction that is exact in this range.
    binary = ((217706 * exponent) >> 16) + np.int64(top) - shift + 11
    return np.float64(mantissa) * _SCALES[binary + 400]


@kernel
def _after_space(body, at):
    """The next place that is no white space."""
    while at < body.shape[0] and (body[at] == 32 or body[at] == 10 or body[at] == 13 or body[at] == 9):
        at += 1
    return at


@kernel
def _after_string(body, at):
    """The place after a string that begins at ``at``, its quotes included; `NOT_PLAIN` for any other."""
    if at >= body.shape[0] or body[at] != _QUOTE:
        return NOT_PLAIN
    at += 1
    while at < body.shape[0] and body[at] != _QUOTE:
        if body[at] == _BACKSLASH or body[at] < 32 or body[at] > 126:
            return NOT_PLAIN
        at += 1
    return at + 1 if at < body.shape[0] else NOT_PLAIN


@kernel
def _number(body, at):
    """A number that begins at ``at``, and the place after it (`NOT_PLAIN`: it is none, or is not exact here)."""
    n = body.shape[0]
    negative = at < n and body[at] == _MINUS
    if negative:
        at += 1
    if at >= n or not _ZERO <= body[at] <= _NINE:
        return 0.0, NOT_PLAIN
    digits, n_digits, exponent = np.uint64(0), 0, 0
    if body[at] == _ZERO:
        at += 1
        # JSON has no leading zeros.
        if at < n and _ZERO <= body[at] <= _NINE:
            return 0.0, NOT_PLAIN
    while at < n and _ZERO <= body[at] <= _NINE:
        digits = digits * np.uint64(10) + np.uint64(body[at] - _ZERO)
        n_digits += 1
        at += 1
    if at < n and body[at] == _DOT:
        at += 1
        first = at
        while at < n and _ZERO <= body[at] <= _NINE:
            digits = digits * np.uint64(10) + np.uint64(body[at] - _ZERO)
            # Zeros before the first digit are none.
            n_digits += digits != np.uint64(0)
            at += 1
        exponent = first - at
        if exponent == 0:
            return 0.0, NOT_PLAIN
    if n_digits > _DIGITS:
        return 0.0, NOT_PLAIN
    if at < n and (body[at] == _SMALL_E or body[at] == _LARGE_E):
        at += 1
        below = at < n and body[at] == _MINUS
        if at < n and (body[at] == _MINUS or body[at] == _PLUS):
            at += 1
        first, power = at, 0
        while at < n and _ZERO <= body[at] <= _NINE:
            power = min(power * 10 + np.int64(body[at] - _ZERO), 100_000_000)
            at += 1
        if at == first:
            return 0.0, NOT_PLAIN
        exponent += -power if below else power
    value = _scaled(digits, exponent)
    # Also NaN, which `_scaled` gives where it cannot tell.
    if not value <= _MAX:
        return 0.0, NOT_PLAIN
    return -value if negative else value, at


@kernel
def _row(body, at, values, end):
    """Numbers of a list that begins at ``at``, written behind ``end``: the place after it, and the end of what is
    written."""
    at = _after_space(body, at + 1)
    while True:
        value, at = _number(body, at)
        if at == NOT_PLAIN:
            return NOT_PLAIN, end
        values[end] = np.float32(value)
        end += 1
        at = _after_space(body, at)
        if at >= body.shape[0]:
            return NOT_PLAIN, end
        if body[at] == _CLOSE:
            return at + 1, end
        if body[at] != _COMMA:
            return NOT_PLAIN, end
        at = _after_space(body, at + 1)


@kernel
def _rows(body, at, values, start, place):
    """A list of numbers, or of such lists; `place` gets its first value, its rows (0: one list) and their length."""
    place[0] = start
    first = _after_space(body, at + 1)
    if first >= body.shape[0]:
        return NOT_PLAIN, start
    if body[first] != _OPEN:
        at, end = _row(body, at, values, start)
        place[1], place[2] = 0, end - start
        return at, end
    at, n_rows, width = first, 0, 0
    while True:
        if at >= body.shape[0] or body[at] != _OPEN:
            return NOT_PLAIN, start
        at, end = _row(body, at, values, start)
        if at == NOT_PLAIN or (n_rows and end - start != width):
            return NOT_PLAIN, start
        # The next row is written behind this one.
        width, start = end - start, end
        n_rows += 1
        at = _after_space(body, at)
        if at >= body.shape[0]:
            return NOT_PLAIN, start
        if body[at] == _CLOSE:
            place[1], place[2] = n_rows, width
            return at + 1, start
        if body[at] != _COMMA:
            return NOT_PLAIN, start
        at = _after_space(body, at + 1)


@kernel
def _index_of(body, start, stop, names, ends):
    """Which of the names stands at ``start`` to ``stop``; `NOT_PLAIN`: none."""
    first = 0
    for index in range(ends.shape[0]):
        if ends[index] - first == stop - start:
            same = True
            for offset in range(stop - start):
                same = same and body[start + offset] == names[first + offset]
            if same:
                return index
        first = ends[index]
    return NOT_PLAIN


@kernel
def read_rows(body, names, ends, values, places):
    """Read an object of numbers.

    Parameters
    ----------
    body : (n,) uint8. names, ends : bytes of the keys that may be there, one behind the other, and where each ends.
    values : float32, as many as half the body's bytes at least; numbers are written from its start.
    places : (n_names, 3) int64, filled with -1. Of a string: where its text begins and ends, and 0. Of numbers: the
        first in ``values``, how many rows (0 for one list that is no list of lists), and the length of each.

    Returns
    -------
    How many numbers there are; `NOT_PLAIN` where the body is not of this form.
    """
    n_values = 0
    at = _after_space(body, 0)
    if at >= body.shape[0] or body[at] != _BEGIN:
        return NOT_PLAIN
    while True:
        start = _after_space(body, at + 1)
        stop = _after_string(body, start)
        if stop == NOT_PLAIN:
            return NOT_PLAIN
        index = _index_of(body, start + 1, stop - 1, names, ends)
        at = _after_space(body, stop)
        if index == NOT_PLAIN or places[index, 0] >= 0 or at >= body.shape[0] or body[at] != _COLON:
            return NOT_PLAIN
        at = _after_space(body, at + 1)
        if at >= body.shape[0]:
            return NOT_PLAIN
        if body[at] == _OPEN:
            at, n_values = _rows(body, at, values, n_values, places[index])
        else:
            places[index, 0] = at + 1
            at = _after_string(body, at)
            places[index, 1], places[index, 2] = at - 1, 0
        if at == NOT_PLAIN:
            return NOT_PLAIN
        at = _after_space(body, at)
        if at >= body.shape[0]:
            return NOT_PLAIN
        if body[at] == _END:
            return n_values if _after_space(body, at + 1) == body.shape[0] else NOT_PLAIN
        if body[at] != _COMMA:
            return NOT_PLAIN
