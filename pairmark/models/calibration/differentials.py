"""How far error rates differ between groups of people, in the terms of NIST's demographic reports.

NIST IR 8429 (2022) compares the groups' false match rates by the largest over their geometric mean, and so the false
non-match rates. 1 says that all groups are alike.

The interval of a ratio is exact arithmetic on the joint intervals of the rates: where each group's rate lies in its
interval [l_g, u_g], the ratio lies between its least and its greatest value on that box. So it holds whenever the
joint intervals do, and no resampling is needed. In logarithms the ratio is max_g x_g - mean(x). It is least where the
largest lower end m = max_g l_g is reached by nobody else than needs to (x_g = min(u_g, m)), and greatest where one
group is at its upper end and all others at their lower ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pairmark.models.calibration.groups import GroupRates, Rate
from pairmark.models.core.arrays import Float64


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
