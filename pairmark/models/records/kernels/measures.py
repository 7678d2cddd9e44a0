"""What pairs of rows lack, and how far apart their numbers and places are, in compiled loops."""

import numpy as np

from pairmark.models.core.compiled import kernel
from pairmark.models.records.kernels.levels import APART, CLOSE, EQUAL

LARGEST = 3e38
"""Beyond float32 a difference is as good as any other that large."""
EARTH_KM = 6371.0088
EQUAL_KM, CLOSE_KM = 0.1, 25.0
"""Within which two places are equal, and close."""
# Odd, so that no power of it is 0 in 64 bits.
_STEP = np.uint64(0x9E3779B97F4A7C15)


@kernel
def _pattern_code(left, right):
    """One number for what both sides of a pair lack, whichever is left."""
    # Each side is a sum of powers, one for each field that it lacks, and the code their product, which does not care
    # for sides. From 1, so that a side that lacks nothing does not make every product 0.
    one, other, weight = np.uint64(1), np.uint64(1), _STEP
    for field in range(left.shape[0]):
        one += weight * np.uint64(left[field])
        other += weight * np.uint64(right[field])
        weight *= _STEP
    return np.int64(one * other)


@kernel
def pattern_codes(left, right):
    """(n,) codes of pairs whose sides lack what (n, d) ``left`` and ``right`` say."""
    codes = np.empty(left.shape[0], dtype=np.int64)
    for k in range(codes.shape[0]):
        codes[k] = _pattern_code(left[k], right[k])
    return codes


@kernel
def compare_missing(a, b, left, right, patterns, lacked, out):
    """Count the sides that lack each field, 2 where what one side lacks is left out on the other.

    Parameters
    ----------
    a, b : (n_a, d) and (n_b, d) what rows lack. left, right : (n,) rows.
    patterns : codes of pairs whose sides may lack different fields, ascending.
    lacked : (n, d) becomes the fields that are left out since one side lacks them. out : its first d columns are set.
    """
    for k in range(left.shape[0]):
        one, other, differ = a[left[k]], b[right[k]], False
        for field in range(a.shape[1]):
            lacked[k, field] = one[field] != other[field]
            differ |= one[field] != other[field]
            out[k, field] = np.int64(one[field]) + np.int64(other[field])
        if differ:
            code = _pattern_code(one, other)
            place = np.searchsorted(patterns, code)
            if place < patterns.shape[0] and patterns[place] == code:
                # A pattern that is let pass: nothing is left out.
                lacked[k, :] = False
            else:
                for field in range(a.shape[1]):
                    if lacked[k, field]:
                        out[k, field] = 2.0


@kernel
def compare_numbers(a, b, left, right, columns, is_place, levels, places, out):
    """Features of numbers, dates and places; NaN where either side is missing.

    Parameters
    ----------
    a, b : (n_a, c) and (n_b, c) numbers, NaN where missing. left, right : (n,) rows.
    columns : (F + 1,) where each field's numbers begin. is_place : (F,) latitude and longitude.
    levels, places : (F,) the column of each field's level in ``out``, set of places alone, and its first other one.
    """
    for k in range(left.shape[0]):
        for field in range(places.shape[0]):
            one = a[left[k], columns[field] : columns[field + 1]]
            other = b[right[k], columns[field] : columns[field + 1]]
            x, y, features = one[0], other[0], out[k, places[field] :]
            is_missing = np.isnan(x) or np.isnan(y)
            if is_place[field]:
                features[0] = np.nan if is_missing else _kilometres(one, other)
                near = EQUAL if features[0] <= EQUAL_KM else CLOSE if features[0] <= CLOSE_KM else APART
                out[k, levels[field]] = np.nan if is_missing else near
            elif is_missing:
                features[:2] = np.nan
            else:
                larger, smaller = max(abs(x), abs(y)), min(abs(x), abs(y))
                ratio = smaller / larger if larger != 0.0 else 1.0
                features[0] = min(abs(x - y), LARGEST)
                features[1] = ratio if (x < 0.0) == (y < 0.0) else -ratio


@kernel
def _kilometres(one, other):
    """Great-circle distance (haversine) of two places in degrees."""
    # Sides in a fixed order, so that rounding is the same either way round.
    if one[0] > other[0] or (one[0] == other[0] and one[1] > other[1]):
        one, other = other, one
    low, west, high, east = np.radians(one[0]), np.radians(one[1]), np.radians(other[0]), np.radians(other[1])
    up, across = np.sin((high - low) / 2.0), np.sin((east - west) / 2.0)
    chord = np.sqrt(up * up + np.cos(low) * np.cos(high) * across * across)
    return 2.0 * EARTH_KM * np.arcsin(min(1.0, chord))
