"""Entities: records that links join, unless two of them contradict each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pairmark.models.core.arrays import Bool, Float64, Int64

MAX_RECORDS = 500
"""Different records of one entity; where more are joined, the weakest links are cut."""

Contradicts = Callable[[Int64, Int64], Bool]
Pairs = tuple[Int64, Int64]


def entities(
    a: Int64,
    b: Int64,
    scores: Float64,
    contradict: Contradicts,
    *,
    most: int = MAX_RECORDS,
    together: Pairs,
    apart: Pairs,
) -> Pairs:
    """Join records along links, the surest links first.

    A link is cut where it would join two records that contradict each other, or more than ``most``.

    Parameters
    ----------
    a, b : rows of each link. scores : ties are taken in the order of the rows.
    contradict : of pairs of rows, whether they cannot be of one entity, whatever joins them.
    together, apart : pairs of rows that a person joined or parted: before anything else.

    Returns
    -------
    All these rows, and the first row of the entity of each.
    """
    rows, places = np.unique(np.concatenate([a, b, *together, *apart]), return_inverse=True)
    sizes = [side.size for side in (a, b, *together, *apart)]
    left, right, one, other, *parted = np.split(places, np.cumsum(sizes)[:-1])
    n = rows.size
    joined_by = coo_array(
        (np.ones(left.size + one.size), (np.append(left, one), np.append(right, other))), shape=(n, n)
    )
    label = connected_components(joined_by, directed=False)[1]
    not_with = _contradictions(rows, label, contradict)
    for x, y in zip(*(side.tolist() for side in parted), strict=True):
        not_with.setdefault(x, set()).add(y)
        not_with.setdefault(y, set()).add(x)
    # Most are joined by links that nothing speaks against: the rest are joined one by one.
    n_joined = np.bincount(label)
    is_plain = n_joined <= most
    is_plain[label[list(not_with)]] = False
    first = np.full(n_joined.size, n)
    np.minimum.at(first, label, np.arange(n))
    root = np.where(is_plain[label], first[label], np.arange(n))
    members: dict[int, list[int]] = {at: [at] for at in np.flatnonzero(~is_plain[label]).tolist()}
    surest = np.lexsort((b, a, -scores))
    ends = np.stack([np.append(one, left[surest]), np.append(other, right[surest])], axis=1)
    n_together = int((~is_plain[label[one]]).sum())
    for at, (x, y) in enumerate(ends[~is_plain[label[ends[:, 0]]]].tolist()):
        first_root, second = sorted((int(root[x]), int(root[y])))
        if first_root == second:
            continue
        joined = members[first_root] + members[second]
        is_link = at >= n_together
        if is_link and (
            len(joined) > most
            or any(not not_with[x].isdisjoint(members[second]) for x in members[first_root] if x in not_with)
        ):
            continue
        root[members.pop(second)] = first_root
        members[first_root] = joined
    return rows, np.asarray(rows[root])


def _contradictions(rows: Int64, label: NDArray[np.int32], contradict: Contradicts) -> dict[int, set[int]]:
    """Of records that links join, directly or not, those that contradict each other."""
    order = np.argsort(label, kind="stable")
    sizes = np.bincount(label)
    starts = np.cumsum(sizes) - sizes
    firsts, seconds = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for size in np.unique(sizes[(sizes > 2) & (sizes <= MAX_RECORDS)]):
        own = order[starts[sizes == size][:, None] + np.arange(size)]
        first, second = np.triu_indices(size, 1)
        firsts.append(own[:, first].ravel())
        seconds.append(own[:, second].ravel())
    first, second = np.concatenate(firsts), np.concatenate(seconds)
    apart: dict[int, set[int]] = {}
    if first.size:
        is_apart = contradict(rows[first], rows[second])
        for x, y in zip(first[is_apart].tolist(), second[is_apart].tolist(), strict=True):
            apart.setdefault(x, set()).add(y)
            apart.setdefault(y, set()).add(x)
    return apart
