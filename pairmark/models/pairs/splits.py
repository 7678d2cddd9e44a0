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
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.core.arrays import Bool, Int64
from pairmark.models.core.missing import OPEN_SET_FROM
from pairmark.models.pairs.order import codes_by_appearance
from pairmark.models.pairs.pair_budget import open_set_pairs, unit_pairs

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
    blocks : (n,) block of each pair, or ``components``; None where pairs were not listed inside of blocks.
    population : how many pairs these were drawn from at random; None: they are no sample of one list.
    """

    left: Int64 = field(repr=False)
    right: Int64 = field(repr=False)
    same: Bool = field(repr=False)
    units: Int64 = field(repr=False)
    protocol: Protocol
    units_assumed: bool = False
    listing: Literal["all", "random", "drawn"] | None = "drawn"
    blocks: Int64 | Literal["components"] | None = None
    population: int | None = None

    def __len__(self) -> int:
        return int(self.left.size)


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

    Pairs that cross parts belong to none and are counted in ``n_dropped``, and so are unusable ones.

    Parameters
    ----------
    units, usable, protocol, name : as `pairmark.models.pairs.listed.listed_units` gives them.
    same : (n_pairs,) whether the pair is marked same.
    calibration_fraction, test_fraction : as `split_data`.

    Raises
    ------
    ValueError
        When a part would lack pairs of either kind.
    """
    strata = np.zeros(int(units.max()) + 1, dtype=np.int64)
    if protocol == "open-set":
        strata[units[same, 0]] = 1
    rng = np.random.default_rng(random_state)
    part_of = _parts(strata, calibration_fraction, test_fraction, rng, name)
    sides = part_of[units]
    is_uncrossed = usable & (sides[:, 0] == sides[:, 1])
    parts = [np.flatnonzero(is_uncrossed & (sides[:, 0] == part)) for part in range(3)]
    requirements = [("training", True), ("calibration", False), ("test", True)]
    unasked = [calibration_fraction is None, False, test_fraction == 0]
    for (part_name, needs_same), rows, empty in zip(requirements, parts, unasked, strict=True):
        if empty:
            continue
        n_same = int(same[rows].sum())
        if rows.size - n_same == 0 or (needs_same and n_same == 0):
            absent = "different" if rows.size - n_same == 0 else "same"
            raise ValueError(
                f"the {part_name} part holds no pair marked {absent} ({rows.size} pairs after a split by {name}, "
                f"{int((~is_uncrossed).sum())} crossed parts): bring more pairs, or change the fractions"
            )
    return Split(
        protocol=protocol,
        train=parts[0],
        calibration=parts[1],
        test=parts[2],
        n_dropped=int((~is_uncrossed).sum()),
    )


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
    who is in two parts does not matter, since the promise is about that one list and the model is made without it.

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
    parts = [np.flatnonzero(~drawn), *(np.sort(np.concatenate(part)) for part in (calibration, test))]
    wanted = {"training": (0, True), "calibration": (1, False), "test": (2, True)}
    for name, (part, needs_same) in wanted.items():
        n_same = int(same[parts[part]].sum())
        if part == 2 and not test_fraction:
            continue
        if n_same == parts[part].size or (needs_same and not n_same):
            missing = "different" if n_same == parts[part].size else "same"
            source = "drawn at random" if part else "chosen to train on"
            raise ValueError(
                f"the {name} part holds no pair marked {missing} ({parts[part].size} pairs): label more pairs that are "
                f"{source}"
            )
    return Split(protocol=protocol, train=parts[0], calibration=parts[1], test=parts[2])


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
    is: nothing is lost to the guarantee (`pairmark.models.calibration.matching_product`).

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
            f"{first.size} identities are held out; expected at least two, to have different pairs"
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
    if calibration_fraction is None:
        return _without_training(strata.size, test_fraction, rng, unit, test_is_good)
    for name, value, low in (
        ("calibration_fraction", calibration_fraction, "above 0"),
        ("test_fraction", test_fraction, "0 or above"),
    ):
        if not (0 <= value < 1) or (value == 0 and low == "above 0"):
            raise ValueError(f"{name} is {value}; expected {low} and below 1")
    if calibration_fraction + test_fraction >= 1:
        raise ValueError(
            f"calibration_fraction + test_fraction is {calibration_fraction + test_fraction:g}; "
            "expected below 1, so that something is left to train on"
        )
    m = strata.size
    n_calibration = round(m * calibration_fraction)
    n_test = round(m * test_fraction)
    if n_calibration < 2 or (test_fraction > 0 and n_test < 2) or m - n_calibration - n_test < 2:
        raise ValueError(
            f"{m} {unit} give {m - n_calibration - n_test} to train on, {n_calibration} to calibrate and {n_test} to "
            "test; expected at least two each: bring more data, or change calibration_fraction and test_fraction"
        )
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


def _without_training(
    m: int,
    test_fraction: float,
    rng: np.random.Generator,
    unit: str,
    test_is_good: Callable[[Int64], bool] | None,
) -> Int64:
    """1 (calibration) or 2 (test) for every unit; both are simple random samples."""
    if not 0 <= test_fraction < 1:
        raise ValueError(f"test_fraction is {test_fraction}; expected 0 or above and below 1")
    n_test = round(m * test_fraction)
    if m - n_test < 2 or (test_fraction > 0 and n_test < 2):
        raise ValueError(
            f"{m} {unit} give {m - n_test} to calibrate and {n_test} to test; expected at least two each: bring more "
            "data, or change test_fraction"
        )
    part = np.ones(m, dtype=np.int64)
    part[rng.permutation(m)[:n_test]] = 2
    if n_test and test_is_good is not None and not test_is_good(part):
        # Redrawing the test part would draw the calibration part by its labels.
        raise ValueError(
            f"the test part of {n_test} {unit} holds no two of one class: bring more data, or a larger test_fraction"
        )
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
