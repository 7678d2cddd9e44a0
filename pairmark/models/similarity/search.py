"""Exact search of a gallery with a forest, without scoring most of it.

For a fixed query every split ``|x - x'| <= t``, ``x + x' <= t`` or ``x x' <= t`` (and those of max and min) asks
whether the item's own coordinate lies in a range. So a gallery is kept as columns of byte codes, 256 bins a feature:

1. *A cut of each tree* is chosen: the nodes that are looked at. Below a cut counts the greatest leaf that is there.
   Sampled items, walked down the trees with this very query, say how often each node is passed; weakest-link pruning
   then gives the cut of least expected bound for any number of nodes, for rank and for log-odds leaves alike.
2. *Upper bounds* of every item's sum follow from the codes. A bin that straddles the border of a range may go either
   way, and its bound is the greater of the two; so quantising never loses an item.
3. *The most promising are scored*, which gives the score to beat; items bounded below it are out. Where many are left,
   their columns are laid side by side, and bounded by a finer cut, chosen by a sample of those.
4. *Those left are walked down the trees*, best bounds first, and given up as soon as the trees still to come cannot
   make up for those walked. What remains is scored by the scoring kernel itself.

Rows and scores are those of scoring everything, to the last bit; only time depends on how good the bounds are. They are
good where leaves' values fall with the depth of the first splits, as ranks do, and weak where nearly every branch holds
some leaf of great value, as log-odds of small leaves do. Where they rule out nothing, nearly everything is scored in
growing chunks, which takes about a tenth longer than scoring it at once.

`search_cuts` holds the first point, `search_places` the items and their bounds; here is the order in which it all
happens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32
from pairmark.models.core.search.index import GalleryIndex, SearchLimits, TopK, TopRows, padded, sealed
from pairmark.models.similarity.kernels import search as kernels
from pairmark.models.similarity.search_arrays import BIN_HIGH, BIN_LOW, CODES, SAMPLE, SAMPLED, SearchTrees
from pairmark.models.similarity.search_cuts import Cut, cut_for, program
from pairmark.models.similarity.search_places import ItemPlaces

SMALLEST = 8_192
"""Galleries of fewer rows are scored outright, which takes milliseconds."""
FEW_WALKS = 1_500_000
"""So are those of fewer rows than `SMALLEST` and this divided by the number of trees: sampling and choosing the first
cut take about a tenth of scoring those."""
_MIN_SAMPLED = 48
"""Items whose walks say which nodes to look at where the gallery is small, and time short; else `SAMPLED`."""
_PROMISING = 96
"""Items of the best bounds that are scored at a time, for a score to beat; twice ``k`` where that is more."""
_FIRST_NODES, _FINER_NODES = 20, 256
"""Nodes a tree that the first cut and the finer one look at, at most about."""
_FEW_LEFT = 2_000
"""Items that are walked rather than bounded by the finer cut."""
_FULL_WALK = 0.4
"""Share of the trees that items are walked down on average from which on scoring them takes no longer."""
_CHUNK = 512
"""Items that are walked, or scored outright, before it is looked again which of both pays; doubled while it does."""


class ForestSearch:
    """One query against one gallery.

    Attributes
    ----------
    best : what was found.
    n_finer, n_walked : items bounded by the finer cut, and items walked: how hard it was.
    """

    def __init__(
        self,
        trees: SearchTrees,
        scorer: Any,
        query: Float32,
        index: GalleryIndex,
        limits: SearchLimits,
    ) -> None:
        self._trees, self._scorer, self._index, self._limits = trees, scorer, index, limits
        self._query_row, self._query = query, np.ascontiguousarray(query[0])
        self._vectors = sealed(index.vectors)
        # (blocks, features, items of a block): the bin of each coordinate.
        self._codes = index.arrays[CODES]
        self._places = ItemPlaces(self._codes, len(index), limits.allowed)
        self._n_trees = trees.roots.size
        # Sums differ from what the scoring kernel adds up by rounding alone.
        self._rounding = 1e-9 * float(np.abs(trees.leaf_values).max(initial=1.0)) * self._n_trees
        self.best = TopRows(limits.k, limits.above)
        self.n_finer = self.n_walked = 0

    def run(self) -> TopRows:
        """Find the best."""
        cut = self._first_cut()
        self._offer_promising()
        remaining = self._reaching(cut)
        if remaining.size > _FEW_LEFT:
            cut = self._finer_cut(remaining)
            self._offer_promising()
            remaining = self._reaching(cut)
        self._walk(cut, remaining)
        return self.best

    def every_way(self) -> None:
        """Take every step that some search takes, whether it pays here or not."""
        remaining = self._reaching(self._first_cut())
        cut = self._finer_cut(remaining)
        self._offer_promising()
        self._walk_some(cut, np.arange(min(_CHUNK, remaining.size)))

    def _first_cut(self) -> Cut:
        """Bound everything by the first cut."""
        allowed = self._limits.allowed
        n_sampled = int(np.clip(len(self._index) // 2_000, _MIN_SAMPLED, SAMPLED))
        # Rows drawn when the gallery was indexed. Where too few of them are allowed, every so many of those that are.
        rows = self._index.arrays[SAMPLE]
        if allowed is not None:
            rows = rows[allowed[rows]]
            if rows.size < _MIN_SAMPLED:
                rows = np.flatnonzero(allowed)
                rows = rows[:: max(1, rows.size // n_sampled)]
        cut = self._cut(rows[:n_sampled], _FIRST_NODES)
        self._bound(cut)
        return cut

    def _finer_cut(self, remaining: NDArray[np.int64]) -> Cut:
        """Give up all items but these; lay their columns that a finer cut reads side by side, and bound them by it."""
        spread = remaining[np.linspace(0, remaining.size - 1, SAMPLED).astype(np.intp)]
        cut = self._cut(spread, _FINER_NODES)
        read = self._trees.nodes[np.flatnonzero(cut.expanded), 0] % self._codes.shape[1]
        self._places.lay_apart(remaining, np.unique(read))
        self._bound(cut)
        self.n_finer = remaining.size
        return cut

    def _cut(self, rows: NDArray[np.intp], n_nodes: int) -> Cut:
        return cut_for(self._trees, self._query, np.ascontiguousarray(self._vectors[rows]), n_nodes)

    def _bound(self, cut: Cut) -> None:
        """Bound every item that is looked at by a cut."""
        low, high = (self._index.arrays[name] for name in (BIN_LOW, BIN_HIGH))
        self._places.bound(*program(self._trees, cut, self._query, low, high))

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

    def _reaching(self, cut: Cut) -> NDArray[np.int64]:
        """Places of the items still to be looked at whose bound is good enough."""
        return self._places.reaching(self._total_to_beat(cut))

    def _offer_promising(self) -> None:
        """Score those of the best bounds, for a score to beat."""
        n_wanted = max(_PROMISING, 2 * self.best.k)
        self._offer(self._places.promising(n_wanted, max(n_wanted, 4 * _PROMISING)))

    def _offer(self, places: NDArray[np.int64]) -> None:
        """Score items by the scoring kernel and keep the best; they wait no longer."""
        if places.size:
            self._places.settle(places)
            rows = self._places.rows(places)
            self.best.offer(rows, self._scorer._score_rows(self._query_row, self._index, rows)[0])

    def _walk(self, cut: Cut, remaining: NDArray[np.int64]) -> None:
        """Walk what is left, best bounds first; score it outright where walking spares nothing."""
        # Totals are 16 bits without a sign: taken from the greatest, they sort downwards.
        remaining = remaining[np.argsort(65_535 - self._places.totals[remaining], kind="stable")]
        lowest_first = self._places.totals[remaining][::-1]
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
        bounds = cut.base + cut.unit * self._places.totals[items].astype(np.float64)
        # From its bound, each tree walked takes what its leaf lies below the tree's bound; ``bounds`` ends as the sums.
        n_walks = kernels.walk_survivors(
            *trees.walk, cut.order, trees.width, trees.pair_map, self._query, self._vectors,
            self._places.rows(items), bounds,
            to_beat, cut.expanded, trees.greatest, trees.leaf_values,
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
