"""Entities: records that links join, surest first, as long as more speaks for one entity than against it."""

from collections.abc import Callable

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pairmark.models.core.arrays import Bool, Float64, Int32, Int64

MAX_RECORDS = 500
"""Different records of one entity; where more are joined, the weakest links are cut."""
_CLIP = 20.0
"""Log odds beyond which a pair says no more."""
_APART = -1e9
"""Log odds of a pair that a person parted."""

LogOdds = Callable[[Int64, Int64], Float64]
Pairs = tuple[Int64, Int64]


def entities(
    a: Int64,
    b: Int64,
    scores: Float64,
    log_odds: LogOdds,
    *,
    most: int = MAX_RECORDS,
    together: Pairs,
    apart: Pairs,
    exclusive: Callable[[Int64], Int64] | None = None,
    contradicts: Callable[[Int64, Int64], Bool] | None = None,
) -> Pairs:
    """Join records along links, the surest links first.

    Two groups are joined where the log odds of all pairs between them, clipped at 20, sum to more than nothing, and
    where they have at most ``most`` records.

    Parameters
    ----------
    a, b : rows of each link. scores : ties are taken in the order of the rows. log_odds : of pairs of rows.
    together, apart : pairs of rows that a person joined or parted: before anything else.
    exclusive : of rows, the number of a table of which an entity has one record at most; -1 where it may have more.
    contradicts : whether pairs of rows are never of one entity, whatever joins them.

    Returns
    -------
    All these rows, and the first row of the entity of each.
    """
    sides = a, b, *together, *apart
    is_row = np.zeros(1 + max(int(side.max(initial=-1)) for side in sides), dtype=np.bool_)
    for side in sides:
        is_row[side] = True
    rows, place = np.flatnonzero(is_row), np.cumsum(is_row, dtype=np.int32) - np.int32(1)
    n, n_said, parted = rows.size, together[0].size, [place[side] for side in apart]
    # What people joined first.
    ends = np.stack(
        [np.append(place[said], place[side]) for said, side in zip(together, (a, b), strict=True)]
    )
    del is_row, place
    joined_by = coo_array((np.ones(ends.shape[1], dtype=np.bool_), ends), shape=(n, n))
    label = connected_components(joined_by, directed=False)[1]
    del joined_by

    def surest(links: Int64) -> Int64:
        """Links in the order that they are taken in."""
        score = np.append(np.full(n_said, np.inf), scores)[links]
        return links[np.lexsort((ends[1, links], ends[0, links], -score))]

    label = _bound_components(label, ends, surest)
    sizes = np.bincount(label, minlength=1)
    table = np.broadcast_to(np.int64(-1), n) if exclusive is None else exclusive(rows)
    members = np.argsort(label, kind="stable").astype(np.int32)
    one_of, other_of = _pairs_inside(members, label, sizes)
    odds = np.clip(log_odds(rows[one_of], rows[other_of]), -_CLIP, _CLIP) if one_of.size else np.empty(0)
    if contradicts is not None and one_of.size:
        odds[contradicts(rows[one_of], rows[other_of])] = -np.inf
    # Most are joined by links that nothing speaks against: the rest are joined one by one.
    is_plain = sizes <= min(most, MAX_RECORDS)
    is_plain[label[one_of[odds <= 0]]] = False
    is_plain[label[np.concatenate([ends[0, :n_said], *parted])]] = False
    if exclusive is not None:
        inside = np.unique(np.stack([label, table])[:, table >= 0], axis=1, return_counts=True)
        is_plain[inside[0][0][inside[1] > 1]] = False
    starts = np.cumsum(sizes) - sizes
    # Members ascend: the first one is the first row.
    root = members[starts[label]]
    links = surest(np.flatnonzero(~is_plain[label[ends[0]]] & (label[ends[0]] == label[ends[1]])))
    links = links[np.argsort(label[ends[0, links]], kind="stable")]
    bounds = np.searchsorted(label[ends[0, links]], np.arange(sizes.size + 1))
    n_inside = sizes * (sizes - 1) // 2
    stops = np.cumsum(n_inside)
    for group in np.flatnonzero(~is_plain).tolist():
        records = members[starts[group] : starts[group] + sizes[group]]
        steps = links[bounds[group] : bounds[group + 1]]
        between = np.zeros((records.size, records.size))
        between[np.triu_indices(records.size, 1)] = odds[stops[group] - n_inside[group] : stops[group]]
        between += between.T
        is_apart = (label[parted[0]] == group) & (label[parted[1]] == group)
        for x, y in np.stack([np.searchsorted(records, side[is_apart]) for side in parted], axis=1):
            between[x, y] = between[y, x] = min(_APART, between[x, y])
        pairs = np.searchsorted(records, ends[:, steps].T)
        root[records] = records[_merge_groups(between, pairs, steps < n_said, table[records], most)]
    return rows, np.asarray(rows[root])


def _merge_groups(between: Float64, pairs: Int64, is_said: Bool, table: Int64, most: int) -> Int64:
    """The first member of the group of each member, where pairs are merged in order."""
    n = between.shape[0]
    root = np.arange(n)
    groups = {at: [at] for at in range(n)}
    total = between.copy()
    for (x, y), said in zip(pairs.tolist(), is_said.tolist(), strict=True):
        one, other = sorted((int(root[x]), int(root[y])))
        if one == other:
            continue
        joined = groups[one] + groups[other]
        tables = table[joined]
        tables = tables[tables >= 0]
        speaks_against = total[one, other] <= 0 or len(joined) > most or np.unique(tables).size < tables.size
        if total[one, other] == -np.inf or (speaks_against and not said):
            continue
        root[groups.pop(other)] = one
        groups[one] = joined
        total[one] += total[other]
        total[:, one] = total[one]
    return root


def _pairs_inside(members: Int32, label: Int32, sizes: Int64) -> tuple[Int32, Int32]:
    """Places of all pairs of the members of each component, one component after the other."""
    n_after = np.cumsum(sizes)[label[members]] - np.arange(members.size) - 1
    member = np.repeat(np.arange(members.size, dtype=np.int32), n_after)
    # The pairs of a member are with the next one, the one after that, and so on.
    nth = np.arange(member.size) - np.repeat(np.cumsum(n_after) - n_after, n_after)
    return members[member], members[member + nth + 1]


def _bound_components(label: Int32, ends: Int32, surest: Callable[[Int64], Int64]) -> Int32:
    """Labels of components of `MAX_RECORDS` at most: larger ones lose their weakest links."""
    is_large = (np.bincount(label, minlength=1) > MAX_RECORDS)[label]
    if not is_large.any():
        return label
    root = np.where(is_large, np.arange(label.size), -1)
    groups = {at: [at] for at in np.flatnonzero(is_large).tolist()}
    for x, y in ends[:, surest(np.flatnonzero(is_large[ends[0]]))].T.tolist():
        one, other = sorted((int(root[x]), int(root[y])))
        if one != other and len(groups[one]) + len(groups[other]) <= MAX_RECORDS:
            root[groups[other]] = one
            groups[one] += groups.pop(other)
    return np.unique(np.where(is_large, label.size + root, label), return_inverse=True)[1].astype(np.int32)
