"""Cuts of a forest's trees for one query: which nodes a bound looks at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32
from pairmark.models.similarity.kernels import search as kernels
from pairmark.models.similarity.search_arrays import SearchTrees
from pairmark.models.similarity.search_costs import ITEM_TIME, Budget

_FIRST_STEPS = 9
"""Nodes a tree that the first cut looks at, about."""
_PRICES: Final = np.geomspace(3e-6, 0.1, 31)
"""Prices of a node, as shares of all that cuts can gain: a dear one gives a cut of few nodes."""
_OFTEN = 2
"""Sampled items that pass a node which a cut may look at: a single one says next to nothing."""


@dataclass(kw_only=True)
class Cut:
    """Which nodes are looked at, and what the bytes of its programs mean: ``base + unit x total``.

    Attributes
    ----------
    order : of trees, in which walked items are given up earliest; empty: not worked out yet.
    """

    expanded: NDArray[np.uint8]
    base: float = 0.0
    unit: float = 1.0
    order: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


class Walks(NamedTuple):
    """What walking an item costs after each of nested cuts.

    Attributes
    ----------
    seconds : that an item takes on average if bounded by it, walked and scored if it is still good, or scored outright
        if that is less.
    orders : the best order of trees.
    reached : share of the items that its bounds leave.
    """

    seconds: NDArray[np.float64]
    orders: list[NDArray[np.int64]]
    reached: NDArray[np.float64]


class CutSample:
    """Items that were walked down all trees with a query: they say which cut is good for it.

    Parameters
    ----------
    rows : (n, d) of the items.
    judged : half of them choose cuts, the other half says how good they are. Without that, what a fine cut promises is
        what it has seen of the very rows that it was made for.
    """

    def __init__(self, trees: SearchTrees, query: Float32, rows: Float32, *, judged: bool = False) -> None:
        self._trees, self._query = trees, query
        parts = (rows[::2], rows[1::2]) if judged and len(rows) > 1 else (rows, rows)
        visits = self._visits_of(parts[0])
        self.n_visited = float(visits[:, 0].sum())
        if judged:
            self._visits_of(parts[1])
        self._graph = kernels.often_visited(trees.nodes, visits, _OFTEN, trees.greatest)
        # What bounds by roots alone exceed the items' leaves by, summed over items: what prices are shares of.
        highs = trees.greatest[trees.roots]
        lost = float((highs - self._values).mean()) if len(rows) else 0.0
        self._slack = max(lost, 1e-9) * max(len(rows), 1)

    def __len__(self) -> int:
        return len(self._rows)

    def _visits_of(self, rows: Float32) -> NDArray[np.int32]:
        """How often each node is passed; keeps the rows and the values of their leaves."""
        trees = self._trees
        self._rows = np.ascontiguousarray(rows)
        self._values = np.empty((len(rows), trees.roots.size))
        visits = np.zeros((trees.nodes.shape[0], 2), dtype=np.int32)
        kernels.visit(
            *trees.walk, trees.width, trees.pair_map, self._query, self._rows, self._values, trees.leaf_values,
            visits,
        )  # fmt: skip
        return visits

    def _cut(self, price: float) -> tuple[Cut, int]:
        """The best cut at a price a node, as a share of what there is to gain; and its number of nodes."""
        node_numbers, children, child_visits, bounds = self._graph
        in_cut = np.empty(node_numbers.size, dtype=np.uint8)
        kernels.choose(children, child_visits, bounds, price * self._slack, in_cut)
        expanded = np.zeros(self._trees.nodes.shape[0], dtype=np.uint8)
        n = kernels.cut_of(node_numbers, children, in_cut, self._trees.roots, expanded)
        return Cut(expanded=expanded), int(n)

    def first_cut(self) -> tuple[Cut, int]:
        """The largest cut of about so many nodes, by bisection: nodes only grow in number as they get cheaper."""
        low, high = 0, len(_PRICES) - 1
        while low < high:
            middle = (low + high) // 2
            if self._cut(_PRICES[middle])[1] <= _FIRST_STEPS * self._trees.roots.size:
                high = middle
            else:
                low = middle + 1
        return self._cut(_PRICES[low])

    def levels(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Nested cuts by price: the first that looks at each node, and how many nodes each looks at."""
        # From dear to cheap, every second price: the coarsest cut first.
        cuts = [self._cut(price)[0].expanded for price in _PRICES[::-2]]
        level = np.full(self._trees.nodes.shape[0], len(cuts), dtype=np.uint8)
        for at in range(len(cuts) - 1, -1, -1):
            level[cuts[at] == 1] = at
        return level, np.cumsum(np.bincount(level, minlength=len(cuts) + 1)[: len(cuts)])

    def walks(self, level: NDArray[np.uint8], n_levels: int, to_beat: float, budget: Budget) -> Walks:
        """What walking costs after each of nested cuts, with this sum to beat."""
        trees, n = self._trees, len(self._rows)
        bounds = np.empty((n_levels, n, trees.roots.size))
        kernels.bounds_of_rows(
            *trees.walk, trees.width, trees.pair_map, self._query, self._rows, level, n_levels, trees.greatest,
            bounds,
        )  # fmt: skip
        seconds, reached = np.zeros(n_levels), np.zeros(n_levels)
        orders = []
        for at in range(n_levels):
            # (items, trees): what walking a tree takes off an item's bound. Trees that take most come first, so that
            # items are given up early.
            gap = bounds[at] - self._values
            order = np.argsort(-gap.sum(axis=0), kind="stable")
            orders.append(order)
            whole = bounds[at].sum(axis=1)
            reaching = whole >= to_beat
            # Each item's bound after each walked tree: it is walked for as long as that reaches, and one tree more.
            after = whole[reaching, None] - np.cumsum(gap[reaching][:, order], axis=1)
            walked = 1 + (after >= to_beat).sum(axis=1)
            if n:
                good = whole - gap.sum(axis=1) >= to_beat
                walking = (ITEM_TIME + walked * budget.walk).sum() + np.count_nonzero(good) * budget.score
                seconds[at] = min(walking, np.count_nonzero(reaching) * budget.score) / n
                reached[at] = reaching.mean()
        return Walks(seconds, orders, reached)

    def walks_of(self, cut: Cut, to_beat: float, budget: Budget) -> Walks:
        """What walking costs after one cut."""
        return self.walks((cut.expanded == 0).astype(np.uint8), 1, to_beat, budget)


def program(
    trees: SearchTrees, cut: Cut, n_steps: int, query: Float32, low: Float32, high: Float32
) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """A cut as programs for a query, over bins from ``low`` to ``high``; says in the cut what their bytes mean."""
    n_trees = trees.roots.size
    cut.unit = _unit(trees, cut.expanded)
    base = np.empty(n_trees)
    steps = np.empty((n_steps, kernels.STEP_FIELDS), dtype=np.int16)
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
