"""Splits rows, or listed pairs, into training, calibration and test.

Two protocols. *Closed-set*: classes are shared between training and use, so samples are held out. *Open-set*:
people to come were never seen, so whole identities are held out. The sampling unit (sample or identity) is also what
the guarantee of `pairmark.models.calibration.calibration` counts, and the calibration units are a simple random sample
of all units (not stratified: stratifying makes the counts of the classes dependent, and the bound is for independent
units).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pairmark.models.core.arrays import ArrayLike, Bool, Int64
from pairmark.models.core.inputs import OPEN_SET_FROM


def stream_of(*sizes: int) -> np.random.PCG64:
    """A stream of bits that depends on sizes alone, the same in every version of NumPy."""
    return np.random.PCG64(np.random.SeedSequence(sizes))


def permutation_of(n: int, turn: int = 0) -> Int64:
    """The ``turn``-th permutation of n things, by their number alone."""
    return np.argsort(stream_of(n, turn).random_raw(n), kind="stable").astype(np.int64)


Protocol = Literal["open-set", "closed-set"]
RandomState = int | np.random.Generator | None
CALIBRATION_FRACTION = 0.25
TEST_FRACTION = 0.2
# Draws of a test part, at most, until it holds two rows of one class.
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


def resolve_protocol(protocol: str, n_identities: int, open_set_from: int = OPEN_SET_FROM) -> Protocol:
    """``auto`` becomes open-set from 30 identities up, else closed-set; other names are checked."""
    if protocol not in ("auto", "open-set", "closed-set"):
        raise ValueError(f"protocol is {protocol!r}; expected 'auto', 'open-set' or 'closed-set'")
    is_open = protocol == "open-set" or (protocol == "auto" and n_identities >= open_set_from)
    return "open-set" if is_open else "closed-set"


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
    units, usable, protocol, name : as `pairmark.models.pairs.lists.listed_units` gives them.
    same : (n_pairs,) whether the pair is marked same.
    calibration_fraction, test_fraction : as `split_data`.

    Raises
    ------
    ValueError
        When a part would lack pairs of either kind.
    """
    rng, strata = np.random.default_rng(random_state), np.zeros(int(units.max()) + 1, dtype=np.int64)
    if protocol == "open-set":
        # People with a same pair, of whom the test part is to have its share.
        strata[units[same, 0]] = 1
    sides = _parts(strata, calibration_fraction, test_fraction, rng, name)[units]
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
    for name, numbers, is_asked, needs_same in (
        ("training", split.train, trains, True),
        ("calibration", split.calibration, True, False),
        ("test", split.test, tests, True),
    ):
        n_same = int(same[numbers].sum())
        if is_asked and (n_same == numbers.size or (needs_same and n_same == 0)):
            absent = "different" if n_same == numbers.size else "same"
            raise ValueError(f"the {name} part holds no pair marked {absent} ({numbers.size} pairs) {advice}")


FOLDS = 5
_FEWEST_IN_FOLD = 4


def n_folds_of(n_units: int) -> int:
    """How many folds so many units make: of few, fewer, since a fold of few has no pairs."""
    return max(2, min(FOLDS, n_units // _FEWEST_IN_FOLD))


def identity_folds(codes: Int64) -> Int64:
    """(n,) the fold of each row: identities kept whole, those of several rows shared out evenly. Nothing is random."""
    identities, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
    order = permutation_of(identities.size)
    # Those of several rows first, so that they are dealt out evenly.
    order = order[np.argsort(counts[order] < 2, kind="stable")]
    fold = np.empty(identities.size, dtype=np.int64)
    fold[order] = np.arange(identities.size) % n_folds_of(identities.size)
    return fold[place]


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


def _sizes(m: int, calibration_fraction: float | None, test_fraction: float, unit: str) -> tuple[int, int]:
    """How many of m units calibrate and test; without a calibration fraction none trains."""
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
    return n_calibration, n_test


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
    n_calibration, n_test = _sizes(m, calibration_fraction, test_fraction, unit)
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
