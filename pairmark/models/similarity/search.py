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
some leaf of great value, as log-odds of small leaves do. Where they do not prune, they give up: `_Budget` adds up what
each part of a search takes, by counting nodes, items and steps and never by the clock, and what is left is scored
outright before the sum exceeds what scoring everything takes by more than a tenth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32
from pairmark.models.core.base import PairScorerMixin
from pairmark.models.core.search.index import GalleryIndex, TopK, TopRows, padded, sealed
from pairmark.models.similarity.kernels import search as kernels
from pairmark.models.similarity.search_arrays import BIN_HIGH, BIN_LOW, CODES, SAMPLE, SAMPLED, SearchTrees

SMALLEST = 8_192
"""Galleries of fewer rows are scored outright, which takes milliseconds."""
FEW_WALKS = 1_500_000
"""So are those of fewer rows than `SMALLEST` and this divided by the number of trees: sampling and choosing the first
cut take about a tenth of scoring those."""
_LEAST_SAMPLED = 48
"""Items whose walks say which nodes to look at where the gallery is small, and time short; else `SAMPLED`."""
_FIRST_STEPS = 9
"""Nodes a tree that the first cut looks at, about."""
_PRICES: Final = np.geomspace(3e-6, 0.1, 31)
_PROMISING = 96
_STEP_TIME, _NODE_TIME, _ITEM_TIME = 0.03e-9, 6e-9, 150e-9
"""Seconds that one step takes an item, one node a walked item, one item to begin walking: measured once, roughly, for
they only decide which of several exact ways is taken."""
_SCORE_NODE_TIME, _SCORE_VALUE_TIME = 2.5e-9, 2e-9
"""Seconds that one node and one feature take an item that is scored outright, in blocks: less than walking does."""
_PROGRAM_TIME, _WEIGH_TIME = 1e-6, 4e-3
"""Seconds that one step takes to be written, and those of weighing finer cuts whatever is sampled for it."""
_SPARE = 0.1
"""What a search may take beyond scoring everything, as a share of that."""
_GATHER_TIME, _LINE_TIME = 1e-9, 6e-9
"""Seconds that it takes to lay a byte beside the others, and to fetch a line of memory for it."""
_SAMPLE_TIME = 400e-9
"""Seconds that a sampled item takes a tree, weighing included."""
_WORTHWHILE = 2e-3
"""Seconds of walking below which no finer cut is looked for."""
_LEAST_WALKED = 128
"""Items that walking is worth its calls for, where there are as many."""
_HOPELESS = 0.8
"""Share of scoring everything that what is left is expected to take from which on everything is scored."""
_SURELY = 2.0
"""Times its own cost that a cut has to promise to save where the search could not afford it in vain."""
_MOST_CUTS = 8
_CHUNK = 512


@dataclass(kw_only=True)
class _Cut:
    """Which nodes are looked at, and what the bytes of its programs mean: ``base + unit x total``."""

    expanded: NDArray[np.uint8]
    base: float = 0.0
    unit: float = 1.0
    order: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@dataclass(kw_only=True)
class _Budget:
    """What a search took so far, beside what scoring would have taken; seconds by the constants above.

    Attributes
    ----------
    walk, score : one item down one tree by itself; one item by all trees, scored in blocks.
    whole : scoring everything.
    cost_so_far : what the search took.
    """

    walk: float
    score: float
    whole: float
    cost_so_far: float

    def room(self, n_remaining: int) -> float:
        """Seconds that may be spent in vain, the items left being scored outright after that."""
        return (1.0 + _SPARE) * self.whole - self.cost_so_far - n_remaining * self.score


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
        k: int,
        allowed: NDArray[np.bool_] | None,
        above: np.float32 | None,
    ) -> None:
        self._trees, self._scorer, self._index, self._allowed = trees, scorer, index, allowed
        self._query_row, self._query = query, np.ascontiguousarray(query[0])
        self._vectors = sealed(index.vectors)
        self._codes, self._low, self._high = (index.arrays[name] for name in (CODES, BIN_LOW, BIN_HIGH))
        self._n, self._n_trees = len(index), trees.roots.size
        # What is looked at: all items, or those whose columns were laid side by side, and which rows these are.
        self._columns = self._codes
        self._rows_of: NDArray[np.int64] | None = None
        n_places = self._codes.shape[0] * kernels.BLOCK
        self._total = np.zeros(n_places, dtype=np.uint16)
        # The last block may be longer than the gallery: nothing waits there.
        self._waiting = np.zeros(n_places, dtype=np.bool_)
        self._waiting[: self._n] = True if allowed is None else allowed
        self._blocks = np.arange(self._codes.shape[0], dtype=np.int64)
        # Sums differ from what the scoring kernel adds up by rounding alone.
        self._rounding = 1e-9 * float(np.abs(trees.leaf_values).max(initial=1.0)) * self._n_trees
        self._n_sampled = int(np.clip(self._n // 2_000, _LEAST_SAMPLED, SAMPLED))
        self._n_allowed = self._n if allowed is None else int(np.count_nonzero(allowed))
        # Seconds that an item takes from here on if no finer cut is made.
        self._cost_per_item = 0.0
        self._above, self.best = above, TopRows(k, above)
        self.steps: list[tuple[int, int]] = []
        self.n_walked, self.gave_up = 0, False

    def run(self) -> TopRows:
        """Find the best."""
        rows = self._index.arrays[SAMPLE]
        if self._allowed is not None:
            self._blocks = self._blocks[np.logical_or.reduceat(self._allowed, self._blocks * kernels.BLOCK)]
            rows = rows[self._allowed[rows]]
            if rows.size < _LEAST_SAMPLED:
                rows = np.flatnonzero(self._allowed)
                rows = rows[:: max(1, rows.size // self._n_sampled)]
        self._sample(rows[: self._n_sampled])
        self._price()
        cut, n_steps = self._first_cut()
        self._bound(cut, n_steps)
        remaining = None
        for _ in range(_MOST_CUTS):
            self._offer_promising(remaining)
            remaining = self._reaching(cut)
            finer, n_steps, apart = self._finer(cut, remaining)
            if finer is None:
                break
            self._narrow_to(remaining, finer if apart else None)
            cut = finer
            self._bound(cut, n_steps)
            remaining = self._reaching(cut)
        remaining = self._reaching(cut)
        if remaining.size * self._cost_per_item > _HOPELESS * self._budget.whole:
            return self._score_everything()
        self._walk(cut, remaining)
        return self.best

    def _score_everything(self) -> TopRows:
        """Give up: rows in their order are scored faster than rows here and there."""
        self.gave_up = True
        rows, scores = PairScorerMixin._top_k(
            self._scorer, self._query_row, self._index, self.best.k, self._allowed, self._above
        )
        filled = rows[0] >= 0
        self.best = TopRows(self.best.k, self._above)
        self.best.offer(rows[0, filled], scores[0, filled])
        return self.best

    def _sample(self, rows: NDArray[np.intp], *, judged: bool = False) -> None:
        """Walk some rows down the trees. ``judged``: half of them choose cuts, the other half says how good they are.

        Without that, what a fine cut promises is what it has seen of the very rows that it was made for.
        """
        parts = (rows[::2], rows[1::2]) if judged and rows.size > 1 else (rows, rows)
        visits = self._visits_of(parts[0])
        if judged:
            self._visits_of(parts[1])
        trees, self._visits = self._trees, visits
        # A node that a single sampled item passes says next to nothing.
        self._graph = kernels.often_visited(trees.nodes, visits, 2, trees.greatest)
        highs = trees.greatest[trees.roots]
        self._slack = max(float((highs - self._values).mean()) if rows.size else 0.0, 1e-9) * max(
            rows.size, 1
        )

    def every_way(self) -> None:
        """Take every step that some search takes, whether it pays here or not."""
        self._sample(self._index.arrays[SAMPLE][: self._n_sampled])
        self._price()
        cut, n_steps = self._first_cut()
        self._bound(cut, n_steps)
        self._offer_promising(None)
        remaining = self._reaching(cut)
        self._levels()
        self._narrow_to(remaining, cut)
        self._walk_some(cut, np.arange(min(_CHUNK, remaining.size)))

    def _price(self) -> None:
        """What walking and scoring take with these trees and this query, by the nodes that the sample passed."""
        nodes = float(self._visits[:, 0].sum()) / max(self._rows.shape[0], 1)
        score = _SCORE_NODE_TIME * nodes + _SCORE_VALUE_TIME * self._trees.width
        self._budget = _Budget(
            walk=_NODE_TIME * nodes / self._n_trees,
            score=score,
            whole=self._n_allowed * score,
            cost_so_far=self._rows.shape[0] * self._n_trees * _SAMPLE_TIME,
        )

    def _visits_of(self, rows: NDArray[np.intp]) -> NDArray[np.int32]:
        trees = self._trees
        self._rows = np.ascontiguousarray(self._vectors[rows])
        self._values = np.empty((rows.size, self._n_trees))
        visits = np.zeros((trees.nodes.shape[0], 2), dtype=np.int32)
        kernels.visit(
            *trees.walk, trees.width, trees.pair_map, self._query, self._rows, self._values, trees.leaf_values,
            visits,
        )  # fmt: skip
        return visits

    def _cut(self, price: float) -> tuple[_Cut, int]:
        """The best cut at a price a node, as a share of what there is to gain; and its number of nodes."""
        node_numbers, children, child_visits, bounds = self._graph
        in_cut = np.empty(node_numbers.size, dtype=np.uint8)
        kernels.choose(children, child_visits, bounds, price * self._slack, in_cut)
        expanded = np.zeros(self._trees.nodes.shape[0], dtype=np.uint8)
        n = kernels.cut_of(node_numbers, children, in_cut, self._trees.roots, expanded)
        return _Cut(expanded=expanded), int(n)

    def _first_cut(self) -> tuple[_Cut, int]:
        """The largest cut of about so many nodes, by bisection: nodes only grow in number as they get cheaper."""
        low, high = 0, len(_PRICES) - 1
        while low < high:
            middle = (low + high) // 2
            if self._cut(_PRICES[middle])[1] <= _FIRST_STEPS * self._n_trees:
                high = middle
            else:
                low = middle + 1
        return self._cut(_PRICES[low])

    def _bound(self, cut: _Cut, n_steps: int) -> None:
        """Bound every item that is looked at by a cut."""
        steps, ends = self._program(cut, n_steps)
        kernels.evaluate(steps, ends, self._columns, self._blocks, self._total)
        items = int(self._blocks.size) * kernels.BLOCK
        self.steps.append((items, steps.shape[0]))
        self._budget.cost_so_far += n_steps * _PROGRAM_TIME + items * steps.shape[0] * _STEP_TIME

    def _program(self, cut: _Cut, n_steps: int) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """A cut as programs for this query; says in the cut what their bytes mean."""
        trees = self._trees
        cut.unit = self._unit(cut.expanded)
        base = np.empty(self._n_trees)
        steps = np.empty((n_steps, kernels.STEP_FIELDS), dtype=np.int16)
        ends = np.empty(self._n_trees, dtype=np.int64)
        n_written = kernels.compile_cut(
            *trees.walk, trees.starts, trees.width, trees.pair_map, self._query, self._low, self._high,
            cut.expanded, trees.greatest, cut.unit, base, steps, ends,
        )  # fmt: skip
        cut.base = float(base.sum())
        return steps[:n_written], ends

    def _unit(self, expanded: NDArray[np.uint8]) -> float:
        """What a byte's step is worth, so that every tree's bounds fit a byte and their sum 16 bits."""
        trees = self._trees
        inside = np.flatnonzero(expanded)
        if not inside.size:
            return 1.0
        below = trees.greatest[trees.nodes[inside, 2:]].min(axis=1)
        tree = np.searchsorted(trees.starts, inside, side="right") - 1
        lowest = trees.greatest[trees.roots].copy()
        np.minimum.at(lowest, tree, below)
        width = float((trees.greatest[trees.roots] - lowest).max())
        return max(width, 1e-300) / (min(255, 65_535 // self._n_trees) - 1)

    def _to_beat(self) -> float:
        """The sum below which an item is out."""
        floor = np.nextafter(self.best.floor, np.float32(-np.inf))
        return float(floor) * self._n_trees - self._rounding

    def _total_to_beat(self, cut: _Cut) -> int:
        to_beat = self._to_beat()
        if to_beat == -np.inf:
            return 0
        return int(np.clip(np.ceil((to_beat - cut.base) / cut.unit - 1e-6), 0, 65_536))

    def _reaching(self, cut: _Cut) -> NDArray[np.int64]:
        """Places of the items still to be looked at whose bound is good enough."""
        places: NDArray[np.int64] = kernels.reaching(
            self._total, self._waiting, self._blocks, self._total_to_beat(cut)
        )
        return places

    def _rows_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places if self._rows_of is None else self._rows_of[places]

    def _narrow_to(self, places: NDArray[np.int64], cut: _Cut | None) -> None:
        """Give up all items but these; lay their columns side by side for a cut, if one is given."""
        if cut is None:
            waiting = np.zeros_like(self._waiting)
            waiting[places] = self._waiting[places]
            self._waiting = waiting
            blocks = places // kernels.BLOCK
            self._blocks = blocks[np.diff(blocks, prepend=-1) > 0]
            return
        rows = self._rows_at(places)
        n_blocks = -(-rows.size // kernels.BLOCK)
        d = self._codes.shape[1]
        features = np.unique(self._trees.nodes[np.flatnonzero(cut.expanded), 0] % d)
        self._columns = np.zeros((n_blocks, d, kernels.BLOCK), dtype=np.uint8)
        kernels.gather(self._codes, rows, features, self._columns)
        self._rows_of = rows
        self._blocks = np.arange(n_blocks, dtype=np.int64)
        self._total = np.zeros(n_blocks * kernels.BLOCK, dtype=np.uint16)
        waiting = np.zeros(self._total.size, dtype=np.bool_)
        waiting[: rows.size] = self._waiting[places]
        self._waiting = waiting

    def _offer_promising(self, remaining: NDArray[np.int64] | None) -> None:
        """Score those of the best bounds, for a score to beat."""
        n_wanted = max(_PROMISING, 2 * self.best.k)
        counts = np.zeros(65_536, dtype=np.int64)
        if remaining is None:
            kernels.histogram(self._total, self._waiting, self._blocks, counts)
        else:
            counts += np.bincount(self._total[remaining], minlength=65_536)
        from_above = np.cumsum(counts[::-1])
        if not from_above[-1]:
            return
        min_total = 65_535 - int(np.searchsorted(from_above, min(n_wanted, from_above[-1])))
        places = kernels.reaching(self._total, self._waiting, self._blocks, min_total)
        places = places[
            np.argsort(-self._total[places].astype(np.int32), kind="stable")[: max(n_wanted, 4 * _PROMISING)]
        ]
        self._offer(np.sort(places))

    def _offer(self, places: NDArray[np.int64]) -> None:
        if places.size:
            self._waiting[places] = False
            rows = self._rows_at(places)
            self._budget.cost_so_far += rows.size * self._budget.score
            self.best.offer(rows, self._scorer._score_rows(self._query_row, self._index, rows)[0])

    def _finer(self, cut: _Cut, remaining: NDArray[np.int64]) -> tuple[_Cut | None, int, bool]:
        """The next cut, if bounding by it is worth its cost; its nodes; whether to lay columns side by side for it.

        From a sample follows how many items each of some nested cuts would leave, and what walking those takes. The
        cheapest way from each cut on is worked out from the finest backwards: to walk, or to bound by a finer one.
        """
        budget = self._budget
        self._cost_per_item = budget.score
        at_stake = remaining.size * budget.score
        if at_stake < _WORTHWHILE or budget.room(remaining.size) < _WEIGH_TIME:
            return None, 0, False
        n = int(np.clip(0.05 * at_stake / (_SAMPLE_TIME * self._n_trees), _LEAST_SAMPLED, 4 * SAMPLED))
        n = min(n, remaining.size)
        budget.cost_so_far += _WEIGH_TIME + n * self._n_trees * _SAMPLE_TIME
        self._sample(
            self._rows_at(remaining[np.linspace(0, remaining.size - 1, n).astype(np.intp)]), judged=True
        )
        (cost_per_item,), (cut.order,), _ = self._walking((cut.expanded == 0).astype(np.uint8), 1)
        self._cost_per_item = cost_per_item
        if cost_per_item * remaining.size < _WORTHWHILE:
            return None, 0, False
        level, n_nodes = self._levels()
        walking, orders, reached = self._walking(level, len(n_nodes))
        ahead = walking.copy()
        for at in range(len(n_nodes) - 2, -1, -1):
            further = n_nodes > n_nodes[at]
            if reached[at] > 0.0 and further.any():
                apart = self._apart(reached[at] * remaining.size, n_nodes[further]) / remaining.size
                ahead[at] = min(ahead[at], (apart + ahead[further]).min())
        in_place = n_nodes * (_PROGRAM_TIME + self._spanned(remaining) * _STEP_TIME)
        apart = self._apart(remaining.size, n_nodes)
        cutting = np.minimum(in_place, apart)
        costs = cutting + ahead * remaining.size
        best = int(np.argmin(costs))
        if not costs[best] < 0.9 * cost_per_item * remaining.size:
            return None, 0, False
        # Half of the sample has not seen the cut: beyond what is to spare, it has to save several times its own cost.
        saved = cost_per_item * remaining.size - costs[best]
        if cutting[best] > budget.room(remaining.size) and saved < _SURELY * cutting[best]:
            return None, 0, False
        finer = _Cut(expanded=(level <= best).astype(np.uint8), order=orders[best])
        return finer, int(n_nodes[best]), bool(apart[best] < in_place[best])

    def _apart(self, n_items: float, n_nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds that it takes to lay items' columns side by side and to bound them by so many nodes."""
        n_bytes = self._codes.shape[1] * n_items
        lines = min(n_bytes, self._codes.size / 64)
        laid: NDArray[np.float64] = (
            n_nodes * (_PROGRAM_TIME + n_items * _STEP_TIME) + n_bytes * _GATHER_TIME + lines * _LINE_TIME
        )
        return laid

    def _spanned(self, places: NDArray[np.int64]) -> int:
        """Items of all blocks that these places are in."""
        return (1 + int(np.count_nonzero(np.diff(places // kernels.BLOCK)))) * kernels.BLOCK

    def _levels(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Nested cuts by price: the first that looks at each node, and how many nodes each looks at."""
        cuts = [self._cut(price)[0].expanded for price in _PRICES[::-2]]
        level = np.full(self._trees.nodes.shape[0], len(cuts), dtype=np.uint8)
        for at in range(len(cuts) - 1, -1, -1):
            level[cuts[at] == 1] = at
        return level, np.cumsum(np.bincount(level, minlength=len(cuts) + 1)[: len(cuts)])

    def _walking(
        self, level: NDArray[np.uint8], n_levels: int
    ) -> tuple[NDArray[np.float64], list[NDArray[np.int64]], NDArray[np.float64]]:
        """For each of nested cuts: seconds that a sampled item takes on average if bounded by it, walked and scored if
        it is still good, or scored outright if that is less; the best order of trees; the share of items left."""
        trees, n = self._trees, self._rows.shape[0]
        bounds = np.empty((n_levels, n, self._n_trees))
        kernels.bounds_of_rows(
            *trees.walk, trees.width, trees.pair_map, self._query, self._rows, level, n_levels, trees.greatest,
            bounds,
        )  # fmt: skip
        seconds, reached = np.zeros(n_levels), np.zeros(n_levels)
        orders = []
        to_beat = self._to_beat()
        for at in range(n_levels):
            gap = bounds[at] - self._values
            order = np.argsort(-gap.sum(axis=0), kind="stable")
            orders.append(order)
            whole = bounds[at].sum(axis=1)
            reaching = whole >= to_beat
            after = whole[reaching, None] - np.cumsum(gap[reaching][:, order], axis=1)
            walked = 1 + (after >= to_beat).sum(axis=1)
            if n:
                budget, good = self._budget, whole - gap.sum(axis=1) >= to_beat
                walking = (_ITEM_TIME + walked * budget.walk).sum() + np.count_nonzero(good) * budget.score
                seconds[at] = min(walking, np.count_nonzero(reaching) * budget.score) / n
                reached[at] = reaching.mean()
        return seconds, orders, reached

    def _walk(self, cut: _Cut, remaining: NDArray[np.int64]) -> None:
        """Walk what is left, best bounds first; score it outright where walking spares nothing."""
        budget = self._budget
        remaining = remaining[np.argsort(65_535 - self._total[remaining], kind="stable")]
        lowest_first = self._total[remaining][::-1]
        each = _ITEM_TIME + self._n_trees * budget.walk
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
                walking = budget.cost_so_far - before < items.size * budget.score
                size = min(2 * size, 65_536) if walking else _CHUNK
            else:
                # Those after have lower bounds: ever fewer times, some are walked again.
                items = remaining[at : min(at + outright, n)]
                self._offer(np.sort(items))
                outright, walking = min(2 * outright, 65_536), True
            at += items.size

    def _walk_some(self, cut: _Cut, items: NDArray[np.int64]) -> None:
        """Walk items down the trees and score those that are still good at the end."""
        trees, to_beat = self._trees, self._to_beat()
        if cut.order.size == 0:
            _, (cut.order,), _ = self._walking((cut.expanded == 0).astype(np.uint8), 1)
        bounds = cut.base + cut.unit * self._total[items].astype(np.float64)
        n_walks = kernels.walk_survivors(
            *trees.walk, cut.order, trees.width, trees.pair_map, self._query, self._vectors,
            self._rows_at(items), bounds,
            to_beat, cut.expanded, trees.greatest, trees.leaf_values,
        )  # fmt: skip
        self.n_walked += items.size
        self._budget.cost_so_far += items.size * _ITEM_TIME + n_walks * self._budget.walk
        self._offer(np.sort(items[bounds >= to_beat - self._rounding]))


def every_way(trees: SearchTrees, scorer: Any, query: Float32, index: GalleryIndex) -> None:
    """Compile all that `ForestSearch` may use."""
    ForestSearch(trees, scorer, query, index, 1, None, None).every_way()


def forest_top_k(
    trees: SearchTrees,
    scorer: Any,
    queries: Float32,
    index: GalleryIndex,
    k: int,
    allowed: NDArray[np.bool_] | None,
    above: np.float32 | None,
) -> TopK:
    """`PairScorerMixin.top_k` by `ForestSearch`."""
    rankings = [
        ForestSearch(trees, scorer, queries[at : at + 1], index, k, allowed, above).run()
        for at in range(queries.shape[0])
    ]
    return padded(rankings, k)
