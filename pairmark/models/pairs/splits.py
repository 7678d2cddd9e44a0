"""Splits rows into training, calibration and test, and chooses the held-out pairs to score.

Two protocols. *Closed-set*: classes are shared between training and use, so samples are held out. *Open-set*:
people to come were never seen, so whole identities are held out. The sampling unit (sample or identity) is also what
the guarantee of `pairmark.models.calibration.calibration` counts. That guarantee needs two things from this file:

- the calibration units are a simple random sample of all units (not stratified: stratifying makes the counts
  of the classes dependent, and the bound is for independent units);
- which pairs are scored depends on neither scores nor, in closed-set use, on labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.inputs import OPEN_SET_FROM, codes_by_appearance
from pairmark.models.pairs.kernels import grown_blocks


def stream_of(*sizes: int) -> np.random.PCG64:
    """A stream of bits that depends on sizes alone, the same in every version of NumPy."""
    return np.random.PCG64(np.random.SeedSequence(sizes))


def permutation_of(n: int, turn: int = 0) -> Int64:
    """The ``turn``-th permutation of n things, by their number alone."""
    return np.argsort(stream_of(n, turn).random_raw(n), kind="stable").astype(np.int64)


SAME_SHARE = 4
"""At most one open-set pair in this many is a same-identity pair: negatives carry the guarantee."""


def open_set_pairs(
    codes: Int64, counts: Int64, n_pairs: int, rng: np.random.Generator
) -> tuple[Int64, Int64, Int64]:
    """Left and right rows of same and of different pairs, and their identities.

    Parameters
    ----------
    codes, counts : (n,) identity of each row, and rows of each identity.
    """
    # Rows grouped by identity, in random order within: cell (identity, k) is rows[start[identity] + k].
    order = rng.permutation(codes.size)
    rows = order[np.argsort(codes[order], kind="stable")]
    start = np.concatenate([[0], np.cumsum(counts)[:-1]])

    available = counts * (counts - 1) // 2
    quota = _even_quota(available, max(1, n_pairs // SAME_SHARE))
    owner, k = _repeat_with_rank(quota)
    step_left, step_right = _nth_pair(k, counts[owner])
    same_left, same_right = rows[start[owner] + step_left], rows[start[owner] + step_right]

    budget = max(1, n_pairs - owner.size)
    first, second, complete = unit_pairs(counts.size, budget, rng)
    cells = counts[first] * counts[second]
    quota = _even_quota(cells, budget) if complete else np.minimum(cells, 1)
    edge, k = _repeat_with_rank(quota)
    i, j = first[edge], second[edge]
    # Walk the n_i x n_j table along diagonals from a random corner: distinct cells, all samples used evenly.
    turn_i = rng.integers(0, 2**31, first.size)[edge]
    turn_j = rng.integers(0, 2**31, first.size)[edge]
    lap = k // np.lcm(counts[i], counts[j])
    left = rows[start[i] + (turn_i + k) % counts[i]]
    right = rows[start[j] + (turn_j + k + lap) % counts[j]]
    units = np.concatenate([np.stack([owner, owner], axis=1), np.stack([i, j], axis=1)])
    return np.concatenate([same_left, left]), np.concatenate([same_right, right]), units


def unit_pairs(m: int, budget: int, rng: np.random.Generator) -> tuple[Int64, Int64, bool]:
    """All pairs of m units when they fit, else all pairs inside of random cells, about ``budget`` pairs."""
    if m * (m - 1) // 2 <= budget:
        first, second = np.triu_indices(m, 1)
        return first.astype(np.int64), second.astype(np.int64), True
    sizes = _cell_sizes(m, budget)
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    unit = rng.permutation(m).astype(np.int64)
    of_size = {size: np.triu_indices(size, 1) for size in np.unique(sizes).tolist()}
    first = np.concatenate([at + of_size[size][0] for at, size in zip(start, sizes.tolist(), strict=True)])
    second = np.concatenate([at + of_size[size][1] for at, size in zip(start, sizes.tolist(), strict=True)])
    return unit[first], unit[second], False


def _cell_sizes(m: int, budget: int) -> Int64:
    """Sizes of cells whose pairs fit the budget, as equal as even numbers can be (the last is odd where m is)."""
    couples = m // 2
    # h couples in cells of c couples give h (2c - 1) pairs; a unit over adds as many as its cell has units.
    widest = max(1, (budget // couples + 1) // 2)
    while True:
        n_cells = -(-couples // widest)
        sizes = 2 * (couples // n_cells + (np.arange(n_cells) < couples % n_cells)).astype(np.int64)
        sizes[-1] += m % 2
        if widest == 1 or int((sizes * (sizes - 1) // 2).sum()) <= budget:
            return sizes
        widest -= 1


def even_level(available: Int64, total: int) -> int:
    """The largest number which, taken from each or all that it has, sums to at most a total below that of all."""
    ascending = np.sort(available)
    # What is taken in all if the level is what each one has, from the least up.
    reach = np.cumsum(ascending) + ascending * np.arange(available.size - 1, -1, -1)
    first = int(np.searchsorted(reach, total))
    return (total - int(ascending[:first].sum())) // (available.size - first)


def _even_quota(available: Int64, budget: int) -> Int64:
    """The same number for everybody, bounded by what each has, summing to at most the budget (at least 1 each)."""
    if int(available.sum()) <= budget:
        return available.astype(np.int64)
    return np.minimum(available, max(1, even_level(available, budget))).astype(np.int64)


def _repeat_with_rank(quota: Int64) -> tuple[Int64, Int64]:
    """Each index repeated quota[index] times, and 0, 1, 2, ... within each."""
    index = np.repeat(np.arange(quota.size, dtype=np.int64), quota)
    ends = np.cumsum(quota)
    return index, np.arange(index.size, dtype=np.int64) - np.repeat(ends - quota, quota)


def _nth_pair(k: Int64, n: Int64) -> tuple[Int64, Int64]:
    """The k-th of the n(n-1)/2 unordered pairs of n things, in an order that uses all things evenly."""
    left = k % n
    return left, (left + 1 + k // n) % n


Protocol = Literal["open-set", "closed-set"]
RandomState = int | np.random.Generator | None

CALIBRATION_FRACTION = 0.25
TEST_FRACTION = 0.2
_REDRAWS = 100


@dataclass(frozen=True, kw_only=True)
class Split:
    """Row numbers (or numbers of listed pairs) of the three parts, each sorted.

    Attributes
    ----------
    protocol : ``open-set`` (identities are held out) or ``closed-set`` (rows, points or groups are).
    train, calibration, test : no unit occurs in two parts; `test` is empty when no test part was asked for.
    n_dropped : listed pairs whose two sides fell into different parts, so that no part may use them.
    """

    protocol: Protocol
    train: Int64 = field(repr=False)
    calibration: Int64 = field(repr=False)
    test: Int64 = field(repr=False)
    n_dropped: int = 0


@dataclass(frozen=True, kw_only=True)
class HeldOutPairs:
    """Pairs to score, chosen without looking at scores.

    Attributes
    ----------
    left, right : (n,) rows of the data.
    same : (n,) whether both have the same identity.
    units : (n, 2) the sampling unit on each side: an identity (open-set) or a row (closed-set).
    protocol : resolved.
    units_assumed : whether units were guessed, since nothing says who the points belong to.
    listing : which pairs of the units these are, as `pairmark.operating_point` takes it.
    population : how many pairs these were drawn from at random; None: they are no sample of one list.
    folds : (n,) the fold whose model scores each pair, having learned from the others; None: one model scores all.
    clusters : (n, 2) the block of each side, where lists were cut along their graph.
    """

    left: Int64 = field(repr=False)
    right: Int64 = field(repr=False)
    same: Bool = field(repr=False)
    units: Int64 = field(repr=False)
    protocol: Protocol
    units_assumed: bool = False
    listing: Literal["all", "drawn", "random-people", "random-rows"] | None = "drawn"
    population: int | None = None
    folds: Int64 | None = field(repr=False, default=None)
    clusters: Int64 | None = field(repr=False, default=None)

    def __len__(self) -> int:
        return int(self.left.size)

    @property
    def origin(self) -> dict[str, Any]:
        """How the pairs came about, as `pairmark.models.calibration.calibration.Calibration.fit` takes it."""
        names = ("protocol", "units_assumed", "listing", "population")
        return {name: getattr(self, name) for name in names}


def resolve_protocol(protocol: str, n_identities: int, open_set_from: int = OPEN_SET_FROM) -> Protocol:
    """``auto`` becomes open-set from 30 identities up, else closed-set; other names are checked."""
    if protocol == "auto":
        return "open-set" if n_identities >= open_set_from else "closed-set"
    if protocol == "open-set":
        return "open-set"
    if protocol == "closed-set":
        return "closed-set"
    raise ValueError(f"protocol is {protocol!r}; expected 'auto', 'open-set' or 'closed-set'")


def joined_groups(n: int, i: Int64, j: Int64) -> tuple[int, Int64]:
    """How many groups ``n`` points fall into when ``i[e]`` and ``j[e]`` belong together, and each point's group."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(i)), (i, j)), shape=(n, n))
    n_groups, group = connected_components(graph, directed=False)
    return int(n_groups), group.astype(np.int64)


def split_data(
    y_codes: ArrayLike,
    *,
    protocol: str = "auto",
    calibration_fraction: float | None = CALIBRATION_FRACTION,
    test_fraction: float = TEST_FRACTION,
    random_state: RandomState = None,
) -> Split:
    """Split rows into training, calibration and test parts.

    Parameters
    ----------
    y_codes : (n,) identity (or class) of each row.
    protocol : ``open-set`` splits identities, ``closed-set`` splits rows; ``auto`` is open-set from 30
        identities.
    calibration_fraction, test_fraction : shares of the units (identities or rows). The calibration part is a
        simple random sample of the units; in open-set use the test part has its share of identities with more than
        one row, in closed-set use it is redrawn until it (and the training part) holds two rows of one class.
        Where nothing is learned, a calibration_fraction of None takes all units outside the test part.

    Raises
    ------
    ValueError
        When a part would be too small to learn from, calibrate or test, naming the part and what to change.
    """
    y = np.asarray(y_codes)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"y has shape {y.shape}; expected (n,), one identity a row, n >= 1")
    identities, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    resolved_protocol = resolve_protocol(protocol, identities.size)
    if identities.size < 2:
        raise ValueError("the data holds a single identity; expected at least two, to have pairs that differ")
    if counts.max() < 2:
        raise ValueError(
            "every identity has one row; expected at least one with two, to have pairs that are the same"
        )
    rng = np.random.default_rng(random_state)
    if resolved_protocol == "open-set":
        part_of = _parts(np.minimum(counts, 2), calibration_fraction, test_fraction, rng, "identities")[codes]
    else:

        def has_same_pairs(part_of: Int64) -> bool:
            parts_to_check = (2,) if calibration_fraction is None else (0, 2)
            return all(np.bincount(codes[part_of == part], minlength=1).max() > 1 for part in parts_to_check)

        strata = np.zeros_like(codes)
        part_of = _parts(
            strata, calibration_fraction, test_fraction, rng, "rows", test_is_good=has_same_pairs
        )
    parts = [np.flatnonzero(part_of == part) for part in range(3)]
    unit = "identities" if resolved_protocol == "open-set" else "rows"
    if calibration_fraction is not None:
        _check_part(codes[parts[0]], "training", unit, needs_same=True)
    _check_part(codes[parts[1]], "calibration", unit, needs_same=False)
    if test_fraction > 0:
        _check_part(codes[parts[2]], "test", unit, needs_same=True)
    return Split(protocol=resolved_protocol, train=parts[0], calibration=parts[1], test=parts[2])


def split_pairs(
    units: Int64,
    same: Bool,
    usable: Bool,
    *,
    protocol: Protocol,
    name: str = "units",
    calibration_fraction: float | None = CALIBRATION_FRACTION,
    test_fraction: float = TEST_FRACTION,
    random_state: RandomState = None,
) -> Split:
    """Split an explicit list of pairs so that no sampling unit is in two parts.

    Pairs that cross parts belong to none and are counted in ``n_dropped``, and so are unusable ones. The first draw
    stands: a calibration part that is chosen among several by its labels is no simple random sample.

    Parameters
    ----------
    units, usable, protocol, name : as `pairmark.models.pairs.splits.listed_units` gives them.
    same : (n_pairs,) whether the pair is marked same.
    calibration_fraction, test_fraction : as `split_data`.

    Raises
    ------
    ValueError
        When a part would lack pairs of either kind.
    """
    n_units = int(units.max()) + 1
    rng = np.random.default_rng(random_state)
    strata = np.zeros(n_units, dtype=np.int64)
    if protocol == "open-set":
        strata[units[same, 0]] = 1
    part_of = _parts(strata, calibration_fraction, test_fraction, rng, name)
    sides = part_of[units]
    is_uncrossed = usable & (sides[:, 0] == sides[:, 1])
    n_dropped = int((~is_uncrossed).sum())
    train, calibration, test = (np.flatnonzero(is_uncrossed & (sides[:, 0] == part)) for part in range(3))
    split = Split(protocol=protocol, train=train, calibration=calibration, test=test, n_dropped=n_dropped)
    _check_kinds(
        split,
        same,
        trains=calibration_fraction is not None,
        tests=test_fraction > 0,
        advice=f"after a split by {name}, where {n_dropped} pairs crossed parts: bring more pairs, or change the "
        "fractions",
    )
    return split


def _check_kinds(split: Split, same: Bool, *, trains: bool, tests: bool, advice: str) -> None:
    """Raise `ValueError` where a part that was asked for lacks pairs of a kind; calibration takes different ones."""
    requirements = {"training": (trains, True), "calibration": (True, False), "test": (tests, True)}
    parts = (split.train, split.calibration, split.test)
    for (name, (is_asked, needs_same)), numbers in zip(requirements.items(), parts, strict=True):
        n_same = int(same[numbers].sum())
        if is_asked and (n_same == numbers.size or (needs_same and n_same == 0)):
            absent = "different" if n_same == numbers.size else "same"
            raise ValueError(f"the {name} part holds no pair marked {absent} ({numbers.size} pairs) {advice}")


FOLDS = 5
_FEWEST_IN_FOLD = 4
_FOLD_DRAWS = 20


def n_folds_of(n_units: int) -> int:
    """How many folds so many units make: of few, fewer, since a fold of few has no pairs."""
    return max(2, min(FOLDS, n_units // _FEWEST_IN_FOLD))


def identity_folds(codes: Int64) -> Int64:
    """(n,) the fold of each row: identities kept whole, those of several rows shared out evenly. Nothing is random."""
    identities, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
    order = permutation_of(identities.size)
    order = order[np.argsort(counts[order] < 2, kind="stable")]
    fold = np.empty(identities.size, dtype=np.int64)
    fold[order] = np.arange(identities.size) % n_folds_of(identities.size)
    return fold[place]


@dataclass(frozen=True, kw_only=True)
class ListFolds:
    """A list of pairs in folds that share no unit: each is scored by a model that learned from the others.

    Attributes
    ----------
    fold, block : (n_units,) the fold and the block (`list_blocks`) of each unit.
    scored : numbers of the usable pairs inside of folds.
    n_crossing : usable pairs that join two folds, which no model scores.
    n_folds : how many folds there are.
    """

    fold: Int64 = field(repr=False)
    block: Int64 = field(repr=False)
    scored: Int64 = field(repr=False)
    n_crossing: int
    n_folds: int

    def learned(self, units: Int64, number: int) -> Int64:
        """Numbers of the pairs of the list that a fold's model learns from: those without any of its units."""
        return np.flatnonzero((self.fold[units] != number).all(axis=1))


def fold_pairs(units: Int64, same: Bool, usable: Bool) -> ListFolds:
    """Folds of a list, cut along its graph so that few pairs cross. Nothing is random: they depend on the list alone.

    Parameters
    ----------
    units, usable : as `listed_units` gives them. same : (n_pairs,) whether the pair is marked same.

    Raises
    ------
    ValueError
        When no folds leave pairs of both kinds to learn from, and to score.
    """
    n_units = int(units.max()) + 1
    block = list_blocks(units[usable], n_units)
    n_folds = n_folds_of(n_units)
    sizes = tuple((n_units + fold) // n_folds for fold in range(n_folds))
    for draw in range(_FOLD_DRAWS):
        fold = _shared_out(block, sizes, np.random.Generator(stream_of(n_units, draw)))
        sides = fold[units]
        is_scored = usable & (sides[:, 0] == sides[:, 1])
        inside = np.unique(sides[is_scored])
        learned = [same[(sides != number).all(axis=1)] for number in range(n_folds)]
        judged = same[is_scored]
        if inside.size > 1 and all(each.any() and not each.all() for each in [judged, *learned]):
            return ListFolds(
                fold=fold,
                block=block,
                scored=np.flatnonzero(is_scored),
                n_crossing=int((usable & ~is_scored).sum()),
                n_folds=n_folds,
            )
    raise ValueError(
        f"{same.size} pairs of {n_units} people make no folds with pairs of both kinds on either side: bring more data"
    )


_BLOCKS = 24
"""A list is cut into at least so many blocks: more of them lose more pairs, fewer make a part a matter of chance."""


def list_blocks(edges: Int64, n_units: int) -> Int64:
    """(n_units,) the block of each unit: connected parts of the list, the large ones cut where few pairs are.

    Parameters
    ----------
    edges : (n_pairs, 2) units of each pair.
    """
    capacity = max(1, -(-n_units // _BLOCKS))
    block = joined_groups(n_units, edges[:, 0], edges[:, 1])[1]
    sizes = np.bincount(block)
    is_cut = sizes[block] > capacity
    if not is_cut.any():
        return block
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order

    of_cut = np.cumsum(is_cut) - 1
    ends = of_cut[edges[is_cut[edges[:, 0]]]]
    n_cut = int(is_cut.sum())
    both = np.concatenate([ends, ends[:, ::-1]])
    graph = coo_array((np.ones(len(both)), both.T), shape=(n_cut, n_cut)).tocsr()
    firsts = np.unique(block[is_cut], return_index=True)[1]
    order = np.concatenate(
        [breadth_first_order(graph, at, directed=False, return_predecessors=False) for at in firsts]
    )
    grown = grown_blocks(
        graph.indptr.astype(np.int64),
        graph.indices.astype(np.int64),
        order.astype(np.int64),
        -(-n_cut // capacity),
        # A tenth of slack, or the last units would have no choice.
        capacity + -(-capacity // 10),
    )
    block[is_cut] = sizes.size + grown
    return block


def _shared_out(group: Int64, sizes: tuple[int, ...], rng: np.random.Generator) -> Int64:
    """(n_units,) the part of each unit, groups kept whole: in random order, each goes where most units are missing."""
    n_units = np.bincount(group)
    missing = np.array(sizes, dtype=np.int64)
    part_of = np.zeros(n_units.size, dtype=np.int64)
    for number in rng.permutation(np.flatnonzero(n_units)):
        part = int(np.argmax(missing))
        part_of[number] = part
        missing[part] -= n_units[number]
    return part_of[group]


def split_drawn(
    drawn: Bool,
    same: Bool,
    *,
    protocol: Protocol,
    test_fraction: float = TEST_FRACTION,
    random_state: RandomState = None,
) -> Split:
    """Split a list of pairs of which some were chosen, which train, and some drawn at random, which calibrate and test.

    Of the drawn pairs of either kind a random share tests. Each part is a random sample of what they were drawn from;
    who is in two parts does not matter, since the guarantee is about that one list and the model is made without it.

    Parameters
    ----------
    drawn, same : (n_pairs,) whether each pair was drawn, and whether it is marked same.

    Raises
    ------
    ValueError
        When a part would lack pairs of either kind.
    """
    rng = np.random.default_rng(random_state)
    calibration, test = [], []
    for is_same in (False, True):
        numbers = rng.permutation(np.flatnonzero(drawn & (same == is_same)))
        n_test = min(numbers.size, max(1, round(test_fraction * numbers.size))) if test_fraction else 0
        test.append(numbers[:n_test])
        calibration.append(numbers[n_test:])
    held_out = [np.sort(np.concatenate(part)) for part in (calibration, test)]
    split = Split(protocol=protocol, train=np.flatnonzero(~drawn), calibration=held_out[0], test=held_out[1])
    _check_kinds(
        split,
        same,
        trains=True,
        tests=test_fraction > 0,
        advice="of a list in which chosen pairs train and pairs drawn at random calibrate and test: label more",
    )
    return split


def held_out_pairs(
    y_codes: ArrayLike, *, protocol: str, n_pairs: int = 200_000, random_state: RandomState = None
) -> HeldOutPairs:
    """Choose which pairs of a held-out part to score, without looking at any score.

    *Closed-set*: all pairs of the m samples when they fit into ``n_pairs``; otherwise samples fall into cells at
    random and all pairs inside of a cell are scored. Labels play no part.

    *Open-set*: at most a quarter of the budget goes to same-identity pairs, evenly over identities. The rest
    goes to pairs of identities: all of them when they fit (then several sample pairs in each, evenly over
    samples), otherwise all pairs inside of random cells of identities, one sample pair in each.

    Cells of even sizes have perfect matchings, so floor(m/2) pairs are independent of each other whatever ``n_pairs``
    is: nothing is lost to the guarantee (`pairmark.models.calibration.finite_sample`).

    Parameters
    ----------
    y_codes : (n,) identities of the held-out rows.
    n_pairs : budget. At least one pair a unit is returned, even when that exceeds a very small budget.

    Raises
    ------
    ValueError
        When there are fewer than two identities, or ``n_pairs`` is not positive.
    """
    y = np.asarray(y_codes)
    if y.ndim != 1:
        raise ValueError(f"y has shape {y.shape}; expected (n,), one identity a row")
    if n_pairs < 1:
        raise ValueError(f"n_pairs is {n_pairs}; expected at least 1")
    codes, first = codes_by_appearance(y)
    if first.size < 2:
        raise ValueError(
            f"{first.size} identities are held out; expected at least two, to have negative pairs"
        )
    rng = np.random.default_rng(random_state)
    resolved_protocol = resolve_protocol(protocol, first.size)
    if resolved_protocol == "closed-set":
        left, right, _ = unit_pairs(codes.size, n_pairs, rng)
        units = np.stack([left, right], axis=1)
    else:
        left, right, units = open_set_pairs(codes, np.bincount(codes), n_pairs, rng)
    return HeldOutPairs(
        left=left, right=right, same=codes[left] == codes[right], units=units, protocol=resolved_protocol
    )


def _sizes(
    m: int, calibration_fraction: float | None, test_fraction: float, unit: str
) -> tuple[int, int, int]:
    """How many of m units train, calibrate and test; without a calibration fraction none trains."""
    for name, value, low in (
        ("calibration_fraction", calibration_fraction, "above 0"),
        ("test_fraction", test_fraction, "0 or above"),
    ):
        if value is not None and (not (0 <= value < 1) or (value == 0 and low == "above 0")):
            raise ValueError(f"{name} is {value}; expected {low} and below 1")
    if (calibration_fraction or 0.0) + test_fraction >= 1:
        raise ValueError(
            f"calibration_fraction + test_fraction is {(calibration_fraction or 0.0) + test_fraction:g}; "
            "expected below 1, so that something is left to train on"
        )
    n_test = round(m * test_fraction)
    n_calibration = m - n_test if calibration_fraction is None else round(m * calibration_fraction)
    n_train = m - n_calibration - n_test
    too_few_train = calibration_fraction is not None and n_train < 2
    if n_calibration < 2 or (test_fraction > 0 and n_test < 2) or too_few_train:
        raise ValueError(
            f"{m} {unit} give {n_train} to train on, {n_calibration} to calibrate and {n_test} to "
            "test; expected at least two each: bring more data, or change calibration_fraction and test_fraction"
        )
    return n_train, n_calibration, n_test


def _parts(
    strata: Int64,
    calibration_fraction: float | None,
    test_fraction: float,
    rng: np.random.Generator,
    unit: str,
    *,
    test_is_good: Callable[[Int64], bool] | None = None,
) -> Int64:
    """0 (training), 1 (calibration) or 2 (test) for every unit."""
    m = strata.size
    _, n_calibration, n_test = _sizes(m, calibration_fraction, test_fraction, unit)
    if calibration_fraction is None:
        # Both parts are simple random samples.
        part = np.ones(m, dtype=np.int64)
        part[rng.permutation(m)[:n_test]] = 2
        if n_test and test_is_good is not None and not test_is_good(part):
            # Redrawing the test part would draw the calibration part by its labels.
            raise ValueError(
                f"the test part of {n_test} {unit} holds no two of one class: bring more data, or a larger "
                "test_fraction"
            )
        return part
    order = rng.permutation(m)
    part = np.zeros(m, dtype=np.int64)
    part[order[:n_calibration]] = 1
    if not n_test:
        return part
    # Calibration is settled; only the test part may be redrawn, so that it stays a simple random sample.
    for _ in range(_REDRAWS):
        remaining = rng.permutation(order[n_calibration:])
        remaining = remaining[np.argsort(strata[remaining], kind="stable")]
        part[remaining] = 0
        # Sorted by stratum, every `stride`-th unit (random offset) is a proportional draw.
        stride = remaining.size / n_test
        places = np.floor(rng.random() * stride + stride * np.arange(n_test)).astype(np.int64)
        part[remaining[places % remaining.size]] = 2
        if test_is_good is None or test_is_good(part):
            break
    return part


def _check_part(codes: Int64, part: str, unit: str, *, needs_same: bool) -> None:
    counts = np.unique(codes, return_counts=True)[1]
    if counts.size < 2:
        raise ValueError(
            f"the {part} part holds {counts.size} identities ({codes.size} rows) after a split by {unit}; expected at "
            "least two: bring more data, or change calibration_fraction and test_fraction"
        )
    if needs_same and counts.max() < 2:
        raise ValueError(
            f"in the {part} part every identity has one row after a split by {unit}: bring more rows per identity, "
            "or change calibration_fraction and test_fraction"
        )


@dataclass(frozen=True, kw_only=True)
class ListedUnits:
    """Units of listed pairs.

    Attributes
    ----------
    units : (n_pairs, 2) the sampling unit on each side, 0..n_units-1.
    usable : (n_pairs,) false for pairs that say nothing: marked different inside of one group.
    protocol : resolved.
    assumed : whether units were guessed from same pairs alone, since nothing says who the points belong to. People
        whose points no same pair joins then count as several, and guarantees about people do not hold.
    name : of the units, for messages.
    """

    units: Int64 = field(repr=False)
    usable: Bool = field(repr=False)
    protocol: Protocol
    assumed: bool
    name: str

    def origin(self, same: Bool, listing: str | None = None) -> str:
        """How the list came about, as far as that can be told before it is scored; see `nothing_guaranteed`.

        ``listing`` : as a job declares it.
        """
        if self.assumed:
            return "assumed"
        if self.lists_all(same):
            return "all"
        return {"random-people": "random", "random-rows": "random-rows"}.get(listing or "", "unknown")

    def lists_all(self, same: Bool, numbers: Int64 | slice = slice(None)) -> bool:
        """Whether every two units of these pairs are among them, in open-set use as a pair that differs."""
        units = self.units[numbers]
        if self.protocol == "open-set":
            units = units[~same[numbers]]
        edges, m = np.unique(np.sort(units, axis=1), axis=0), np.unique(units).size
        return bool(edges.shape[0] == m * (m - 1) // 2)


def contradictory_pairs(
    left: ArrayLike, right: ArrayLike, same: ArrayLike, units: ArrayLike | None = None
) -> Int64:
    """Numbers of pairs marked different although a chain of same pairs, or a unit, joins their rows.

    Parameters
    ----------
    left, right, same, units : as in `listed_units`.
    """
    a, b, is_same = np.asarray(left), np.asarray(right), np.asarray(same).astype(np.bool_)
    points, ends = np.unique(np.concatenate([a, b]), return_inverse=True)
    i, j = ends[: a.size], ends[a.size :]
    bonds = []
    if units is not None:
        bonds.append((np.concatenate([i, j]), np.asarray(units).T.reshape(-1)))
    person = _merge(points.size, i[is_same], j[is_same], bonds)
    return np.flatnonzero(~is_same & (person[i] == person[j]))


def listed_units(
    left: ArrayLike,
    right: ArrayLike,
    same: ArrayLike,
    *,
    protocol: str = "auto",
    labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    units: ArrayLike | None = None,
) -> ListedUnits:
    """Sampling units of a list of pairs.

    Open-set units are people: points that share a label, a group or a unit, or that a chain of same pairs joins, belong
    to one person. With same pairs alone units are assumed. Closed-set units are groups, where there are some, else the
    points.

    Parameters
    ----------
    left, right : (n_pairs,) row numbers of the two points.
    same : (n_pairs,) 0 or 1.
    protocol : ``auto`` is open-set from 30 people up.
    labels, groups : (n_rows,) label and group of every point, as codes; -1 where a point has none.
    units : (n_pairs, 2) unit of each side, as codes.

    Raises
    ------
    ValueError
        For pairs marked different whose points are known to be one person (open-set).
    """
    a, b, is_same = np.asarray(left), np.asarray(right), np.asarray(same).astype(np.bool_)
    points, ends = np.unique(np.concatenate([a, b]), return_inverse=True)
    i, j = ends[: a.size], ends[a.size :]
    bonds = [(np.arange(points.size), np.asarray(of)[points]) for of in (labels,) if of is not None]
    if units is not None:
        sides = np.asarray(units)
        bonds.append((np.concatenate([i, j]), np.concatenate([sides[:, 0], sides[:, 1]])))
    in_group = [(np.arange(points.size), np.asarray(groups)[points])] if groups is not None else []
    person = _merge(points.size, i[is_same], j[is_same], bonds)
    people = _merge(points.size, i[is_same], j[is_same], bonds + in_group)
    resolved_protocol = resolve_protocol(protocol, int(people.max()) + 1)
    if resolved_protocol == "open-set":
        contradictory = np.flatnonzero(~is_same & (person[i] == person[j]))
        if contradictory.size:
            first = int(contradictory[0])
            raise ValueError(
                f"{contradictory.size} pairs are marked different although their points are one person's by label, "
                f"unit or a chain of positive pairs, the first is ({int(a[first])}, {int(b[first])}): correct the "
                "labels, or use protocol 'closed-set'"
            )
        of_point, name, assumed = people, "people", not (bonds or in_group)
    elif in_group:
        of_point, name, assumed = _merge(points.size, i[:0], j[:0], in_group), "groups", False
    else:
        of_point, name, assumed = np.arange(points.size), "points", False
    sides_of = np.stack([of_point[i], of_point[j]], axis=1).astype(np.int64)
    is_within = sides_of[:, 0] == sides_of[:, 1]
    usable = ~is_within | is_same if resolved_protocol == "open-set" else ~is_within
    if resolved_protocol == "closed-set" and in_group:
        # Several pairs of two groups depend on each other: the first of them stands for all.
        keys = np.sort(sides_of, axis=1)
        first_of = np.unique(keys[:, 0] * (int(keys.max()) + 1) + keys[:, 1], return_index=True)[1]
        is_first = np.zeros(a.size, dtype=np.bool_)
        is_first[first_of] = True
        usable &= is_first
    return ListedUnits(units=sides_of, usable=usable, protocol=resolved_protocol, assumed=assumed, name=name)


def _merge(n: int, i: Int64, j: Int64, bonds: list[tuple[Int64, Int64]]) -> Int64:
    """Group of each point when points i and j, and points of one code, belong together."""
    first, second, nodes = [i], [j], n
    for at, codes in bonds:
        is_named = codes >= 0
        values, inverse = np.unique(codes[is_named], return_inverse=True)
        first.append(at[is_named])
        second.append(nodes + inverse)
        nodes += values.size
    group = joined_groups(nodes, np.concatenate(first), np.concatenate(second))[1][:n]
    numbers: Int64 = np.unique(group, return_inverse=True)[1].astype(np.int64)
    return numbers


def some_pairs(same: Bool, weight: Float64, limit: int, random: np.random.Generator) -> Int64:
    """At most so many pairs of positive weight: up to half of them same, as far as there are."""
    candidates = np.flatnonzero(weight > 0)
    if candidates.size <= limit:
        return candidates
    same_pairs = random.permutation(candidates[same[candidates]])
    different_pairs = random.permutation(candidates[~same[candidates]])
    n_same = min(same_pairs.size, max(limit // 2, limit - different_pairs.size))
    return np.sort(np.concatenate([same_pairs[:n_same], different_pairs[: limit - n_same]]))


def distinct_rows(points: Float32) -> tuple[Int64, Int64]:
    """Equal rows as one, in the order met.

    Returns
    -------
    first : (m,) a row of each kind. number : (n,) which kind each row is of.
    """
    # Adding 0 rids rows of negative zeros, whose bits are others.
    rows = np.ascontiguousarray(points, dtype=np.float32) + np.float32(0.0)
    kinds: dict[bytes, int] = {}
    number = np.array([kinds.setdefault(row.tobytes(), len(kinds)) for row in rows], dtype=np.int64)
    return np.unique(number, return_index=True)[1], number


def identities_of_pairs(points: Float32, same: Bool) -> Int64:
    """Identities of points, (2 n,): equal points, and points joined by same pairs at one or more removes, are one.

    Parameters
    ----------
    points : (2 n, d), left rows then right rows.
    same : (n,).
    """
    first, number = distinct_rows(points)
    return joined_identities(first.size, number, same)[number]


def joined_identities(n_rows: int, number: Int64, same: Bool) -> Int64:
    """Identities 0, 1, ... of distinct rows, (n_rows,); see `identities_of_pairs`.

    ``number`` : (2 n,) which distinct row each side of each pair is, left sides then right sides.
    """
    n = same.size
    _, component = joined_groups(n_rows, number[:n][same], number[n:][same])
    return np.unique(component, return_inverse=True)[1].astype(np.int64)


def labeled_rows_of_pairs(
    left: Float32, right: Float32, same: Bool, weight: Float64
) -> tuple[Float32, Int64]:
    """Distinct rows of the pairs of positive weight, in the order met, and the identity of each.

    Same pairs join rows, at one or more removes; a `ValueError` where they join all of them.
    """
    has_weight = weight > 0
    points = np.concatenate([left[has_weight], right[has_weight]])
    first, number = distinct_rows(points)
    codes = joined_identities(first.size, number, same[has_weight])
    if codes.max() == 0:
        raise ValueError(
            "positive pairs join all rows, directly or through others, into a single identity: correct the labels, "
            "leave weak pairs out, or use a learner of pairs, such as SimilarityForest"
        )
    return points[first], codes
