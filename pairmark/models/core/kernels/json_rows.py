"""Rows of numbers in a JSON object, read into float32 in one pass without the GIL.

Only the plain form is read: an object of unlike keys, whose values are a string without escapes, a list of numbers or a
list of such lists of one length. Of anything else `read_rows` says that it is not plain, and a complete parser takes
over. Decimals are rounded correctly to float64 (Lemire, Number parsing at a gigabyte per second, 2021) and then to
float32, as a parser that makes Python floats of them would.

The text is passed on as an address and a size: numba counts the users of an array at each call, which would take as
long as reading a number.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.cpython.unsafe.numbers import leading_zeros, trailing_zeros
from numba.extending import intrinsic
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
# Of eight digits in a word, as `_more_digits` takes them.
_ZEROS, _TOPS = np.uint64(0x3030303030303030), np.uint64(0x8080808080808080)
_BEYOND_NINE = np.uint64(0x7676767676767676)
"""Sets the highest bit of every byte that is more than nine."""
_PAIRS = np.uint64(0x000000FF000000FF)
_HUNDREDS, _UNITS = np.uint64(1000000 << 32 | 100), np.uint64(10000 << 32 | 1)
_TENS = np.uint64(10) ** np.arange(9, dtype=np.uint64)
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


_SIGNS = np.array([1.0, -1.0])
_HIGH, _LOW, _SCALES = _tables()


@intrinsic
def _product(context, a, b):
    """The 128 bits of a product of uint64: the upper and the lower half."""

    def generate(context, builder, signature, factors):
        wide, half = ir.IntType(128), ir.IntType(64)
        product = builder.mul(*(builder.zext(factor, wide) for factor in factors))
        upper = builder.lshr(product, wide(64))
        return context.make_tuple(
            builder, signature.return_type, [builder.trunc(part, half) for part in (upper, product)]
        )

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), generate


@intrinsic
def _loaded(context, address, kind):
    """The value of that kind that begins at an address. Nothing checks what is there."""

    def generate(context, builder, signature, arguments):
        loaded = ir.IntType(kind.dtype.bitwidth)
        return builder.load(builder.inttoptr(arguments[0], loaded.as_pointer()), align=1)

    return kind.dtype(types.int64, kind), generate


@kernel
def _byte(text, at):
    """The byte at a place; behind the last one zero, which no JSON has."""
    start, n = text
    return _loaded(start + at, np.uint8) if at < n else np.uint8(0)


@kernel
def _scaled(digits, exponent):
    """``digits * 10**exponent`` in float64, rounded to the nearest; NaN where 128 bits do not tell which that is."""
    if digits == np.uint64(0) or exponent < _LOWEST:
        return 0.0
    if exponent > _HIGHEST:
        return np.inf
    shift = leading_zeros(digits)
    digits = digits << shift
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
    binary = ((217706 * exponent) >> 16) + np.int64(top) - np.int64(shift) + 11
    return np.float64(mantissa) * _SCALES[binary + 400]


@kernel
def _after_space(text, at):
    """The next place that is no white space."""
    while True:
        byte = _byte(text, at)
        if byte > 32 or not (byte == 32 or byte == 10 or byte == 13 or byte == 9):
            return at
        at += 1


@kernel
def _after_string(text, at):
    """The place after a string that begins at ``at``, its quotes included; `NOT_PLAIN` for any other."""
    if _byte(text, at) != _QUOTE:
        return NOT_PLAIN
    at += 1
    while _byte(text, at) != _QUOTE:
        if _byte(text, at) == _BACKSLASH or _byte(text, at) < 32 or _byte(text, at) > 126:
            return NOT_PLAIN
        at += 1
    return at + 1


@kernel
def _is_digit(byte):
    return _ZERO <= byte <= _NINE


@kernel
def _more_digits(text, at, digits):
    """``digits``, followed by those that begin at ``at``, and the place after them; at most 64 bits are kept."""
    start, n = text
    # Eight at a time: three multiplications add up neighbours, then pairs, then fours.
    while at + 8 <= n:
        eight = _loaded(start + at, np.uint64) ^ _ZEROS
        others = (eight | (eight + _BEYOND_NINE)) & _TOPS
        # Above the first byte that is no digit, a carry may have come in: nothing looks there.
        n_digits = trailing_zeros(others) >> np.uint64(3)
        half = np.uint64(32) - (n_digits << np.uint64(2))
        eight = (eight << half) << half
        eight = eight * np.uint64(10) + (eight >> np.uint64(8))
        eight = (eight & _PAIRS) * _HUNDREDS + ((eight >> np.uint64(16)) & _PAIRS) * _UNITS
        digits = digits * _TENS[n_digits] + (eight >> np.uint64(32))
        if others != np.uint64(0):
            return digits, at + np.int64(n_digits)
        at += 8
    while _is_digit(_byte(text, at)):
        digits = digits * np.uint64(10) + np.uint64(_byte(text, at) - _ZERO)
        at += 1
    return digits, at


@kernel
def _number(text, at):
    """A number that begins at ``at``, and the place after it (`NOT_PLAIN`: it is none, or is not exact here)."""
    negative = np.int64(_byte(text, at) == _MINUS)
    at += negative
    first, digits = at, np.uint64(0)
    while _is_digit(_byte(text, at)):
        digits = digits * np.uint64(10) + np.uint64(_byte(text, at) - _ZERO)
        at += 1
    n_digits, exponent = at - first, 0
    # JSON has no leading zeros.
    if n_digits == 0 or (n_digits > 1 and _byte(text, first) == _ZERO):
        return 0.0, NOT_PLAIN
    if _byte(text, at) == _DOT:
        point = at + 1
        digits, at = _more_digits(text, point, digits)
        exponent = point - at
        if exponent == 0:
            return 0.0, NOT_PLAIN
        n_digits -= exponent
    while n_digits > _DIGITS and (_byte(text, first) == _ZERO or _byte(text, first) == _DOT):
        # Zeros before the first digit are none.
        n_digits -= _byte(text, first) == _ZERO
        first += 1
    if n_digits > _DIGITS:
        return 0.0, NOT_PLAIN
    if _byte(text, at) == _SMALL_E or _byte(text, at) == _LARGE_E:
        at += 1
        below = _byte(text, at) == _MINUS
        if below or _byte(text, at) == _PLUS:
            at += 1
        first, power = at, 0
        while _is_digit(_byte(text, at)):
            power = min(power * 10 + np.int64(_byte(text, at) - _ZERO), 100_000_000)
            at += 1
        if at == first:
            return 0.0, NOT_PLAIN
        exponent += -power if below else power
    value = _scaled(digits, exponent)
    # Also NaN, which `_scaled` gives where it cannot tell.
    if not value <= _MAX:
        return 0.0, NOT_PLAIN
    return value * _SIGNS[negative], at


@kernel
def _row(text, at, values, end):
    """Numbers of a list that begins at ``at``, written behind ``end``: the place after it, and the end of what is
    written."""
    at = _after_space(text, at + 1)
    while True:
        value, at = _number(text, at)
        if at == NOT_PLAIN:
            return NOT_PLAIN, end
        values[end] = np.float32(value)
        end += 1
        at = _after_space(text, at)
        if _byte(text, at) == _CLOSE:
            return at + 1, end
        if _byte(text, at) != _COMMA:
            return NOT_PLAIN, end
        at = _after_space(text, at + 1)


@kernel
def _rows(text, at, values, start, place):
    """A list of numbers, or of such lists; `place` gets its first value, its rows (0: one list) and their length."""
    place[0] = start
    first = _after_space(text, at + 1)
    if _byte(text, first) != _OPEN:
        at, end = _row(text, at, values, start)
        place[1], place[2] = 0, end - start
        return at, end
    at, n_rows, width = first, 0, 0
    while True:
        if _byte(text, at) != _OPEN:
            return NOT_PLAIN, start
        at, end = _row(text, at, values, start)
        if at == NOT_PLAIN or (n_rows and end - start != width):
            return NOT_PLAIN, start
        # The next row is written behind this one.
        width, start = end - start, end
        n_rows += 1
        at = _after_space(text, at)
        if _byte(text, at) == _CLOSE:
            place[1], place[2] = n_rows, width
            return at + 1, start
        if _byte(text, at) != _COMMA:
            return NOT_PLAIN, start
        at = _after_space(text, at + 1)


@kernel
def _index_of(text, start, stop, names, ends):
    """Which of the names stands at ``start`` to ``stop``; `NOT_PLAIN`: none."""
    first = 0
    for index in range(ends.shape[0]):
        if ends[index] - first == stop - start:
            same = True
            for offset in range(stop - start):
                same = same and _byte(text, start + offset) == names[first + offset]
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
    text = np.int64(body.ctypes.data), body.shape[0]
    n_values = 0
    at = _after_space(text, 0)
    if _byte(text, at) != _BEGIN:
        return NOT_PLAIN
    while True:
        start = _after_space(text, at + 1)
        stop = _after_string(text, start)
        if stop == NOT_PLAIN:
            return NOT_PLAIN
        index = _index_of(text, start + 1, stop - 1, names, ends)
        at = _after_space(text, stop)
        if index == NOT_PLAIN or places[index, 0] >= 0 or _byte(text, at) != _COLON:
            return NOT_PLAIN
        at = _after_space(text, at + 1)
        if _byte(text, at) == _OPEN:
            at, n_values = _rows(text, at, values, n_values, places[index])
        else:
            places[index, 0] = at + 1
            at = _after_string(text, at)
            places[index, 1], places[index, 2] = at - 1, 0
        if at == NOT_PLAIN:
            return NOT_PLAIN
        at = _after_space(text, at)
        if _byte(text, at) == _END:
            return n_values if _after_space(text, at + 1) == body.shape[0] else NOT_PLAIN
        if _byte(text, at) != _COMMA:
            return NOT_PLAIN
