"""What the kernels that grow trees take and fill: named tuples of arrays, and the constants of their tables."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool, Float32, Float64, Int32, Int64

CELL_DEPTH, CELL_POSITION, CELL_NODE, CELL_SAME, CELL_DIFFERENT, CELL_LEFT, CELL_RIGHT, CELL_FIELDS = range(8)
"""Columns of a table of cells."""
DIFF_SUM, MAX_MIN = 0, 1
"""Pair maps."""
RUN = 512
"""Pairs whose feature is worked out at a time while a segment is searched or parted."""
TODO_CELL, TODO_FIELDS = 0, 5
"""Columns of the list of cells to split: the cell, and its segment (1 to 4)."""
N_TODO, N_CELLS, N_NODES = range(3)
"""What is counted as a tree grows: cells to split, cells, nodes."""
INNER, LEFT, RIGHT = 1, 2, 3
"""What a LeafRank node is: a split, or a leaf that sends its pairs to the left or to the right child cell."""


class CodedPoints(NamedTuple):
    """The rows of a tree, coded on a grid and as they are.

    Attributes
    ----------
    codes : (n, u) uint8. columns : (u, n) float32, the same rows as they are.
    low, step, n_codes, exact : (u,), the grid of each feature.
    pair_map : `DIFF_SUM` or `MAX_MIN`.
    """

    codes: NDArray[np.uint8]
    columns: Float32
    low: Float64
    step: Float64
    n_codes: Int64
    exact: Bool
    pair_map: int


class PairTable(NamedTuple):
    """Pairs of rows, those of one identity first; reordered in place as cells are split.

    Attributes
    ----------
    rows : (2, n) int32, left and right row.
    weight : (n,) int32, reordered with the pairs. Weights are integers, so that sums are exact in any order.
    n_same : how many pairs are of one identity.
    """

    rows: Int32
    weight: Int32
    n_same: int


class GrowthLimits(NamedTuple):
    """How far a tree is grown: depth of the cells, depth of each LeafRank tree, features drawn for each cell."""

    max_depth: int
    leaf_depth: int
    n_tried: int


class Bins(NamedTuple):
    """Where the bins of the features tried in a cell lie in its histograms, one feature after the other.

    Attributes
    ----------
    features : (u,) uint64, numbers of features; those tried come first.
    shift : (n_tried,) uint32, binary logarithm of how many codes share a bin.
    sizes, starts : (2, n_tried) int64 and uint32, how many bins each half of the pair map has, and the first one.
    places : (2, n_tried) uint32, memory for the bins of one pair.
    """

    features: NDArray[np.uint64]
    shift: NDArray[np.uint32]
    sizes: Int64
    starts: NDArray[np.uint32]
    places: NDArray[np.uint32]


class Heap(NamedTuple):
    """The nodes of one LeafRank tree, as a heap with its root at 1.

    Attributes
    ----------
    side : (n_heap,) int64, 0 or one of `INNER`, `LEFT`, `RIGHT`.
    segments : (n_heap, 4) int64, the node's pairs: ``start, stop`` of those of one identity, then of the others.
    sums : (n_heap, 2) int64, their weights.
    features : (n_heap, 2) int64, number of the feature and half of the pair map of a split.
    thresholds : (n_heap,) float32.
    """

    side: Int64
    segments: Int64
    sums: Int64
    features: Int64
    thresholds: Float32


class Window(NamedTuple):
    """Memory for looking for the border of one pair feature.

    Attributes
    ----------
    values, owners : (n_pairs,) float32 and int32, its values and the pairs they belong to.
    below : (2,) float64, weights below the values. run : (`RUN`,) float32.
    """

    values: Float32
    owners: Int32
    below: Float64
    run: Float32


class Scratch(NamedTuple):
    """Memory that is allocated once a tree.

    Attributes
    ----------
    histograms : (levels, 2, bins) int32, by kind of pair.
    low_sums, gains : (2, most bins) int32 and (most bins,) float64, of one feature. gain_bits : their bits as int64.
    costs : (2, 2) float64, what a pair of each kind costs, and the costs of a node's pairs.
    stack, todo : (n, 3) and (n, 5) int64, nodes and cells that are to be split.
    numbered : (n_heap,) int32, numbers of nodes. borders, left : (2,) int64, of a cell's pairs.
    spare : (3, pairs of a kind) int32, for pairs that are moved; `window` uses the same memory.
    """

    histograms: Int32
    low_sums: Int32
    gains: Float64
    gain_bits: Int64
    costs: Float64
    stack: Int64
    todo: Int64
    numbered: Int32
    borders: Int64
    left: Int64
    spare: Int32
    window: Window
