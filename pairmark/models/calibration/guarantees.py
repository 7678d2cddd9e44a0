"""Which rates a number of units supports, before there are scores."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from pairmark.models.calibration.bootstrap import ENOUGH_PAIRS, ENOUGH_UNITS, confidence_row
from pairmark.models.calibration.finite_sample import MOST_BLOCKS, order_pairs_needed, order_upper

_SPARE = 1.2
"""People that the bootstrap takes, over its effective units: nobody's matches are spread quite evenly."""
_SURE = 2.5
"""Standard deviations by which the number of different pairs may fall short of its mean: less than 1 % of draws."""
AMPLE_MULTIPLE = 4
"""From so many times the floor's units on, the threshold's rate is typically above two thirds of what is allowed."""

BEST_TPR = 0.9
"""What a model could reach at a rate, where nothing is known of it."""
_USED = {1.0: 0.012, 1.1: 0.1, 1.2: 0.18, 1.5: 0.34, 2.0: 0.48, 3.0: 0.62, 4.0: 0.7, 8.0: 0.81}
"""Times the fewest people -> FPR over the rate asked for, of simulated people with Gaussian effects of .6 at 5 %."""


@dataclass(frozen=True, kw_only=True)
class SupportedRate:
    """The smallest false positive rate that ``finite-sample`` guarantees with so many units, and the next power of ten.

    Attributes
    ----------
    confidence : of the guarantee.
    smallest_fpr : the smallest rate answered; None with fewer than two units.
    next_fpr : the next power of ten below it.
    next_units : units that ``next_fpr`` takes.
    """

    confidence: float
    smallest_fpr: float | None
    next_fpr: float
    next_units: int


def reach(n_units: int, confidence: float = 0.95, *, different_share: float = 1.0) -> SupportedRate:
    """The smallest rate that so many calibration units can guarantee, and how many more the next power of ten takes.

    Exact for units that `pairmark.models.pairs.held_out` pairs (whatever its number of pairs) in open-set use. In
    closed-set use the classes of the pairs are left to chance: what is said here is answered in 99 % of draws.

    Parameters
    ----------
    n_units : units in the calibration part: identities (open-set) or samples (closed-set).
    different_share : as `units_needed`.
    """
    confidence = checked_rate(confidence, "confidence")
    if n_units < 0:
        raise ValueError(f"n_units is {n_units}; expected at least 0")
    pairs = _surely_different(n_units // 2, different_share)
    smallest = order_upper(0, pairs, confidence) if pairs else None
    exponent = math.floor(math.log10(smallest)) if smallest is not None else -1
    next_fpr = 10.0**exponent
    if smallest is not None and next_fpr >= smallest * (1 - 1e-9):
        next_fpr = 10.0 ** (exponent - 1)
    return SupportedRate(
        confidence=confidence,
        smallest_fpr=smallest,
        next_fpr=next_fpr,
        next_units=units_needed(next_fpr, confidence, different_share=different_share)["finite-sample"] or 0,
    )


def units_needed(
    fpr: float,
    confidence: float = 0.95,
    *,
    different_share: float = 1.0,
    rows_independent: bool = False,
) -> dict[str, int | None]:
    """Method -> units that ``fpr`` takes before any data is there; see `InsufficientCalibrationData.required_units`.

    ``finite-sample`` is exact, and in closed-set use, where classes are left to chance, enough in 99 % of draws;
    ``bootstrap`` is what its rule can be expected to take where people are alike.

    Parameters
    ----------
    different_share : share of different pairs among those drawn; 1 in open-set use.
    rows_independent : whether the pairs are independent of each other, so that each is a unit.
    """
    fpr, confidence = checked_rate(fpr, "fpr"), checked_rate(confidence, "confidence")
    blocks = order_pairs_needed(fpr, confidence)
    if different_share < 1:
        blocks = _matched_for(blocks, different_share)
    # With 30 pairs above, the bound is some 1.6 times the observed rate, so about 60 must be expected at fpr.
    n_above = 2 * ENOUGH_PAIRS / max(fpr * different_share, 1.0 / MOST_BLOCKS)
    asymptotic = (
        n_above if rows_independent else max(_SPARE * ENOUGH_UNITS, (1 + math.sqrt(1 + 8 * n_above)) / 2)
    )
    return {
        "finite-sample": blocks if rows_independent else 2 * blocks,
        "bootstrap": None if confidence_row(confidence) is None else math.ceil(min(asymptotic, MOST_BLOCKS)),
    }


def expected_tpr(fpr: float, multiple: float) -> float:
    """The TPR to expect of a model that could reach `BEST_TPR`, before there are scores.

    Scores are taken for Gaussian with equal variances, people as alike as in most of our data; see
    ``docs/planning.md``.

    Parameters
    ----------
    multiple : of the fewest units that the rate takes; at least 1.
    """
    return float(ndtr(ndtri(BEST_TPR) + ndtri(fpr * used_share(multiple)) - ndtri(fpr)))


def used_share(multiple: float) -> float:
    """FPR at the threshold over the rate asked for, typically; ``multiple`` as `expected_tpr` has it."""
    multiples, used = (np.log(column) for column in zip(*_USED.items(), strict=True))
    return math.exp(np.interp(math.log(multiple), multiples, used))


def _surely_different(n: int, share: float) -> int:
    """Different pairs among n matched ones in all but 1 % of draws."""
    return max(0, int(n * share - _SURE * math.sqrt(n * share * (1 - share))))


def _matched_for(different: int, share: float) -> int:
    """The least number of matched pairs among which there are so many different ones in all but 1 % of draws."""
    root = (_SURE * math.sqrt(1 - share) + math.sqrt(_SURE**2 * (1 - share) + 4 * different)) / 2
    return min(math.ceil(root * root / share * (1 - 1e-12)), MOST_BLOCKS)


def askable(rate: float) -> float:
    """A rate in two digits, rounded up, so that what is said can be asked for."""
    unit = 10.0 ** (math.floor(math.log10(rate)) - 1)
    return min(float(f"{math.ceil(round(rate / unit, 6)) * unit:.2g}"), 0.99)


def in_percent(rate: float) -> str:
    """`askable` in percent."""
    return f"{100 * askable(rate):.2g} %"


def candidate_share(number: int) -> float:
    """Share of the failure probability that the ``number``-th of any number of candidates is given, from 1.

    1 / (n (n + 1)), which sums to 1 over all n, so that guarantees of all candidates hold at once however many there
    will be: a candidate's own guarantee never changes when another one comes.
    """
    if number < 1:
        raise ValueError(f"number is {number}; expected at least 1")
    return 1 / (number * (number + 1))


def checked_rate(value: float, name: str) -> float:
    """A number strictly between 0 and 1, or a ``ValueError`` that says so."""
    try:
        rate = float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is {value!r}; expected a number strictly between 0 and 1") from error
    if not 0 < rate < 1:
        raise ValueError(f"{name} is {rate:g}; expected a number strictly between 0 and 1")
    return rate
