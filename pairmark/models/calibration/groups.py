"""Groups of people within each of which the rate holds, too: which pairs are of which group, and what is said of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pairmark.models.calibration.finite_sample import order_pairs_needed
from pairmark.models.core.arrays import ArrayLike, Int64, NDArray
from pairmark.models.core.inputs import label_of
from pairmark.models.core.state import add_prefix, without_prefix
from pairmark.models.pairs.samples import two_columns, unit_codes

if TYPE_CHECKING:
    from pairmark.models.calibration.calibration import Calibration

MOST_GROUPS = 100
OF_GROUP = re.compile(r"group\d+_")
"""How the arrays of a group's calibration are called in a stored state."""
_LISTINGS = {"all": "all", "drawn": "drawn", "random": "random-people", "random-rows": "random-rows"}
"""The origin of pairs within a group, by that of all."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group of the calibration units.

    Attributes
    ----------
    name : its value.
    n_units : how many units are in it.
    calibration : of the pairs within it; None where these say nothing.
    """

    name: str
    n_units: int
    calibration: Calibration | None = field(repr=False)


def group_names(values: Any) -> NDArray[np.str_]:
    """Values as the names of groups, of the same shape; what is missing has the empty name."""
    array = np.asarray(values, dtype=object)
    names = {
        value: "" if value is None or value != value else label_of(f"{value}") for value in set(array.ravel())
    }
    return np.array([names[value] for value in array.ravel()], dtype=np.str_).reshape(array.shape)


def fit_groups(
    whole: Calibration, scores: ArrayLike, same: ArrayLike, units: Any, groups: ArrayLike
) -> tuple[Group, ...]:
    """The groups of a calibration, each with the calibration of the pairs within it; see `Calibration.fit`."""
    values, is_same, fitted = np.asarray(scores), np.asarray(same), []
    for name, n_units, rows in rows_by_group(groups, units, values.size):
        part = None
        with suppress(ValueError):
            part = whole.fit(
                values[rows],
                is_same[rows],
                two_columns(units)[rows],
                protocol=whole.protocol,
                listing=_LISTINGS.get(whole.origin),
                units_assumed=whole.origin == "assumed",
            ).without_bootstrap()
        fitted.append(Group(name=name, n_units=n_units, calibration=part))
    return tuple(fitted)


def groups_state(groups: Sequence[Group]) -> tuple[dict[str, NDArray[Any]], list[dict[str, Any]]]:
    """Plain arrays and JSON-able facts; `read_groups` reads them."""
    arrays: dict[str, NDArray[Any]] = {}
    facts = []
    for number, group in enumerate(groups):
        of_part, part_facts = ({}, None) if group.calibration is None else group.calibration.to_state()
        arrays |= add_prefix(of_part, f"group{number}_")
        facts.append({"name": group.name, "n_units": group.n_units, "facts": part_facts})
    return arrays, facts


def read_groups(
    kind: type[Calibration], arrays: Mapping[str, NDArray[Any]], facts: Sequence[Mapping[str, Any]]
) -> tuple[Group, ...]:
    """The groups that `groups_state` wrote; ``kind`` : what their calibrations are."""
    groups = []
    for number, group in enumerate(facts):
        of_part = without_prefix(arrays, f"group{number}_")
        part = None if group["facts"] is None else kind.from_state(of_part, group["facts"])
        groups.append(Group(name=str(group["name"]), n_units=int(group["n_units"]), calibration=part))
    return tuple(groups)


def rows_by_group(groups: ArrayLike, units: ArrayLike | None, n: int) -> list[tuple[str, int, Int64]]:
    """Of each group its name, how many units it has, and the numbers of the pairs within it.

    Parameters
    ----------
    groups, units : (n, 2) or two columns: the group, and the unit, of each side of a pair.

    Raises
    ------
    ValueError
        Without units, for other shapes, a unit of two groups, or more than `MOST_GROUPS`.
    """
    if units is None:
        raise ValueError("groups are of units; expected units, the person on each side of a pair")
    is_pair = isinstance(groups, tuple) and len(groups) == 2
    columns = np.asarray(groups, dtype=object).T if is_pair else np.asarray(groups, dtype=object)
    if columns.shape != (n, 2):
        raise ValueError(
            f"groups have shape {columns.shape}; expected ({n}, 2), the group of the person on each side of a pair"
        )
    codes = unit_codes(units, n).ravel()
    values, value = np.unique(group_names(columns).ravel(), return_inverse=True)
    group_of = np.zeros(int(codes.max()) + 1, dtype=np.int64)
    group_of[codes] = value
    differing = np.flatnonzero(group_of[codes] != value)
    if differing.size:
        side = differing[0]
        one, other = values[[value[side], group_of[codes[side]]]].tolist()
        raise ValueError(
            f"groups: pair {side // 2} puts a unit into group {one!r}, another pair into {other!r}; "
            "expected one group for each unit"
        )
    if values.size > MOST_GROUPS:
        raise ValueError(f"groups have {values.size} values; expected at most {MOST_GROUPS}")
    sides = group_of[codes].reshape(n, 2)
    return [
        (str(name), int((group_of == code).sum()), np.flatnonzero((sides == code).all(axis=1)))
        for code, name in enumerate(values)
        if name
    ]


def guaranteed_groups(whole: Calibration, fpr: float, confidence: float) -> tuple[float, tuple[str, ...]]:
    """The confidence of each single guarantee, and the groups within which the rate is guaranteed, by sizes alone.

    G of them, the largest, and the whole share the failure probability evenly; G is the largest number that all of
    them can be answered with.
    """
    able = [(group.name, group.calibration) for group in whole.groups if group.calibration is not None]
    able.sort(key=lambda entry: -entry[1].facts.n_matched)
    for n in range(len(able), 0, -1):
        level = 1 - (1 - confidence) / (n + 1)
        # Sizes alone refuse most, at once.
        if all(part.answers(fpr, level) for part in (*(part for _, part in able[:n]), whole)):
            return level, tuple(name for name, _ in able[:n])
    return confidence, ()


def group_facts(
    groups: Sequence[Group],
    threshold: np.float32,
    fpr: float,
    confidence: float,
    *,
    guaranteed: Sequence[str] | None,
    like_share: float,
) -> list[dict[str, Any]]:
    """What is known of each group at a threshold, JSON-able; see `OperatingPoint`.

    Parameters
    ----------
    guaranteed : groups within which the rate is guaranteed; None: this answer is of all pairs alone, however many
        people a group has.
    like_share : of positive pairs, how many have no unlike row.
    """
    within = guaranteed or ()
    needed = 2 * order_pairs_needed(fpr, 1 - (1 - confidence) / (len(within) + 2))
    facts = []
    for group in groups:
        part = group.calibration
        tpr = None if part is None else part.share_of_positives(threshold)
        entry: dict[str, Any] = {
            "group": group.name,
            "n_units": group.n_units,
            "fpr": None if part is None else part.observed_rate(threshold),
            "tpr": None if tpr is None else like_share * tpr,
            "guarantee": "finite-sample" if group.name in within else "none",
        }
        if group.name in within:
            entry["fpr_upper_bound"] = fpr
        elif guaranteed is not None:
            entry["needs"] = max(1, needed - group.n_units)
        facts.append(entry)
    return facts
