"""Exact search of a gallery with a forest, without scoring most of it.

For a fixed query every split ``|x - x'| <= t``, ``x + x' <= t`` or ``x x' <= t`` (and those of max and min) asks
whether the item's own coordinate lies in a range. So a gallery is kept as columns of byte codes, 256 bins a feature:

1. *A cut of each tree* is chosen: the nodes that are looked at. Below a cut counts the greatest leaf that is there.
   Sampled items, walked down the trees with this very query, say how often each node is passed; weakest-link pruning
   then gives the cut of least expected bound for any number of nodes, for rank and for log-odds leaves alike.
2. *Upper bounds* of every item's sum follow from the codes. A bin that straddles the border of a range may go either
   way, and its bound is the greater of the two; so quantising never loses an item.
3. *The most promising are scored*, which gives the score to beat; items bounded below it are out. Where many are left,
   finer cuts are weighed on a sample of those, the whole way to the last one, and the next is taken if that is worth
   its cost; and again. Once few are left, their columns are laid side by side first.
4. *Those left are walked down the trees*, best bounds first, and given up as soon as the trees still to come cannot
   make up for those walked. What remains is scored by the scoring kernel itself.

Rows and scores are those of scoring everything, to the last bit; only time depends on how good the bounds are. They are
good where leaves' values fall with the depth of the first splits, as ranks do, and weak where nearly every branch holds
some leaf of great value, as log-odds of small leaves do. Where they do not prune, they give up: `Budget` adds up what
each part of a search takes, by counting nodes, items and steps and never by the clock, and what is left is scored
outright before the sum exceeds what scoring everything takes by more than a tenth.

`search_cuts` holds the first point, `search_places` the items and their bounds, `search_costs` the budget; here is the
order in which it all happens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32
from pairmark.models.core.base import PairScorerMixin
from pairmark.models.core.search.index import GalleryIndex, SearchLimits, TopK, TopRows, padded, sealed
from pairmark.models.similarity import search_costs as costs
from pairmark.models.similarity.kernels import search as kernels
from pairmark.models.similarity.search_arrays import BIN_HIGH, BIN_LOW, CODES, SAMPLE, SAMPLED, SearchTrees
from pairmark.models.similarity.search_costs import Budget
from pairmark.models.similarity.search_cuts import Cut, CutSample, program
from pairmark.models.similarity.search_places import ItemPlaces, n_spanned

SMALLEST = 8_192
"""Galleries of fewer rows are scored outright, which takes milliseconds."""
FEW_WALKS = 1_500_000
"""So are those of fewer rows than `SMALLEST` and this divided by the number of trees: sampling and choosing the first
cut take about a tenth of scoring those."""
_LEAST_SAMPLED = 48
"""Items whose walks say which nodes to look at where the gallery is small, and time short; else `SAMPLED`."""
_PROMISING = 96
"""Items of the best bounds that are scored at a time, for a score to beat; twice ``k`` where that is more."""
_WORTHWHILE = 2e-3
"""Seconds of walking below which no finer cut is looked for."""
_LEAST_WALKED = 128
"""Items that walking is worth its calls for, where there are as many."""
_HOPELESS = 0.8
"""Share of scoring everything that what is left is expected to take from which on everything is scored."""
_SURELY = 2.0
"""Times its own cost that a cut has to promise to save where the search could not afford it in vain."""
_WEIGHING = 0.05
"""Share of what is at stake that a sample for finer cuts may take."""
_GAIN = 0.9
"""Share of the cost of walking now below which a finer cut, and all that follows it, has to come."""
_MOST_CUTS = 8
_CHUNK = 512
"""Items that are walked, or scored outright, before it is looked again which of both pays; doubled while it does."""
_CACHE_LINE = 64
"""Bytes that are fetched from memory together."""


class ForestSearch:
    """One query against one gallery.

    Attributes
    ----------
    best : what was found.
    steps : (items bounded, steps of the programs) of each cut; n_walked : items walked: how hard it was.
    gave_up : whether everything was scored, because bounds did not prune.
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
        # Seconds that an item takes from here on if no finer cut is made.
        self._cost_per_item = 0.0
        self.best = TopRows(limits.k, limits.above)
        self.steps: list[tuple[int, int]] = []
        self.n_walked, self.gave_up = 0, False

    def run(self) -> TopRows:
        """Find the best."""
        cut = self._begin()
        remaining = None
        for _ in range(_MOST_CUTS):
            # Each score to beat puts items out, and each finer cut lowers bounds: after both, fewer remain.
            self._offer_promising(remaining)
            remaining = self._reaching(cut)
            finer, n_steps, apart = self._finer(cut, remaining)
            if finer is None:
                break
            if apart:
                self._lay_apart(remaining, finer)
            else:
                self._places.narrow_to(remaining)
            cut = finer
            self._bound(cut, n_steps)
            remaining = self._reaching(cut)
        remaining = self._reaching(cut)
        if remaining.size * self._cost_per_item > _HOPELESS * self._budget.whole:
            return self._score_everything()
        self._walk(cut, remaining)
        return self.best

    def every_way(self) -> None:
        """Take every step that some search takes, whether it pays here or not."""
        cut = self._begin()
        self._offer_promising(None)
        remaining = self._reaching(cut)
        self._sample.levels()
        self._lay_apart(remaining, cut)
        self._walk_some(cut, np.arange(min(_CHUNK, remaining.size)))

    def _begin(self) -> Cut:
        """Sample, see what walking and scoring take, and bound everything by the first cut."""
        n, allowed = len(self._index), self._limits.allowed
        n_sampled = int(np.clip(n // 2_000, _LEAST_SAMPLED, SAMPLED))
        # Rows drawn when the gallery was indexed. Where too few of them are allowed, every so many of those that are.
        rows = self._index.arrays[SAMPLE]
        if allowed is not None:
            rows = rows[allowed[rows]]
            if rows.size < _LEAST_SAMPLED:
                rows = np.flatnonzero(allowed)
                rows = rows[:: max(1, rows.size // n_sampled)]
        self._sample = sample = self._sampled(rows[:n_sampled])
        n_allowed = n if allowed is None else int(np.count_nonzero(allowed))
        self._budget = Budget.of_sample(
            sample.n_visited, len(sample), self._n_trees, self._trees.width, n_allowed
        )
        cut, n_steps = sample.first_cut()
        self._bound(cut, n_steps)
        return cut

    def _sampled(self, rows: NDArray[np.intp], *, judged: bool = False) -> CutSample:
        return CutSample(self._trees, self._query, self._vectors[rows], judged=judged)

    def _score_everything(self) -> TopRows:
        """Give up: rows in their order are scored faster than rows here and there."""
        self.gave_up = True
        rows, scores = PairScorerMixin._top_k(self._scorer, self._query_row, self._index, self._limits)
        filled = rows[0] >= 0
        self.best = TopRows(self._limits.k, self._limits.above)
        self.best.offer(rows[0, filled], scores[0, filled])
        return self.best

    def _bound(self, cut: Cut, n_steps: int) -> None:
        """Bound every item that is looked at by a cut."""
        low, high = (self._index.arrays[name] for name in (BIN_LOW, BIN_HIGH))
        steps, ends = program(self._trees, cut, n_steps, self._query, low, high)
        self._places.bound(steps, ends)
        items = self._places.n_bounded
        self.steps.append((items, steps.shape[0]))
        self._budget.cost_so_far += n_steps * costs.PROGRAM_TIME + items * steps.shape[0] * costs.STEP_TIME

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

    def _lay_apart(self, places: NDArray[np.int64], cut: Cut) -> None:
        """Give up all items but these; lay their columns that a cut reads side by side."""
        read = self._trees.nodes[np.flatnonzero(cut.expanded), 0] % self._codes.shape[1]
        self._places.lay_apart(places, np.unique(read))

    def _offer_promising(self, remaining: NDArray[np.int64] | None) -> None:
        """Score those of the best bounds, for a score to beat."""
        n_wanted = max(_PROMISING, 2 * self.best.k)
        self._offer(self._places.promising(n_wanted, max(n_wanted, 4 * _PROMISING), remaining))

    def _offer(self, places: NDArray[np.int64]) -> None:
        """Score items by the scoring kernel and keep the best; they wait no longer."""
        if places.size:
            self._places.settle(places)
            rows = self._places.rows(places)
            self._budget.cost_so_far += rows.size * self._budget.score
            self.best.offer(rows, self._scorer._score_rows(self._query_row, self._index, rows)[0])

    def _finer(self, cut: Cut, remaining: NDArray[np.int64]) -> tuple[Cut | None, int, bool]:
        """The next cut, if bounding by it is worth its cost; its nodes; whether to lay columns side by side for it.

        From a sample follows how many items each of some nested cuts would leave, and what walking those takes. The
        cheapest way from each cut on is worked out from the finest backwards: to walk, or to bound by a finer one.
        All costs are in seconds by the constants of `search_costs`.
        """
        budget = self._budget
        self._cost_per_item = budget.score
        at_stake = remaining.size * budget.score
        if at_stake < _WORTHWHILE or budget.room(remaining.size) < costs.WEIGH_TIME:
            return None, 0, False
        # A sample of those left, walked: by as many items as what is at stake pays for.
        n = int(
            np.clip(_WEIGHING * at_stake / (costs.SAMPLE_TIME * self._n_trees), _LEAST_SAMPLED, 4 * SAMPLED)
        )
        n = min(n, remaining.size)
        budget.cost_so_far += costs.WEIGH_TIME + n * self._n_trees * costs.SAMPLE_TIME
        spread = remaining[np.linspace(0, remaining.size - 1, n).astype(np.intp)]
        self._sample = sample = self._sampled(self._places.rows(spread), judged=True)
        to_beat = self._to_beat()
        # What it takes to go on without a finer cut.
        (cost_per_item,), (cut.order,), _ = sample.walks_of(cut, to_beat, budget)
        self._cost_per_item = cost_per_item
        if cost_per_item * remaining.size < _WORTHWHILE:
            return None, 0, False
        level, n_nodes = sample.levels()
        walking, orders, reached = sample.walks(level, len(n_nodes), to_beat, budget)
        # Seconds an item that a cut bounds, from there on. The finest is walked from; the others choose.
        ahead = walking.copy()
        for at in range(len(n_nodes) - 2, -1, -1):
            further = n_nodes > n_nodes[at]
            if reached[at] > 0.0 and further.any():
                apart = self._apart(n_nodes[further], reached[at] * remaining.size) / remaining.size
                ahead[at] = min(ahead[at], (apart + ahead[further]).min())
        # And from here: the costs of each cut itself, whichever way its columns are read, and of what follows it.
        in_place = costs.in_place(n_nodes, n_spanned(remaining))
        apart = self._apart(n_nodes, remaining.size)
        cutting = np.minimum(in_place, apart)
        seconds = cutting + ahead * remaining.size
        best = int(np.argmin(seconds))
        if not seconds[best] < _GAIN * cost_per_item * remaining.size:
            return None, 0, False
        # Half of the sample has not seen the cut: beyond what is to spare, it has to save several times its own cost.
        saved = cost_per_item * remaining.size - seconds[best]
        if cutting[best] > budget.room(remaining.size) and saved < _SURELY * cutting[best]:
            return None, 0, False
        finer = Cut(expanded=(level <= best).astype(np.uint8), order=orders[best])
        return finer, int(n_nodes[best]), bool(apart[best] < in_place[best])

    def _apart(self, n_nodes: NDArray[np.int64], n_items: float) -> NDArray[np.float64]:
        """Seconds of laying items' columns side by side and bounding them there, by the nodes of a cut."""
        return costs.apart(n_nodes, n_items, self._codes.shape[1], self._codes.size / _CACHE_LINE)

    def _walk(self, cut: Cut, remaining: NDArray[np.int64]) -> None:
        """Walk what is left, best bounds first; score it outright where walking spares nothing."""
        budget = self._budget
        # Totals are 16 bits without a sign: taken from the greatest, they sort downwards.
        remaining = remaining[np.argsort(65_535 - self._places.totals[remaining], kind="stable")]
        lowest_first = self._places.totals[remaining][::-1]
        each = costs.ITEM_TIME + self._n_trees * budget.walk
        at, size, outright, walking = 0, _CHUNK, _CHUNK, True
        while True:
            # The best bounds come first: once they do not reach, none does.
            n = remaining.size - int(np.searchsorted(lowest_first, self._total_to_beat(cut)))
            if at >= n:
                return
            n_affordable = min(size, int(budget.room(n - at) / each))
            if walking and n_affordable >= min(_LEAST_WALKED, n - at):
                items = remaining[at : min(at + n_affordable, n)]
                before = budget.cost_so_far
                self._walk_some(cut, items)
                # Walking goes on as long as a chunk took less than scoring it would have.
                walking = budget.cost_so_far - before < items.size * budget.score
                size = min(2 * size, 65_536) if walking else _CHUNK
            else:
                # Those after have lower bounds: ever fewer times, some are walked again.
                items = remaining[at : min(at + outright, n)]
                self._offer(np.sort(items))
                outright, walking = min(2 * outright, 65_536), True
            at += items.size

    def _walk_some(self, cut: Cut, items: NDArray[np.int64]) -> None:
        """Walk items down the trees and score those that are still good at the end."""
        trees, to_beat = self._trees, self._to_beat()
        if cut.order.size == 0:
            _, (cut.order,), _ = self._sample.walks_of(cut, to_beat, self._budget)
        bounds = cut.base + cut.unit * self._places.totals[items].astype(np.float64)
        # From its bound, each tree walked takes what its leaf lies below the tree's bound; ``bounds`` ends as the sums.
        n_walks = kernels.walk_survivors(
            *trees.walk, cut.order, trees.width, trees.pair_map, self._query, self._vectors,
            self._places.rows(items), bounds,
            to_beat, cut.expanded, trees.greatest, trees.leaf_values,
        )  # fmt: skip
        self.n_walked += items.size
        self._budget.cost_so_far += items.size * costs.ITEM_TIME + n_walks * self._budget.walk
        self._offer(np.sort(items[bounds >= to_beat - self._rounding]))


def every_way(trees: SearchTrees, scorer: Any, query: Float32, index: GalleryIndex) -> None:
    """Compile all that `ForestSearch` may use."""
    ForestSearch(trees, scorer, query, index, SearchLimits(1)).every_way()


def forest_top_k(
    trees: SearchTrees, scorer: Any, queries: Float32, index: GalleryIndex, limits: SearchLimits
) -> TopK:
    """`PairScorerMixin.top_k` by `ForestSearch`."""
    rankings = [
        ForestSearch(trees, scorer, queries[at : at + 1], index, limits).run()
        for at in range(queries.shape[0])
    ]
    return padded(rankings, limits.k)
