"""Sampling units of an explicit list of pairs: who the points belong to."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.pairs.splits import Protocol, joined_groups, resolve_protocol


@dataclass(frozen=True, kw_only=True)
class ListedUnits:
    """Units of listed pairs.

    Attributes
    ----------
    units : (n_pairs, 2) the sampling unit on each side, 0..n_units-1.
    usable : (n_pairs,) false for pairs that say nothing: marked different inside of one group.
    protocol : resolved.
    assumed : whether units were guessed from same pairs alone, since nothing says who the points belong to. People
        whose points no same pair joins then count as several, and promises about people do not hold.
    name : of the units, for messages.
    """

    units: Int64 = field(repr=False)
    usable: Bool = field(repr=False)
    protocol: Protocol
    assumed: bool
    name: str


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
                f"unit or a chain of same pairs, the first is ({int(a[first])}, {int(b[first])}): correct the labels, "
                "or use protocol 'closed-set'"
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
