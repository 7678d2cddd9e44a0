"""Chooses which pairs of a held-out part to score: by neither scores nor, in closed-set use, labels."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from pairmark.models.core.arrays import ArrayLike, Bool, Int32, Int64, NDArray
from pairmark.models.core.inputs import codes_by_appearance
from pairmark.models.pairs.splits import Protocol, RandomState, resolve_protocol

SAME_SHARE = 4
"""At most one open-set pair in this many is a same-identity pair: negatives carry the guarantee."""


def open_set_pairs(
    codes: Int64, counts: Int64, n_pairs: int, rng: np.random.Generator
) -> tuple[Int64, Int64, Int64]:
    """Left and right rows of same and of different pairs, and their identities.

    Parameters
    ----------
    codes, counts : (n,) identity of each row, and rows of each identity.
    """
    # Rows grouped by identity, in random order within: cell (identity, k) is rows[start[identity] + k].
    order = rng.permutation(codes.size)
    rows = order[np.argsort(codes[order], kind="stable")]
    start = np.cumsum(counts) - counts

    owner, k = repeat_with_rank(_even_quota(counts * (counts - 1) // 2, max(1, n_pairs // SAME_SHARE)))
    # The k-th of the n(n-1)/2 unordered pairs of n things, in an order that uses all things evenly.
    n = counts[owner]
    same_left, same_right = rows[start[owner] + k % n], rows[start[owner] + (k % n + 1 + k // n) % n]

    budget = max(1, n_pairs - owner.size)
    first, second, complete = unit_pairs(counts.size, budget, rng)
    cells = counts[first] * counts[second]
    edge, k = repeat_with_rank(_even_quota(cells, budget) if complete else np.minimum(cells, 1))
    i, j = first[edge], second[edge]
    # Walk the n_i x n_j table along diagonals from a random corner: distinct cells, all samples used evenly.
    turn_i, turn_j = (rng.integers(0, 2**31, first.size)[edge] for _ in range(2))
    left = rows[start[i] + (turn_i + k) % counts[i]]
    right = rows[start[j] + (turn_j + k + k // np.lcm(counts[i], counts[j])) % counts[j]]
    units = np.concatenate([np.stack([owner, owner], axis=1), np.stack([i, j], axis=1)])
    return np.concatenate([same_left, left]), np.concatenate([same_right, right]), units


def unit_pairs(m: int, budget: int, rng: np.random.Generator) -> tuple[Int64, Int64, bool]:
    """All pairs of m units when they fit, else all pairs inside of random cells, about ``budget`` pairs."""
    if m * (m - 1) // 2 <= budget:
        first, second = np.triu_indices(m, 1)
        return first.astype(np.int64), second.astype(np.int64), True
    sizes, unit = _cell_sizes(m, budget), rng.permutation(m).astype(np.int64)
    within = {size: np.stack(np.triu_indices(size, 1)) for size in np.unique(sizes).tolist()}
    starts = (np.cumsum(sizes) - sizes).tolist()
    pairs = [start + within[size] for start, size in zip(starts, sizes.tolist(), strict=True)]
    first, second = np.concatenate(pairs, axis=1)
    return unit[first], unit[second], False


def _cell_sizes(m: int, budget: int) -> Int64:
    """Sizes of cells whose pairs fit the budget, as equal as even numbers can be (the last is odd where m is)."""
    couples = m // 2
    # h couples in cells of c couples give h (2c - 1) pairs; a unit over adds as many as its cell has units.
    widest = max(1, (budget // couples + 1) // 2)
    while True:
        n_cells = -(-couples // widest)
        sizes = 2 * (couples // n_cells + (np.arange(n_cells) < couples % n_cells)).astype(np.int64)
        sizes[-1] += m % 2
        if widest == 1 or int((sizes * (sizes - 1) // 2).sum()) <= budget:
            return sizes
        widest -= 1


def even_level(available: Int64, total: int) -> int:
    """The largest number which, taken from each or all that it has, sums to at most a total below that of all."""
    ascending = np.sort(available)
    # What is taken in all if the level is what each one has, from the least up.
    reach = np.cumsum(ascending) + ascending * np.arange(available.size - 1, -1, -1)
    first = int(np.searchsorted(reach, total))
    return (total - int(ascending[:first].sum())) // (available.size - first)


def _even_quota(available: Int64, budget: int) -> Int64:
    """The same number for everybody, bounded by what each has, summing to at most the budget (at least 1 each)."""
    if int(available.sum()) <= budget:
        return available.astype(np.int64)
    return np.minimum(available, max(1, even_level(available, budget))).astype(np.int64)


def repeat_with_rank(quota: Int64) -> tuple[Int64, Int64]:
    """Each index repeated quota[index] times, and 0, 1, 2, ... within each."""
    index = np.repeat(np.arange(quota.size, dtype=np.int64), quota)
    return index, np.arange(index.size, dtype=np.int64) - np.repeat(np.cumsum(quota) - quota, quota)


def rank_within(groups: Int32 | Int64, order: Int64) -> Int64:
    """(n,) 0, 1, 2, ... of the members of each group 0, 1, ..., along an order of all."""
    rank, sizes = np.empty(groups.size, dtype=np.int64), np.bincount(groups)
    rank[order[np.argsort(groups[order], kind="stable")]] = repeat_with_rank(sizes)[1]
    return rank


@dataclass(frozen=True, kw_only=True)
class HeldOutPairs:
    """Pairs to score, chosen without looking at scores.

    Attributes
    ----------
    left, right : (n,) rows of the data.
    same : (n,) whether both have the same identity.
    units : (n, 2) the sampling unit on each side: an identity (open-set) or a row (closed-set).
    protocol : resolved.
    units_assumed : whether units were guessed, since nothing says who the points belong to.
    listing : which pairs of the units these are, as `pairmark.operating_point` takes it.
    population : how many pairs these were drawn from at random; None: they are no sample of one list.
    folds : (n,) the fold whose model scores each pair, having learned from the others; None: one model scores all.
    clusters : (n, 2) the block of each side, where lists were cut along their graph.
    groups : (n, 2) the name of the group of each side's person, within which rates are to hold, too; None: no groups.
    n_strangers : units that are unlabeled rows, each taken for another person.
    """

    left: Int64 = field(repr=False)
    right: Int64 = field(repr=False)
    same: Bool = field(repr=False)
    units: Int64 = field(repr=False)
    protocol: Protocol
    units_assumed: bool = False
    listing: Literal["all", "drawn", "random-people", "random-rows"] | None = "drawn"
    population: int | None = None
    folds: Int64 | None = field(repr=False, default=None)
    clusters: Int64 | None = field(repr=False, default=None)
    groups: NDArray[np.str_] | None = field(repr=False, default=None)
    n_strangers: int = 0

    def __len__(self) -> int:
        return int(self.left.size)

    @property
    def origin(self) -> dict[str, Any]:
        """How the pairs came about, as `pairmark.models.calibration.calibration.Calibration.fit` takes it."""
        return {name: getattr(self, name) for name in ("protocol", "units_assumed", "listing", "population")}


def held_out_pairs(
    y_codes: ArrayLike, *, protocol: str, n_pairs: int = 200_000, random_state: RandomState = None
) -> HeldOutPairs:
    """Choose which pairs of a held-out part to score, without looking at any score.

    *Closed-set*: all pairs of the m samples when they fit into ``n_pairs``; otherwise samples fall into cells at
    random and all pairs inside of a cell are scored. Labels play no part.

    *Open-set*: at most a quarter of the budget goes to same-identity pairs, evenly over identities. The rest
    goes to pairs of identities: all of them when they fit (then several sample pairs in each, evenly over
    samples), otherwise all pairs inside of random cells of identities, one sample pair in each.

    Cells of even sizes have perfect matchings, so floor(m/2) pairs are independent of each other whatever ``n_pairs``
    is: nothing is lost to the guarantee (`pairmark.models.calibration.finite_sample`).

    Parameters
    ----------
    y_codes : (n,) identities of the held-out rows.
    n_pairs : budget. At least one pair a unit is returned, even when that exceeds a very small budget.

    Raises
    ------
    ValueError
        When there are fewer than two identities, or ``n_pairs`` is not positive.
    """
    y = np.asarray(y_codes)
    if y.ndim != 1:
        raise ValueError(f"y has shape {y.shape}; expected (n,), one identity a row")
    if n_pairs < 1:
        raise ValueError(f"n_pairs is {n_pairs}; expected at least 1")
    codes, first = codes_by_appearance(y)
    if first.size < 2:
        raise ValueError(
            f"{first.size} identities are held out; expected at least two, to have negative pairs"
        )
    rng = np.random.default_rng(random_state)
    resolved_protocol = resolve_protocol(protocol, first.size)
    if resolved_protocol == "closed-set":
        left, right, _ = unit_pairs(codes.size, n_pairs, rng)
        units = np.stack([left, right], axis=1)
    else:
        left, right, units = open_set_pairs(codes, np.bincount(codes), n_pairs, rng)
    return HeldOutPairs(
        left=left, right=right, same=codes[left] == codes[right], units=units, protocol=resolved_protocol
    )
