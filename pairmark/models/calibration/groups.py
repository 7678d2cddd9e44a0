"""Error rates by group at one threshold, with intervals that respect sampling units.

For ISO/IEC 19795-10: a group's false match rate is over comparisons of two different people of that group, which is
where rates differ most; that over comparisons of its people with everybody is given beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.calibration.finite_sample import small_sample_interval
from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.pairs.samples import independent_blocks


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A share of pairs above the threshold.

    Attributes
    ----------
    value : units weighed equally; None when there is no such pair.
    interval : two-sided, Wilson's on the number of independent observations that the jackknife over units says
        the pairs are worth, widened for few units (asymptotic); (0, 1) when there is no such pair.
    joint_interval : the same at a level at which the intervals of all groups hold together (Bonferroni).
    n_pairs, n_units : rows and distinct units behind it.
    """

    value: float | None
    interval: tuple[float, float]
    joint_interval: tuple[float, float]
    n_pairs: int
    n_units: int


@dataclass(frozen=True, kw_only=True)
class GroupRates:
    """One group at the threshold.

    Attributes
    ----------
    fpr : different pairs with both sides in the group.
    fpr_with_all : different pairs with at least one side in it.
    tpr : same pairs of the group.
    warning : says so where the interval of ``fpr``, widened for the number of groups, lies above the promised rate.
    """

    group: str
    fpr: Rate
    fpr_with_all: Rate
    tpr: Rate
    warning: str | None


def group_rates(
    scores: ArrayLike,
    same: Bool,
    units: Int64,
    groups: ArrayLike,
    threshold: float,
    *,
    promised_fpr: float | None = None,
    confidence: float = 0.95,
) -> list[GroupRates]:
    """FPR and TPR of every group at a threshold.

    Parameters
    ----------
    scores : (n,) finite; taken as float32, and compared strictly.
    same : (n,). units : (n, 2) sampling units as in `pairmark.models.calibration.calibration`.
    groups : (n, 2) group of each side: strings or whole numbers.
    promised_fpr : rate that the threshold promises; None for no warnings.
    confidence : of the intervals, each by itself.

    Returns
    -------
    By group, sorted by name.
    """
    values = np.asarray(scores, dtype=np.float32)
    names, member = np.unique(np.asarray(groups).astype(str), return_inverse=True)
    member = member.reshape(-1, 2)
    above = values > np.float32(threshold)
    joint_confidence = 1 - (1 - confidence) / max(1, names.size)
    rates = []
    for g, name in enumerate(names):
        in_group = member == g
        both_inside, any_inside = in_group.all(axis=1), in_group.any(axis=1)
        fpr = _rate(above, units, both_inside & ~same, confidence, joint_confidence)
        rates.append(
            GroupRates(
                group=str(name),
                fpr=fpr,
                fpr_with_all=_rate(above, units, any_inside & ~same, confidence, joint_confidence),
                tpr=_rate(above, units, both_inside & same, confidence, joint_confidence),
                warning=_warning(str(name), fpr, promised_fpr, confidence),
            )
        )
    return rates


def _warning(group: str, fpr: Rate, promised_fpr: float | None, confidence: float) -> str | None:
    if promised_fpr is None or fpr.value is None or fpr.joint_interval[0] <= promised_fpr:
        return None
    return (
        f"group {group!r}: the false positive rate among its own people is {fpr.value:.3g} (at least "
        f"{fpr.joint_interval[0]:.3g} with confidence {confidence:g} over all groups), above "
        f"the promised {promised_fpr:g}"
    )


def _rate(above: Bool, units: Int64, selection: Bool, confidence: float, joint_confidence: float) -> Rate:
    n = int(selection.sum())
    if not n:
        return Rate(value=None, interval=(0.0, 1.0), joint_interval=(0.0, 1.0), n_pairs=0, n_units=0)
    # Rows of one pair of units are averaged first, so that units weigh equally.
    ends = np.sort(units[selection], axis=1)
    edges, edge, rows = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    hit: Float64 = np.bincount(edge.ravel(), weights=above[selection], minlength=edges.shape[0]) / rows
    value = float(hit.mean())
    n_effective = effective_observations(hit - value, edges, value)
    n_independent = max(1, independent_blocks(edges))
    n_units = int(np.unique(edges).size)
    interval, joint_interval = (
        small_sample_interval(value, n_effective, n_units, level, floor=n_independent)
        for level in (confidence, joint_confidence)
    )
    return Rate(value=value, interval=interval, joint_interval=joint_interval, n_pairs=n, n_units=n_units)


def effective_observations(deviation: Float64, edges: Int64, value: float) -> int:
    """Independent observations that an average over edges of units is worth.

    value (1 - value) / V with V the jackknife's variance, one unit and all its pairs left out at a time (Arvesen 1969;
    rather too large than too small, Efron & Stein 1981), between the number of disjoint blocks and that of edges; the
    former where nothing was seen to vary, or one unit is in every pair.

    Parameters
    ----------
    deviation : (E,) each edge's average less that of all.
    edges : (E, 2) units, equal on both sides for same-identity edges.
    """
    n_edges = int(edges.shape[0])
    floor = max(1, independent_blocks(edges))
    _, codes = np.unique(edges, return_inverse=True)
    codes = codes.reshape(-1, 2)
    m = int(codes.max()) + 1
    # An edge of a unit with itself (a person's own pairs) meets one unit, not two.
    is_loop = codes[:, 0] == codes[:, 1]
    degree = np.bincount(codes[:, 0], minlength=m) + np.bincount(codes[~is_loop, 1], minlength=m)
    # Sums of the deviations at each unit; an edge of one unit with itself counts once.
    at_unit = np.bincount(codes[:, 0], weights=deviation, minlength=m)
    at_unit = at_unit + np.bincount(codes[~is_loop, 1], weights=deviation[~is_loop], minlength=m)
    n_remaining = n_edges - degree
    if m < 3 or n_remaining.min() <= 0:
        return floor
    # Without unit i the mean moves by minus its sum over the edges left.
    variance = float(((at_unit / n_remaining) ** 2).sum()) * (m - 1) / m
    if variance <= 0 or not 0 < value < 1:
        return floor
    return int(min(max(value * (1 - value) / variance, floor), max(n_edges, floor)))


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio of rates, and between what it lies at the joint confidence; None: unbounded, or not known."""

    value: float | None
    low: float
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Differential:
    """One error rate compared between groups.

    Attributes
    ----------
    rate : ``fpr``, false matches within a group, or ``fnr``, missed matches.
    max_over_geomean : the largest rate over the geometric mean of all.
    worst : the group with the largest rate.
    groups : each group's rate over the geometric mean.
    left_out : groups without such pairs.
    """

    rate: str
    max_over_geomean: Ratio
    worst: str | None
    groups: dict[str, Ratio]
    left_out: list[str]


def differentials(group_rates: Sequence[GroupRates]) -> list[Differential]:
    """The false and the missed match rates of `group_rates`, compared between groups.

    Returns
    -------
    One for ``fpr`` and one for ``fnr``; none of a rate that fewer than two groups have.
    """
    rates = {
        "fpr": {group.group: _ends(group.fpr) for group in group_rates if group.fpr.value is not None},
        "fnr": {
            group.group: _ends(group.tpr, missed=True) for group in group_rates if group.tpr.value is not None
        },
    }
    names = [group.group for group in group_rates]
    return [
        _compare(rate, groups, [name for name in names if name not in groups])
        for rate, groups in rates.items()
        if len(groups) > 1
    ]


def _ends(rate: Rate, *, missed: bool = False) -> tuple[float, float, float]:
    assert rate.value is not None
    low, high = rate.joint_interval
    return (1 - rate.value, 1 - high, 1 - low) if missed else (rate.value, low, high)


def _compare(rate: str, groups: dict[str, tuple[float, float, float]], left_out: list[str]) -> Differential:
    with np.errstate(divide="ignore"):
        value, low, high = np.log(np.maximum(np.array(list(groups.values())).T, 0.0))
    mean = value.mean()
    largest = max(_group_ratio(g, high, low) for g in range(value.size))
    reached = float(low.max())
    overall = Ratio(
        value=_power(value.max() - mean) if np.isfinite(mean) else None,
        low=math.exp(reached - np.minimum(high, reached).mean()) if np.isfinite(reached) else 1.0,
        high=_power(largest),
    )
    return Differential(
        rate=rate,
        max_over_geomean=overall,
        worst=list(groups)[int(value.argmax())] if np.isfinite(value.max()) else None,
        groups={
            name: Ratio(
                value=_power(value[g] - mean) if np.isfinite(mean) else None,
                low=_power(_group_ratio(g, low, high)) or 0.0,
                high=_power(_group_ratio(g, high, low)),
            )
            for g, name in enumerate(groups)
        },
        left_out=left_out,
    )


def _group_ratio(g: int, own_ends: Float64, ends: Float64) -> float:
    """log of group g's rate over the geometric mean, g at one end of its interval and all others at the other."""
    remainder = np.delete(ends, g).sum()
    if np.isneginf(own_ends[g]):
        return -math.inf
    return math.inf if np.isneginf(remainder) else float(own_ends[g] - (own_ends[g] + remainder) / ends.size)


def _power(log: float) -> float | None:
    return math.exp(log) if math.isfinite(log) else None
