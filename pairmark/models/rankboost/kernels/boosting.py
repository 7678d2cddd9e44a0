"""The loops of RankBoost on sparse rows (Freund, Iyer, Schapire and Singer 2003), compiled.

Every stored value was replaced by the number of its bin, bins of a feature being consecutive; where a feature has one
bin only, as words that occur or don't have, by -1 - feature. A weak ranker fires on the rows whose value lies in a
range of a feature's bins, and is silent on the others, absent values included. The pair weights D(i, j) = P(level i,
level j) u_i w_j are never written out: each row holds u (as the lesser of a pair) and w (as the greater). ``sums``,
(slots, features), holds the sums of u and w over the rows that hold a feature, by level, and ``mass``, (slots, bins),
over those in a bin. A level has a slot for each of its two sums that is needed. In a round only the rows that the
chosen ranker fires on change, and only their features and bins are touched. Features are numbered with the most
frequent first, so that the sums that matter lie together and the rest need not be kept.
"""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel

BY_R, BY_Z = 0, 1
LOW, HIGH, LOW_ROOT, HIGH_ROOT, LOW_SCALE, HIGH_SCALE, N_REMEMBERED = range(7)
"""What is kept of a feature's best ranker when it was last looked for; see `_ceiling`."""


@kernel
def mass_of_rows(rows, starts, codes, owners, active, limit, u, w, slot_u, slot_w, mass, sums):
    """Sums of u and w over some rows, anew: of the first ``active`` features and of their bins, those below ``limit``.

    ``slot_u`` and ``slot_w``: of each row, -1 for none.
    """
    mass[:, :limit] = 0.0
    sums[:, :active] = 0.0
    for row in rows:
        a, b = slot_u[row], slot_w[row]
        if a >= 0:
            _add_to_sums(codes[starts[row] : starts[row + 1]], owners, active, u[row], mass[a], sums[a])
        if b >= 0:
            _add_to_sums(codes[starts[row] : starts[row + 1]], owners, active, w[row], mass[b], sums[b])


@kernel
def _add_to_sums(codes, owners, active, change, mass, sums):
    """Add a row's weight, or a change of it, to the sums that it is in."""
    end = np.uint64(active)
    for code in codes:
        # Unsigned numbers index faster: they need no look at whether they count from the end.
        if code < 0:
            feature = np.uint64(-1 - code)
            if feature >= end:
                break
        else:
            feature = np.uint64(owners[np.uint64(code)])
            if feature >= end:
                break
            mass[np.uint64(code)] += change
        sums[feature] += change


@kernel
def _add_and_note(codes, owners, active, change, mass, sums, drift):
    """As `_add_to_sums`, and note how much each feature with bins changed, whatever the sign."""
    size, end = abs(change), np.uint64(active)
    for code in codes:
        if code < 0:
            feature = np.uint64(-1 - code)
            if feature >= end:
                break
        else:
            feature = np.uint64(owners[np.uint64(code)])
            if feature >= end:
                break
            mass[np.uint64(code)] += change
            drift[feature] += size
        sums[feature] += change


@kernel
def reweigh(
    rows, alpha, starts, codes, owners, active, scores, u, w, slot_u, slot_w, mass, sums, drift, totals, tops
):  # fmt: skip
    """Add alpha to the scores of the rows that a ranker fires on, and update their weights and the sums they are in.

    ``tops`` stays at least the largest weight of each slot. ``drift``: of features with bins, the sums of changes
    without their signs since `scan` last looked at them.
    """
    up, down = np.exp(alpha), np.exp(-alpha)
    for row in rows:
        scores[row] += alpha
        a, b = slot_u[row], slot_w[row]
        if a >= 0:
            # Scored alpha higher, a row is more wrongly placed as the lesser of a pair, so u grows by
            # e^alpha, and less so as the greater: w falls by e^-alpha.
            change = u[row] * up - u[row]
            u[row] += change
            totals[a] += change
            tops[a] = max(tops[a], u[row])
            entries = codes[starts[row] : starts[row + 1]]
            _add_and_note(entries, owners, active, change, mass[a], sums[a], drift[a])
        if b >= 0:
            change = w[row] * down - w[row]
            w[row] += change
            totals[b] += change
            tops[b] = max(tops[b], w[row])
            entries = codes[starts[row] : starts[row + 1]]
            _add_and_note(entries, owners, active, change, mass[b], sums[b], drift[b])


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
    joint = 0.0
    for i in range(fired.shape[0]):
        for j in range(fired.shape[0]):
            if cross[i, j] != 0.0:
                # Pairs of which both rows fire are ordered neither right nor wrong: they count for neither W- nor W+.
                joint += cross[i, j] * fired[i] * fired[j]
    right, wrong = -joint, -joint
    for slot in range(fired.shape[0]):
        right += alone_w[slot] * fired[slot]
        wrong += alone_u[slot] * fired[slot]
    return r, abs(np.sqrt(max(right, 0.0)) - np.sqrt(max(wrong, 0.0)))


@kernel
def _gain_of_two(criterion, a, b, favour, upper_only, square):
    """What a ranker gains with two classes; -1 where that is of no interest.

    a, b : weights of the pairs whose lesser, and greater, it fires on.
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
        over = (right + wrong) * (1.0 + 1e-8) - square
        if over < 0.0 or over * over * (1.0 + 1e-8) < 4.0 * right * wrong:
            return -1.0
        gain = abs(np.sqrt(right) - np.sqrt(wrong))
    # Far above rounding, far below any difference that matters: it settles ties only.
    return gain * (1.0 + 1e-9) if r * favour > 0.0 else gain


@kernel
def _best_of_two(criterion, mass, begin, end, low_all, high_all, pull, favour, upper_only, floor):
    """The best ranker of a feature that gains more than ``floor``, for two classes; see `_best_of_many`."""
    best, best_at, best_side = floor, begin, 0
    square = floor * floor if floor > 0.0 else 0.0
    low, high = 0.0, 0.0
    # From the highest bin down: `low` and `high` are the sums at or above `at`, and what is below follows
    # from the whole feature.
    for at in range(end - 1, begin - 1, -1):
        low += mass[0, at]
        high += mass[1, at]
        for side in range(2):
            # Below the first bin there is nothing to fire on.
            if side == 1 and (at == begin or upper_only):
                break
            # The pull of the lesser is negative: -pull[0] and pull[1] scale sums to shares of the pairs' weight.
            a = (low if side == 0 else low_all - low) * -pull[0]
            b = (high if side == 0 else high_all - high) * pull[1]
            gain = _gain_of_two(criterion, a, b, favour, upper_only, square)
            if gain > best:
                best, best_at, best_side = gain, at, side
                square = best * best
    return best, best_at, best_side


@kernel
def _remember(memory, gain, a, b, low_scale, high_scale):
    """Keep what `_ceiling` needs: no ranker of the feature gains more than ``gain``; a and b are of all its rows."""
    a, b = min(max(a, 0.0), 1.0), min(max(b, 0.0), 1.0)
    memory[LOW_ROOT], memory[HIGH_ROOT] = np.sqrt(a), np.sqrt(b)
    memory[LOW] = gain + memory[LOW_ROOT] * (1.0 - np.sqrt(1.0 - b))
    memory[HIGH] = gain + memory[HIGH_ROOT] * (1.0 - np.sqrt(1.0 - a))
    memory[LOW_SCALE], memory[HIGH_SCALE] = low_scale, high_scale


@kernel
def _ceiling(memory, low_moved, high_moved, a, b, low_scale, high_scale):
    """A bound of what any ranker of a feature gains by Z, from what it gained when last looked at.

    A ranker that fires on some of the feature's rows gains g = |sqrt(b (1 - a)) - sqrt(a (1 - b))|, a and b being the
    weights of pairs of which one fires. Since then a became at least (sqrt(a) - sqrt(drift))^2 and b at most (sqrt(b) +
    sqrt(drift))^2, both times the change of the sums' scale; a and b are also no more than those of all rows. The other
    sign is the same with the sides changed.

    a, b : of all its rows, now. low_scale, high_scale : roots of what sums are multiplied by.
    """
    low_change, high_change = low_scale / memory[LOW_SCALE], high_scale / memory[HIGH_SCALE]
    drift = low_scale * np.sqrt(low_moved) + high_scale * np.sqrt(high_moved)
    # sqrt(1 - x) is at least 1 - x / 2 - x^2 / 2.
    up = high_change - low_change * (1.0 - 0.5 * b - 0.5 * b * b)
    down = low_change - high_change * (1.0 - 0.5 * a - 0.5 * a * a)
    return drift + max(
        high_change * memory[HIGH] + max(up, 0.0) * memory[LOW_ROOT],
        low_change * memory[LOW] + max(down, 0.0) * memory[HIGH_ROOT],
    )


@kernel
def _best_of_many(criterion, mass, begin, end, pull, cross, alone_w, alone_u, favour, upper_only, sums):
    """The best ranker of a feature: its gain, the first bin of the upper part, and 0 (fires above) or 1 (below)."""
    slots = mass.shape[0]
    total, above, fired = sums[0], sums[1], sums[2]
    total[:] = 0.0
    above[:] = 0.0
    for at in range(begin, end):
        total += mass[:, at]
    best, best_at, best_side = -1.0, begin, 0
    for at in range(end - 1, begin - 1, -1):
        above += mass[:, at]
        for side in range(2):
            if side == 1 and (at == begin or upper_only):
                break
            for slot in range(slots):
                fired[slot] = above[slot] if side == 0 else total[slot] - above[slot]
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
    criterion, mass, sums, drift, memory, total, offsets, support, active, pull, cross, alone_w, alone_u, tops, favour,
    upper_only, gains, features, ats, sides,
):  # fmt: skip
    """The features with the best rankers, best first, in as many places as ``gains`` has.

    Features come with the most frequent first. No ranker of a feature gains more than its rows could if each weighed
    as much as the heaviest row, so the search ends where that is no more than what was found. With two classes, a
    feature is passed over where all its rows together could not gain enough, and by Z where its weights moved too
    little since it was last looked at.

    Parameters
    ----------
    mass, sums : see `mass_of_rows`. support : (features,) rows that hold each. active : features with sums.
    drift, memory : (slots, features) and (features, N_REMEMBERED), in and out: what `_ceiling` reads; looked at only if
        ``total``, that is when the sums are over all rows.
    pull : (slots,) such that r = sum of pull * fired. cross : (slots, slots) weights of pairs that both fire.
    alone_w, alone_u : (slots,) weights of pairs of which one of the two fires.
    favour : of two equal ones, the ranker with r of this sign. upper_only : only "value above", and only with r > 0.
    gains (-1: none), features, ats, sides : out; see `_best_of_many`. Features without bins have no ``ats``.

    Returns
    -------
    Whether features beyond ``active`` had to be looked at, so that the result is not complete.
    """
    slots = pull.shape[0]
    scratch = np.zeros((3, slots))
    # Times the rows that hold a feature, a bound of what it gains.
    heaviest = _heaviest_row(criterion, pull, alone_w, alone_u, tops)
    lazy = total and slots == 2 and criterion == BY_Z
    low_scale, high_scale = np.sqrt(max(-pull[0], 0.0)), np.sqrt(max(pull[1], 0.0))
    gains[:] = -1.0
    last = gains.shape[0] - 1
    # What a gain, by Z its square, has to exceed.
    floor = -1.0
    for feature in range(offsets.shape[0] - 1):
        # Features come by falling support, so no later one can exceed the floor either.
        if heaviest * support[feature] * (1.0 + 1e-6) <= floor:
            return False
        if feature >= active:
            return True
        begin, end = offsets[feature], offsets[feature + 1]
        at_bin, side = begin, 0
        if slots == 2:
            # Most features end here: all their rows together could not gain enough.
            a, b = sums[0, feature] * -pull[0], sums[1, feature] * pull[1]
            if max(a, b) * (1.0 + 1e-6) <= floor:
                continue
            if begin == end:
                gain = _gain_of_two(criterion, a, b, favour, upper_only, max(floor, 0.0))
            else:
                threshold = gains[last]
                if lazy:
                    ceiling = _ceiling(
                        memory[feature], drift[0, feature], drift[1, feature], a, b, low_scale, high_scale
                    )
                    if ceiling * (1.0 + 1e-6) <= gains[last]:
                        continue
                    # Looked at a little closer than needed, so as to be passed over for longer.
                    threshold *= 0.5
                gain, at_bin, side = _best_of_two(
                    criterion,
                    mass,
                    begin,
                    end,
                    sums[0, feature],
                    sums[1, feature],
                    pull,
                    favour,
                    upper_only,
                    threshold,
                )
                if lazy:
                    _remember(memory[feature], max(gain, 0.0), a, b, low_scale, high_scale)
                    drift[:, feature] = 0.0
        elif begin == end:
            r, gain = _gain(criterion, sums[:, feature], pull, cross, alone_w, alone_u)
            if upper_only and r <= 0.0:
                continue
            if r * favour > 0.0:
                gain *= 1.0 + 1e-9
        else:
            gain, at_bin, side = _best_of_many(
                criterion, mass, begin, end, pull, cross, alone_w, alone_u, favour, upper_only, scratch
            )
        if gain > gains[last]:
            _insert(gain, feature, at_bin, side, gains, features, ats, sides)
            if gains[last] >= 0.0:
                floor = gains[last] if criterion == BY_R else gains[last] * gains[last]
    return False


@kernel
def _heaviest_row(criterion, pull, alone_w, alone_u, tops):
    """The most that one row adds to a gain, by Z to its square."""
    heaviest = 0.0
    for slot in range(pull.shape[0]):
        if criterion == BY_R:
            heaviest = max(heaviest, abs(pull[slot]) * tops[slot])
        else:
            heaviest = max(heaviest, max(alone_w[slot], alone_u[slot]) * tops[slot])
    return heaviest


@kernel
def _insert(gain, feature, at_bin, side, gains, features, ats, sides):
    """Put a feature where its gain belongs, and drop the last; of equal gains the first that was met stays in front."""
    place = gains.shape[0] - 1
    while place > 0 and gains[place - 1] < gain:
        gains[place], features[place] = gains[place - 1], features[place - 1]
        ats[place], sides[place] = ats[place - 1], sides[place - 1]
        place -= 1
    gains[place], features[place], ats[place], sides[place] = gain, feature, at_bin, side


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
def rows_of_both(rows, second_rows, stamps, stamp, out):
    """Rows in both lists, in the order of the first, into ``out``; returns how many. ``stamps`` marks, a round."""
    for row in second_rows:
        stamps[row] = stamp
    n = 0
    for row in rows:
        if stamps[row] == stamp:
            out[n] = row
            n += 1
    return n


@kernel
def fired_sums(rows, u, w, slot_u, slot_w, out):
    """Sums of u and w over some rows, by slot."""
    out[:] = 0.0
    for row in rows:
        if slot_u[row] >= 0:
            out[slot_u[row]] += u[row]
        if slot_w[row] >= 0:
            out[slot_w[row]] += w[row]
