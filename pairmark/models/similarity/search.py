"""Exact search of a gallery with a forest, without scoring most of it.

For a fixed query every split ``|x - x'| <= t``, ``x + x' <= t`` or ``x x' <= t`` (and those of max and min) asks
whether the item's own coordinate lies in a range. So a gallery is kept as columns of byte codes, 256 bins a feature:

1. *A cut of each tree* is chosen: the nodes that are looked at. Below a cut counts the greatest leaf that is there.
   Sampled items, walked down the trees with this very query, say how often each node is passed; weakest-link pruning
   then gives the cut of least expected bound for any number of nodes, for rank and for log-odds leaves alike.
2. *Upper bounds* of every item's sum follow from the codes. A bin that straddles the border of a range may go either
   way, and its bound is the greater of the two; so quantising never loses an item.
3. *The most promising are scored*, which gives the score to beat; items bounded below it are out.
4. *Those left are walked down the trees*, best bounds first, and given up as soon as the trees still to come cannot
   make up for those walked. What remains is scored by the scoring kernel itself.

Rows and scores are those of scoring everything, to the last bit; only time depends on how good the bounds are. They are
good where leaves' values fall with the depth of the first splits, as ranks do, and weak where nearly every branch holds
some leaf of great value, as log-odds of small leaves do. Where they rule out nothing, nearly everything is scored in
growing chunks, which takes about a tenth longer than scoring it at once.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32
from pairmark.models.core.search import GalleryIndex, SearchLimits, TopK, TopRows, padded, sealed
from pairmark.models.similarity.kernels import search as kernels

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


_PRICES: Final = np.geomspace(3e-6, 0.1, 31).tolist()
"""Prices of a node, as shares of all that cuts can gain: a high one gives a cut of few nodes."""
_MIN_VISITS = 2
"""Sampled items that pass a node which a cut may look at: a single one says next to nothing."""


@dataclass(kw_only=True)
class Cut:
    """Which nodes are looked at, and what the bytes of its programs mean: ``base + unit x total``.

    Attributes
    ----------
    n_nodes : how many. order : of trees, in which walked items are given up early.
    """

    expanded: NDArray[np.uint8]
    n_nodes: int
    order: NDArray[np.int64]
    base: float = 0.0
    unit: float = 1.0


def cut_for(trees: SearchTrees, query: Float32, rows: Float32, n_nodes: int) -> Cut:
    """The largest cut of at most about ``n_nodes`` a tree, by bisection over prices.

    Parameters
    ----------
    rows : (n, d) sampled items, which are walked down all trees with the query.
    """
    n_trees = trees.roots.size
    values = np.empty((len(rows), n_trees))
    visits = np.zeros((trees.nodes.shape[0], 2), dtype=np.int32)
    kernels.visit(
        *trees.walk, trees.width, trees.pair_map, query, rows, values, trees.leaf_values, visits,
    )  # fmt: skip
    node_numbers, children, child_visits, bounds = kernels.often_visited(
        trees.nodes, visits, _MIN_VISITS, trees.greatest
    )
    # What bounds by roots alone exceed the items' leaves by, summed over items: what prices are shares of.
    excess = trees.greatest[trees.roots] - values
    slack = max(float(excess.mean()) if excess.size else 0.0, 1e-9) * max(len(rows), 1)
    in_cut = np.empty(node_numbers.size, dtype=np.uint8)
    expanded = np.zeros(trees.nodes.shape[0], dtype=np.uint8)

    def nodes_at(price: float) -> int:
        kernels.choose(children, child_visits, bounds, price * slack, in_cut)
        expanded[:] = 0
        return int(kernels.cut_of(node_numbers, children, in_cut, trees.roots, expanded))

    # Nodes only grow in number as they get cheaper.
    at = bisect_left(
        _PRICES, True, hi=len(_PRICES) - 1, key=lambda price: nodes_at(price) <= n_nodes * n_trees
    )
    n = nodes_at(_PRICES[at])
    return Cut(expanded=expanded, n_nodes=n, order=np.argsort(-excess.sum(axis=0), kind="stable"))


def program(
    trees: SearchTrees, cut: Cut, query: Float32, low: Float32, high: Float32
) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """A cut as programs for a query, over bins from ``low`` to ``high``; says in the cut what their bytes mean."""
    n_trees = trees.roots.size
    cut.unit = _unit(trees, cut.expanded)
    base = np.empty(n_trees)
    steps = np.empty((cut.n_nodes, kernels.STEP_FIELDS), dtype=np.int16)
    ends = np.empty(n_trees, dtype=np.int64)
    n_written = kernels.compile_cut(
        *trees.walk, trees.starts, trees.width, trees.pair_map, query, low, high, cut.expanded, trees.greatest,
        cut.unit, base, steps, ends,
    )  # fmt: skip
    cut.base = float(base.sum())
    return steps[:n_written], ends


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


SMALLEST = 8_192
"""Galleries of fewer rows are scored outright, which takes milliseconds."""
FEW_WALKS = 1_500_000
"""So are those of fewer rows than `SMALLEST` and this divided by the number of trees: sampling and choosing the cut
take about a tenth of scoring those."""
_MIN_SAMPLED = 48
"""Items whose walks say which nodes to look at where the gallery is small, and time short; else `SAMPLED`."""
_PROMISING = 96
"""Items of the best bounds that are scored at a time, for a score to beat; twice ``k`` where that is more."""
_NODES = 20
"""Nodes a tree that the cut looks at, at most about."""
_TOTALS = 65_536
"""How many values a total, of 16 bits, can have."""
_FULL_WALK = 0.4
"""Share of the trees that items are walked down on average from which on scoring them takes no longer."""
_CHUNK = 512
"""Items that are walked, or scored outright, before it is looked again which of both pays; doubled while it does."""


class ForestSearch:
    """One query against one gallery. An item waits until it is scored or given up.

    Attributes
    ----------
    best : what was found.
    n_walked : items walked: how hard it was.
    """

    def __init__(
        self,
        trees: SearchTrees,
        scorer: Any,
        query: Float32,
        index: GalleryIndex,
        limits: SearchLimits,
    ) -> None:
        self._trees, self._scorer, self._index, self._allowed = trees, scorer, index, limits.allowed
        self._query_row, self._query = query, np.ascontiguousarray(query[0])
        self._vectors = sealed(index.vectors)
        self._n_trees = trees.roots.size
        # Sums differ from what the scoring kernel adds up by rounding alone.
        self._rounding = 1e-9 * float(np.abs(trees.leaf_values).max(initial=1.0)) * self._n_trees
        self._waiting = np.ones(len(index), dtype=np.bool_) if self._allowed is None else self._allowed.copy()
        self.best = TopRows(limits.k, limits.above)
        self.n_walked = 0

    def run(self) -> TopRows:
        """Find the best."""
        cut = self._bounded()
        self._offer_promising()
        self._walk(cut, self._reaching(self._total_to_beat(cut)))
        return self.best

    def every_way(self) -> None:
        """Take every step that some search takes, whether it pays here or not."""
        cut = self._bounded()
        self._offer_promising()
        self._walk_some(cut, np.arange(min(_CHUNK, len(self._index))))

    def _bounded(self) -> Cut:
        """Choose the cut and bound every item by it."""
        n_sampled = int(np.clip(len(self._index) // 2_000, _MIN_SAMPLED, SAMPLED))
        # Rows drawn when the gallery was indexed. Where too few of them are allowed, every so many of those that are.
        rows = self._index.arrays[SAMPLE]
        # (blocks, features, items of a block): the bin of each coordinate.
        codes, low, high = (self._index.arrays[name] for name in (CODES, BIN_LOW, BIN_HIGH))
        blocks = np.arange(codes.shape[0], dtype=np.int64)
        if self._allowed is not None:
            rows = rows[self._allowed[rows]]
            if rows.size < _MIN_SAMPLED:
                rows = np.flatnonzero(self._allowed)
                rows = rows[:: max(1, rows.size // n_sampled)]
            blocks = blocks[np.logical_or.reduceat(self._allowed, blocks * kernels.BLOCK)]
        sample = np.ascontiguousarray(self._vectors[rows[:n_sampled]])
        cut = cut_for(self._trees, self._query, sample, _NODES)
        totals = np.zeros(codes.shape[0] * kernels.BLOCK, dtype=np.uint16)
        kernels.evaluate(*program(self._trees, cut, self._query, low, high), codes, blocks, totals)
        # Upper bounds of items' sums, in the cut's units. The last block may be longer than the gallery.
        self._totals = totals[: len(self._index)]
        return cut

    def _to_beat(self) -> float:
        """The sum of leaves' values below which an item is out: a score is their mean over the trees."""
        # The next lower float32: an item whose score rounds to the floor itself may still tie.
        floor = np.nextafter(self.best.floor, np.float32(-np.inf))
        return float(floor) * self._n_trees - self._rounding

    def _total_to_beat(self, cut: Cut) -> int:
        """The same in a cut's units; 65,536, which no total reaches, where nothing is good enough."""
        to_beat = self._to_beat()
        if to_beat == -np.inf:
            return 0
        return int(np.clip(np.ceil((to_beat - cut.base) / cut.unit - 1e-6), 0, 65_536))

    def _reaching(self, least_total: int) -> NDArray[np.int64]:
        """Items that wait and whose bound is no less."""
        return np.flatnonzero((self._totals >= least_total) & self._waiting)

    def _offer_promising(self) -> None:
        """Score those of the best bounds, for a score to beat."""
        counts = np.bincount(self._totals[self._waiting], minlength=_TOTALS)
        # Items by totals of at least 65,535, 65,534 and so on: the first that as many reach as wanted is the least.
        from_above = np.cumsum(counts[::-1])
        n_wanted = min(max(_PROMISING, 2 * self.best.k), int(from_above[-1]))
        items = self._reaching(_TOTALS - 1 - int(np.searchsorted(from_above, n_wanted)))
        # Many may tie at the least total.
        best_first = np.argsort(-self._totals[items].astype(np.int32), kind="stable")
        self._offer(np.sort(items[best_first[: max(n_wanted, 4 * _PROMISING)]]))

    def _offer(self, items: NDArray[np.int64]) -> None:
        """Score items by the scoring kernel and keep the best; they wait no longer."""
        if items.size:
            self._waiting[items] = False
            self.best.offer(items, self._scorer._score_rows(self._query_row, self._index, items)[0])

    def _walk(self, cut: Cut, remaining: NDArray[np.int64]) -> None:
        """Walk what is left, best bounds first; score it outright where walking spares nothing."""
        # Totals are 16 bits without a sign: taken from the greatest, they sort downwards.
        remaining = remaining[np.argsort(65_535 - self._totals[remaining], kind="stable")]
        lowest_first = self._totals[remaining][::-1]
        at, size, outright, walking = 0, _CHUNK, _CHUNK, True
        while True:
            # The best bounds come first: once they do not reach, none does.
            n = remaining.size - int(np.searchsorted(lowest_first, self._total_to_beat(cut)))
            if at >= n:
                return
            if walking:
                items = remaining[at : min(at + size, n)]
                walking = self._walk_some(cut, items) < _FULL_WALK * self._n_trees * items.size
                size = min(2 * size, 65_536) if walking else _CHUNK
            else:
                # Those after have lower bounds: ever fewer times, some are walked again.
                items = remaining[at : min(at + outright, n)]
                self._offer(np.sort(items))
                outright, walking = min(2 * outright, 65_536), True
            at += items.size

    def _walk_some(self, cut: Cut, items: NDArray[np.int64]) -> int:
        """Walk items down the trees and score those that are still good at the end; how many trees that took."""
        trees, to_beat = self._trees, self._to_beat()
        bounds = cut.base + cut.unit * self._totals[items].astype(np.float64)
        # From its bound, each tree walked takes what its leaf lies below the tree's bound; ``bounds`` ends as the sums.
        n_walks = kernels.walk_survivors(
            *trees.walk, cut.order, trees.width, trees.pair_map, self._query, self._vectors, items, bounds, to_beat,
            cut.expanded, trees.greatest, trees.leaf_values,
        )  # fmt: skip
        self.n_walked += items.size
        self._offer(np.sort(items[bounds >= to_beat - self._rounding]))
        return int(n_walks)


def forest_top_k(
    trees: SearchTrees, scorer: Any, queries: Float32, index: GalleryIndex, limits: SearchLimits
) -> TopK:
    """`PairScorerMixin.top_k` by `ForestSearch`."""
    rankings = [
        ForestSearch(trees, scorer, queries[at : at + 1], index, limits).run()
        for at in range(queries.shape[0])
    ]
    return padded(rankings, limits.k)
