"""Fitted trees: what they hold, as files hold and check them, and packed for scoring.

Files hold all trees end to end, checked so that every walk ends in a leaf of its own tree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32, Float64, Int32, Int64
from pairmark.models.core.progress import in_threads
from pairmark.models.core.state import Array, StoredState, refuse, require, require_offsets
from pairmark.models.pairs.sampling import PairMap
from pairmark.models.similarity.kernels import layout
from pairmark.models.similarity.kernels import scoring as scoring_kernels
from pairmark.models.similarity.kernels.layout import (
    CELL_DEPTH,
    CELL_DIFFERENT,
    CELL_LEFT,
    CELL_NODE,
    CELL_POSITION,
    CELL_RIGHT,
    CELL_SAME,
)

PAIR_MAPS: dict[str, int] = {
    "diff-sum": layout.DIFF_SUM,
    "max-min": layout.MAX_MIN,
}
HALF_NAMES = {
    "diff-sum": ("|x - x'|", "x + x'"),
    "max-min": ("max(x, x')", "min(x, x')"),
}


_NODE_ARRAYS = {
    "node_feature": "features",
    "node_threshold": "thresholds",
    "node_low": "node_low",
    "node_high": "node_high",
}
"""Attributes of a tree with one entry a node, by the names of their arrays in a file."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """One oriented tree: cells, and the nodes that lead from a cell to its two children.

    Attributes
    ----------
    cells : (n_cells, 7) int64: depth j, position k from the left, first node (-1: none, a leaf), weight of same and
        of different training pairs, left and right child cell (-1: none).
    features : (n_nodes,) int32, the pair feature that each node tests: a feature, plus the number of features for the
        pair map's second half.
    thresholds : (n_nodes,) float32.
    node_low, node_high : (n_nodes,) int32: where a pair goes whose value is at most, or above, the threshold;
        a node (>= 0) or ``-1 - cell``.
    """

    cells: Int64
    features: Int32
    thresholds: Float32
    node_low: Int32
    node_high: Int32

    @property
    def leaves(self) -> Int64:
        """Terminal cells, from left (most similar) to right."""
        terminal = np.flatnonzero(self.cells[:, layout.CELL_NODE] < 0)
        depth, position = (
            self.cells[terminal, layout.CELL_DEPTH],
            self.cells[terminal, layout.CELL_POSITION],
        )
        return terminal[np.argsort(position << (depth.max() - depth), kind="stable")]

    def leaf_scores(self, depth: int) -> Float64:
        """``2^J (1 - k / 2^j)`` of each leaf (Clemencon & Vogel, section 2.2 and eq. 4), J = ``depth``."""
        leaves = self.cells[self.leaves]
        return 2.0**depth - leaves[:, layout.CELL_POSITION] * 2.0 ** (depth - leaves[:, layout.CELL_DEPTH])

    def leaf_log_odds(self) -> Float64:
        """Log of F+ over F- of each leaf, with half a pair added to either side of it."""
        leaves, root = self.cells[self.leaves], self.cells[0]
        same, different = leaves[:, layout.CELL_SAME], leaves[:, layout.CELL_DIFFERENT]
        odds = (
            (same + 0.5)
            / (root[layout.CELL_SAME] + 1.0)
            * (root[layout.CELL_DIFFERENT] + 1.0)
            / (different + 0.5)
        )
        return np.asarray(np.log(odds), dtype=np.float64)

    def roc(self) -> tuple[Float64, Float64]:
        """Knots (alpha, beta) = cumulated (F-, F+) of the leaves from left to right, from (0, 0) to (1, 1).

        The chance line where the training pairs were of one kind.
        """
        leaves, root = self.cells[self.leaves], self.cells[0]
        if not root[layout.CELL_SAME] or not root[layout.CELL_DIFFERENT]:
            return np.array([0.0, 1.0]), np.array([0.0, 1.0])
        below = np.cumsum(leaves[:, [layout.CELL_DIFFERENT, layout.CELL_SAME]], axis=0)
        totals = np.maximum(root[[layout.CELL_DIFFERENT, layout.CELL_SAME]], 1)
        knots = np.vstack([np.zeros((1, 2)), below / totals])
        return knots[:, 0], knots[:, 1]

    def auc(self) -> float:
        """``1/2 + 1/2`` of the sum of Lambda over every split cell: the area under the broken line of `roc`."""
        return 0.5 + float(self.gains().sum())

    def gains(self) -> Float64:
        """What each split cell adds to the AUC, (n_cells,), half its Lambda; 0 for leaves."""
        counts = self.cells[:, [layout.CELL_SAME, layout.CELL_DIFFERENT]].astype(np.float64)
        rates = counts / np.maximum(counts[0], 1e-300)
        out = np.zeros(self.cells.shape[0])
        split = np.flatnonzero(self.cells[:, layout.CELL_NODE] >= 0)
        left = self.cells[split, layout.CELL_LEFT]
        out[split] = 0.5 * (rates[split, 1] * rates[left, 0] - rates[split, 0] * rates[left, 1])
        return out

    def top(self, depth: int) -> "Tree":
        """The tree with the cells of this depth for leaves; the cells below stay in the table, out of reach."""
        cells = self.cells.copy()
        cells[cells[:, layout.CELL_DEPTH] >= depth, layout.CELL_NODE] = -1
        is_kept = cells[self.cell_of_node, layout.CELL_NODE] >= 0
        number = np.cumsum(is_kept, dtype=np.int32) - 1
        split = cells[:, layout.CELL_NODE] >= 0
        cells[split, layout.CELL_NODE] = number[cells[split, layout.CELL_NODE]]
        low, high = (
            np.where(child >= 0, number[np.maximum(child, 0)], child)
            for child in (self.node_low[is_kept], self.node_high[is_kept])
        )
        return Tree(
            cells=cells,
            features=self.features[is_kept],
            thresholds=self.thresholds[is_kept],
            node_low=low,
            node_high=high,
        )

    @property
    def cell_of_node(self) -> Int64:
        """(n_nodes,) the cell that each node splits; the nodes of a cell follow one another."""
        starts = self.cells[:, layout.CELL_NODE]
        split = np.flatnonzero(starts >= 0)
        split = split[np.argsort(starts[split])]
        return np.repeat(split, np.diff(np.append(starts[split], self.features.size)))


def joined_arrays(trees: Sequence[Tree]) -> dict[str, NDArray[Any]]:
    """Named arrays of all trees, at least one, end to end, with where each begins."""
    return {
        **{
            name: np.concatenate([getattr(tree, attribute) for tree in trees])
            for name, attribute in _NODE_ARRAYS.items()
        },
        "cells": np.concatenate([tree.cells for tree in trees]),
        "node_starts": np.cumsum([0, *(tree.features.size for tree in trees)], dtype=np.int64),
        "cell_starts": np.cumsum([0, *(tree.cells.shape[0] for tree in trees)], dtype=np.int64),
    }


def parted_trees(arrays: Mapping[str, NDArray[Any]]) -> list[Tree]:
    """The trees of `joined_arrays`."""
    nodes = [slice(*ends) for ends in pairwise(arrays["node_starts"].tolist())]
    cells = [slice(*ends) for ends in pairwise(arrays["cell_starts"].tolist())]
    return [
        Tree(
            cells=arrays["cells"][its_cells],
            **{attribute: arrays[name][its_nodes] for name, attribute in _NODE_ARRAYS.items()},
        )
        for its_nodes, its_cells in zip(nodes, cells, strict=True)
    ]


_PLACE_BITS = 16
"""Bits of a node's word that number a place. What features take beyond `FEATURE_BITS`, places lack: they are equal more
often, which is slower, never wrong."""


class Nodes(NamedTuple):
    """Nodes of one word each, see `scoring_kernels.score_pairs`.

    Attributes
    ----------
    words : (n_nodes,) uint64. thresholds : (n_nodes,) float32. lows, scales : (features,) float32.
    feature_bits : of a word. top : the last place.
    """

    words: NDArray[np.uint64]
    thresholds: Float32
    lows: Float32
    scales: Float32
    feature_bits: int
    top: int

    def spanning(self, n_features: int) -> "Nodes":
        """The same with entries for so many features: none is tested beyond those there are."""
        if n_features <= self.lows.size:
            return self
        padding = np.zeros(n_features - self.lows.size, dtype=np.float32)
        return self._replace(lows=np.append(self.lows, padding), scales=np.append(self.scales, padding))


def packed_nodes(
    node_features: list[Int32],
    node_thresholds: list[Float32],
    children: list[list[NDArray[np.uint64]]],
) -> Nodes:
    """The nodes as words, tree by tree.

    The steps of a feature's places span all but the outermost thousandths of its thresholds: where many values fall
    on one step scoring is slower, never wrong.

    Raises
    ------
    ValueError
        Where a tree or the number of features is too large for a word.
    """
    features = np.concatenate(node_features)
    last = max((int(side.max(initial=0)) for pair in children for side in pair), default=0)
    n_features = int(features.max(initial=-1)) + 1
    feature_bits = max(scoring_kernels.FEATURE_BITS, (n_features - 1).bit_length())
    place_bits = min(_PLACE_BITS, 64 - 2 * scoring_kernels.CHILD_BITS - feature_bits)
    if last >> scoring_kernels.CHILD_BITS or place_bits < 1:
        raise ValueError(
            f"a tree has {last:,} nodes and leaves, and tests {n_features:,} pair features; expected at most "
            f"{1 << scoring_kernels.CHILD_BITS:,} and 33,554,432: lower max_depth or leaf_depth"
        )
    top = (1 << place_bits) - 1
    thresholds = np.concatenate(node_thresholds).astype(np.float32) + np.float32(0.0)
    order = np.argsort(features, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(features, minlength=n_features))])
    lows, scales = np.zeros(n_features), np.ones(n_features)
    for f in range(n_features):
        values = np.sort(thresholds[order[bounds[f] : bounds[f + 1]]]).astype(np.float64)
        if values.size:
            tail = values.size // 1_000
            low, span = values[tail], values[values.size - 1 - tail] - values[tail]
            if span == 0.0:
                span = max(abs(low) * 1e-3, 1e-12)
            lows[f] = max(low - span / 2.0, -3e38)
            scales[f] = top / (2.0 * span)
    words = np.empty(features.size, dtype=np.uint64)
    nodes = Nodes(words, thresholds, lows.astype(np.float32), scales.astype(np.float32), feature_bits, top)
    low, high = (np.concatenate([pair[side] for pair in children]) for side in range(2))
    scoring_kernels.pack(features, thresholds, low, high, *nodes[2:], words)
    return nodes


class PackedTrees:
    """Trees in the form that they are scored in.

    Parameters
    ----------
    trees : at least one. values : for each tree, the value of each of its `Tree.leaves`.
    """

    def __init__(self, trees: Sequence[Tree], values: list[Float64], *, pair_map: PairMap) -> None:
        self.pair_map = pair_map
        # As scoring kernels take them: where each tree's nodes begin, values of leaves, where each tree's begin.
        self.leaves = (
            np.cumsum([0, *(tree.features.size for tree in trees)], dtype=np.int64),
            np.concatenate(values),
            np.cumsum([0, *(leaf.size for leaf in values)], dtype=np.int64),
        )
        # The most that each tree and those after it can add: the greatest leaf of each.
        most = [float(leaf.max()) for leaf in values]
        self._to_come = np.append(np.cumsum(most[::-1])[::-1], 0.0)
        # Of adding so many leaves in whichever order.
        self._rounding = 1e-9 * len(values) * float(np.abs(self.leaves[1]).max())
        self._nodes = packed_nodes(
            [tree.features for tree in trees],
            [np.asarray(tree.thresholds) for tree in trees],
            [children_of(tree) for tree in trees],
        )

    def sums(
        self,
        left: Float32,
        right: Float32,
        n_threads: int = 1,
        *,
        n_first: int | None = None,
        least: float = -np.inf,
    ) -> Float64:
        """Sum of leaf values over the trees, or the first of them, for each pair of rows; the same to the last bit for
        any number of threads. A sum of all that is certainly below ``least`` may be -inf instead."""
        total = np.zeros(left.shape[0], dtype=np.float64)
        (a, step_a), (b, step_b) = _rows(left), _rows(right)
        # Kept, so that it is made once.
        self._nodes = nodes = self._nodes.spanning(2 * a.shape[1])
        pair_map = PAIR_MAPS[self.pair_map]
        node_starts, values, value_starts = self.leaves
        if n_first is not None:
            node_starts, value_starts = node_starts[: n_first + 1], value_starts[: n_first + 1]
        n = total.size
        # Any way to part the pairs gives the same bits.
        step = max(1, n if n_threads == 1 else 16 * scoring_kernels.BLOCK)

        def score_from(start: int) -> None:
            scoring_kernels.score_pairs(
                *nodes, node_starts, values, value_starts, a, b, step_a, step_b, start, min(start + step, n), pair_map,
                least - self._rounding, self._to_come, total,
            )  # fmt: skip

        list(in_threads(score_from, range(0, n, step), n_threads))
        return total

    def can_reach(self, sums: Float64, n_first: int, least: float) -> NDArray[np.bool_]:
        """Whether pairs may come to ``least``, by their sums over the first trees."""
        return np.asarray(sums + self._to_come[n_first] >= least - self._rounding)


def children_of(tree: Tree) -> list[NDArray[np.uint64]]:
    """Low and high child of each node, cells resolved to the node they begin with or to node count + leaf number."""
    n_nodes = tree.features.size
    entry = tree.cells[:, layout.CELL_NODE].copy()
    leaves = tree.leaves
    entry[leaves] = n_nodes + np.arange(leaves.size)
    return [
        np.where(child >= 0, child, entry[np.where(child < 0, -1 - child, 0)]).astype(np.uint64)
        for child in (tree.node_low.astype(np.int64), tree.node_high.astype(np.int64))
    ]


def _rows(rows: Float32) -> tuple[Float32, int]:
    """Contiguous rows and the step from pair to pair; always read-only, so that one compiled version serves all."""
    step = 1
    if rows.shape[0] > 1 and rows.strides[0] == 0:
        rows, step = rows[:1], 0
    rows = np.ascontiguousarray(rows, dtype=np.float32).view()
    rows.flags.writeable = False
    return rows, step


ARRAYS = {
    "cells": Array(kind="int64", shape=("cells", 7), low=-1, high=2**62),
    "node_feature": Array(kind="int32", shape=("nodes",), low=0, below="pair features"),
    "node_threshold": Array(kind="float32", shape=("nodes",)),
    "node_low": Array(kind="int32", shape=("nodes",), low=-(2**31)),
    "node_high": Array(kind="int32", shape=("nodes",), low=-(2**31)),
    "node_starts": Array(kind="int64", shape=("trees + 1",), low=0, order="never-falling"),
    "cell_starts": Array(kind="int64", shape=("trees + 1",), low=0, order="rising"),
}
"""What `joined_arrays` gives."""


def require_cells(state: StoredState, params: Mapping[str, Any]) -> None:
    """Refuse cells that do not make one tree each: depths, places and children go together."""
    arrays, sizes = state.arrays, state.sizes
    cells, starts = arrays["cells"], arrays["cell_starts"]
    if sizes["trees"] < 1 or ("n_estimators" not in params and sizes["trees"] != 1):
        raise refuse(
            "cell_starts", None, f"holds {sizes['trees']} trees", "one, or for a forest at least one"
        )
    require_offsets("cell_starts", starts, sizes["cells"], "cells")
    require_offsets("node_starts", arrays["node_starts"], sizes["nodes"], "node_feature")
    depth, position = cells[:, CELL_DEPTH], cells[:, CELL_POSITION]
    max_depth = int(params["max_depth"])
    require((depth >= 0) & (depth <= max_depth), "cells", depth, f"a depth from 0 to {max_depth}")
    require(
        (position >= 0) & (position < 1 << depth), "cells", position, "a place from 0 to below 2 to the depth"
    )
    roots = starts[:-1]
    require((depth[roots] == 0), "cells", depth[roots], "depth 0 where a tree begins")
    counts = cells[:, [CELL_SAME, CELL_DIFFERENT]]
    require(counts >= 0, "cells", counts, "a weight of pairs, not below 0")
    number = np.arange(cells.shape[0])
    tree = np.repeat(np.arange(roots.size), np.diff(starts))
    split = cells[:, CELL_NODE] >= 0
    parents = np.zeros(cells.shape[0], dtype=np.int64)
    for side, field in enumerate((CELL_LEFT, CELL_RIGHT)):
        child = cells[:, field]
        in_tree = (child + roots[tree] > number) & (child + roots[tree] < starts[tree + 1])
        require(
            np.where(split, in_tree, child == -1), "cells", child, "a later cell of the tree; -1 in a leaf"
        )
        child_cells = (child + roots[tree])[split]
        fits = (depth[child_cells] == depth[split] + 1) & (
            position[child_cells] == 2 * position[split] + side
        )
        require(fits, "cells", child[split], "a child one level down, on its side")
        np.add.at(parents, child_cells, 1)
    parents[roots] += 1
    require(parents == 1, "cells", parents, "one cell that leads to each")


def require_nodes(state: StoredState) -> None:
    """Refuse nodes that lead nowhere, back, or into another cell's split; and features of no kind there is."""
    arrays, sizes = state.arrays, state.sizes
    starts, cell_starts = arrays["node_starts"], arrays["cell_starts"]
    n = sizes["nodes"]
    trees = np.arange(sizes["trees"])
    tree = np.repeat(trees, np.diff(starts))
    tree_of_cell = np.repeat(trees, np.diff(cell_starts))
    begins = arrays["cells"][:, CELL_NODE]
    split = np.flatnonzero(begins >= 0)
    size = np.diff(starts)[tree_of_cell]
    require((begins >= -1) & (begins < size), "cells", begins, "a node of the tree, or -1")
    # Cells in the order of their nodes, which are theirs up to where the next cell's begin.
    first = begins[split] + starts[tree_of_cell[split]]
    order = np.argsort(first, kind="stable")
    first, split = first[order], split[order]
    require(np.diff(first, prepend=-1) > 0, "cells", first, "nodes of its own for each split cell")
    if n and (not first.size or first[0] != 0):
        raise refuse("node_feature", 0, "belongs to no cell", "a cell that begins with it")
    bounds = np.append(first, n)
    owner = np.repeat(np.arange(first.size), np.diff(bounds)) if n else np.empty(0, dtype=np.int64)
    if n:
        require(tree_of_cell[split][owner] == tree, "node_starts", tree, "every tree's nodes in a cell of it")
    cells_of_node = split[owner]
    for name in ("node_low", "node_high"):
        child = arrays[name].astype(np.int64)
        to = child + starts[tree]
        in_tree = (child >= 0) & (to > np.arange(n)) & (to < bounds[owner + 1] if n else True)
        cell = -1 - child
        sides = arrays["cells"][cells_of_node][:, [CELL_LEFT, CELL_RIGHT]]
        leaves = (child < 0) & (cell[:, None] == sides).any(axis=1)
        require(in_tree | leaves, name, child, "a later node of its cell, or -1 - one of the cell's children")
        below = cell[leaves] + cell_starts[tree[leaves]]
        begin = begins[below]
        later = (begin < 0) | (begin + starts[tree[leaves]] > np.flatnonzero(leaves))
        require(later, name, child[leaves], "a cell whose nodes come later")
