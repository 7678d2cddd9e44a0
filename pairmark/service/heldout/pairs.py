"""Which pairs of a dataset are scored to measure a learner, with their sampling units."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from pairmark.models.core.arrays import Int64
from pairmark.models.pairs.listed import ListedUnits, listed_units
from pairmark.models.pairs.splits import HeldOutPairs, held_out_pairs, joined_groups, resolve_protocol
from pairmark.schemas.jobs import ListOrigin
from pairmark.service.datasets.data import LabelledData
from pairmark.service.errors import InvalidInput


def split_codes(data: LabelledData, protocol: str) -> tuple[Int64, str]:
    """What a split keeps together, one code per row, and the resolved protocol.

    Open-set: identities, those that share a group taken together. Closed-set: groups where there are some, else
    the classes (whose rows may be separated).
    """
    assert data.y is not None
    y = np.asarray(data.y)
    resolved = resolve_protocol(protocol, len(data.identities))
    if data.groups is None:
        return y, resolved
    if resolved == "closed-set":
        return np.asarray(data.groups), resolved
    n_identities, n_groups = len(data.identities), len(data.group_names)
    _, group = joined_groups(n_identities + n_groups, y, n_identities + np.asarray(data.groups))
    return group[y].astype(np.int64), resolved


def pairs_among(
    data: LabelledData, rows: Int64, *, protocol: str, n_pairs: int, random_state: int
) -> HeldOutPairs:
    """Pairs among some rows of a dataset with identities.

    Rows of one group are dependent. In closed-set use one row of each group is therefore drawn to stand for it; in
    open-set use identities that share a group are one unit.

    Raises
    ------
    ValueError
        When there are too few identities among the rows.
    """
    assert data.y is not None
    if data.groups is not None and protocol == "closed-set":
        rows = _one_of_each(np.asarray(data.groups)[rows], rows, random_state)
    y = np.asarray(data.y)[rows]
    if data.groups is None or protocol == "closed-set":
        pairs = held_out_pairs(y, protocol=protocol, n_pairs=n_pairs, random_state=random_state)
        same, usable = pairs.same, np.ones(len(pairs), dtype=np.bool_)
    else:
        entities = split_codes(data, protocol)[0][rows]
        pairs = held_out_pairs(entities, protocol=protocol, n_pairs=n_pairs, random_state=random_state)
        same = y[pairs.left] == y[pairs.right]
        # Two people of one group are neither the same nor independently different.
        usable = same | ~pairs.same
    return replace(
        pairs,
        left=rows[pairs.left][usable],
        right=rows[pairs.right][usable],
        same=same[usable],
        units=pairs.units[usable],
    )


def listed_pairs(
    data: LabelledData,
    numbers: Int64,
    units: ListedUnits,
    *,
    n_pairs: int,
    random_state: int,
    listing: ListOrigin | None = None,
) -> HeldOutPairs:
    """Some pairs of a dataset's own list; beyond ``n_pairs`` a random sample of them.

    Parameters
    ----------
    numbers : which pairs of the list; of a list with a sample, pairs of that sample.
    units : units of the whole list.
    listing : how the list came about; None: unknown, unless it is all pairs.
    """
    assert data.pairs is not None
    population = data.pairs.population
    origin: Literal["random"] | None = "random" if listing == "random" else None
    if numbers.size > n_pairs:
        if population is None and (
            listing == "all" or (listing is None and _all_listed(data, numbers, units))
        ):
            origin = "random"
        numbers = np.sort(np.random.default_rng(random_state).choice(numbers, size=n_pairs, replace=False))
    return HeldOutPairs(
        left=np.asarray(data.pairs.left)[numbers],
        right=np.asarray(data.pairs.right)[numbers],
        same=np.asarray(data.pairs.same)[numbers],
        units=units.units[numbers],
        protocol=units.protocol,
        units_assumed=units.assumed,
        listing=origin,
        blocks="components" if listing == "blocks" and population is None else None,
        population=population,
    )


def _all_listed(data: LabelledData, numbers: Int64, list_units: ListedUnits) -> bool:
    """Whether every two units are listed, in open-set use as a pair that differs."""
    assert data.pairs is not None
    units = list_units.units[numbers]
    if list_units.protocol == "open-set":
        units = units[~np.asarray(data.pairs.same)[numbers]]
    edges, m = np.unique(np.sort(units, axis=1), axis=0), np.unique(units).size
    return bool(edges.shape[0] == m * (m - 1) // 2)


def whole_dataset(
    data: LabelledData,
    *,
    protocol: str,
    n_pairs: int,
    random_state: int,
    listing: ListOrigin | None = None,
) -> HeldOutPairs:
    """Pairs of a dataset that is held out as a whole; ``listing`` as `listed_pairs` takes it.

    Raises
    ------
    InvalidInput
        When the dataset has neither identities nor a list of pairs, or too few of them.
    """
    try:
        if data.pairs is not None:
            units = units_of_list(data, protocol)
            # What was chosen by looking calibrates nothing.
            drawn = data.pairs.drawn_from if data.pairs.population else None
            everything = np.flatnonzero(units.usable if drawn is None else np.asarray(drawn) > 0)
            pairs = listed_pairs(
                data, everything, units, n_pairs=n_pairs, random_state=random_state, listing=listing
            )
        elif data.y is not None:
            resolved = resolve_protocol(protocol, len(data.identities))
            everything = np.arange(len(data), dtype=np.int64)
            pairs = pairs_among(
                data, everything, protocol=resolved, n_pairs=n_pairs, random_state=random_state
            )
        else:
            raise InvalidInput(
                f"dataset {data.name}:{data.version} has neither a label column nor a list of pairs: upload it with "
                "one",
                field="dataset",
            )
    except ValueError as error:
        raise InvalidInput(f"dataset {data.name}:{data.version}: {error}", field="dataset") from error
    if pairs.same.all():
        raise InvalidInput(f"dataset {data.name}:{data.version} gives no pair that differs", field="dataset")
    return pairs


def units_of_list(data: LabelledData, protocol: str) -> ListedUnits:
    """Sampling units of a dataset's list of pairs: by its label or group column, or units in the list itself.

    Raises
    ------
    ValueError
        When labels, units and pairs contradict each other.
    """
    assert data.pairs is not None
    return listed_units(
        np.asarray(data.pairs.left),
        np.asarray(data.pairs.right),
        np.asarray(data.pairs.same),
        protocol=protocol,
        labels=None if data.y is None else np.asarray(data.y),
        groups=None if data.groups is None else np.asarray(data.groups),
        units=data.pairs.units,
    )


def _one_of_each(groups: Int64, rows: Int64, random_state: int) -> Int64:
    order = np.random.default_rng(random_state).permutation(rows.size)
    first = np.unique(groups[order], return_index=True)[1]
    return np.sort(rows[order[first]])
