"""Trees packed for scoring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32, Float64, Int32
from pairmark.models.pairs.sampling import PairMap
from pairmark.models.similarity.kernels import layout
from pairmark.models.similarity.kernels import scoring as scoring_kernels
from pairmark.models.similarity.search_arrays import SearchTrees, search_trees
from pairmark.models.similarity.trees import PAIR_MAPS, Tree


class RowPairs(NamedTuple):
    """Pairs to score.

    Attributes
    ----------
    left, right : (n, d) float32.
    learned : learned columns of either side's rows, or None. forms : see `maps.LearnedFeatures`, or None.
    """

    left: Float32
    right: Float32
    learned: tuple[Float32, Float32] | None = None
    forms: Float32 | None = None


_FEATURE_BITS, _PLACE_BITS = 10, 16
"""Bits of a node's word that number a pair feature and a place. What more features take, places lack: they are equal
more often, which is slower, never wrong."""


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

    def spanning(self, n_features: int) -> Nodes:
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
    feature_bits = max(_FEATURE_BITS, (n_features - 1).bit_length())
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

    def __init__(self, trees: list[Tree], values: list[Float64], *, pair_map: PairMap) -> None:
        self.leaf_values, self.pair_map = values, pair_map
        # As scoring kernels take them: where each tree's nodes begin, values of leaves, where each tree's begin.
        self.leaves = (
            np.cumsum([0, *(tree.features.size for tree in trees)], dtype=np.int64),
            np.concatenate(values),
            np.cumsum([0, *(leaf.size for leaf in values)], dtype=np.int64),
        )
        self._search: SearchTrees | None = None
        self._features = [tree.features for tree in trees]
        self._thresholds = [np.asarray(tree.thresholds) for tree in trees]
        self._children = [children_of(tree) for tree in trees]
        self._nodes = packed_nodes(self._features, self._thresholds, self._children)

    def sums(self, pairs: RowPairs, n_threads: int = 1) -> Float64:
        """Sum of leaf values over the trees for each pair; the same to the last bit for any number of threads."""
        total = np.zeros(pairs.left.shape[0], dtype=np.float64)
        _in_threads(self._scorer(pairs, total), total.size, n_threads)
        return total

    def _scorer(self, pairs: RowPairs, total: Float64) -> Callable[[int, int], Any]:
        """What fills ``total`` from one pair up to another."""
        sides, maps = _kernel_rows(pairs, self.pair_map)
        # Kept, so that it is made once.
        self._nodes = nodes = self._nodes.spanning(2 * sides[0].shape[1] + maps[-1].shape[0])
        return lambda start, stop: scoring_kernels.score_pairs(
            *nodes, *self.leaves, *sides, start, stop, *maps, total
        )

    def search_trees(self, width: int) -> SearchTrees | None:
        """The trees as galleries of ``width`` features are searched with; worked out once.

        None where nodes test learned features.
        """
        if self._search is None:
            if any((features >= 2 * width).any() for features in self._features):
                return None
            parts = self._features, self._thresholds, self._children, self.leaf_values
            self._search = search_trees(*parts, width=width, pair_map=PAIR_MAPS[self.pair_map])
        return self._search


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


def _kernel_rows(pairs: RowPairs, pair_map: PairMap) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Pairs as scoring kernels take them, one after the other: each named tuple would cost a call 5 microseconds.

    Returns
    -------
    left and right rows and their steps; and the number of the pair map, learned columns of either side, and forms.
    """
    left, step_left = _rows(pairs.left)
    right, step_right = _rows(pairs.right)
    sides = left, right, step_left, step_right
    if pairs.learned is None or pairs.forms is None:
        empty = _rows(np.empty((1, 0), dtype=np.float32))[0]
        return sides, (PAIR_MAPS[pair_map], empty, empty, np.empty((0, 0), dtype=np.float32))
    columns = (_rows(side)[0] for side in pairs.learned)
    return sides, (PAIR_MAPS[pair_map], *columns, pairs.forms)


def _rows(rows: Float32) -> tuple[Float32, int]:
    """Contiguous rows and the step from pair to pair; always read-only, so that one compiled version serves all."""
    step = 1
    if rows.shape[0] > 1 and rows.strides[0] == 0:
        rows, step = rows[:1], 0
    rows = np.ascontiguousarray(rows, dtype=np.float32).view()
    rows.flags.writeable = False
    return rows, step


def _in_threads(work: Callable[[int, int], Any], n: int, n_threads: int) -> None:
    chunk = 16 * scoring_kernels.BLOCK
    if n_threads == 1 or n <= chunk:
        work(0, n)
        return
    from joblib import Parallel, delayed

    Parallel(n_jobs=n_threads, prefer="threads")(
        delayed(work)(start, min(start + chunk, n)) for start in range(0, n, chunk)
    )
