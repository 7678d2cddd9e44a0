"""Cuts of a forest's trees for one query: which nodes a bound looks at."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32
from pairmark.models.similarity.kernels import search as kernels
from pairmark.models.similarity.search_arrays import SearchTrees

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
