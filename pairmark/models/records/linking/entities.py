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
CONTRADICTION = -float(np.log(1e5))
"""Log odds of a match below which two records cannot be of one entity, whatever joins them."""

Odds = Callable[[Int64, Int64], Float64]


def entities(a: Int64, b: Int64, scores: Float64, odds: Odds) -> tuple[Bool, Int64]:
    """Join records along links, the surest links first.

    A link is cut where it would join two records whose own comparison contradicts it, or more than `MAX_RECORDS`.

    Parameters
    ----------
    a, b : rows of each link. scores : ties are taken in the order of the rows. odds : log odds of pairs of rows.

    Returns
    -------
    Which links are kept, and the first row of each link's entity.
    """
    rows, ends = np.unique(np.concatenate([a, b]), return_inverse=True)
    left, right = ends[: a.size], ends[a.size :]
    n = rows.size
    _, label = connected_components(coo_array((np.ones(a.size), (left, right)), shape=(n, n)), directed=False)
    apart = _contradictions(rows, label, odds)
    members: dict[int, list[int]] = {at: [at] for at in range(n)}
    root = np.arange(n)
    kept = np.ones(a.size, dtype=np.bool_)
    for link in np.lexsort((b, a, -scores)):
        one, other = int(root[left[link]]), int(root[right[link]])
        if one == other:
            continue
        one, other = min(one, other), max(one, other)
        joined = members[one] + members[other]
        if len(joined) > MAX_RECORDS or any(
            not apart[x].isdisjoint(members[other]) for x in members[one] if x in apart
        ):
            kept[link] = False
            continue
        root[members.pop(other)] = one
        members[one] = joined
    return kept, np.asarray(rows[root[left]])


def _contradictions(rows: Int64, label: NDArray[np.int32], odds: Odds) -> dict[int, set[int]]:
    """Of records that links join, directly or not, those that contradict each other."""
    order = np.argsort(label, kind="stable")
    sizes = np.bincount(label)
    starts = np.cumsum(sizes) - sizes
    firsts, seconds = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for at in np.flatnonzero((sizes > 2) & (sizes <= MAX_RECORDS)):
        own = order[starts[at] : starts[at] + sizes[at]]
        first, second = np.triu_indices(own.size, 1)
        firsts.append(own[first])
        seconds.append(own[second])
    first, second = np.concatenate(firsts), np.concatenate(seconds)
    apart: dict[int, set[int]] = {}
    if first.size:
        is_apart = odds(rows[first], rows[second]) < CONTRADICTION
        for x, y in zip(first[is_apart].tolist(), second[is_apart].tolist(), strict=True):
            apart.setdefault(x, set()).add(y)
            apart.setdefault(y, set()).add(x)
    return apart
