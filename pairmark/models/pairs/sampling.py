"""Draws pairs: those of a held-out part to score, those to learn from, and pairs of subjects of several samples; and
maps a pair to symmetric features.

Held-out pairs are chosen by neither scores nor, in closed-set use, labels. Training pairs are drawn by number: every
pair of a kind (same or different identity) has a rank in an order that is never written out, ranks are drawn, and each
is decoded by a search in one cumulated array of the rows. So nothing of size n x n exists, and a data set where one
identity holds almost every row costs no more than a balanced one.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from pairmark.models.core.arrays import ArrayLike, Bool, Float32, Int32, Int64, NDArray
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


PairMap = Literal["diff-sum", "max-min"]

# Ranks that are decoded at a time.
_DECODED_AT_A_TIME = 4_096
_UNEVEN = 4.0
"""From so many times its even share of the same pairs on, an identity is held to it where pairs are drawn evenly."""
MAX_PAIRS = 200_000_000
"""Most training pairs held at once (8 bytes of rows each); more than that is refused, with the number."""


class TrainingPairs(NamedTuple):
    """Pairs of rows to learn from, those of one identity first.

    Attributes
    ----------
    left, right : (n,) row numbers; ``left != right``. No pair occurs twice.
    same : (n,) bool, whether the two rows share an identity.
    """

    left: Int64
    right: Int64
    same: Bool


class PairPopulation:
    """All pairs of rows with given identities, to be drawn from any number of times.

    Parameters
    ----------
    y_codes : (n,) integers, one identity a row.
    """

    def __init__(self, y_codes: ArrayLike) -> None:
        codes = np.asarray(y_codes)
        if codes.ndim != 1:
            raise ValueError(f"y_codes has shape {codes.shape}; expected one identity a row, shape (n,)")
        n = codes.shape[0]
        if n > np.iinfo(np.int32).max:
            raise ValueError(f"{n} rows; expected fewer than 2^31")
        self._rows = np.argsort(codes, kind="stable").astype(np.int32)
        sorted_codes = codes[self._rows]
        sizes = np.unique(sorted_codes, return_counts=True)[1] if n else np.zeros(0, dtype=np.int64)
        self._of_identity = sizes * (sizes - 1) // 2
        """Same pairs of each identity, in the order of their ranks."""
        places = np.arange(n, dtype=np.int64)
        # One past the last row of each row's identity, in the order sorted by identity.
        ends = np.searchsorted(sorted_codes, sorted_codes, side="right").astype(np.int64)
        # Of each place, one past the ranks of the pairs whose earlier row is there; and what, added to such a rank, is
        # the place of the later row.
        n_same, n_different = ends - places - 1, n - ends
        self._ends_same, self._ends_different = np.cumsum(n_same), np.cumsum(n_different)
        self._shift_same = places + 1 - (self._ends_same - n_same)
        self._shift_different = ends - (self._ends_different - n_different)
        self.n_same = int(self._ends_same[-1]) if n else 0
        self.n_different = int(self._ends_different[-1]) if n else 0

    def table(
        self, n_pairs: int | None, *, random_state: int | np.random.Generator | None, evenly: bool = True
    ) -> tuple[Int32, int]:
        """Left and right rows of pairs, (2, n), and how many of them, the first, are same.

        Half of them are same, as far as there are pairs of either kind. ``evenly`` : where an identity has over
        `_UNEVEN` times the mean number of same pairs, these are drawn evenly over identities: one with most rows would
        be all that is learned of.
        """
        total, n_same = self._sizes(n_pairs)
        pairs_each = self._of_identity[self._of_identity > 0]
        evenly = evenly and n_same < self.n_same and pairs_each.max() > _UNEVEN * pairs_each.mean()
        rng = np.random.default_rng(random_state)
        out = np.empty((2, total), dtype=np.int32)
        for pairs_of_kind, population, ends, shift in (
            (out[:, :n_same], self.n_same, self._ends_same, self._shift_same),
            (out[:, n_same:], self.n_different, self._ends_different, self._shift_different),
        ):
            if not pairs_of_kind.size:
                continue
            ranks = (
                _even_ranks(pairs_of_kind.shape[1], self._of_identity, rng)
                if evenly and ends is self._ends_same
                else _distinct_ranks(pairs_of_kind.shape[1], population, rng)
            )
            for start in range(0, ranks.size, _DECODED_AT_A_TIME):
                block = slice(start, start + _DECODED_AT_A_TIME)
                place = np.searchsorted(ends, ranks[block], side="right")
                pairs_of_kind[0, block] = self._rows[place]
                pairs_of_kind[1, block] = self._rows[shift[place] + ranks[block]]
            # One kind after the other: ranks take as much memory as the pairs themselves.
            del ranks
        return out, n_same

    def _sizes(self, n_pairs: int | None) -> tuple[int, int]:
        """How many pairs are drawn, and how many of them are same."""
        total = self.n_same + self.n_different
        if n_pairs is not None and n_pairs < 2:
            raise ValueError(f"n_pairs is {n_pairs}; expected at least 2, or None for all pairs")
        size = total if n_pairs is None else min(n_pairs, total)
        if size > MAX_PAIRS:
            raise ValueError(f"{size} pairs asked for; expected at most {MAX_PAIRS}: set n_pairs")
        return size, min(self.n_same, size - min(self.n_different, size // 2))


def sample_pairs(
    y_codes: ArrayLike, n_pairs: int | None, *, random_state: int | np.random.Generator | None
) -> TrainingPairs:
    """Draw training pairs from identities.

    Parameters
    ----------
    y_codes : (n,) integers, one identity a row.
    n_pairs : pairs to draw, as many same as different ones (as far as there are); ``None`` or more than exist: all
        ``n (n - 1) / 2``. Either way the empirical rates of Clemencon & Vogel, eq. (2), are incomplete U-statistics
        that estimate the population's.
    random_state : seed; the same seed draws the same pairs.

    Raises
    ------
    ValueError
        On fewer than 2 pairs, or more than `MAX_PAIRS`.
    """
    rows, n_same = PairPopulation(y_codes).table(n_pairs, random_state=random_state, evenly=False)
    left, right = rows.astype(np.int64)
    return TrainingPairs(left, right, np.arange(left.size) < n_same)


def pair_features(left: Float32, right: Float32, pair_map: PairMap = "diff-sum") -> Float32:
    """Symmetric features of pairs, (n, 2 d) float32: equal to the last bit when left and right are swapped.

    ``diff-sum`` is the map of Clemencon & Vogel (Lemma 1), ``f(x, x') = (|x - x'|, x + x') / sqrt(2)``, without the
    constant factor, which no split depends on; so thresholds read in the data's own units. A similarity is symmetric
    if and only if it is a function of f. ``max-min`` is ``(max(x, x'), min(x, x'))`` (their section 6.3).
    """
    if pair_map == "diff-sum":
        return np.hstack([np.abs(left - right), left + right])
    if pair_map == "max-min":
        return np.hstack([np.maximum(left, right), np.minimum(left, right)])
    raise ValueError(f"pair_map is {pair_map!r}; expected 'diff-sum' or 'max-min'")


def _even_ranks(take: int, sizes: Int64, rng: np.random.Generator) -> Int64:
    """``take`` distinct numbers below the sum of ``sizes``: of each run about equally many, all of short ones.

    A run is cut into as many parts as numbers come from it, and one is drawn in each part.
    """
    quota = np.minimum(sizes, even_level(sizes, take))
    # What an even level leaves over goes to some drawn at random.
    quota[rng.permutation(np.flatnonzero(quota < sizes))[: take - int(quota.sum())]] += 1
    run, number = repeat_with_rank(quota)
    low, high = number * sizes[run] // quota[run], (number + 1) * sizes[run] // quota[run]
    return np.asarray((np.cumsum(sizes) - sizes)[run] + rng.integers(low, high))


def _distinct_ranks(take: int, population: int, rng: np.random.Generator) -> Int32 | Int64:
    """``take`` distinct numbers below ``population``, uniformly, in order where they are few of many."""
    if 2 * take > population:
        # Fewer than 2^31, since `MAX_PAIRS` bounds what is taken.
        everything = np.arange(population, dtype=np.int32)
        if take < population:
            rng.shuffle(everything)
        return everything[:take]
    ranks = np.empty(0, dtype=np.int64)
    while ranks.size < take:
        # As many draws as leave `take` distinct ones with some to spare.
        n = int(1.02 * population * -math.log1p(-(take - ranks.size) / population)) + 16
        ranks = np.concatenate([ranks, rng.integers(0, population, n)])
        ranks.sort()
        ranks = ranks[np.append(True, ranks[1:] != ranks[:-1])]
    # Which numbers came is as likely to be one set as another: leaving any of them out at random keeps it so.
    keep = np.ones(ranks.size, dtype=np.bool_)
    keep[rng.choice(ranks.size, ranks.size - take, replace=False, shuffle=False)] = False
    return ranks[keep]


LEAST_DRAWS, MOST_DRAWS = 2, 32
"""Draws of samples of one person."""


@dataclass(frozen=True, kw_only=True)
class SubjectPairs:
    """Pairs of subjects, chosen without looking at scores.

    Attributes
    ----------
    index : (n_samples,) rows of the data, subject after subject. counts : (n,) samples of each subject.
    left, right : (n_pairs,) subjects of each pair. same : (n_pairs,) whether they are of one person.
    units : (n_pairs, 2) the sampling unit on each side.
    n_people : people that the pairs are of. n_mated : those of them with a same pair.
    """

    index: Int64 = field(repr=False)
    counts: Int64 = field(repr=False)
    left: Int64 = field(repr=False)
    right: Int64 = field(repr=False)
    same: Bool = field(repr=False)
    units: Int64 = field(repr=False)
    n_people: int
    n_mated: int

    def __len__(self) -> int:
        return int(self.left.size)


class TooFewSamples(ValueError):
    """Too few people have so many samples.

    Attributes
    ----------
    n_samples : samples that a person needs. n_people : people who have them. largest : samples that two people have.
    """

    def __init__(self, detail: str, *, n_samples: int, n_people: int, largest: int) -> None:
        super().__init__(detail)
        self.n_samples, self.n_people, self.largest = n_samples, n_people, largest


def subject_pairs(
    y: ArrayLike,
    k: int,
    p: int,
    *,
    n_pairs: int = 200_000,
    units: ArrayLike | None = None,
    random_state: int = 0,
) -> SubjectPairs:
    """Draw pairs of subjects of k and p samples.

    Parameters
    ----------
    y : (n,) whose each row is.
    k, p : samples of the two sides of a pair, at least 1.
    n_pairs : about as many are drawn at most.
    units : (n,) what was drawn independently, where that is more than a person; people of one unit are never paired.

    Raises
    ------
    TooFewSamples
        When fewer than two people have max(k, p) samples.
    """
    code, first = codes_by_appearance(np.asarray(y))
    counts = np.bincount(code)
    unit_of = np.arange(first.size)
    if units is not None:
        unit_of[code] = codes_by_appearance(np.asarray(units))[0]
    n_needed = max(k, p)
    eligible = np.flatnonzero(counts >= n_needed)
    if np.unique(unit_of[eligible]).size < 2:
        largest_counts = [int(counts[unit_of == unit].max()) for unit in np.unique(unit_of)]
        largest = sorted(largest_counts)[-2] if len(largest_counts) > 1 else 0
        raise TooFewSamples(
            f"{eligible.size} of {first.size} people have {n_needed} samples; expected at least two such people",
            n_samples=n_needed,
            n_people=int(eligible.size),
            largest=largest,
        )
    random = np.random.default_rng(random_state)
    m = eligible.size
    ways = 1 if k == p else 2
    draws = int(np.clip(np.sqrt(2.0 * n_pairs / (ways * m * (m - 1))), LEAST_DRAWS, MOST_DRAWS))
    enrolled, probes, mated = _draw_pairs(code, eligible, counts, k, p, draws, random)
    # Subjects: all enrolled ones, person after person and draw after draw, then all probes.
    n = m * draws
    different = held_out_pairs(
        np.repeat(unit_of[eligible], draws),
        protocol="open-set",
        n_pairs=max(2, n_pairs // ways),
        random_state=int(random.integers(2**31)),
    )
    rows = np.flatnonzero(~different.same)
    a, b = different.left[rows], different.right[rows]
    same = np.flatnonzero(np.repeat(mated, draws))
    limit = max(m, n_pairs // SAME_SHARE)
    if same.size > limit:
        # As many draws of everybody: the first ones.
        same = same[same % draws < max(1, limit // m)]
    unit_of_draw = np.repeat(unit_of[eligible], draws)
    # Of sides of as many samples one is as good as the other; else either side of a pair is enrolled once.
    left, right = ([a], [b]) if ways == 1 else ([a, b], [n + b, n + a])
    draws_of = np.concatenate([*left, same]), np.concatenate([*right, n + same])
    return SubjectPairs(
        index=np.concatenate([enrolled.ravel(), probes.ravel()]),
        counts=np.repeat([k, p], n),
        left=draws_of[0],
        right=draws_of[1],
        same=np.arange(draws_of[0].size) >= ways * a.size,
        units=unit_of_draw[np.stack(draws_of, axis=1) % n],
        n_people=int(m),
        n_mated=int(mated.sum()),
    )


def _draw_pairs(
    code: Int64, eligible: Int64, counts: Int64, k: int, p: int, draws: int, random: np.random.Generator
) -> tuple[Int64, Int64, Bool]:
    """Rows of enrolled samples, (n_people * draws, k), of probes, and who has k + p samples."""
    by_person = np.split(np.argsort(code, kind="stable"), np.cumsum(counts)[:-1])
    picks = [
        by_person[person][random.permutation(counts[person])]
        for person in np.repeat(eligible, draws).tolist()
    ]
    enrolled, probes = np.stack([rows[:k] for rows in picks]), np.stack([rows[-p:] for rows in picks])
    return enrolled, probes, counts[eligible] >= k + p
