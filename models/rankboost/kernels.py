"""The loops of RankBoost on sparse rows (Freund, Iyer, Schapire and Singer 2003), compiled.

Every stored value was replaced by the number of its bin, bins of a feature being consecutive. A weak ranker fires on
the rows whose value lies in a range of a feature's bins, and is silent on the others, absent values included. The
pair weights D(i, j) = P(level i, level j) u_i w_j are never written out: each row holds u (as the lesser of a pair) and
w (as the greater), and ``mass`` holds, for each bin, the sums of u and w over its rows, by level. A level has a slot
for each of its two sums that is needed. In a round only the rows that the chosen ranker fires on change, and only
their bins are touched. Features are numbered with the most frequent first, so that the sums that matter lie together
and the rest need not be kept.
"""

from __future__ import annotations

import numpy as np

from models.compiled import kernel

BY_R, BY_Z = 0, 1
BLOCK = 64


@kernel
def bin_columns(starts, values, max_bins, codes, edges, offsets):
    """Bins of each column of a CSC matrix without zeros, in ascending order of values.

    Parameters
    ----------
    starts, values : of the columns. codes : (nnz,) out, the bin of each value.
    edges : out, the upper edge of each bin; values v of bin b have edges[b - 1] < v <= edges[b].
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
        for at in range(begin, end):
            low, high = min(low, values[at]), max(high, values[at])
        if begin == end:
            offsets[column + 1] = n_bins
            continue
        if low == high:
            edges[n_bins] = np.inf
            for at in range(begin, end):
                codes[at] = n_bins
            n_bins += 1
            offsets[column + 1] = n_bins
            continue
        ordered = np.sort(values[begin:end])
        distinct = 1
        for at in range(1, ordered.shape[0]):
            if ordered[at] != ordered[at - 1]:
                distinct += 1
        first = n_bins
        wanted = distinct if distinct <= max_bins else max_bins
        taken = 0
        for at in range(1, ordered.shape[0]):
            if ordered[at] == ordered[at - 1]:
                continue
            # All boundaries between distinct values, or those where another of the equal shares is full.
            if distinct > max_bins and at * wanted < (taken + 1) * ordered.shape[0]:
                continue
            if taken == wanted - 1:
                break
            below, above = np.float64(ordered[at - 1]), np.float64(ordered[at])
            middle = np.float32(below + (above - below) / 2)
            edges[n_bins] = middle if middle < ordered[at] else ordered[at - 1]
            n_bins += 1
            taken += 1
        edges[n_bins] = np.inf
        n_bins += 1
        for at in range(begin, end):
            codes[at] = first + np.searchsorted(edges[first : n_bins - 1], values[at])
        offsets[column + 1] = n_bins
    return n_bins


@kernel
def fill_mass(starts, codes, limit, u, w, slot_u, slot_w, mass):
    """Sums of u and w in each bin below ``limit``, anew. ``slot_u`` and ``slot_w``: of each row, -1 for none."""
    mass[:limit] = 0.0
    for row in range(starts.shape[0] - 1):
        a, b = slot_u[row], slot_w[row]
        for at in range(starts[row], starts[row + 1]):
            if codes[at] >= limit:
                break
            if a >= 0:
                mass[codes[at], a] += u[row]
            if b >= 0:
                mass[codes[at], b] += w[row]


@kernel
def reweigh(rows, alpha, starts, codes, limit, scores, u, w, slot_u, slot_w, mass, totals, tops):
    """Add alpha to the scores of the rows that a ranker fires on, and mend their weights and the sums they are in.

    ``tops`` stays at least the largest weight of each slot.
    """
    up, down = np.exp(alpha), np.exp(-alpha)
    for row in rows:
        scores[row] += alpha
        a, b = slot_u[row], slot_w[row]
        if a >= 0:
            change = u[row] * up - u[row]
            u[row] += change
            totals[a] += change
            tops[a] = max(tops[a], u[row])
            for at in range(starts[row], starts[row + 1]):
                if codes[at] >= limit:
                    break
                mass[codes[at], a] += change
        if b >= 0:
            change = w[row] * down - w[row]
            w[row] += change
            totals[b] += change
            tops[b] = max(tops[b], w[row])
            for at in range(starts[row], starts[row + 1]):
                if codes[at] >= limit:
                    break
                mass[codes[at], b] += change


@kernel
def _gain(criterion, fired, pull, cross, alone_w, alone_u):
    """A ranker's r, and what it is chosen by: |r|, or for the exact Z the number g with Z = 1 - g^2.

    ``fired``: sums over the rows it fires on. W- is the weight of the pairs that it puts right, W+ of those it puts
    wrong.
    """
    r = 0.0
    for slot in range(fired.shape[0]):
        r += pull[slot] * fired[slot]
    if criterion == BY_R:
        return r, abs(r)
    both = 0.0
    for i in range(fired.shape[0]):
        for j in range(fired.shape[0]):
            if cross[i, j] != 0.0:
                both += cross[i, j] * fired[i] * fired[j]
    right, wrong = -both, -both
    for slot in range(fired.shape[0]):
        right += alone_w[slot] * fired[slot]
        wrong += alone_u[slot] * fired[slot]
    return r, abs(np.sqrt(max(right, 0.0)) - np.sqrt(max(wrong, 0.0)))


@kernel
def _best_of_two(criterion, mass, begin, end, low_all, high_all, pull, favour, upper_only, floor):
    """The best ranker of a feature that gains more than ``floor``, for two classes; see `_best_of_many`."""
    best, best_at, best_side = floor, begin, 0
    square = floor * floor if floor > 0.0 else 0.0
    low, high = 0.0, 0.0
    for at in range(end - 1, begin - 1, -1):
        low += mass[at, 0]
        high += mass[at, 1]
        for side in range(2):
            if side == 1 and (at == begin or upper_only):
                break
            a = (low if side == 0 else low_all - low) * -pull[0]
            b = (high if side == 0 else high_all - high) * pull[1]
            r = b - a
            if upper_only and r <= 0.0:
                continue
            if criterion == BY_R:
                gain = abs(r)
            else:
                right, wrong = max(b * (1.0 - a), 0.0), max(a * (1.0 - b), 0.0)
                # Few get as far as the roots: g^2 = right + wrong - 2 sqrt(right * wrong).
                over = (right + wrong) * (1.0 + 1e-8) - square
                if over < 0.0 or over * over * (1.0 + 1e-8) < 4.0 * right * wrong:
                    continue
                gain = abs(np.sqrt(right) - np.sqrt(wrong))
            if r * favour > 0.0:
                gain *= 1.0 + 1e-9
            if gain > best:
                best, best_at, best_side = gain, at, side
                square = best * best
    return best, best_at, best_side


@kernel
def _best_of_many(criterion, mass, begin, end, pull, cross, alone_w, alone_u, favour, upper_only, sums):
    """The best ranker of a feature: its gain, the first bin of the upper part, and 0 (fires above) or 1 (below)."""
    slots = mass.shape[1]
    whole, above, fired = sums[0], sums[1], sums[2]
    whole[:] = 0.0
    above[:] = 0.0
    for at in range(begin, end):
        whole += mass[at]
    best, best_at, best_side = -1.0, begin, 0
    for at in range(end - 1, begin - 1, -1):
        above += mass[at]
        for side in range(2):
            if side == 1 and (at == begin or upper_only):
                break
            for slot in range(slots):
                fired[slot] = above[slot] if side == 0 else whole[slot] - above[slot]
            r, gain = _gain(criterion, fired, pull, cross, alone_w, alone_u)
            if upper_only and r <= 0.0:
                continue
            if r * favour > 0.0:
                gain *= 1.0 + 1e-9
            if gain > best:
                best, best_at, best_side = gain, at, side
    return best, best_at, best_side


@kernel
def scan(
    criterion, mass, offsets, support, active, blocks, growth, whole, pull, cross, alone_w, alone_u, tops, favour,
    upper_only, gains, features, ats, sides,
):  # fmt: skip
    """The features with the best rankers, best first, in as many places as ``gains`` has.

    Features come with the most frequent first. No ranker of a feature gains more than its rows could if each weighed
    as much as the heaviest row, so the search ends where that is no more than what was found. With two classes, blocks
    of features whose sums were too small when last looked at, and cannot have grown enough since, are passed over.

    Parameters
    ----------
    support : (features,) rows that hold each. active : how many features `mass` is kept for.
    blocks : (blocks, 4) in and out: the greatest sums of u and w over a feature's rows in each block of features, and
        ``growth`` when they were found. growth : (2,) a bound of the logarithm of how far any u and w grew since ever.
    whole : whether ``mass`` is of all rows; else ``blocks`` are read only.
    pull : (slots,) such that r = sum of pull * fired. cross : (slots, slots) weights of pairs that both fire.
    alone_w, alone_u : (slots,) weights of pairs of which one of the two fires.
    favour : of two equal ones, the ranker with r of this sign. upper_only : only "value above", and only with r > 0.
    gains (-1: none), features, ats, sides : out; see `_best_of_many`.

    Returns
    -------
    Whether features beyond ``active`` had to be looked at, so that the result is not complete.
    """
    slots = pull.shape[0]
    sums = np.zeros((3, slots))
    heaviest = 0.0
    for slot in range(slots):
        if criterion == BY_R:
            heaviest = max(heaviest, abs(pull[slot]) * tops[slot])
        else:
            heaviest = max(heaviest, max(alone_w[slot], alone_u[slot]) * tops[slot])
    low_slot, high_slot = np.uint64(0), np.uint64(1)
    gains[:] = -1.0
    last = gains.shape[0] - 1
    n_features = offsets.shape[0] - 1
    for block in range(blocks.shape[0]):
        first, beyond = block * BLOCK, min((block + 1) * BLOCK, n_features)
        bound = heaviest * support[first]
        if criterion == BY_Z:
            bound = np.sqrt(bound)
        if bound * (1.0 + 1e-6) <= gains[last] or support[first] == 0:
            return False
        if first >= active:
            return True
        floor = -1.0
        if gains[last] >= 0.0:
            floor = gains[last] if criterion == BY_R else gains[last] * gains[last]
        if slots == 2:
            low = blocks[block, 0] * np.exp(growth[0] - blocks[block, 2]) * -pull[0]
            high = blocks[block, 1] * np.exp(growth[1] - blocks[block, 3]) * pull[1]
            if max(low, high) * (1.0 + 1e-6) <= floor:
                continue
        low_most, high_most = 0.0, 0.0
        for feature in range(first, beyond):
            if feature >= active:
                return True
            begin, end = offsets[feature], offsets[feature + 1]
            if slots == 2:
                # Most features end here: all their rows together could not gain enough. Unsigned numbers index faster.
                low, high = 0.0, 0.0
                for at in range(np.uint64(begin), np.uint64(end)):
                    low += mass[at, low_slot]
                    high += mass[at, high_slot]
                low_most, high_most = max(low_most, low), max(high_most, high)
                if max(low * -pull[0], high * pull[1]) * (1.0 + 1e-6) <= floor:
                    continue
                gain, at_bin, side = _best_of_two(
                    criterion, mass, begin, end, low, high, pull, favour, upper_only, gains[last]
                )
            else:
                gain, at_bin, side = _best_of_many(
                    criterion, mass, begin, end, pull, cross, alone_w, alone_u, favour, upper_only, sums
                )
            if gain > gains[last]:
                place = last
                while place > 0 and gains[place - 1] < gain:
                    gains[place], features[place] = gains[place - 1], features[place - 1]
                    ats[place], sides[place] = ats[place - 1], sides[place - 1]
                    place -= 1
                gains[place], features[place], ats[place], sides[place] = gain, feature, at_bin, side
                if gains[last] >= 0.0:
                    floor = gains[last] if criterion == BY_R else gains[last] * gains[last]
        if whole and slots == 2:
            blocks[block, 0], blocks[block, 1] = low_most, high_most
            blocks[block, 2], blocks[block, 3] = growth[0], growth[1]
    return False


@kernel
def rows_within(rows, codes, low, high, out):
    """Rows of a column whose bin is in [low, high], into ``out``; returns how many."""
    n = 0
    for at in range(rows.shape[0]):
        if low <= codes[at] <= high:
            out[n] = rows[at]
            n += 1
    return n


@kernel
def rows_of_both(rows, others, stamps, stamp, out):
    """Rows in both lists, in the order of the first, into ``out``; returns how many. ``stamps`` marks, a round."""
    for row in others:
        stamps[row] = stamp
    n = 0
    for row in rows:
        if stamps[row] == stamp:
            out[n] = row
            n += 1
    return n


@kernel
def mass_of_rows(rows, starts, codes, limit, u, w, slot_u, slot_w, mass):
    """Sums of u and w in each bin below ``limit`` over some rows only."""
    mass[:limit] = 0.0
    for row in rows:
        a, b = slot_u[row], slot_w[row]
        for at in range(starts[row], starts[row + 1]):
            if codes[at] >= limit:
                break
            if a >= 0:
                mass[codes[at], a] += u[row]
            if b >= 0:
                mass[codes[at], b] += w[row]


@kernel
def fired_sums(rows, u, w, slot_u, slot_w, out):
    """Sums of u and w over some rows, by slot."""
    out[:] = 0.0
    for row in rows:
        if slot_u[row] >= 0:
            out[slot_u[row]] += u[row]
        if slot_w[row] >= 0:
            out[slot_w[row]] += w[row]


@kernel
def shared_columns(starts, indices, values, left, right, width, out_starts, out_indices, out_values):
    """Pairs as rows of 2 width columns: where both sides hold a value, the lesser in column j and minus the greater in
    column width + j. "Both above a" is then one condition, and so is "both below b". Returns the number of entries."""
    n = 0
    out_starts[0] = 0
    for pair in range(left.shape[0]):
        for turn in range(2):
            i, j = starts[left[pair]], starts[right[pair]]
            i_end, j_end = starts[left[pair] + 1], starts[right[pair] + 1]
            while i < i_end and j < j_end:
                if indices[i] < indices[j]:
                    i += 1
                elif indices[j] < indices[i]:
                    j += 1
                else:
                    if out_indices.shape[0] > 0:
                        if turn == 0:
                            out_indices[n], out_values[n] = indices[i], min(values[i], values[j])
                        else:
                            out_indices[n], out_values[n] = width + indices[i], -max(values[i], values[j])
                    n += 1
                    i += 1
                    j += 1
        out_starts[pair + 1] = n
    return n
