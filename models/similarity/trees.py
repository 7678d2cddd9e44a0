"""Grown similarity trees as data, and packed for scoring."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.base import Float32
from pairmark.models.pairs.sampling import PairMap, pair_features
from pairmark.models.similarity.binning import Grid, product_bins
from pairmark.models.similarity.kernels import boosting as boosting_kernels
from pairmark.models.similarity.kernels import layout
from pairmark.models.similarity.kernels import scoring as scoring_kernels
from pairmark.models.similarity.kernels.counting import words_of
from pairmark.models.similarity.kernels.growing import grow
from pairmark.models.similarity.narrow import Narrow, narrow_nodes
from pairmark.models.similarity.search import SearchTrees, search_trees

Aggregation = Literal["rank", "log-odds"]
PAIR_MAPS: dict[str, int] = {
    "diff-sum": layout.DIFF_SUM,
    "max-min": layout.MAX_MIN,
    "products": layout.PRODUCTS,
}
HALF_NAMES = {
    "diff-sum": ("|x - x'|", "x + x'"),
    "max-min": ("max(x, x')", "min(x, x')"),
    "products": ("x x'", "x + x'"),
}

STUMP_ARRAYS = ("stump_counts", "stump_features", "stump_thresholds", "stump_steps")
TREE_ARRAYS = ("cells", "node_feature", "node_threshold", "node_low", "node_high", "planes", *STUMP_ARRAYS)
LEARNED_BINS = 1_024
"""Bins of a learned feature: many, for low false positive rates lie in its last ones."""
_STUMP_BLOCK = 2_048
"""Pairs whose features are written out at a time for sums of stumps."""


_RULE_VALUES = 2**24
"""Most pair features in memory at once, where classifiers of a user's own decide."""


class RocKnots(NamedTuple):
    """A broken-line ROC: false and true positive rates at its knots."""

    fpr: NDArray[np.float64]
    tpr: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class WeightedPairs:
    """Pairs of rows with integer weights.

    Attributes
    ----------
    pairs : (2, n) int32: left row, right row; pairs of one identity first. With learned features, a third line: the
        pair's row of ``learned``.
    weight : (n,) int32; where all weigh the same, one number seen n times (see `evenly`).
    n_same : how many are of one identity.
    learned : (n, m) float32, learned features of pairs, or None.
    """

    pairs: NDArray[np.int32]
    weight: NDArray[np.int32]
    n_same: int
    learned: Float32 | None = None

    @property
    def is_even(self) -> bool:
        """Whether one number is the weight of all."""
        return self.weight.strides == (0,)

    def copy(self) -> WeightedPairs:
        """The same pairs, in arrays that may be reordered."""
        return replace(
            self, pairs=self.pairs.copy(), weight=self.weight if self.is_even else self.weight.copy()
        )

    @property
    def n_different(self) -> int:
        """How many are of different identities."""
        return int(self.pairs.shape[1]) - self.n_same


def evenly(n: int, weight: int = 1) -> NDArray[np.int32]:
    """The weights of ``n`` pairs that all weigh the same, in the memory of one."""
    return np.broadcast_to(np.int32(weight), n)


@dataclass(frozen=True, kw_only=True)
class Tree:
    """One oriented tree: cells, and the nodes that lead from a cell to its two children.

    Attributes
    ----------
    cells : (n_cells, 7) int64: depth j, position k from the left, first node (-1: none, a leaf), weight of same and
        of different training pairs, left and right child cell (-1: none).
    node_feature : (n_nodes,) int32: feature, plus the number of features for the pair map's second half.
    node_threshold : (n_nodes,) float32.
    node_low, node_high : (n_nodes,) int32: where a pair goes whose feature is at most, or above, the threshold;
        a node (>= 0) or ``-1 - cell``.
    planes : (n_nodes, all features) float32, where nodes test weighted sums instead; ``node_feature`` is then
        ``-1 - node``.
    stump_counts : (n_nodes,) int64, where nodes test sums of stumps instead; the stumps of all nodes, one after the
        other, are ``stump_features`` int32, ``stump_thresholds`` and ``stump_steps`` float32.
    rules : a `leaf_rank.Rule` a node, where classifiers of a user's own decide.
    """

    cells: NDArray[np.int64]
    node_feature: NDArray[np.int32]
    node_threshold: Float32
    node_low: NDArray[np.int32]
    node_high: NDArray[np.int32]
    planes: Float32 = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))
    stump_counts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    stump_features: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    stump_thresholds: Float32 = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    stump_steps: Float32 = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    rules: tuple[Any, ...] = ()

    @property
    def leaves(self) -> NDArray[np.int64]:
        """Terminal cells, from left (most similar) to right."""
        terminal = np.flatnonzero(self.cells[:, layout.CELL_NODE] < 0)
        depth, position = (
            self.cells[terminal, layout.CELL_DEPTH],
            self.cells[terminal, layout.CELL_POSITION],
        )
        return terminal[np.argsort(position << (depth.max() - depth), kind="stable")]

    def leaf_scores(self, depth: int) -> NDArray[np.float64]:
        """``2^J (1 - k / 2^j)`` of each leaf (Clemencon & Vogel, section 2.2 and eq. 4), J = ``depth``."""
        leaves = self.cells[self.leaves]
        return 2.0**depth - leaves[:, layout.CELL_POSITION] * 2.0 ** (depth - leaves[:, layout.CELL_DEPTH])

    def leaf_log_odds(self) -> NDArray[np.float64]:
        """Log of F+ over F- of each leaf, with half a pair added to either side of it."""
        leaves, root = self.cells[self.leaves], self.cells[0]
        same, other = leaves[:, layout.CELL_SAME], leaves[:, layout.CELL_DIFFERENT]
        odds = (
            (same + 0.5)
            / (root[layout.CELL_SAME] + 1.0)
            * (root[layout.CELL_DIFFERENT] + 1.0)
            / (other + 0.5)
        )
        return np.asarray(np.log(odds), dtype=np.float64)

    def roc(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
        split = self.cells[self.cells[:, layout.CELL_NODE] >= 0]
        same, other = (
            float(max(self.cells[0, field], 1)) for field in (layout.CELL_SAME, layout.CELL_DIFFERENT)
        )
        left = self.cells[split[:, layout.CELL_LEFT]]
        gain = (split[:, layout.CELL_DIFFERENT] / other) * (left[:, layout.CELL_SAME] / same) - (
            split[:, layout.CELL_SAME] / same
        ) * (left[:, layout.CELL_DIFFERENT] / other)
        return 0.5 + 0.5 * float(gain.sum())


def grow_tree(
    grid: Grid,
    pairs: WeightedPairs,
    *,
    pair_map: PairMap,
    max_depth: int,
    leaf_depth: int,
    n_tried: int,
    seed: int,
    counts: NDArray[np.float64] | None = None,
) -> Tree:
    """Grow a tree; ``pairs`` are reordered, and weights along with them.

    ``counts`` : `all_pairs.pair_counts`, where the pairs are all there are.
    """
    by_word = n_tried >= grid.used.size and pair_map != "products"
    points, table, learned = grow_arguments(grid, pairs, pair_map=pair_map, by_word=by_word)
    limits = layout.Limits(max_depth=max_depth, leaf_depth=leaf_depth, n_tried=n_tried)
    counts = np.empty((0, 0, 0, 0)) if counts is None else counts
    cells, nodes = grow(points, grid.used, grid.n_features, table, learned, limits, np.uint64(seed), counts)
    return Tree(
        cells=cells.copy(),
        node_feature=nodes[:, 0].astype(np.int32),
        node_threshold=nodes[:, 1].astype(np.float32),
        node_low=nodes[:, 2].astype(np.int32),
        node_high=nodes[:, 3].astype(np.int32),
    )


def grow_arguments(
    grid: Grid, pairs: WeightedPairs, *, pair_map: PairMap, by_word: bool
) -> tuple[layout.Points, layout.Pairs, layout.LearnedValues]:
    """What `growing.grow` takes.

    ``by_word`` : whether features are counted eight at a time: sooner where every cell tries all of them.
    """
    points = layout.Points(
        codes=grid.codes,
        words=words_of(grid.codes if by_word else grid.codes[:0, :0]),
        columns=grid.columns,
        low=grid.low,
        step=grid.step,
        n_codes=grid.n_codes,
        exact=grid.exact,
        pair_map=PAIR_MAPS[pair_map],
        product_bins=product_bins(grid),
    )
    table = layout.Pairs(
        rows=np.ascontiguousarray(pairs.pairs),
        weight=np.array(pairs.weight[:1]) if pairs.is_even else np.ascontiguousarray(pairs.weight),
        stride=np.uint64(0 if pairs.is_even else 1),
        n_same=pairs.n_same,
    )
    return points, table, _learned_codes(pairs.learned)


def _learned_codes(values: Float32 | None) -> layout.LearnedValues:
    """Bins of equal counts of each learned feature, (n, m)."""
    if values is None:
        values = np.empty((0, 0), dtype=np.float32)
    n, m = values.shape
    by_feature = np.ascontiguousarray(values.T)
    codes = np.empty((n, m), dtype=np.uint16)
    edges = np.full((m, LEARNED_BINS + 1), np.inf, dtype=np.float32)
    n_bins = np.zeros(m, dtype=np.int64)
    for k in range(m):
        ordered = np.sort(by_feature[k])
        borders = np.unique(ordered[np.linspace(0, n - 1, LEARNED_BINS).astype(np.int64)])
        codes[:, k] = np.searchsorted(borders, by_feature[k])
        edges[k, : borders.size], n_bins[k] = borders, borders.size
    return layout.LearnedValues(codes=codes, values=by_feature, edges=edges, n_bins=n_bins)


class PackedTrees:
    """Trees in the layout that `scoring_kernels.score_pairs` walks.

    Parameters
    ----------
    trees : the trees.
    values : for each tree, the value of each of its `Tree.leaves`.
    """

    def __init__(self, trees: list[Tree], values: list[NDArray[np.float64]], *, pair_map: PairMap) -> None:
        self._pair_map = PAIR_MAPS[pair_map]
        self._trees, self._leaf_values, self._map = trees, values, pair_map
        self._search: SearchTrees | None = None
        self._by_rule = any(tree.rules for tree in trees)
        self._by_plane = any(tree.planes.shape[0] for tree in trees)
        self._by_stumps = any(tree.stump_counts.size for tree in trees)
        if self._by_plane:
            width = max(tree.planes.shape[1] for tree in trees)
            self._planes = np.concatenate(
                [
                    tree.planes.reshape(-1, width) if tree.planes.size else np.empty((0, width), np.float32)
                    for tree in trees
                ]
            )
        if self._by_stumps:
            counts, *self._stumps = (
                np.concatenate([np.asarray(getattr(tree, name)) for tree in trees]) for name in STUMP_ARRAYS
            )
            self._stump_starts = np.cumsum([0, *counts.tolist()], dtype=np.int64)
        if self._by_plane or self._by_stumps:
            self._children = np.concatenate([np.stack(_children(tree), axis=1) for tree in trees])
            self._thresholds = np.concatenate([np.asarray(tree.node_threshold) for tree in trees])
        self._narrow: Narrow | None = None
        if not (self._by_rule or self._by_plane or self._by_stumps):
            children = [_children(tree) for tree in trees]
            self._narrow = narrow_nodes(
                [np.asarray(tree.node_feature) for tree in trees],
                [np.asarray(tree.node_threshold) for tree in trees],
                children,
            )
            if self._narrow is None:
                self._nodes = np.concatenate(
                    [_packed(tree, its) for tree, its in zip(trees, children, strict=True)]
                )
        self._node_starts = np.cumsum([0, *(tree.node_feature.size for tree in trees)], dtype=np.int64)
        self._values = np.concatenate(values)
        self._value_starts = np.cumsum([0, *(leaf.size for leaf in values)], dtype=np.int64)

    def sums(
        self,
        left: Float32,
        right: Float32,
        n_threads: int = 1,
        *,
        learned: tuple[Float32, Float32] | None = None,
        forms: Float32 | None = None,
        n_trees: int | None = None,
    ) -> NDArray[np.float64]:
        """Sum of leaf values over the trees for each pair; the same to the last bit for any number of threads.

        ``n_trees`` : the first so many trees only.
        ``learned`` : learned columns of the rows of ``left`` and ``right``; ``forms`` : see `learned.LearnedFeatures`.
        """
        n = left.shape[0]
        total = np.empty(n, dtype=np.float64)
        n_trees = len(self._trees) if n_trees is None else n_trees
        if self._by_stumps:
            self._stump_sums(left, right, n_trees, n_threads, learned, forms, total)
            return total
        if self._by_rule:
            return self._rule_sums(left, right, n_trees, _values(left, learned, forms))
        a, step_a = _rows(left)
        b, step_b = _rows(right)
        if learned is None or forms is None:
            forms = np.empty((0, 0), dtype=np.float32)
            columns = (_rows(np.empty((1, 0), dtype=np.float32))[0],) * 2
        else:
            columns = (_rows(learned[0])[0], _rows(learned[1])[0])

        starts = self._node_starts[: n_trees + 1]
        narrow = None if self._narrow is None else self._narrow.spanning(2 * a.shape[1] + forms.shape[0])
        # Kept, so that it is made once.
        self._narrow = narrow

        def score(start: int, stop: int) -> None:
            if self._by_plane:
                scoring_kernels.score_by_planes(
                    self._children, self._thresholds, self._planes, starts, self._values, self._value_starts,
                    a, b, step_a, step_b, start, stop, self._pair_map, *columns, forms, total,
                )  # fmt: skip
                return
            if narrow is not None:
                scoring_kernels.score_narrow(
                    *narrow, starts, self._values, self._value_starts,
                    a, b, step_a, step_b, start, stop, self._pair_map, *columns, forms, total,
                )  # fmt: skip
                return
            scoring_kernels.score_pairs(
                self._nodes, starts, self._values, self._value_starts,
                a, b, step_a, step_b, start, stop, self._pair_map, *columns, forms, total,
            )  # fmt: skip

        _in_threads(score, n, n_threads)
        return total

    def search_trees(self, width: int) -> SearchTrees | None:
        """The trees as galleries of ``width`` features are searched with; worked out once.

        None where nodes test more than one coordinate of an item.
        """
        if self._search is None and not (self._by_rule or self._by_plane or self._by_stumps):
            if any((tree.node_feature >= 2 * width).any() for tree in self._trees):
                return None
            self._search = search_trees(
                [np.asarray(tree.node_feature) for tree in self._trees],
                [np.asarray(tree.node_threshold) for tree in self._trees],
                [_children(tree) for tree in self._trees],
                self._leaf_values,
                width=width,
                pair_map=self._pair_map,
            )
        return self._search

    def _rule_sums(
        self, left: Float32, right: Float32, n_trees: int, values: Float32 | None
    ) -> NDArray[np.float64]:
        return _sums_by_rule(
            self._trees[:n_trees], self._leaf_values[:n_trees], left, right, self._map, values
        )

    def _stump_sums(
        self,
        left: Float32,
        right: Float32,
        n_trees: int,
        n_threads: int,
        learned: tuple[Float32, Float32] | None,
        forms: Float32 | None,
        total: NDArray[np.float64],
    ) -> None:
        def score(start: int, stop: int) -> None:
            for first in range(start, stop, _STUMP_BLOCK):
                last = min(first + _STUMP_BLOCK, stop)
                a, b = left[first:last], right[first:last]
                f = pair_features(a, b, self._map)
                own = None if learned is None else (learned[0][first:last], learned[1][first:last])
                values = _values(a, own, forms)
                if values is not None:
                    f = np.hstack([f, values])
                boosting_kernels.score_by_stumps(
                    f, self._children, self._thresholds, self._node_starts[: n_trees + 1], self._stump_starts,
                    *self._stumps, self._values, self._value_starts, total[first:last],
                )  # fmt: skip

        _in_threads(score, left.shape[0], n_threads)


def _sums_by_rule(
    trees: list[Tree],
    values: list[NDArray[np.float64]],
    left: Float32,
    right: Float32,
    pair_map: PairMap,
    learned: Float32 | None,
) -> NDArray[np.float64]:
    """Sum of leaf values over trees that classifiers split, cell by cell."""
    n = left.shape[0]
    total = np.zeros(n)
    width = 2 * left.shape[1] + (0 if learned is None else learned.shape[1])
    block = max(1, _RULE_VALUES // width)
    for start in range(0, n, block):
        stop = min(start + block, n)
        f = pair_features(left[start:stop], right[start:stop], pair_map)
        if learned is not None:
            f = np.hstack([f, learned[start:stop]])
        for tree, value in zip(trees, values, strict=True):
            of_cell = dict(zip(tree.leaves.tolist(), value.tolist(), strict=True))
            todo = [(0, np.arange(stop - start))]
            while todo:
                cell, members = todo.pop()
                node = int(tree.cells[cell, layout.CELL_NODE])
                if node < 0 or not members.size:
                    total[start + members] += of_cell.get(cell, 0.0)
                    continue
                goes = tree.rules[node].left(f[members])
                todo.append((int(tree.cells[cell, layout.CELL_LEFT]), members[goes]))
                todo.append((int(tree.cells[cell, layout.CELL_RIGHT]), members[~goes]))
    return total


def _values(left: Float32, learned: tuple[Float32, Float32] | None, forms: Float32 | None) -> Float32 | None:
    """Learned features of pairs, written out."""
    if learned is None or forms is None:
        return None
    values = np.empty((left.shape[0], forms.shape[0]), dtype=np.float32)
    rows = np.arange(left.shape[0])
    scoring_kernels.forms_of_pairs(*(_whole(side) for side in learned), rows, rows, forms, values)
    return values


def _whole(rows: Float32) -> Float32:
    return np.array(rows, dtype=np.float32, order="C")


def _in_threads(work: Any, n: int, n_threads: int) -> None:
    chunk = 16 * scoring_kernels.BLOCK
    if n_threads == 1 or n <= chunk:
        work(0, n)
        return
    from joblib import Parallel, delayed

    Parallel(n_jobs=n_threads, prefer="threads")(
        delayed(work)(start, min(start + chunk, n)) for start in range(0, n, chunk)
    )


def _rows(rows: Float32) -> tuple[Float32, int]:
    """Contiguous rows and the step from pair to pair; always read-only, so that one compiled version serves all."""
    step = 1
    if rows.shape[0] > 1 and rows.strides[0] == 0:
        rows, step = rows[:1], 0
    rows = np.ascontiguousarray(rows, dtype=np.float32).view()
    rows.flags.writeable = False
    return rows, step


def _children(tree: Tree) -> list[NDArray[np.uint64]]:
    """Low and high child of each node, cells resolved to the node they begin with or to node count + leaf number."""
    n_nodes = tree.node_feature.size
    entry = tree.cells[:, layout.CELL_NODE].copy()
    leaves = tree.leaves
    entry[leaves] = n_nodes + np.arange(leaves.size)
    return [
        np.where(child >= 0, child, entry[np.where(child < 0, -1 - child, 0)]).astype(np.uint64)
        for child in (tree.node_low.astype(np.int64), tree.node_high.astype(np.int64))
    ]


def _packed(tree: Tree, children: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """Two words a node."""
    n_nodes = tree.node_feature.size
    bits = (
        (np.ascontiguousarray(tree.node_threshold, dtype=np.float32) + np.float32(0.0)).view(np.int32).copy()
    )
    scoring_kernels.ordered_bits(bits)
    words = np.empty((n_nodes, 2), dtype=np.uint64)
    words[:, 0] = children[0] | (children[1] << np.uint64(32))
    words[:, 1] = bits.view(np.uint32).astype(np.uint64) | (
        tree.node_feature.astype(np.uint64) << np.uint64(32)
    )
    return words.reshape(-1)
