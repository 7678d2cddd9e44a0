"""The matching-product bound: finite-sample, for every distribution of scores.

Units 1..m are an independent draw; a_ij(t) in [0, 1] is the share of the scored different pairs of units i and j above
t (closed-set: 1{different, score > t} + alpha 1{same}). In a matching M of the units the pairs are independent of each
other, so that

    e_M(t) = product over (i, j) in M of (1 - lambda a_ij(t)) / (1 - lambda alpha)

has an expectation of at most 1 where FPR(t) >= alpha, and so has every average over matchings that looks at no score.
A threshold is admitted where such an average reaches 1 / (1 - confidence). The average over matchings is a permanent;
its lower bound by matrix scaling is monotone in t, so that t may be searched for. Nothing is random: the splits are
permutations by the number of units. ``docs/matching-product-bound.md`` has the proof.

`AllPairs` is for pairs that fall into cells of units with every pair inside a cell scored: all pairs of m units, and
what `pairmark.models.pairs.splits.held_out_pairs` chooses from more units than pairs can be afforded for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pairmark.models.calibration.bounds import last_true
from pairmark.models.calibration.kernels.capacity import log_mean_product
from pairmark.models.core.arrays import Bool, Float32, Float64, Int32, Int64
from pairmark.models.pairs.order import permutation_of
from pairmark.models.pairs.samples import PairSample

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
    def of(cls, sample: PairSample, thresholds: Float32, *, cells: bool = False) -> ScoredGraph:
        """The graph of a sample of units. ``cells``: Pairmark drew the pairs, so complete parts are cells of its own;
        else they may be blocks, whose people are no random draw."""
        side = sample.different
        if len(side) >= 2**31:
            raise ValueError(f"there are {len(side)} different pairs; expected fewer than {2**31}")
        mates = sample.same.edge_units if sample.protocol == "closed-set" else np.empty((0, 2), np.int64)
        edges = np.concatenate([side.edge_units, mates])
        units, inverse = np.unique(edges, return_inverse=True)
        codes: Int32 = inverse.reshape(-1, 2).astype(np.int32)
        different = codes[: side.edge_units.shape[0]]
        row_edge = side.edge
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
    def from_arrays(cls, arrays: Mapping[str, Int32]) -> ScoredGraph:
        return cls(**{name: arrays[f"graph_{name}"] for name in _PARTS})

    @cached_property
    def row_share(self) -> Float64:
        """(R,) one over the rows of the same pair of units."""
        share: Float64 = 1.0 / np.bincount(self.row_edge, minlength=self.different.shape[0])[self.row_edge]
        return share


def _cells(edges: Int32, m: int) -> Int32:
    """Cell of each unit where the distinct edges are all pairs inside of cells, else nothing."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    flags = np.ones(edges.shape[0], dtype=np.int8)
    n, cell = connected_components(
        coo_array((flags, (edges[:, 0], edges[:, 1])), shape=(m, m)), directed=False
    )
    sizes = np.bincount(cell, minlength=n).astype(np.int64)
    if int((sizes * (sizes - 1) // 2).sum()) != edges.shape[0]:
        return np.empty(0, dtype=np.int32)
    return cell.astype(np.int32)


@dataclass(frozen=True, kw_only=True)
class _Split:
    """Units of each cell in two halves, and the pairs between the halves.

    A cell of an odd number of units has a phantom column that nothing matches: the average over who stays alone.
    """

    side: Bool
    place: Int32
    block_of_row: Int32
    block_of_column: Int32
    size: Int64

    @classmethod
    def of(cls, cell: Int32, turn: int) -> _Split:
        sizes = np.bincount(cell)
        half = (sizes + 1) // 2
        order = permutation_of(cell.size, turn)
        by_cell = order[np.argsort(cell[order], kind="stable")]
        start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        # Each unit's place in a permutation of its cell: the first half are rows, the rest columns.
        rank = np.empty(cell.size, dtype=np.int64)
        rank[by_cell] = np.arange(cell.size) - start[cell[by_cell]]
        offset = np.concatenate([[0], np.cumsum(half)[:-1]])
        side = rank >= half[cell]
        # Rows and columns are numbered through all cells, a cell's side by side.
        place = offset[cell] + np.where(side, rank - half[cell], rank)
        block = np.repeat(np.arange(half.size), half).astype(np.int32)
        return cls(
            side=side, place=place.astype(np.int32), block_of_row=block, block_of_column=block, size=half
        )

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
        self._splits = [_Split.of(graph.cell, turn) for turn in range(N_SPLITS)]
        self.n = int((np.bincount(graph.cell) // 2).sum())

    def lookup(self, fpr: float, limit: float, parts: Mixture) -> int | None:
        """Number of the lowest threshold that is admitted; None when not even the highest is."""
        # No average below is admitted far above fpr; where the search ends may depend on anything.
        high = int(np.searchsorted(self._above, 1.1 * fpr, side="right"))
        return last_true(self._test(high, fpr, limit, parts), high)

    def admits(self, at: int, fpr: float, limit: float, parts: Mixture) -> bool:
        """Whether the statistic at threshold number ``at`` reaches e^limit."""
        return self._test(at, fpr, limit, parts)(at)

    def _test(self, high: int, fpr: float, limit: float, parts: Mixture) -> Callable[[int], bool]:
        """Whether thresholds up to number ``high`` are admitted; scalings are kept from one threshold to the next."""
        matrices = self.matrices(high, fpr)
        scales = [[np.ones(part.split.block_of_column.size) for _ in parts] for part in matrices]
        log_weights = [
            # The denominator (1 - lambda alpha)^n, n pairs in a matching; splits and parts are averaged,
            # hence their shares.
            (math.log(share / len(matrices)) - self.n * math.log1p(-shrink * fpr), shrink)
            for share, shrink in parts
        ]

        def admits(at: int) -> bool:
            logs = [
                log_weight + entries.log_mean(at, shrink, scale)
                for entries, part_scales in zip(matrices, scales, strict=True)
                for (log_weight, shrink), scale in zip(log_weights, part_scales, strict=True)
            ]
            return bool(np.logaddexp.reduce(logs) >= limit)

        return admits

    def matrices(self, high: int, fpr: float) -> list[_Entries]:
        """Of each split the entries for thresholds up to number ``high``."""
        graph = self._graph
        # Rows above threshold number `high`, the lowest looked at; higher thresholds take a prefix.
        end = int(np.searchsorted(graph.row_at, high))
        edges = graph.different[graph.row_edge[:end]]
        # By the number of pairs, not by their scores or their classes.
        pairs = fpr * (graph.row_at.size + graph.same.shape[0])
        matrices = []
        for split in self._splits[: max(1, min(N_SPLITS, int(MOST_ENTRIES * N_SPLITS / pairs)))]:
            crossing, rows, columns = split.between(edges)
            _, same_rows, same_columns = split.between(graph.same)
            matrices.append(
                _Entries(
                    split=split,
                    rows=np.concatenate([same_rows, rows]),
                    columns=np.concatenate([same_columns, columns]),
                    weight=np.concatenate([np.full(same_rows.size, fpr), graph.row_share[:end][crossing]]),
                    n_same=int(same_rows.size),
                    row_at=graph.row_at[:end][crossing],
                )
            )
        return matrices


@dataclass(frozen=True, kw_only=True)
class _Entries:
    split: _Split
    rows: Int32
    columns: Int32
    weight: Float64
    n_same: int
    row_at: Int32

    def log_mean(self, at: int, shrink: float, scale: Float64) -> float:
        """A lower bound of the log of the average over matchings of the product of 1 - shrink a."""
        n_entries = self.n_same + int(np.searchsorted(self.row_at, at))
        split = self.split
        entries = self.rows, self.columns, self.weight, n_entries
        blocks = split.block_of_row, split.block_of_column, split.size
        return float(log_mean_product(*entries, *blocks, shrink, scale))
