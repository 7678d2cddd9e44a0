"""Lists of pairs: whom their points belong to, folds that share nobody, and rows with identities made of them."""

from dataclasses import dataclass, field

import numpy as np

from pairmark.models.core.arrays import ArrayLike, Bool, Float32, Float64, Int64
from pairmark.models.pairs.kernels import grown_blocks
from pairmark.models.pairs.splits import Protocol, n_folds_of, resolve_protocol, stream_of


def joined_groups(n: int, i: Int64, j: Int64) -> tuple[int, Int64]:
    """How many groups ``n`` points fall into when ``i[e]`` and ``j[e]`` belong together, and each point's group."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n_groups, group = connected_components(coo_array((np.ones(len(i)), (i, j)), shape=(n, n)), directed=False)
    return int(n_groups), group.astype(np.int64)


# Ways of sharing blocks out among the folds that are tried, at most.
_FOLD_DRAWS = 20


@dataclass(frozen=True, kw_only=True)
class ListFolds:
    """A list of pairs in folds that share no unit: each is scored by a model that learned from the others.

    Attributes
    ----------
    fold, block : (n_units,) the fold and the block (`list_blocks`) of each unit.
    scored : numbers of the usable pairs inside of folds.
    n_crossing : usable pairs that join two folds, which no model scores.
    n_folds : how many folds there are.
    """

    fold: Int64 = field(repr=False)
    block: Int64 = field(repr=False)
    scored: Int64 = field(repr=False)
    n_crossing: int
    n_folds: int

    def learned(self, units: Int64, number: int) -> Int64:
        """Numbers of the pairs of the list that a fold's model learns from: those without any of its units."""
        return np.flatnonzero((self.fold[units] != number).all(axis=1))


def fold_pairs(units: Int64, same: Bool, usable: Bool) -> ListFolds:
    """Folds of a list, cut along its graph so that few pairs cross. Nothing is random: they depend on the list alone.

    Parameters
    ----------
    units, usable : as `listed_units` gives them. same : (n_pairs,) whether the pair is marked same.

    Raises
    ------
    ValueError
        When no folds leave pairs of both kinds to learn from, and to score.
    """
    n_units = int(units.max()) + 1
    block = list_blocks(units[usable], n_units)
    n_folds = n_folds_of(n_units)
    sizes = tuple((n_units + fold) // n_folds for fold in range(n_folds))
    for draw in range(_FOLD_DRAWS):
        fold = _share_out(block, sizes, np.random.Generator(stream_of(n_units, draw)))
        sides = fold[units]
        is_scored = usable & (sides[:, 0] == sides[:, 1])
        learned = [same[(sides != number).all(axis=1)] for number in range(n_folds)]
        has_both = all(part.any() and not part.all() for part in [same[is_scored], *learned])
        if has_both and np.unique(sides[is_scored]).size > 1:
            return ListFolds(
                fold=fold,
                block=block,
                scored=np.flatnonzero(is_scored),
                n_crossing=int((usable & ~is_scored).sum()),
                n_folds=n_folds,
            )
    raise ValueError(
        f"{same.size} pairs of {n_units} people make no folds with pairs of both kinds on either side: bring more data"
    )


_BLOCKS = 24
"""A list is cut into at least so many blocks: more of them lose more pairs, fewer make a part a matter of chance."""


def list_blocks(edges: Int64, n_units: int) -> Int64:
    """(n_units,) the block of each unit: connected parts of the list, the large ones cut where few pairs are.

    Parameters
    ----------
    edges : (n_pairs, 2) units of each pair.
    """
    capacity = max(1, -(-n_units // _BLOCKS))
    block = joined_groups(n_units, edges[:, 0], edges[:, 1])[1]
    sizes = np.bincount(block)
    is_cut = sizes[block] > capacity
    if not is_cut.any():
        return block
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order

    # Both sides of a pair are of one part: one of them tells whether it is cut.
    ends, n_cut = (np.cumsum(is_cut) - 1)[edges[is_cut[edges[:, 0]]]], int(is_cut.sum())
    both = np.concatenate([ends, ends[:, ::-1]])
    graph = coo_array((np.ones(len(both)), both.T), shape=(n_cut, n_cut)).tocsr()
    firsts = np.unique(block[is_cut], return_index=True)[1]
    order = np.concatenate(
        [breadth_first_order(graph, first, directed=False, return_predecessors=False) for first in firsts]
    )
    grown = grown_blocks(
        graph.indptr.astype(np.int64),
        graph.indices.astype(np.int64),
        order.astype(np.int64),
        -(-n_cut // capacity),
        # A tenth of slack, or the last units would have no choice.
        capacity + -(-capacity // 10),
    )
    block[is_cut] = sizes.size + grown
    return block


def _share_out(group: Int64, sizes: tuple[int, ...], rng: np.random.Generator) -> Int64:
    """(n_units,) the part of each unit, groups kept whole: in random order, each goes where most units are missing."""
    n_units = np.bincount(group)
    missing = np.array(sizes, dtype=np.int64)
    part_of = np.zeros(n_units.size, dtype=np.int64)
    for number in rng.permutation(np.flatnonzero(n_units)):
        part = int(np.argmax(missing))
        part_of[number] = part
        missing[part] -= n_units[number]
    return part_of[group]


@dataclass(frozen=True, kw_only=True)
class ListedUnits:
    """Units of listed pairs.

    Attributes
    ----------
    units : (n_pairs, 2) the sampling unit on each side, 0..n_units-1.
    usable : (n_pairs,) false for pairs that say nothing: marked different inside of one group.
    protocol : resolved.
    assumed : whether units were guessed from same pairs alone, since nothing says who the points belong to. People
        whose points no same pair joins then count as several, and guarantees about people do not hold.
    name : of the units, for messages.
    contradictory : numbers of pairs left out, since the others contradict them (`contradicting_pairs`).
    """

    units: Int64 = field(repr=False)
    usable: Bool = field(repr=False)
    protocol: Protocol
    assumed: bool
    name: str
    contradictory: Int64 = field(repr=False, default_factory=lambda: np.empty(0, dtype=np.int64))

    def origin(self, same: Bool, listing: str | None = None) -> str:
        """How the list came about, as far as that can be told before it is scored; see `nothing_guaranteed`.

        ``listing`` : as a job declares it.
        """
        if self.assumed:
            return "assumed"
        if self.lists_all(same):
            return "all"
        return {"random-people": "random", "random-rows": "random-rows"}.get(listing or "", "unknown")

    def lists_all(self, same: Bool, numbers: Int64 | slice = slice(None)) -> bool:
        """Whether every two units of these pairs are among them, in open-set use as a pair that differs."""
        units = self.units[numbers]
        if self.protocol == "open-set":
            # One person's pair is marked different where it was left out.
            units = units[~same[numbers] & (units[:, 0] != units[:, 1])]
        edges, m = np.unique(np.sort(units, axis=1), axis=0), np.unique(units).size
        return bool(edges.shape[0] == m * (m - 1) // 2)


def contradictory_pairs(
    left: ArrayLike, right: ArrayLike, same: ArrayLike, units: ArrayLike | None = None
) -> Int64:
    """Numbers of pairs marked different although a chain of same pairs, or a unit, joins their rows.

    Parameters
    ----------
    left, right, same, units : as in `listed_units`.
    """
    is_same = np.asarray(same).astype(np.bool_)
    points, ends = np.unique([left, right], return_inverse=True)
    i, j = ends.reshape(2, -1)
    bonds = [] if units is None else [(ends.ravel(), np.asarray(units).T.reshape(-1))]
    person = _merge(points.size, i[is_same], j[is_same], bonds)
    return np.flatnonzero(~is_same & (person[i] == person[j]))


MOST_CONTRADICTORY = 0.01
"""A list of which more than this share contradicts the rest is refused."""


def contradicting_pairs(n: int, i: Int64, j: Int64, same: Bool) -> Int64:
    """Numbers of pairs without which no chain of positive pairs joins two points that are marked different.

    Of each contradiction the cheaper is left out: the negative pair, or the fewest positive pairs that cut the chain
    between its ends (a minimum cut), where these settle more negative pairs than they are.

    Parameters
    ----------
    n : how many points there are, points of one label or unit being one. i, j : (n_pairs,) the points of each pair.
    same : (n_pairs,) whether the pair is marked same.
    """
    group = joined_groups(n, i[same], j[same])[1]
    wrong = ~same & (group[i] == group[j])
    left_out = np.flatnonzero(wrong & (i == j)).tolist()
    wrong &= i != j
    for part in np.unique(group[i[wrong]]):
        of_part = group[i] == part
        left_out += _pairs_to_leave_out(
            i, j, np.flatnonzero(of_part & same & (i != j)), np.flatnonzero(of_part & wrong)
        )
    return np.array(sorted(left_out), dtype=np.int64)


def _pairs_to_leave_out(i: Int64, j: Int64, positive: Int64, negative: Int64) -> list[int]:
    """The pairs to leave out of one connected part of a list, by the numbers of its pairs."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components, maximum_flow

    left_out: list[int] = []
    while True:
        points, ends = np.unique([i[positive], j[positive]], return_inverse=True)
        ends = ends.reshape(2, -1)
        both = np.concatenate([ends, ends[::-1]], axis=1)
        # Several pairs of two points are as many to cut.
        capacity = np.ones(both.shape[1], dtype=np.int32)
        graph = coo_array((capacity, both), shape=(points.size, points.size)).tocsr()
        part = connected_components(graph, directed=False)[1]
        sides = np.stack([i[negative], j[negative]])
        nodes = np.minimum(np.searchsorted(points, sides), points.size - 1)
        is_joined = (points[nodes] == sides).all(axis=0) & (part[nodes[0]] == part[nodes[1]])
        negative, nodes = negative[is_joined], nodes[:, is_joined]
        if not negative.size:
            return left_out
        source, sink = nodes[:, 0].tolist()
        rest = graph - maximum_flow(graph, source, sink).flow
        rest.eliminate_zeros()
        near = np.zeros(points.size, dtype=np.bool_)
        near[breadth_first_order(rest, source, return_predecessors=False)] = True
        is_cut, is_settled = near[ends[0]] != near[ends[1]], near[nodes[0]] != near[nodes[1]]
        if is_settled.sum() > is_cut.sum():
            left_out += positive[is_cut].tolist()
            positive = positive[~is_cut]
        else:
            left_out.append(int(negative[0]))
            negative = negative[1:]


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
        Where more than `MOST_CONTRADICTORY` of the pairs contradict the others (open-set).
    """
    a, b, is_same = np.asarray(left), np.asarray(right), np.asarray(same).astype(np.bool_)
    points, ends = np.unique([a, b], return_inverse=True)
    i, j = ends.reshape(2, -1)
    bonds, in_group = (
        [(np.arange(points.size), np.asarray(codes)[points])] if codes is not None else []
        for codes in (labels, groups)
    )
    if units is not None:
        bonds.append((ends.ravel(), np.asarray(units).T.ravel()))
    person = _merge(points.size, i[is_same], j[is_same], bonds)
    people = _merge(points.size, i[is_same], j[is_same], bonds + in_group)
    resolved_protocol = resolve_protocol(protocol, int(people.max()) + 1)
    contradictory = np.empty(0, dtype=np.int64)
    if resolved_protocol == "open-set":
        if (~is_same & (person[i] == person[j])).any():
            # What is one person by label or unit, no cut separates.
            by_name = _merge(points.size, i[:0], j[:0], bonds)
            contradictory = contradicting_pairs(int(by_name.max()) + 1, by_name[i], by_name[j], is_same)
            if contradictory.size > MOST_CONTRADICTORY * a.size:
                first = int(contradictory[0])
                raise ValueError(
                    f"{contradictory.size} of {a.size} pairs contradict the others: marked different although their "
                    "points are one person's by label, unit or a chain of positive pairs, or links of such a chain; "
                    f"the first is ({int(a[first])}, {int(b[first])}). Expected at most {100 * MOST_CONTRADICTORY:g} "
                    "%: correct the labels, or use protocol 'closed-set'"
                )
            kept = is_same & ~np.isin(np.arange(a.size), contradictory)
            people = _merge(points.size, i[kept], j[kept], bonds + in_group)
        of_point, name, assumed = people, "people", not (bonds or in_group)
    elif in_group:
        of_point, name, assumed = _merge(points.size, i[:0], j[:0], in_group), "groups", False
    else:
        of_point, name, assumed = np.arange(points.size), "points", False
    sides_of = np.stack([of_point[i], of_point[j]], axis=1).astype(np.int64)
    is_within = sides_of[:, 0] == sides_of[:, 1]
    usable = ~is_within | is_same if resolved_protocol == "open-set" else ~is_within
    usable[contradictory] = False
    if resolved_protocol == "closed-set" and in_group:
        # Several pairs of two groups depend on each other: the first of them stands for all.
        firsts = np.unique(np.sort(sides_of, axis=1), axis=0, return_index=True)[1]
        usable &= np.isin(np.arange(a.size), firsts)
    return ListedUnits(
        units=sides_of,
        usable=usable,
        protocol=resolved_protocol,
        assumed=assumed,
        name=name,
        contradictory=contradictory,
    )


def _merge(n: int, i: Int64, j: Int64, bonds: list[tuple[Int64, Int64]]) -> Int64:
    """Group of each point when points i and j, and points of one code, belong together."""
    # A code is a node of its own, which its points are joined to: joined to each other they would be many more edges.
    first, second, nodes = [i], [j], n
    for points, codes in bonds:
        is_named = codes >= 0
        values, inverse = np.unique(codes[is_named], return_inverse=True)
        first.append(points[is_named])
        second.append(nodes + inverse)
        nodes += values.size
    group = joined_groups(nodes, np.concatenate(first), np.concatenate(second))[1][:n]
    return np.unique(group, return_inverse=True)[1].astype(np.int64)


def some_pairs(same: Bool, weight: Float64, limit: int, random: np.random.Generator) -> Int64:
    """At most so many pairs of positive weight: up to half of them same, as far as there are."""
    candidates = np.flatnonzero(weight > 0)
    if candidates.size <= limit:
        return candidates
    same_pairs = random.permutation(candidates[same[candidates]])
    different_pairs = random.permutation(candidates[~same[candidates]])
    n_same = min(same_pairs.size, max(limit // 2, limit - different_pairs.size))
    return np.sort(np.concatenate([same_pairs[:n_same], different_pairs[: limit - n_same]]))


def distinct_rows(points: Float32) -> tuple[Int64, Int64]:
    """Equal rows as one, in the order met.

    Returns
    -------
    first : (m,) a row of each kind. number : (n,) which kind each row is of.
    """
    # Adding 0 rids rows of negative zeros, whose bits are others.
    rows = np.ascontiguousarray(points, dtype=np.float32) + np.float32(0.0)
    kinds: dict[bytes, int] = {}
    number = np.array([kinds.setdefault(row.tobytes(), len(kinds)) for row in rows], dtype=np.int64)
    return np.unique(number, return_index=True)[1], number


def identities_of_pairs(points: Float32, same: Bool) -> Int64:
    """Identities of points, (2 n,): equal points, and points joined by same pairs at one or more removes, are one.

    Parameters
    ----------
    points : (2 n, d), left rows then right rows.
    same : (n,).
    """
    first, number = distinct_rows(points)
    return joined_identities(first.size, number, same)[number]


def joined_identities(n_rows: int, number: Int64, same: Bool) -> Int64:
    """Identities 0, 1, ... of distinct rows, (n_rows,); see `identities_of_pairs`.

    ``number`` : (2 n,) which distinct row each side of each pair is, left sides then right sides.
    """
    n = same.size
    _, component = joined_groups(n_rows, number[:n][same], number[n:][same])
    return np.unique(component, return_inverse=True)[1].astype(np.int64)


def labeled_rows_of_pairs(
    left: Float32, right: Float32, same: Bool, weight: Float64
) -> tuple[Float32, Int64]:
    """Distinct rows of the pairs of positive weight, in the order met, and the identity of each.

    Same pairs join rows, at one or more removes; a `ValueError` where they join all of them.
    """
    has_weight = weight > 0
    points = np.concatenate([left[has_weight], right[has_weight]])
    first, number = distinct_rows(points)
    codes = joined_identities(first.size, number, same[has_weight])
    if codes.max() == 0:
        raise ValueError(
            "positive pairs join all rows, directly or through others, into a single identity: correct the labels, "
            "leave weak pairs out, or use a learner of pairs, such as SimilarityForest"
        )
    return points[first], codes
