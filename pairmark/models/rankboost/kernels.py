"""The loops of boosting on sparse rows, compiled: bins, rounds, rankers on rows.

Boosting (Freund, Iyer, Schapire and Singer 2003): every stored value was replaced by the number of its bin, bins of a
feature being consecutive; where a feature has one bin only, as words that occur or don't have, by -1 - feature. A weak
ranker fires on the rows whose value lies in a range of a feature's bins, and is silent on the others, absent values
included. The pair weights D(i, j) = v_i v_j, i being a row of the lower kind (0) and j one of the upper (1), are never
written out: each row holds its v. ``sums``, (2, features), holds the sums of v over the rows that hold a feature, by
kind, and ``mass``, (2, bins), over those in a bin. In a round only the rows that the chosen ranker fires on change, and
only their features and bins are touched.
"""

import numpy as np

from pairmark.models.core.compiled import inner_kernel, kernel


@kernel
def bin_columns(starts, values, max_bins, codes, edges, owners, offsets):
    """Bins of each column of a CSC matrix without zeros, in ascending order of values.

    Parameters
    ----------
    starts, values : of the columns, none of them empty.
    codes : (nnz,) out, the bin of each value; -1 - column for all values of a column that needs one bin only.
    edges : out, the upper edge of each bin; values v of bin b have edges[b - 1] < v <= edges[b].
    owners : out, the column of each bin.
    offsets : (columns + 1,) out, where the bins of each column begin.

    Returns
    -------
    The number of bins.
    """
    n_bins = 0
    offsets[0] = 0
    for column in range(starts.shape[0] - 1):
        begin, end = starts[column], starts[column + 1]
        low, high = np.float32(np.inf), np.float32(-np.inf)
        for entry in range(begin, end):
            low, high = min(low, values[entry]), max(high, values[entry])
        # One value only: being there is all that can be asked.
        if low == high:
            for entry in range(begin, end):
                codes[entry] = -1 - column
            offsets[column + 1] = n_bins
            continue
        ascending = np.sort(values[begin:end])
        distinct = 1
        for place in range(1, ascending.shape[0]):
            if ascending[place] != ascending[place - 1]:
                distinct += 1
        first = n_bins
        max_of_column = distinct if distinct <= max_bins else max_bins
        at_bin = 0
        for place in range(1, ascending.shape[0]):
            if ascending[place] == ascending[place - 1]:
                continue
            # All boundaries between distinct values, or those where another of the equal shares is full.
            if distinct > max_bins and place * max_of_column < (at_bin + 1) * ascending.shape[0]:
                continue
            if at_bin == max_of_column - 1:
                break
            below, above = np.float64(ascending[place - 1]), np.float64(ascending[place])
            middle = np.float32(below + (above - below) / 2)
            # Where float32 has nothing in between, the lower value itself.
            edges[n_bins] = middle if middle < ascending[place] else ascending[place - 1]
            n_bins += 1
            at_bin += 1
        edges[n_bins] = np.inf
        n_bins += 1
        owners[first:n_bins] = column
        for k in range(begin, end):
            # Without the last edge, which is infinite: what is above all others is in the last bin.
            codes[k] = first + np.searchsorted(edges[first : n_bins - 1], values[k])
        offsets[column + 1] = n_bins
    return n_bins


BY_R, BY_Z = 0, 1


@kernel
def mass_of_rows(rows, starts, codes, owners, kinds, weight, mass, sums):
    """Sums of v over some rows, anew."""
    mass[:] = 0.0
    sums[:] = 0.0
    for row in rows:
        kind = kinds[row]
        _add_to_sums(codes[starts[row] : starts[row + 1]], owners, weight[row], mass[kind], sums[kind])


@inner_kernel
def _add_to_sums(codes, owners, change, mass, sums):
    """Add a row's weight, or a change of it, to the sums that it is in."""
    for code in codes:
        # Unsigned numbers index faster: they need no look at whether they count from the end.
        if code < 0:
            sums[np.uint64(-1 - code)] += change
        else:
            mass[np.uint64(code)] += change
            sums[np.uint64(owners[np.uint64(code)])] += change


@kernel
def reweigh(rows, alpha, starts, codes, owners, kinds, scores, weight, mass, sums, totals):
    """Add alpha to the scores of the rows that a ranker fires on, and update their weights and the sums they are in."""
    # Scored higher, a row of the lower kind is more wrongly placed, and one of the upper kind less.
    factors = np.exp(alpha), np.exp(-alpha)
    for row in rows:
        scores[row] += alpha
        kind = kinds[row]
        # Sums follow by differences, whose rounding adds up: `boosting` makes them anew before it shows.
        change = weight[row] * factors[kind] - weight[row]
        weight[row] += change
        totals[kind] += change
        _add_to_sums(codes[starts[row] : starts[row + 1]], owners, change, mass[kind], sums[kind])


@inner_kernel
def _gain(criterion, a, b, favour, upper_only, square):
    """What a ranker gains, |r| or for the exact Z the g with Z = 1 - g^2; -1 where that is of no interest.

    a, b : shares of the weight of the lower, and the upper kind, that it fires on: b (1 - a) of the pairs are put
    right, and a (1 - b) wrong; those of which both rows fire are neither.
    favour : of two equal ones, the ranker with r of this sign.
    upper_only : only "value above", and only with r > 0.
    square : of the least gain of interest; by r every gain is.
    """
    r = b - a
    if upper_only and r <= 0.0:
        return -1.0
    if criterion == BY_R:
        gain = abs(r)
    else:
        right, wrong = max(b * (1.0 - a), 0.0), max(a * (1.0 - b), 0.0)
        # Few get as far as the roots: g^2 = right + wrong - 2 sqrt(right * wrong).
        # Squared, so without a root: g^2 is below the square where over < 2 sqrt(right * wrong). The factors are for
        # rounding.
        over = (right + wrong) * (1.0 + 1e-8) - square
        if over < 0.0 or over * over * (1.0 + 1e-8) < 4.0 * right * wrong:
            return -1.0
        gain = abs(np.sqrt(right) - np.sqrt(wrong))
    # Far above rounding, far below any difference that matters: it settles ties only.
    return gain * (1.0 + 1e-9) if r * favour > 0.0 else gain


@inner_kernel
def _best_of_bins(criterion, mass, begin, end, all_lower, all_upper, totals, favour, upper_only, floor):
    """The best ranker of a feature with bins: its gain, the first bin of the upper part, and 0 (fires above) or 1
    (below); ``floor`` where none gains more."""
    best, best_at, best_side = floor, begin, 0
    square = floor * floor if floor > 0.0 else 0.0
    lower, upper = 0.0, 0.0
    # From the highest bin down: the sums at or above `border`; what is below follows from the whole feature.
    for border in range(end - 1, begin - 1, -1):
        lower += mass[0, border]
        upper += mass[1, border]
        for side in range(2):
            # Below the first bin there is nothing to fire on.
            if side == 1 and (border == begin or upper_only):
                break
            a = (lower if side == 0 else all_lower - lower) / totals[0]
            b = (upper if side == 0 else all_upper - upper) / totals[1]
            gain = _gain(criterion, a, b, favour, upper_only, square)
            if gain > best:
                best, best_at, best_side = gain, border, side
                square = best * best
    return best, best_at, best_side


@kernel
def scan(criterion, mass, sums, totals, offsets, favour, upper_only, gains, features, ats, sides):
    """The features with the best rankers, best first, in as many places as ``gains`` has.

    A feature is passed over where all its rows together could not gain enough.

    Parameters
    ----------
    mass, sums, totals : see the module; ``totals`` (2,) of all rows.
    gains (-1: none), features, ats, sides : out; see `_best_of_bins`. Features without bins have no ``ats``.
    """
    gains[:] = -1.0
    last = gains.shape[0] - 1
    # What a gain, by Z its square, has to exceed.
    floor = -1.0
    for feature in range(offsets.shape[0] - 1):
        a, b = sums[0, feature] / totals[0], sums[1, feature] / totals[1]
        # No part of its rows has larger shares. |r| is at most the larger of the two, and so is g^2, the squared
        # difference of the roots of b (1 - a) and a (1 - b).
        if max(a, b) * (1.0 + 1e-6) <= floor:
            continue
        begin, end = offsets[feature], offsets[feature + 1]
        border, side = begin, 0
        if begin == end:
            gain = _gain(criterion, a, b, favour, upper_only, max(floor, 0.0))
        else:
            gain, border, side = _best_of_bins(
                criterion, mass, begin, end, sums[0, feature], sums[1, feature], totals, favour, upper_only,
                gains[last],
            )  # fmt: skip
        if gain > gains[last]:
            _insert(gain, feature, border, side, gains, features, ats, sides)
            if gains[last] >= 0.0:
                floor = gains[last] if criterion == BY_R else gains[last] * gains[last]


@inner_kernel
def _insert(gain, feature, at_bin, side, gains, features, ats, sides):
    """Put a feature where its gain belongs, and drop the last; of equal gains the first that was met stays in front."""
    place = gains.shape[0] - 1
    while place > 0 and gains[place - 1] < gain:
        gains[place], features[place] = gains[place - 1], features[place - 1]
        ats[place], sides[place] = ats[place - 1], sides[place - 1]
        place -= 1
    gains[place], features[place], ats[place], sides[place] = gain, feature, at_bin, side


_FEW = 16
"""Where one in so many rankers or more is touched, looking at all is faster than sorting those."""


@kernel
def apply_rules(
    starts, places, values, begins, rankers, low, high, n_conditions, value, out_starts, out_at, out_value
):  # fmt: skip
    """Coordinates of each row, as CSR.

    Parameters
    ----------
    starts, places, values : of the rows, where a value's feature stands among those that some ranker looks at; -1 for
        nowhere.
    begins, rankers, low, high : of the i-th of those features, conditions begins[i] to begins[i + 1]: the ranker each
        is part of, and its bounds, low < x <= high.
    n_conditions : (rankers,) conditions that each ranker has. value : what it is where they are met.
    out_starts : (n + 1,), out_at, out_value : out, with room for all that may be.
    """
    n_rankers = n_conditions.shape[0]
    n_met = np.zeros(n_rankers, dtype=np.int32)
    # One place more, since a ranker is written before it is known to be new.
    touched = np.empty(n_rankers + 1, dtype=np.int64)
    n = 0
    out_starts[0] = 0
    for row in range(starts.shape[0] - 1):
        n_touched = 0
        for entry in range(starts[row], starts[row + 1]):
            place = places[entry]
            if place < 0:
                continue
            x = values[entry]
            for number in range(begins[place], begins[place + 1]):
                if low[number] < x <= high[number]:
                    ranker = np.uint64(rankers[number])
                    # Only rankers that were touched are looked at, and reset, at the end of the row.
                    touched[n_touched] = ranker
                    n_touched += n_met[ranker] == 0
                    n_met[ranker] += 1
        if n_touched * _FEW > n_rankers:
            n_touched = 0
            for ranker in range(n_rankers):
                touched[n_touched] = ranker
                n_touched += n_met[ranker] > 0
        else:
            touched[:n_touched].sort()
        for ranker in touched[:n_touched]:
            if n_met[ranker] == n_conditions[ranker]:
                out_at[n], out_value[n] = ranker, value[ranker]
                n += 1
            n_met[ranker] = 0
        out_starts[row + 1] = n
