"""Pruning a tree by a cross-validated AUC (Clemencon & Vogel, section 3.1).

The AUC of a subtree is ``1/2 + 1/2`` of the sum of Lambda over its split cells, so the subtree that is best at a price
per split cell follows from the leaves upwards. Trees grown without each fold in turn say, on that fold's pairs, which
price leaves the best AUC; the whole tree is then pruned at it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pairmark.models.similarity.kernels import layout
from pairmark.models.similarity.trees import Tree


def kept_cells(tree: Tree, price: float) -> NDArray[np.bool_]:
    """The split cells of the subtree of greatest AUC less ``price`` a split cell; of equals, the smallest."""
    gain = tree.gains()
    worth = np.zeros(gain.size)
    splits = np.zeros(gain.size, dtype=np.bool_)
    # Children come after their parents.
    for cell in range(gain.size - 1, -1, -1):
        if tree.cells[cell, layout.CELL_NODE] >= 0:
            left, right = tree.cells[cell, [layout.CELL_LEFT, layout.CELL_RIGHT]]
            worth[cell] = max(gain[cell] - price + worth[left] + worth[right], 0.0)
            splits[cell] = worth[cell] > 1e-15
    kept = np.zeros(gain.size, dtype=np.bool_)
    kept[0] = splits[0]
    for cell in range(gain.size):
        if kept[cell]:
            for child in tree.cells[cell, [layout.CELL_LEFT, layout.CELL_RIGHT]]:
                kept[child] = splits[child]
    return kept


def prices(tree: Tree) -> list[float]:
    """Prices between those at which the best subtree changes, from 0 upwards."""
    critical = {0.0}
    gain = tree.gains()
    kept = tree.cells[:, layout.CELL_NODE] >= 0
    while kept[0]:
        total, number = np.where(kept, gain, 0.0), kept.astype(np.int64)
        for cell in range(gain.size - 1, -1, -1):
            if kept[cell]:
                for child in tree.cells[cell, [layout.CELL_LEFT, layout.CELL_RIGHT]]:
                    total[cell] += total[child]
                    number[cell] += number[child]
        ratio = np.where(kept, total / np.maximum(number, 1), np.inf)
        least = float(ratio.min())
        critical.add(max(least, 0.0))
        # Weakest links go, with all below them.
        kept &= ratio > least + 1e-15
        for cell in range(gain.size):
            if not kept[cell] and tree.cells[cell, layout.CELL_NODE] >= 0:
                kept[tree.cells[cell, [layout.CELL_LEFT, layout.CELL_RIGHT]]] = False
    ordered = sorted(critical)
    between = [float(np.sqrt(max(a, 1e-12) * b)) for a, b in pairwise(ordered)]
    return [0.0, *between, 2 * ordered[-1] + 1e-9]


def counted(
    tree: Tree, leaf: NDArray[np.int64], same: NDArray[np.bool_], weight: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Weights of pairs in every cell, (n_cells, 2), from the number of the leaf that each pair reaches."""
    counts = np.zeros((tree.cells.shape[0], 2))
    cell = tree.leaves[leaf]
    np.add.at(counts[:, 0], cell[same], weight[same])
    np.add.at(counts[:, 1], cell[~same], weight[~same])
    for number in range(tree.cells.shape[0] - 1, -1, -1):
        if tree.cells[number, layout.CELL_NODE] >= 0:
            counts[number] = counts[tree.cells[number, [layout.CELL_LEFT, layout.CELL_RIGHT]]].sum(axis=0)
    return counts


def best_price(tree: Tree, folds: list[tuple[Tree, NDArray[np.float64]]]) -> float:
    """The price whose subtrees of the folds' trees have the best mean AUC on held-out pairs."""
    candidates = prices(tree)
    scored = [
        (np.mean([grown.gains(counts)[kept_cells(grown, price)].sum() for grown, counts in folds]), price)
        for price in candidates
    ]
    best = max(score for score, _ in scored)
    return max(price for score, price in scored if score >= best - 1e-12)


def pruned(tree: Tree, price: float) -> Tree:
    """The tree without what is not worth ``price``; its leaves score ``2^J (1 - k / 2^j)`` where they are."""
    kept = kept_cells(tree, price)
    cells = tree.cells.copy()
    stays = np.zeros(cells.shape[0], dtype=np.bool_)
    stays[0] = True
    for cell in np.flatnonzero(kept):
        stays[cells[cell, [layout.CELL_LEFT, layout.CELL_RIGHT]]] = True
    number = np.cumsum(stays) - 1
    node_stays = kept[tree.cell_of_node]
    node_number = np.cumsum(node_stays) - 1

    def renumbered(child: NDArray[np.int32]) -> NDArray[np.int32]:
        child = child[node_stays].astype(np.int64)
        nodes, of_cells = np.maximum(child, 0), np.maximum(-1 - child, 0)
        return np.where(child >= 0, node_number[nodes], -1 - number[of_cells]).astype(np.int32)

    for field in (layout.CELL_NODE, layout.CELL_LEFT, layout.CELL_RIGHT):
        cells[~kept, field] = -1
    inner = np.flatnonzero(kept)
    cells[inner, layout.CELL_NODE] = node_number[cells[inner, layout.CELL_NODE]]
    for field in (layout.CELL_LEFT, layout.CELL_RIGHT):
        cells[inner, field] = number[cells[inner, field]]
    return replace(
        tree,
        cells=cells[stays],
        splits=tree.splits.take(np.flatnonzero(node_stays)),
        node_low=renumbered(tree.node_low),
        node_high=renumbered(tree.node_high),
    )
