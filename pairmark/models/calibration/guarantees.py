"""Which rates a number of units supports, before there are scores; and thresholds beside the finite-sample one of a
single rate: bounds of the false positive rate that hold at every threshold at once, the threshold of misses, and the
one that scores suggest, which guarantees nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri

from pairmark.models.calibration.bootstrap import ENOUGH_PAIRS, ENOUGH_UNITS, confidence_row
from pairmark.models.calibration.finite_sample import (
    MOST_BLOCKS,
    STEPS_PER_DECADE,
    FiniteSample,
    order_pairs_needed,
    order_rank,
    order_upper,
)
from pairmark.models.calibration.operating_point import (
    InsufficientCalibrationData,
    OperatingPoint,
    nothing_guaranteed,
)
from pairmark.models.core.arrays import Float32, Float64

if TYPE_CHECKING:
    from pairmark.models.calibration.calibration import Calibration


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

    Exact for units that `pairmark.models.pairs.sampling` pairs (whatever its number of pairs) in open-set use. In
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
    # m units make m (m - 1) / 2 pairs, solved for the m that makes so many.
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
    # `_surely_different` solved for n: a quadratic equation in the root of n share.
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


@dataclass(frozen=True, kw_only=True)
class FprBand:
    """A step function: a score above ``thresholds[k]`` has a false positive rate of at most ``fpr[k]``.

    Attributes
    ----------
    thresholds : (k,) float32, descending.
    fpr : (k,) float64, ascending; the first is the floor, above the last threshold's rate nothing is claimed.
    confidence : that all steps hold together.
    """

    thresholds: Float32 = field(repr=False)
    fpr: Float64 = field(repr=False)
    confidence: float

    def bound(self, threshold: np.float32) -> float:
        """Of the rate of scores strictly above the threshold; 1 below the lowest step."""
        step = int(np.count_nonzero(self.thresholds > threshold))
        return float(self.fpr[step]) if step < self.fpr.size else 1.0


def finite_sample_band(finite: FiniteSample, thresholds: Float32, confidence: float) -> FprBand | None:
    """The band by halved failure probabilities; None when no rate below 1 is answered.

    Parameters
    ----------
    thresholds : (n,) float32, descending; what `FiniteSample` numbers.
    """
    n = finite.n_matched
    if n < 1:
        return None
    # Where the first step lies is decided by n alone: labels and scores have no say.
    floor = -math.expm1(math.log((1 - confidence) / 2) / n)
    top = math.floor(-math.log10(floor) * STEPS_PER_DECADE) if floor < 1 else 0
    # The logarithms above may round the first step to one that so few pairs do not answer.
    while top > 0 and order_pairs_needed(10 ** (-top / STEPS_PER_DECADE), 1 - (1 - confidence) / 2) > n:
        top -= 1
    steps: list[tuple[np.float32, float]] = []
    # The k-th rate from the smallest may fail with (1 - confidence) / 2^(k + 1).
    for k, level in enumerate(range(top, 0, -1)):
        rate = 10 ** (-level / STEPS_PER_DECADE)
        choice = finite.choose(rate, 1 - (1 - confidence) / 2 ** (k + 1))
        # A larger rate says something only where it reaches lower than all smaller ones.
        if choice is not None and (not steps or thresholds[choice[0]] < steps[-1][0]):
            steps.append((thresholds[choice[0]], rate))
    if not steps:
        return None
    scores, rates = zip(*steps, strict=True)
    return FprBand(thresholds=np.array(scores, dtype=np.float32), fpr=np.array(rates), confidence=confidence)


def lower_threshold(
    same: Float32,
    fnr: float,
    level: float,
    confidence: float,
    *,
    simultaneous: bool,
    smallest_fpr: Callable[[float], dict[str, float | None]],
) -> tuple[float, float]:
    """The largest score that keeps the false negative rate of scores at or below it, and the rate's upper bound.

    Parameters
    ----------
    same : (n,) scores of independent positive pairs, lowest first.
    level : the confidence of this rate; ``confidence`` is that both rates hold.
    smallest_fpr : what `Calibration.smallest_fpr` gives, for the refusal.
    simultaneous : whether it is to hold for all rates at once: those of a band, ten to the decade, the k-th of
        which from the smallest fails with probability (1 - level) / 2^(k + 1), as in `finite_sample_band`.

    Raises
    ------
    InsufficientCalibrationData
        When there are too few independent same pairs.
    """
    rate, sure, k = fnr, level, 0
    if simultaneous:
        sure = 1 - (1 - level) / 2
        step = math.ceil(-math.log10(fnr) * STEPS_PER_DECADE - 1e-9)
        # The step's place in the band, counted from the smallest rate that so many pairs answer: below it there is
        # none.
        k = math.floor(-math.log10(order_upper(0, same.size, sure)) * STEPS_PER_DECADE) - step
        rate, sure = 10 ** (-step / STEPS_PER_DECADE), 1 - (1 - level) / 2 ** (max(k, 0) + 1)
    rank = None if k < 0 else order_rank(same.size, rate, sure)
    if rank is None:
        n_people = order_pairs_needed(rate, sure)
        raise InsufficientCalibrationData(
            f"{same.size} independent positive pairs cannot support a false negative rate of {fnr:g} at confidence "
            f"{sure:g}, which each rate needs so that both hold at {confidence:g}: the smallest supported rate is "
            f"{askable(order_upper(0, same.size, sure)):g}; {fnr:g} takes {n_people:,} people with two samples. "
            "Ask for a higher rate, or calibrate with more people",
            smallest_fpr=smallest_fpr(level),
            required_units={"finite-sample": n_people},
        )
    rank = min(rank, same.size - 1)
    # A rate of scores strictly below the rank's score is what the order statistic bounds.
    return float(np.nextafter(same[rank], np.float32(-np.inf))), order_upper(rank, same.size, sure)


def simultaneous_point(
    calibration: Calibration, fpr: float, confidence: float, candidate: int | None
) -> OperatingPoint:
    """The point that `FprBand` gives; see `Calibration.operating_point`."""
    # What all steps of the band may fail with together is the candidate's share of what all candidates may.
    share = 1.0 if candidate is None else candidate_share(candidate)
    band = calibration.fpr_band(1 - share * (1 - confidence))
    # The largest step that is no more than what is asked: its threshold keeps the larger rate too.
    step = -1 if band is None else int(np.searchsorted(band.fpr, fpr, side="right")) - 1
    if band is None or step < 0:
        floor = None if band is None else float(band.fpr[0])
        versions = "" if candidate is None else f" and for {candidate} versions calibrated on the same data"
        raise InsufficientCalibrationData(
            f"no rate of {fpr:g} at confidence {confidence:g} holds together with all others{versions}: "
            f"finite-sample reaches {'none' if floor is None else f'{askable(floor):g}'}. Ask for a higher rate, "
            "or without simultaneous",
            smallest_fpr={"finite-sample": floor},
            required_units={},
        )
    threshold, bound = np.float32(band.thresholds[step]), float(band.fpr[step])
    point = calibration.point_at(threshold, bound, fpr, confidence, "finite-sample")
    return replace(point, simultaneous=True, candidate=candidate)


def two_sided_point(
    calibration: Calibration,
    fpr: float,
    fnr: float,
    confidence: float,
    simultaneous: bool,
    candidate: int | None,
) -> OperatingPoint:
    """Two guarantees that hold together, by Bonferroni's inequality."""
    level = 1 - (1 - confidence) / 2
    upper = calibration.operating_point(
        fpr, level, "finite-sample", simultaneous=simultaneous, candidate=candidate
    )
    # The other guarantee is to hold for as many candidates.
    level = 1 - (1 - level) * (candidate_share(candidate) if simultaneous and candidate else 1.0)
    same = calibration.independent_positives
    if not same.size:
        raise ValueError("fnr takes positive pairs, which this calibration does not keep: calibrate again")
    score, bound = lower_threshold(
        same, fnr, level, confidence, simultaneous=simultaneous, smallest_fpr=calibration.smallest_fpr
    )
    # Never above the other one: between the two a person decides, and nothing may be both.
    lower = min(score, upper.threshold)
    lower_score = np.float32(lower)
    return replace(
        upper,
        confidence=confidence,
        fnr=fnr,
        fnr_threshold=lower,
        fnr_upper_bound=min(fnr, bound),
        review_same=None
        if upper.tpr is None
        else max((calibration.share_of_positives(lower_score) or 0.0) - upper.tpr, 0.0),
        review_different=max(calibration.observed_rate(lower_score) - upper.observed_fpr, 0.0),
    )


# Factor of the rate within which points make the line; points of the tail where that has too few of them or the rate
# was not seen; and how many are enough.
WINDOW = 3.0
TAIL_PAIRS = 30
_ENOUGH = 8


FEWEST_NEGATIVES = 300
"""Independent negative pairs below which the tail is hardly known: its slope is shrunk, the rate has an interval."""


def suggested_threshold(
    thresholds: Float32, rates: Float64, fpr: float, n_independent: int = FEWEST_NEGATIVES
) -> np.float32:
    """The float32 threshold whose smoothed rate is ``fpr``.

    The logarithm of the rate is taken for linear in the score near the rate. Where it goes on beyond what was seen and
    negative pairs are few, the slope is shrunk by one standard error, as of an exponential tail: the threshold is
    stricter.

    Parameters
    ----------
    thresholds : (k,) descending distinct scores of different pairs.
    rates : (k,) ascending share of different pairs strictly above each.
    n_independent : how many independent negative pairs the rates are worth.
    """
    # The rate just below a score counts the pairs at it: midway keeps the estimate unbiased on a grid.
    middle = 0.5 * (rates + np.append(rates[1:], 1.0))
    near = np.flatnonzero((middle > fpr / WINDOW) & (middle < fpr * WINDOW))
    if near.size < _ENOUGH or middle[0] > fpr:
        near = np.arange(min(TAIL_PAIRS, thresholds.size))
    x, y = thresholds[near].astype(np.float64), np.log(middle[near])
    is_line = near.size > 1 and np.ptp(x) > 0 and np.ptp(y) > 0
    slope, level = np.polyfit(x - x.mean(), y, 1) if is_line else (0.0, 0.0)
    # No line that falls: the rates themselves are interpolated.
    if slope >= 0:
        return np.float32(np.interp(fpr, middle, thresholds))
    if n_independent < FEWEST_NEGATIVES and np.log(fpr) < level:
        slope *= 1 - 1 / np.sqrt(max(4.0, n_independent * float(middle[near[-1]])))
    return np.float32(x.mean() + (np.log(fpr) - level) / slope)


def rate_interval(rate: float, n: int, confidence: float) -> tuple[float, float]:
    """Clopper and Pearson's (1934) interval of a rate that n independent pairs showed."""
    if n == 0:
        return 0.0, 1.0
    k, level = min(n, round(rate * n)), 1 - (1 - confidence) / 2
    return 0.0 if k == 0 else 1 - order_upper(n - k, n, level), order_upper(k, n, level)


MORE_PEOPLE = (0, 100, 200, 400)
"""How many people more `tpr_by_people` tells of."""


def tpr_by_people(calibration: Calibration, fpr: float, confidence: float = 0.95) -> list[dict[str, float]]:
    """What more people would bring on these scores: TPR at a rate by the number of people who calibrate, JSON-able.

    The first entry is for those there are or, where they are too few, for the minimum. The threshold to expect is
    estimated from these scores, by the share of the rate that so many people typically let it use. Empty where people
    would change nothing: pairs that are counted, that guarantee nothing, or none that are positive.
    """
    facts = calibration.facts
    if facts.counted or nothing_guaranteed(facts.origin) or not facts.n_same_pairs:
        return []
    needed = units_needed(fpr, confidence, different_share=facts.different_share)["finite-sample"] or 1
    first, tpr, entries = max(facts.n_units, needed), 0.0, []
    if calibration.answers(fpr, confidence):
        tpr = calibration.operating_point(fpr, confidence).tpr or 0.0
    for people in (first + more for more in MORE_PEOPLE):
        if people > first or not tpr:
            threshold = calibration.suggested(fpr * used_share(people / needed))
            tpr = max(tpr, calibration.share_of_positives(threshold) or 0.0)
        entries.append({"people": people, "tpr": tpr})
    return entries
