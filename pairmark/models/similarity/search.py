"""Exact search of a gallery with a forest, without scoring most of it.

For a fixed query every split ``|x - x'| <= t``, ``x + x' <= t`` or ``x x' <= t`` (and those of max and min) asks
whether the item's own coordinate lies in a range. So a gallery is kept as columns of byte codes, 256 bins a feature:

1. *A cut of each tree* is chosen: the nodes that are looked at. Below a cut counts the greatest leaf that is there.
   Sampled items, walked down the trees with this very query, say how far bounds at a node lie above the leaves that
   they come to; a node is looked at where that is much, for rank and for log-odds leaves alike.
2. *Upper bounds* of every item's sum follow from the codes. A bin that straddles the border of a range may go either
   way, and its bound is the greater of the two; so quantising never loses an item.
3. *The most promising are scored*, which gives the score to beat; items bounded below it are out.
4. *Those left are walked down the trees*, best bounds first, and given up as soon as the trees still to come cannot
   make up for those walked. What remains is scored by the scoring kernel itself.

Rows and scores are those of scoring everything, to the last bit; only time depends on how good the bounds are. They are
good where leaves' values fall with the depth of the first splits, as ranks do, and weak where nearly every branch holds
some leaf of great value, as log-odds of small leaves do. Where they rule out nothing, everything is scored, which takes
about a tenth longer than scoring it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32
from pairmark.models.core.search import GalleryIndex, SearchLimits, TopK, TopRows, padded, sealed
from pairmark.models.similarity.kernels import search as kernels

ScoreRows = Callable[[Float32, GalleryIndex, Any], Float32]
"""`PairScorerMixin._score_rows`."""
CODES, BIN_LOW, BIN_HIGH, SAMPLE = "codes", "bin_low", "bin_high", "sample"
SAMPLED = 160
"""Items whose walks say which nodes to look at."""

_EDGE_ROWS = 8_192


@dataclass(frozen=True, kw_only=True)
class SearchTrees:
    """All trees of a forest end to end, what leads to a node before it; leaves are numbered after all nodes.

    Attributes
    ----------
    nodes : (n_nodes, 4) int32: pair feature, threshold, low and high child; a float32 view of it is ``limits``.
    roots, starts : (n_trees,) and (n_trees + 1,) int64.
    leaf_values : (n_leaves,) float64; greatest : (n_nodes + n_leaves,) the greatest at or below.
    """

    nodes: NDArray[np.int32] = field(repr=False)
    roots: NDArray[np.int64] = field(repr=False)
    starts: NDArray[np.int64] = field(repr=False)
    leaf_values: NDArray[np.float64] = field(repr=False)
    greatest: NDArray[np.float64] = field(repr=False)
    width: int
    pair_map: int

    @property
    def walk(self) -> tuple[Any, ...]:
        """What kernels that walk take first."""
        return self.nodes, self.nodes.view(np.float32), self.roots


def search_trees(
    features: list[NDArray[np.int32]],
    thresholds: list[Float32],
    children: list[list[NDArray[Any]]],
    values: list[NDArray[np.float64]],
    *,
    width: int,
    pair_map: int,
) -> SearchTrees:
    """Lay trees out; children are later nodes of the tree, or its node count + leaf."""
    n_nodes = [feature.size for feature in features]
    total, node_base, leaf_base = sum(n_nodes), 0, 0
    roots, sides = [], []
    for size, pair, leaves in zip(n_nodes, children, values, strict=True):
        roots.append(node_base if size else total + leaf_base)
        below = [child.astype(np.int64) for child in pair]
        sides.append([child + np.where(child < size, node_base, total + leaf_base - size) for child in below])
        node_base, leaf_base = node_base + size, leaf_base + leaves.size
    low, high = (np.concatenate([side[at] for side in sides]) for at in (0, 1))
    leaf_values = np.concatenate(values).astype(np.float64)
    greatest = np.empty(total + leaf_base)
    kernels.greatest(low, high, leaf_values, greatest)
    nodes = np.empty((total, 4), dtype=np.int32)
    nodes[:, 0], nodes[:, 2], nodes[:, 3] = np.concatenate(features), low, high
    nodes.view(np.float32)[:, 1] = np.concatenate(thresholds)
    return SearchTrees(
        nodes=nodes,
        roots=np.array(roots, dtype=np.int64),
        starts=np.cumsum([0, *n_nodes], dtype=np.int64),
        leaf_values=leaf_values,
        greatest=greatest,
        width=width,
        pair_map=pair_map,
    )


def column_arrays(vectors: Float32) -> dict[str, NDArray[Any]]:
    """A gallery as columns of byte codes, the values that each code stands for, and rows to sample from."""
    n, d = vectors.shape
    rng = np.random.default_rng(0)
    looked_at = np.sort(rng.choice(n, min(n, _EDGE_ROWS), replace=False))
    edges = np.full((d, 256), np.inf, dtype=np.float32)
    sorted_columns = np.sort(vectors[looked_at].T, axis=1)
    places = np.linspace(0, looked_at.size - 1, 256).astype(np.intp)
    for feature, column in enumerate(sorted_columns):
        distinct = column[np.diff(column, prepend=np.nan) != 0]
        if distinct.size > 256:
            values = column[places]
            distinct = values[np.diff(values, prepend=np.nan) != 0]
        edges[feature, : distinct.size - 1] = distinct[1:]
    codes = np.zeros((-(-n // kernels.BLOCK), d, kernels.BLOCK), dtype=np.uint8)
    low = np.full((d, 256), np.inf, dtype=np.float32)
    high = np.full((d, 256), -np.inf, dtype=np.float32)
    kernels.encode(sealed(vectors), edges, codes, low, high)
    # Codes that no item has stand for the value before them, which keeps ranges of codes in one piece.
    for code in range(256):
        empty = low[:, code] > high[:, code]
        before = high[:, code - 1] if code else np.min(np.where(low <= high, low, np.inf), axis=1)
        low[empty, code], high[empty, code] = before[empty], before[empty]
    return {
        CODES: codes,
        BIN_LOW: low,
        BIN_HIGH: high,
        SAMPLE: rng.choice(n, min(n, 4 * SAMPLED), replace=False),
    }


class Cut(NamedTuple):
    """Which nodes are looked at, how many, and the order of trees in which walked items are given up early."""

    expanded: NDArray[np.uint8]
    n_nodes: int
    order: NDArray[np.intp]


def _cut(trees: SearchTrees, query: Float32, rows: Float32) -> Cut:
    """By sampled rows, which are walked down all trees with the query."""
    n_nodes = trees.nodes.shape[0]
    visits = np.zeros((n_nodes, 2), dtype=np.int32)
    kernels.visit(*trees.walk, trees.width, trees.pair_map, query, rows, visits)
    mean, expanded = np.append(np.zeros(n_nodes), trees.leaf_values), np.zeros(n_nodes, dtype=np.uint8)
    n = kernels.cut_of(trees.nodes, trees.roots, visits, trees.greatest, _LEAST_GAIN, mean, expanded)
    order = np.argsort((mean - trees.greatest)[trees.roots], kind="stable")
    return Cut(expanded, int(n), order)


def _unit(trees: SearchTrees, expanded: NDArray[np.uint8]) -> float:
    """What a byte's step is worth, so that every tree's bounds fit a byte and their sum 16 bits."""
    inside = np.flatnonzero(expanded)
    if not inside.size:
        return 1.0
    # How far the bounds of a tree lie apart: from its greatest leaf down to the least bound below a node of the cut.
    below = trees.greatest[trees.nodes[inside, 2:]].min(axis=1)
    tree = np.searchsorted(trees.starts, inside, side="right") - 1
    lowest = trees.greatest[trees.roots].copy()
    np.minimum.at(lowest, tree, below)
    # One unit for all trees, by the widest: no total of bounds then exceeds 65,535.
    width = float((trees.greatest[trees.roots] - lowest).max())
    return max(width, 1e-300) / (min(255, 65_535 // trees.roots.size) - 1)


class Bounds(NamedTuple):
    """Upper bounds of items' sums of leaves: ``base + unit x totals``.

    Attributes
    ----------
    totals : (n,) uint16. cut : what they follow from.
    """

    cut: Cut
    totals: NDArray[np.uint16]
    base: float
    unit: float

    def reaching(self, to_beat: float) -> int:
        """The least total that is no less than a sum; 65,536, which no total reaches, where nothing is good enough."""
        if to_beat == -np.inf:
            return 0
        return int(np.clip(np.ceil((to_beat - self.base) / self.unit - 1e-6), 0, 65_536))


def bounds_of(
    trees: SearchTrees, query: Float32, index: GalleryIndex, allowed: NDArray[np.bool_] | None
) -> Bounds:
    """Bound every item, at least of those allowed."""
    n_sampled = int(np.clip(len(index) // 2_000, _MIN_SAMPLED, SAMPLED))
    # Rows drawn when the gallery was indexed. Where too few of them are allowed, every so many of those that are.
    rows = index.arrays[SAMPLE]
    # (blocks, features, items of a block): the bin of each coordinate.
    codes, low, high = (index.arrays[name] for name in (CODES, BIN_LOW, BIN_HIGH))
    blocks = np.arange(codes.shape[0], dtype=np.int64)
    if allowed is not None:
        rows = rows[allowed[rows]]
        if rows.size < _MIN_SAMPLED:
            rows = np.flatnonzero(allowed)
            rows = rows[:: max(1, rows.size // n_sampled)]
        blocks = blocks[np.logical_or.reduceat(allowed, blocks * kernels.BLOCK)]
    cut = _cut(trees, query, np.ascontiguousarray(index.vectors[rows[:n_sampled]]))
    unit, base = _unit(trees, cut.expanded), np.empty(trees.roots.size)
    ends = np.empty(trees.roots.size, dtype=np.int64)
    steps = np.empty((cut.n_nodes, kernels.STEP_FIELDS), dtype=np.int16)
    n_steps = kernels.compile_cut(
        *trees.walk, trees.starts, trees.width, trees.pair_map, query, low, high, cut.expanded, trees.greatest,
        unit, base, steps, ends,
    )  # fmt: skip
    totals = np.zeros(codes.shape[0] * kernels.BLOCK, dtype=np.uint16)
    kernels.evaluate(steps[:n_steps], ends, codes, blocks, totals)
    # The last block may be longer than the gallery.
    return Bounds(cut, totals[: len(index)], float(base.sum()), unit)


SMALLEST = 8_192
"""Galleries of fewer rows are scored outright, which takes milliseconds."""
FEW_WALKS = 1_500_000
"""So are those of fewer rows than `SMALLEST` and this divided by the number of trees: sampling and choosing the cut
take about a tenth of scoring those."""
_MIN_SAMPLED = 48
"""Items whose walks say which nodes to look at where the gallery is small, and time short; else `SAMPLED`."""
_LEAST_GAIN = 0.004
"""Share of all that looking at nodes can gain from which on one is looked at: about 7 nodes a tree by ranks, 20 by
log-odds."""
_FIRST, _MOST = 96, 65_536
"""Items of the best bounds that are scored first, for a score to beat, twice ``k`` where that is more; then twice as
many each time."""
_FULL_WALK = 0.4
"""Share of the trees that items are walked down on average from which on scoring them takes no longer."""


def best_of(
    trees: SearchTrees, score_rows: ScoreRows, query: Float32, index: GalleryIndex, limits: SearchLimits
) -> TopRows:
    """One query against one gallery, items of the best bounds first, as long as bounds reach."""
    bounds, vectors = bounds_of(trees, query[0], index, limits.allowed), sealed(index.vectors)
    items = np.arange(len(index)) if limits.allowed is None else np.flatnonzero(limits.allowed)
    # Sums differ from what the scoring kernel adds up by rounding alone.
    n_trees = trees.roots.size
    rounding = 1e-9 * float(np.abs(trees.leaf_values).max(initial=1.0)) * n_trees
    best, size, walks = TopRows(limits.k, limits.above), max(_FIRST, 2 * limits.k), True
    while True:
        # A score is the mean over the trees. The next lower float32: an item whose score rounds to the floor itself
        # may still tie.
        to_beat = float(np.nextafter(best.floor, np.float32(-np.inf))) * n_trees - rounding
        items = items[bounds.totals[items] >= bounds.reaching(to_beat)]
        if not items.size:
            return best
        at = max(0, items.size - size)
        items = items[np.argpartition(bounds.totals[items], at)] if at else items
        rows = np.sort(items[at:])
        if walks and to_beat > -np.inf:
            # From its bound, each tree walked takes what its leaf lies below the tree's bound.
            of_rows = bounds.base + bounds.unit * bounds.totals[rows]
            survivors, n_walked = kernels.walk(
                *trees.walk, bounds.cut.order, trees.width, trees.pair_map, query[0], vectors, rows, of_rows,
                to_beat - rounding, bounds.cut.expanded, trees.greatest, trees.leaf_values,
            )  # fmt: skip
            walks = n_walked < _FULL_WALK * n_trees * rows.size
            rows = rows[survivors]
        if rows.size:
            best.offer(rows, score_rows(query, index, rows)[0])
        items, size = items[:at], min(2 * size, _MOST)


def forest_top_k(
    trees: SearchTrees, score_rows: ScoreRows, queries: Float32, index: GalleryIndex, limits: SearchLimits
) -> TopK:
    """`PairScorerMixin.top_k` by `best_of`."""
    queries = np.ascontiguousarray(queries)
    rankings = [
        best_of(trees, score_rows, queries[at : at + 1], index, limits) for at in range(queries.shape[0])
    ]
    return padded(rankings, limits.k)
