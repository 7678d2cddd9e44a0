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

# Halvings of `smallest_true` at most; populations that `population_rank` looks at one by one; and what its sums of
# logarithms of factorials may be off by.
_STEPS = 200
_CASES = 1_000
_ROUNDING = 1e-9
MOST_BLOCKS = 10**15
"""What `order_pairs_needed` says at most: beyond it the number has no meaning."""


def binomial_log_tail(k: int, p: float, n: int) -> float:
    """log P(Binomial(n, p) <= k), exactly: the order-statistic rule of Tong, Feng & Li (2018), proposition 1."""
    if k == 0:
        return n * math.log1p(-p) if p < 1 else -math.inf
    # Without a false match (k = 0, above) the logarithm stays exact however small the chance. Here a tail that
    # underflows to 0 is below every limit that is asked of it.
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
    # Invariant: the test fails at `low` and holds at `high`, so what is returned always passed it.
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
    # Student's quantile, handed on as the confidence at which the normal one is as large. Of few units it is so large
    # that this rounds to 1, whose quantile is infinite: hence the bound.
    z = float(stdtrit(max(1, units - 1), 0.5 + confidence / 2))
    return wilson_interval(share, n, min(2 * float(ndtr(z)) - 1, 1 - 1e-12))


def order_rank(n: int, p: float, confidence: float) -> int | None:
    """The largest k with P(Binomial(n, p) <= k) <= 1 - confidence; None when there is none."""
    if n < 1:
        return None
    # The tail rises with k, so the ranks that are admitted are those up to some k.
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
    # log P(at most k are drawn), of all populations at once; each k adds its own probability.
    tails = np.full(matches.shape, -np.inf)
    # More than there are of either kind cannot be drawn. The formula says nothing of such k: they add nothing.
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
    # From F of the smallest population, the n pairs themselves, to one beyond F of the largest, which only ends the
    # last group.
    low, high = math.floor(p * n) + 1, math.floor(p * population) + 2
    first = np.arange(low, high + 1)
    if first.size > _CASES:
        first = np.unique(np.geomspace(low, high, _CASES).astype(np.int64))
    # A group stands for all F from its first to its last: its least F and the largest D of its last one hide matches
    # better than any of its members do.
    last = first[1:] - 1
    sizes = np.minimum(np.ceil(last / p).astype(np.int64), population)
    # The largest D with floor(p D) + 1 <= last; p * (last / p) may be rounded either way.
    for _ in range(2):
        sizes -= np.floor(p * sizes) + 1 > last
    admissible = (sizes >= n) & (first[:-1] <= sizes)
    return first[:-1][admissible], sizes[admissible]


def order_pairs_needed(fpr: float, confidence: float) -> int:
    """Independent pairs from which ``fpr`` is answered at all; at most `MOST_BLOCKS`."""
    # Not one false match among n pairs has the chance (1 - fpr)^n, which is at most 1 - confidence from this n on.
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
# Splits whose permanents are averaged. More would not change what is guaranteed, only how evenly pairs are used.
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
            # One cell alone, number 0 throughout, is all pairs of all units: nobody chose among them.
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
    # Edges are distinct and join units of one component only, so they are all of its pairs exactly where they are as
    # many.
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
        # By sizes and the turn alone: a split that knew scores or classes would be none of the proof.
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
        # A scaling begins with ones and goes on from where the last test of its matrix ended, which saves rounds.
        # Either start has the narrow range that the bound takes.
        scales = [[np.ones(part.split.block.size) for _ in parts] for part in matrices]
        log_weights = [
            # The denominator (1 - lambda alpha)^n, n pairs in a matching; splits and parts are averaged,
            # hence their shares.
            (math.log(share / len(matrices)) - self.n * math.log1p(-shrink * fpr), shrink)
            for share, shrink in parts
        ]

        # The proof: where the true rate is fpr or more, a factor (1 - lambda a) / (1 - lambda alpha) has a mean of at
        # most 1. Pairs of a matching share no unit, so their factors are independent, and means over matchings, splits
        # and parts keep that. By Markov's inequality the statistic then reaches 1 / (1 - confidence) with at most the
        # probability 1 - confidence.
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
        # A pair of the same class counts as fpr itself, so that its factor is 1 whatever lambda is. Of a pair of units
        # with several rows each counts its share, so that they add up to at most 1.
        self.weight = np.concatenate([np.full(self.n_same, fpr), graph.row_share[:end][crossing]])
        self.row_at = graph.row_at[:end][crossing]

    def log_mean(self, number: int, shrink: float, scale: Float64) -> float:
        """A lower bound of the log of the average over matchings of the product of 1 - shrink a."""
        # Same pairs first, then rows best score first: those above a threshold are a prefix, and no matrix is made
        # anew.
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
        # Where the search ends is no part of the proof, which covers every threshold that is admitted.
        high = int(np.searchsorted(self._above, min(1.5 * fpr, 1.0), side="right"))
        return last_true(lambda at: self.admits(at, fpr, limit, parts), high)

    def shares(self, number: int, fpr: float) -> Float64:
        """a of every listed pair of units at threshold ``number``."""
        graph = self._graph
        end = int(np.searchsorted(graph.row_at, number))
        hit = np.bincount(
            graph.row_edge[:end], weights=graph.row_share[:end], minlength=graph.different.shape[0]
        )
        # Rounding may leave the shares of one pair a hair above 1.
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
        # By the numbers of units and of pairs alone: a matching that knew scores would be no matching of the proof.
        uniform = np.random.Generator(stream_of(m, n_edges)).random((2, n, m))
        # Units with few neighbors first, before those are taken; ties at random, which moves nobody past another
        # degree.
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
