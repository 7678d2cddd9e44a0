"""What a search with a forest reads: its trees laid end to end, and the gallery as columns of byte codes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32
from pairmark.models.core.search.index import sealed
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
    """Lay trees out; children are nodes of the tree, or its node count + leaf."""
    n_nodes = [feature.size for feature in features]
    total, node_base, leaf_base = sum(n_nodes), 0, 0
    roots, sides = [], []
    for size, pair, leaves in zip(n_nodes, children, values, strict=True):
        roots.append(node_base if size else total + leaf_base)
        below = [child.astype(np.int64) for child in pair]
        sides.append([child + np.where(child < size, node_base, total + leaf_base - size) for child in below])
        node_base, leaf_base = node_base + size, leaf_base + leaves.size
    low, high = (np.concatenate([side[at] for side in sides]).astype(np.int64) for at in (0, 1))
    order, starts = kernels.parents_first(low, high, np.array(roots, dtype=np.int64), total)
    place = np.arange(total + leaf_base)
    place[order] = np.arange(total)
    low, high = place[low[order]], place[high[order]]
    leaf_values = np.concatenate(values).astype(np.float64)
    greatest = np.empty(total + leaf_base)
    kernels.greatest(low, high, leaf_values, greatest)
    nodes = np.empty((total, 4), dtype=np.int32)
    nodes[:, 0], nodes[:, 2], nodes[:, 3] = np.concatenate(features)[order], low, high
    nodes.view(np.float32)[:, 1] = np.concatenate(thresholds)[order]
    return SearchTrees(
        nodes=nodes,
        roots=place[np.array(roots, dtype=np.int64)],
        starts=starts,
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
