"""What saved similarity trees must look like, so that every walk ends in a leaf of its own tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from pairmark.models.core.arrays import Int64
from pairmark.models.core.schema import (
    Array,
    Facts,
    Stateful,
    StateSchema,
    StoredState,
    check_arrays,
    checked_model,
    refuse,
    require,
    require_offsets,
)
from pairmark.models.similarity.kernels.layout import (
    CELL_DEPTH,
    CELL_DIFFERENT,
    CELL_LEFT,
    CELL_NODE,
    CELL_POSITION,
    CELL_RIGHT,
    CELL_SAME,
)
from pairmark.models.similarity.pair_features.maps import NAMES, PairFeatures


class LearnedFacts(BaseModel):
    """Learned pair features beside their arrays, see `maps.CoordinateMap`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    curved: bool
    n_layers: int = Field(ge=0, le=16)
    waved: bool | None = None
    posteriors: bool | None = None
    n_posteriors: int | None = Field(None, ge=0)


class SimilarityFacts(Facts):
    """What saved trees say beside their arrays."""

    pair_features: PairFeatures | None = None
    aggregation: Literal["rank", "log-odds"] | None = None
    breaks_ties: bool = False
    learned: LearnedFacts | None = None


_AXES = ("cart", "exhaustive")
"""LeafRanks whose nodes test one pair feature."""


def _layout(state: StoredState) -> dict[str, Array]:
    """Arrays of a tree or a forest."""
    leaf_rank, forest = state.params["leaf_rank"], "n_estimators" in state.params
    width = 2 * state.sizes["features"] + state.length("learned_forms")
    offsets = Array(kind="int64", shape=("trees + 1",), low=0, order="never-falling")
    child = Array(kind="int32", shape=("nodes",), low=-(2**31))
    layout = {
        "cells": Array(kind="int64", shape=("cells", 7), low=-1, high=2**62),
        "node_feature": Array(
            kind="int32", shape=("nodes",), low=0 if leaf_rank in _AXES else -(2**31), below=width
        ),
        "node_threshold": Array(kind="float32", shape=("nodes",)),
        "node_low": child,
        "node_high": child,
        "node_starts": offsets,
        "cell_starts": Array(kind="int64", shape=("trees + 1",), low=0, order="rising"),
    }
    has_nodes = state.length("node_feature") > 0
    if leaf_rank == "linear" and has_nodes:
        layout["planes"] = Array(kind="float32", shape=("nodes", width))
    if leaf_rank == "boosting" and has_nodes:
        layout |= {
            "stump_counts": Array(kind="int64", shape=("nodes",), low=0, high=2**31),
            "stump_features": Array(kind="int32", shape=("stumps",), below=width),
            "stump_thresholds": Array(kind="float32", shape=("stumps",)),
            "stump_steps": Array(kind="float32", shape=("stumps",)),
            "stump_starts": offsets,
        }
    if forest:
        # Earlier versions could keep an out-of-bag ROC, which nothing reads.
        rates = Array(kind="float64", shape=("knots",), low=0, high=1, optional=True)
        layout |= {"oob_fpr": rates, "oob_tpr": rates}
    return layout | _learned(state)


def _learned(state: StoredState) -> dict[str, Array]:
    facts, d = state.facts.learned, state.sizes["features"]
    if facts is None:
        return {}
    form = Array(kind="float32", shape=("learned", "coordinates"))
    layout = {
        "centre": Array(kind="float64", shape=(d,)),
        "scale": Array(kind="float64", shape=(d,)),
        "forms": form,
        "norms": Array(kind="float64", shape=form.shape, low=0),
        "offsets": Array(kind="float64", shape=form.shape),
    }
    sizes: list[int | str] = [d, *(f"layer {at}" for at in range(1, facts.n_layers)), "coordinates"]
    for at in range(facts.n_layers):
        layout[f"weights{at}"] = Array(kind="float32", shape=(sizes[at], sizes[at + 1]))
        layout[f"bias{at}"] = Array(kind="float32", shape=(sizes[at + 1],))
    return {f"learned_{name}": array for name, array in layout.items()}


def _require_cells(state: StoredState) -> None:
    """Refuse cells that do not make one tree each: depths, places and children go together."""
    arrays, sizes = state.arrays, state.sizes
    cells, starts = arrays["cells"], arrays["cell_starts"]
    if sizes["trees"] < 1 or ("n_estimators" not in state.params and sizes["trees"] != 1):
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
    if state.params["leaf_rank"] not in _AXES:
        number = np.arange(n) - starts[tree]
        require(arrays["node_feature"] == -1 - number, "node_feature", arrays["node_feature"], "-1 - node")
    if "stump_counts" in arrays:
        _require_stumps(arrays["stump_counts"], arrays["stump_starts"], starts, sizes["stumps"])


def _require_stumps(counts: Int64, stump_starts: Int64, starts: Int64, n_stumps: int) -> None:
    require_offsets("stump_starts", stump_starts, n_stumps, "stump_features")
    sums = np.concatenate([[0], np.cumsum(counts)])[starts]
    require(stump_starts == sums, "stump_starts", stump_starts, "the sums of stump_counts")


def _require_learned(state: StoredState) -> None:
    """Refuse learned features of a kind that has other ones."""
    facts = state.facts
    if facts.learned is None:
        return
    kind = facts.pair_features or state.params["pair_features"]
    m, q = state.sizes["learned"], state.sizes["coordinates"]
    if m > len(NAMES.get(kind, ())):
        raise refuse(
            "learned_forms", None, f"has {m} rows", f"at most {len(NAMES.get(kind, ()))} for {kind!r}"
        )
    if q < 1 or (facts.learned.n_layers == 0 and q != state.sizes["features"]):
        raise refuse("learned_forms", None, f"has {q} columns", "one a coordinate")
    if facts.learned.waved is None and facts.learned.posteriors is None:
        raise refuse("learned_forms", None, "is of an unknown kind", "'waved' in the manifest")
    if (facts.learned.n_posteriors or 0) > q:
        raise refuse(
            "learned_forms", None, f"has {q} columns", f"{facts.learned.n_posteriors} posteriors or more"
        )


class SimilarityState(Stateful):
    """Of trees and forests."""

    @classmethod
    def check_state(
        cls, params: Mapping[str, Any], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        facts = checked_model(SimilarityFacts, meta)
        state = StoredState(
            params=params, facts=facts, arrays=arrays, sizes={"features": facts.n_features_in}
        )
        check_arrays(state, _layout(state))
        for relation in (_require_cells, _require_nodes, _require_learned):
            relation(state)


SCHEMA = StateSchema(SimilarityState)
