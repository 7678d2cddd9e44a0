"""The finite-sample bounds: which of them answers follows from what was scored, never from scores or labels.

- independent rows, and units that are each in one pair: the exact binomial tail;
- a random sample of a fixed population of pairs: the exact hypergeometric tail;
- pairs of units: a product over the pairs of a matching, averaged over matchings (`AllPairs`, `ListedPairs`), compared
  with 1 / (1 - confidence).
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import bdtr, bdtri, gammaln, ndtr, ndtri, stdtrit

from pairmark.models.calibration.kernels import list_matchings, log_mean_product
from pairmark.models.core.arrays import Bool, Float32, Float64, Int32, Int64
from pairmark.models.pairs.lists import joined_groups
from pairmark.models.pairs.samples import PairSample
from pairmark.models.pairs.sampling import rank_within
from pairmark.models.pairs.splits import permutation_of, stream_of

_STEPS = 200
_CASES = 1_000
_ROUNDING = 1e-9
MOST_BLOCKS = 10**15
"""What `order_pairs_needed` says at most: beyond it the number has no meaning."""


def binomial_log_tail(k: int, p: float, n: int) -> float:
    """log P(Binomial(n, p) <= k), exactly: the order-statistic rule of Tong, Feng & Li (2018), proposition 1."""
    if k == 0:
        return n * math.log1p(-p) if p < 1 else -math.inf
    tail = float(bdtr(k, n, p))
    return math.log(tail) if tail > 0 else -math.inf


def last_true(test: Callable[[int], bool], n: int) -> int | None:
    """The largest k below n with test(k), for a test true up to a point; None where not even test(0) is."""
    # Downwards, where it turns true: of `AllPairs` each test starts from the scaling of the one before.
    return n - 1 - bisect_left(range(n - 1, 0, -1), True, key=test) if test(0) else None


def smallest_true(test: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest x in [low, high] with test(x), to the last bits, for a test true from a point (high included)."""
    if test(low):
        return low
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if test(middle):
            high = middle
        else:
            low = middle
    return high


def wilson_interval(share: float, n: int, confidence: float) -> tuple[float, float]:
    """Wilson's (1927) two-sided interval for a share observed on n independent observations."""
    if n < 1:
        return 0.0, 1.0
    z = float(ndtri(0.5 + confidence / 2))
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At 0 and 1 the ends are exact; rounding must not move them.
    return 0.0 if share <= 0 else max(0.0, centre - half), 1.0 if share >= 1 else min(1.0, centre + half)


def student_interval(share: float, n: int, units: int, confidence: float) -> tuple[float, float]:
    """Wilson's interval for a share that is worth about ``n`` independent observations, an n that was estimated from
    ``units``: the quantile is Student's with units - 1 degrees of freedom."""
    z = float(stdtrit(max(1, units - 1), 0.5 + confidence / 2))
    return wilson_interval(share, n, min(2 * float(ndtr(z)) - 1, 1 - 1e-12))


def order_rank(n: int, p: float, confidence: float) -> int | None:
    """The largest k with P(Binomial(n, p) <= k) <= 1 - confidence; None when there is none."""
    if n < 1:
        return None
    limit = math.log1p(-confidence)
    # At 0 a hair off: a floor asked back must be answered.
    return last_true(lambda k: binomial_log_tail(k, p, n) <= (limit if k else limit * (1 - 1e-12)), n)


def population_rank(
    n: int, population: int, p: float, confidence: float, most: float = math.inf
) -> int | None:
    """False matches that n different pairs, drawn at random without replacement, may show; None when not even 0.

    A rate above p among D different pairs means at least F = floor(p D) + 1 false matches, so that k or fewer are drawn
    with at most the hypergeometric probability. Which D between n and ``population`` is true is not known. That
    probability falls with F and rises with D, so for each F the largest D with that F is the worst; many F are taken
    together by the least of them and the largest D. ``most`` : larger numbers are not looked for.
    """
    if n < 1:
        return None
    matches, sizes = _worst_populations(n, population, p)
    rest = sizes - matches
    # log of C(matches, k) C(rest, n - k) / C(sizes, n), the probability of k matches among those drawn.
    fixed = (
        gammaln(matches + 1)
        + gammaln(rest + 1)
        - gammaln(sizes + 1)
        + gammaln(sizes - n + 1)
        + gammaln(n + 1)
    )
    tails = np.full(matches.shape, -np.inf)
    for k in range(n + 1):
        ways = gammaln(np.maximum(matches - k, 0) + 1) + gammaln(np.maximum(rest - n + k, 0) + 1)
        parts = fixed - ways - gammaln(k + 1) - gammaln(n - k + 1)
        tails = np.logaddexp(tails, np.where((matches >= k) & (rest >= n - k), parts, -np.inf))
        # A hair off for rounding.
        if float(tails.max(initial=-np.inf)) > math.log1p(-confidence) - _ROUNDING:
            return k - 1 if k else None
        if k >= most:
            return k
    return n - 1


def _worst_populations(n: int, population: int, p: float) -> tuple[Int64, Int64]:
    """Numbers of false matches, and for each the number of different pairs that hides them best."""
    low, high = math.floor(p * n) + 1, math.floor(p * population) + 2
    first = np.arange(low, high + 1)
    if first.size > _CASES:
        first = np.unique(np.geomspace(low, high, _CASES).astype(np.int64))
    last = first[1:] - 1
    sizes = np.minimum(np.ceil(last / p).astype(np.int64), population)
    # The largest D with floor(p D) + 1 <= last; p * (last / p) may be rounded either way.
    for _ in range(2):
        sizes -= np.floor(p * sizes) + 1 > last
    admissible = (sizes >= n) & (first[:-1] <= sizes)
    return first[:-1][admissible], sizes[admissible]


def order_pairs_needed(fpr: float, confidence: float) -> int:
    """Independent pairs from which ``fpr`` is answered at all; at most `MOST_BLOCKS`."""
    log_tail_of_one = math.log1p(-fpr)
    n_pairs = math.log1p(-confidence) / log_tail_of_one if log_tail_of_one < 0 else math.inf
    # A hair off: a floor asked back must not take one block more.
    return max(1, math.ceil(min(n_pairs, MOST_BLOCKS) * (1 - 1e-12)))


def order_upper(k: int, n: int, confidence: float) -> float:
    """Clopper and Pearson's (1934) upper bound of a rate of which n independent draws showed k."""
    if k == 0:
        return -math.expm1(math.log1p(-confidence) / n)
    return float(bdtri(k, n, 1 - confidence)) if k < n else 1.0


Mixture = tuple[tuple[float, float], ...]
"""(share, lambda) of each part; shares sum to 1."""

_PARTS = ("different", "same", "cell", "row_edge", "row_at")
N_SPLITS = 8
MOST_ENTRIES = 20_000_000
"""Expected pairs above the threshold from which fewer splits are averaged, to save time."""
WHOLE = 1 - 1e-12
"""lambda near the floor: 1 but for the logarithm of 0."""
_MIXTURES: tuple[tuple[float, Mixture], ...] = (
    (2.0, ((1.0, WHOLE),)),
    (3.5, ((0.8, 0.999), (0.2, 0.8))),
    (6.0, ((0.3, 0.999), (0.7, 0.8))),
    (math.inf, ((1.0, 0.75),)),
)
"""(Multiple of the floor below which it answers, mixture). The guarantee holds with any table of sizes alone; this one
only sets how much of the rate is used, which ``benchmarks/coverage.py`` measures."""


def mixture(multiple: float) -> Mixture:
    """Which lambda answers, by sizes alone.

    Parameters
    ----------
    multiple : units, in multiples of what the rate takes at least (`multiple_of_floor`).
    """
    return next(parts for end, parts in _MIXTURES if multiple < end)


def multiple_of_floor(n: int, fpr: float, confidence: float) -> float:
    """n disjoint pairs of units in multiples of the log(1 - confidence) / log(1 - fpr) that ``fpr`` takes at least."""
    return n * math.log1p(-fpr) / math.log1p(-confidence)


@dataclass(frozen=True, kw_only=True)
class ScoredGraph:
    """Which pairs of units were scored, and where their rows lie among the thresholds.

    Attributes
    ----------
    different : (E, 2) int32 unit codes of the pairs of units that differ.
    same : (S, 2) int32 those of the same class, in closed-set use; none in open-set use.
    row_edge : (R,) int32 the row of ``different`` that each scored pair belongs to, best score first.
    row_at : (R,) int32 ascending: a row lies above threshold number k exactly when its ``row_at`` is below k.
    cell : (m,) int32 cell of each unit where pairs are all those inside of cells; empty where they are not.
    """

    different: Int32 = field(repr=False)
    same: Int32 = field(repr=False)
    row_edge: Int32 = field(repr=False)
    row_at: Int32 = field(repr=False)
    cell: Int32 = field(repr=False)

    @classmethod
    def of(cls, sample: PairSample, thresholds: Float32, *, cells: bool = False) -> "ScoredGraph":
        """The graph of a sample of units. ``cells``: Pairmark drew the pairs, so complete parts are cells of its own;
        else they may be blocks, whose people are no random draw."""
        side = sample.different
        if len(side) >= 2**31:
            raise ValueError(f"there are {len(side)} different pairs; expected fewer than {2**31}")
        mates = sample.same.edge_units if sample.protocol == "closed-set" else np.empty((0, 2), np.int64)
        units, inverse = np.unique(np.concatenate([side.edge_units, mates]), return_inverse=True)
        codes: Int32 = inverse.reshape(-1, 2).astype(np.int32)
        different, row_edge = codes[: side.edge_units.shape[0]], side.edge
        if len(side) == different.shape[0]:
            # One row each: numbering pairs by score makes row_edge trivial, which compresses well.
            different, row_edge = different[row_edge], np.arange(len(side))
        # Closed-set mates count as pairs of units too: a cell is complete only with them.
        cell = _cells(codes, int(units.size))
        return cls(
            different=different,
            same=codes[side.edge_units.shape[0] :],
            row_edge=row_edge.astype(np.int32),
            row_at=np.searchsorted(-thresholds, -side.scores).astype(np.int32),
            cell=cell if cells or not cell.any() else cell[:0],
        )

    def arrays(self) -> dict[str, Int32]:
        return {f"graph_{name}": getattr(self, name) for name in _PARTS}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Int32]) -> "ScoredGraph":
        return cls(**{name: arrays[f"graph_{name}"] for name in _PARTS})

    @cached_property
    def row_share(self) -> Float64:
        """(R,) one over the rows of the same pair of units."""
        return np.asarray(1.0 / np.bincount(self.row_edge, minlength=self.different.shape[0])[self.row_edge])


def _cells(edges: Int32, m: int) -> Int32:
    """Cell of each unit where the distinct edges are all pairs inside of cells, else nothing."""
    _, cell = joined_groups(m, *edges.T)
    sizes = np.bincount(cell)
    are_whole = int((sizes * (sizes - 1) // 2).sum()) == edges.shape[0]
    return cell.astype(np.int32) if are_whole else np.empty(0, dtype=np.int32)


class _Split:
    """Units of each cell in two halves, and the pairs between the halves.

    A cell of an odd number of units has a phantom column that nothing matches: the average over who stays alone.
    """

    def __init__(self, cell: Int32, turn: int) -> None:
        half: Int64 = (np.bincount(cell) + 1) // 2
        # Each unit's place in a permutation of its cell: the first half are rows, the rest columns.
        rank = rank_within(cell, permutation_of(cell.size, turn))
        self.side: Bool = rank >= half[cell]
        # Rows and columns are numbered through all cells, a cell's side by side.
        place = (np.cumsum(half) - half)[cell] + np.where(self.side, rank - half[cell], rank)
        self.place, self.size = place.astype(np.int32), half
        self.block = np.repeat(np.arange(half.size, dtype=np.int32), half)

    def between(self, edges: Int32) -> tuple[Int64, Int32, Int32]:
        """Numbers of the edges between the halves, their rows and their columns."""
        left = self.side[edges[:, 0]]
        crossing = np.flatnonzero(left != self.side[edges[:, 1]])
        first, second, is_reversed = edges[crossing, 0], edges[crossing, 1], left[crossing]
        return (
            crossing,
            self.place[np.where(is_reversed, second, first)],
            self.place[np.where(is_reversed, first, second)],
        )


class AllPairs:
    """The bound for all pairs inside of cells: a permanent between two halves, averaged over `N_SPLITS` splits.

    Parameters
    ----------
    above : (k,) A by threshold number, as `pairmark.models.calibration.finite_sample.FiniteSample` has it.
    """

    def __init__(self, graph: ScoredGraph, above: Float64) -> None:
        self._graph, self._above = graph, above
        self._splits = [_Split(graph.cell, turn) for turn in range(N_SPLITS)]
        self.n = int((np.bincount(graph.cell) // 2).sum())

    def lookup(self, fpr: float, limit: float, parts: Mixture) -> int | None:
        """Number of the lowest threshold that is admitted; None when not even the highest is."""
        # No average below is admitted far above fpr; where the search ends may depend on anything.
        high = int(np.searchsorted(self._above, 1.1 * fpr, side="right"))
        return last_true(self._test(high, fpr, limit, parts), high)

    def admits(self, number: int, fpr: float, limit: float, parts: Mixture) -> bool:
        """Whether the statistic at threshold ``number`` reaches e^limit."""
        return self._test(number, fpr, limit, parts)(number)

    def _test(self, high: int, fpr: float, limit: float, parts: Mixture) -> Callable[[int], bool]:
        """Whether thresholds up to number ``high`` are admitted; scalings are kept from one threshold to the next."""
        matrices = self.matrices(high, fpr)
        scales = [[np.ones(part.split.block.size) for _ in parts] for part in matrices]
        log_weights = [
            # The denominator (1 - lambda alpha)^n, n pairs in a matching; splits and parts are averaged,
            # hence their shares.
            (math.log(share / len(matrices)) - self.n * math.log1p(-shrink * fpr), shrink)
            for share, shrink in parts
        ]

        def admits(number: int) -> bool:
            logs = [
                log_weight + entries.log_mean(number, shrink, scale)
                for entries, part_scales in zip(matrices, scales, strict=True)
                for (log_weight, shrink), scale in zip(log_weights, part_scales, strict=True)
            ]
            return bool(np.logaddexp.reduce(logs) >= limit)

        return admits

    def matrices(self, high: int, fpr: float) -> "list[_Entries]":
        """Of each split the entries for thresholds up to number ``high``."""
        graph = self._graph
        # Rows above threshold number `high`, the lowest looked at; higher thresholds take a prefix.
        end = int(np.searchsorted(graph.row_at, high))
        # By the number of pairs, not by their scores or their classes.
        pairs = fpr * (graph.row_at.size + graph.same.shape[0])
        splits = self._splits[: max(1, min(N_SPLITS, int(MOST_ENTRIES * N_SPLITS / pairs)))]
        return [_Entries(split, graph, end, fpr) for split in splits]


class _Entries:
    """Entries of a split's matrices, of the same pairs and of the first ``end`` rows of the others."""

    def __init__(self, split: _Split, graph: ScoredGraph, end: int, fpr: float) -> None:
        crossing, rows, columns = split.between(graph.different[graph.row_edge[:end]])
        _, same_rows, same_columns = split.between(graph.same)
        self.split, self.n_same = split, int(same_rows.size)
        self.rows, self.columns = np.concatenate([same_rows, rows]), np.concatenate([same_columns, columns])
        self.weight = np.concatenate([np.full(self.n_same, fpr), graph.row_share[:end][crossing]])
        self.row_at = graph.row_at[:end][crossing]

    def log_mean(self, number: int, shrink: float, scale: Float64) -> float:
        """A lower bound of the log of the average over matchings of the product of 1 - shrink a."""
        n_entries, split = self.n_same + int(np.searchsorted(self.row_at, number)), self.split
        entries = self.rows, self.columns, self.weight, n_entries
        return float(log_mean_product(*entries, split.block, split.size, shrink, scale))


N_MATCHINGS = 1_000
MOST_VISITS = 100_000_000
"""Listed pairs times matchings; of a longer list there are fewer."""
_FEWEST = 32


class ListedPairs:
    """The bound for any list of pairs of units.

    Parameters
    ----------
    above : (k,) A by threshold number, as `pairmark.models.calibration.finite_sample.FiniteSample` has it.
    """

    def __init__(self, graph: ScoredGraph, above: Float64) -> None:
        self._graph, self._above = graph, above

    def admits(self, number: int, fpr: float, limit: float, parts: Mixture) -> bool:
        """Whether the statistic at threshold ``number`` reaches e^limit."""
        # The last entry is that of the padding: no pair at all.
        share = np.append(self.shares(number, fpr), 0.0)[self.matchings]
        sizes = (self.matchings >= 0).sum(axis=1)
        logs = [
            math.log(part) + np.log1p(-shrink * share).sum(axis=1) - sizes * math.log1p(-shrink * fpr)
            for part, shrink in parts
        ]
        # The mean over matchings, as a sum.
        return bool(np.logaddexp.reduce(np.concatenate(logs)) >= limit + math.log(sizes.size))

    def lookup(self, fpr: float, limit: float, parts: Mixture) -> int | None:
        """Number of the lowest threshold that is admitted; None when not even the highest is."""
        high = int(np.searchsorted(self._above, min(1.5 * fpr, 1.0), side="right"))
        return last_true(lambda at: self.admits(at, fpr, limit, parts), high)

    def shares(self, number: int, fpr: float) -> Float64:
        """a of every listed pair of units at threshold ``number``."""
        graph = self._graph
        end = int(np.searchsorted(graph.row_at, number))
        hit = np.bincount(
            graph.row_edge[:end], weights=graph.row_share[:end], minlength=graph.different.shape[0]
        )
        return np.concatenate([np.minimum(hit, 1.0), np.full(graph.same.shape[0], fpr)])

    @cached_property
    def matchings(self) -> Int32:
        """(n, m // 2) numbers of the listed pairs in each matching, -1 after the last."""
        edges = np.concatenate([self._graph.different, self._graph.same])
        n_edges, m = int(edges.shape[0]), int(edges.max()) + 1
        degree = np.bincount(edges.ravel(), minlength=m)
        others = edges[:, ::-1].T.ravel()
        # Neighbors by their number: that of a pair says how high it scored, and whether it is the same.
        by_unit = np.lexsort((others, edges.T.ravel()))
        n = max(_FEWEST, min(N_MATCHINGS, MOST_VISITS // n_edges))
        uniform = np.random.Generator(stream_of(m, n_edges)).random((2, n, m))
        order = np.argsort(degree + uniform[0], axis=1).astype(np.int32)
        matched, start = np.empty((n, m // 2), dtype=np.int32), np.cumsum([0, *degree])
        numbers = (by_unit % n_edges).astype(np.int32)
        list_matchings(start, others[by_unit], numbers, order, uniform[1], matched)
        return matched


STEPS_PER_DECADE = 10
"""Rates that bounds of many thresholds step through."""
_HAIR = 1e-9


@dataclass(frozen=True, kw_only=True)
class FiniteSample:
    """The bounds by threshold number (0 is the largest score of a different pair, where nothing is above).

    Attributes
    ----------
    above : (k,) float64, ascending from 0: A at each distinct score of different pairs, best first.
    n : of counted rows, their number; else what an average over all pairs is worth, which is told, never used.
    n_matched : pairs that share no unit, of either class: by sizes alone.
    different_share : B.
    counts_rows : whether rows are independent of each other, or drawn from a population, so that they are counted.
    product : the bound for pairs that share units; None where rows are counted.
    population : pairs of the population that the rows are a random sample of; None: rows are of people to come.
    n_same : same pairs of that sample.
    """

    above: Float64 = field(repr=False)
    n: int
    n_matched: int
    different_share: float
    counts_rows: bool = False
    product: AllPairs | ListedPairs | None = field(default=None, repr=False)
    population: int | None = None
    n_same: int = 0

    def choose(self, fpr: float, confidence: float) -> tuple[int, float] | None:
        """Number of the chosen threshold and the upper bound of its rate; None when ``fpr`` is not answered.

        The bound is ``fpr`` itself unless the rank of the threshold was fixed before any score was seen.
        """
        if self.product is not None:
            # By sizes alone: too few units are refused before any score is looked at.
            multiple = multiple_of_floor(self.n_matched, fpr, confidence)
            if multiple < 1 - _HAIR:
                return None
            number = self.product.lookup(fpr, _limit(confidence), mixture(multiple))
            return None if number is None else (number, fpr)
        rank = self._rank(fpr, confidence)
        if rank is None:
            return None
        # A is a multiple of 1 / n here; rounding takes off what the division added.
        number = last_true(lambda number: round(float(self.above[number]) * self.n) <= rank, self.above.size)
        bound = 1.0 if self.population is not None else order_upper(rank, self.n, confidence)
        return number or 0, min(fpr, bound)

    def _rank(self, fpr: float, confidence: float, most: float = math.inf) -> int | None:
        """False matches that rows which are counted may show."""
        if self.population is None:
            return order_rank(self.n, fpr, confidence)
        return population_rank(self.n, self.population - self.n_same, fpr, confidence, most)

    def rate(self, number: int) -> float:
        """The observed false positive rate at a threshold."""
        return min(1.0, float(self.above[number]) / self.different_share)

    def answers(self, fpr: float, confidence: float) -> bool:
        """Whether ``fpr`` is answered at all."""
        if self.population is not None:
            return self._rank(fpr, confidence, 0) is not None
        if self.product is None:
            return self.choose(fpr, confidence) is not None
        multiple = multiple_of_floor(self.n_matched, fpr, confidence)
        return multiple >= 1 - _HAIR and self.product.admits(0, fpr, _limit(confidence), mixture(multiple))

    def smallest(self, confidence: float) -> float | None:
        """The floor: the smallest rate that is answered; None when none is."""
        if self.n_matched < 1:
            return None
        highest, floor = math.nextafter(1.0, 0.0), order_upper(0, self.n_matched, confidence)
        if self.population is not None:
            # No rate below one pair means less than another.
            floor = 0.5 / self.population
        if not self.answers(floor, confidence) and not self.answers(highest, confidence):
            return None
        return smallest_true(lambda rate: self.answers(rate, confidence), floor, highest)


def _limit(confidence: float) -> float:
    """log(1 / (1 - confidence)), which the statistic has to reach, a hair off: a floor asked back is answered."""
    return -math.log1p(-confidence) * (1 - _HAIR)
