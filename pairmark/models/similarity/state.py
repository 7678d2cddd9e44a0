"""The state of trees and forests: all trees end to end, checked so that every walk ends in a leaf of its own tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from pairmark.models.core.arrays import Float32, Float64, Int32, Int64
from pairmark.models.core.schema import Array, StoredState, refuse, require, require_offsets
from pairmark.models.core.state import DeclaredState, Fact, StateRecord
from pairmark.models.similarity.kernels.layout import (
    CELL_DEPTH,
    CELL_DIFFERENT,
    CELL_LEFT,
    CELL_NODE,
    CELL_POSITION,
    CELL_RIGHT,
    CELL_SAME,
)
from pairmark.models.similarity.pair_features.maps import (
    NAMES,
    CoordinateMap,
    Forms,
    LearnedFeatures,
    PairFeatures,
    Scaling,
)
from pairmark.models.similarity.trees import Tree, joined_arrays, parted_trees


def _is_forest(file: StoredState) -> bool:
    return "n_estimators" in file.params


@dataclass(frozen=True, kw_only=True)
class JoinedTrees:
    """What `trees.joined_arrays` gives."""

    cells: Annotated[Int64, Array(shape=("cells", 7), low=-1, high=2**62)]
    node_feature: Annotated[Int32, Array(shape=("nodes",), low=0, below="pair features")]
    node_threshold: Annotated[Float32, Array(shape=("nodes",))]
    node_low: Annotated[Int32, Array(shape=("nodes",), low=-(2**31))]
    node_high: Annotated[Int32, Array(shape=("nodes",), low=-(2**31))]
    node_starts: Annotated[Int64, Array(shape=("trees + 1",), low=0, order="never-falling")]
    cell_starts: Annotated[Int64, Array(shape=("trees + 1",), low=0, order="rising")]


@dataclass(frozen=True, kw_only=True)
class StoredFeatures:
    """`LearnedFeatures` as a file holds them."""

    centre: Annotated[Float64, Array(shape=("features",))]
    scale: Annotated[Float64, Array(shape=("features",))]
    forms: Annotated[Float32, Array(shape=("learned", "coordinates"))]
    norms: Annotated[Float64, Array(shape=("learned", "coordinates"), low=0)]
    offsets: Annotated[Float64, Array(shape=("learned", "coordinates"))]
    weights: Annotated[Float32, Array(name="weights0", shape=("features", "coordinates"))]
    bias: Annotated[Float32, Array(name="bias0", shape=("coordinates",))]
    curved: Annotated[bool, Fact()]
    # Earlier versions had other maps.
    n_layers: Annotated[Literal[1], Fact()] = 1
    waved: Annotated[Literal[False], Fact()] = False
    n_posteriors: Annotated[Literal[0], Fact()] = 0

    @classmethod
    def of(cls, features: LearnedFeatures | None) -> StoredFeatures | None:
        if features is None:
            return None
        row_map = features.map
        return cls(
            **row_map.scaling._asdict(),
            **row_map.forms._asdict(),
            weights=row_map.weights,
            bias=row_map.bias,
        )

    def features(self) -> LearnedFeatures:
        # Copied, so that kernels meet one kind of array.
        parts = {
            name: np.array(getattr(self, name))
            for name in ("centre", "scale", "weights", "bias", *Forms._fields)
        }
        return LearnedFeatures(
            map=CoordinateMap(
                scaling=Scaling(parts["centre"], parts["scale"], self.curved),
                weights=parts["weights"],
                bias=parts["bias"],
                forms=Forms(*(parts[name] for name in Forms._fields)),
            ),
        )


class SimilarityState(DeclaredState):
    """Trees, and the pair features in use."""

    _keeps_mapped = True
    pair_features: PairFeatures | None
    trees_: list[Tree]
    learned_: LearnedFeatures | None
    pair_features_: Annotated[PairFeatures, Fact()]
    _joined: Annotated[JoinedTrees, StateRecord(get=lambda model: JoinedTrees(**joined_arrays(model.trees_)))]
    _stored_features: Annotated[
        StoredFeatures | None,
        StateRecord(
            fact="learned",
            omit=True,
            prefix="learned_",
            get=lambda model: StoredFeatures.of(model.learned_),
        ),
    ]

    def _restored(self) -> None:
        joined, features = (vars(self).pop(name) for name in ("_joined", "_stored_features"))
        self.trees_ = parted_trees(vars(joined))
        self.learned_ = features and features.features()

    @classmethod
    def _sizes(cls, file: StoredState) -> Mapping[str, int]:
        d, learned = file.sizes["features"], file.facts.learned
        return {"pair features": 2 * d + (file.length("learned_forms") if learned else 0)}

    @classmethod
    def _relate(cls, file: StoredState) -> None:
        for relation in (_require_cells, _require_nodes, _require_learned):
            relation(file)


def _require_cells(state: StoredState) -> None:
    """Refuse cells that do not make one tree each: depths, places and children go together."""
    arrays, sizes = state.arrays, state.sizes
    cells, starts = arrays["cells"], arrays["cell_starts"]
    if sizes["trees"] < 1 or (not _is_forest(state) and sizes["trees"] != 1):
        raise refuse(
            "cell_starts", None, f"holds {sizes['trees']} trees", "one, or for a forest at least one"
        )
    require_offsets("cell_starts", starts, sizes["cells"], "cells")
    require_offsets("node_starts", arrays["node_starts"], sizes["nodes"], "node_feature")
    depth, position = cells[:, CELL_DEPTH], cells[:, CELL_POSITION]
    max_depth = int(state.params["max_depth"])
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
        at = (child + roots[tree])[split]
        fits = (depth[at] == depth[split] + 1) & (position[at] == 2 * position[split] + side)
        require(fits, "cells", child[split], "a child one level down, on its side")
        np.add.at(parents, at, 1)
    parents[roots] += 1
    require(parents == 1, "cells", parents, "one cell that leads to each")


def _require_nodes(state: StoredState) -> None:
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


def _require_learned(state: StoredState) -> None:
    """Refuse learned features of a kind that has other ones."""
    facts = state.facts
    if facts.learned is None:
        return
    m, q = state.arrays["learned_forms"].shape
    if m > len(NAMES):
        raise refuse("learned_forms", None, f"has {m} rows", f"at most {len(NAMES)}")
    if q < 1:
        raise refuse("learned_forms", None, f"has {q} columns", "one a coordinate")
