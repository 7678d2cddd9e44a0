"""What saved label ranking trees and pair models must look like."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool
from pairmark.models.core.schema import Array, Loaded, refuse, require, require_offsets

_DEEPEST = 100_000
"""Levels that are walked to find out which nodes can be reached."""


def n_pairs(k: int) -> int:
    """Pairs of k labels."""
    return k * (k - 1) // 2


def logistic_layout(start: str, n_features: int) -> dict[str, Array]:
    """Arrays of `LogisticPairs`, whose names begin with ``start``."""
    models = "models" if start == "pairs_" else f"models of {start}"
    return {
        f"{start}mean": Array(kind="float64", shape=(n_features,)),
        f"{start}scale": Array(kind="float64", shape=(n_features,), positive=True),
        f"{start}coef": Array(kind="float64", shape=(models, n_features)),
        f"{start}intercept": Array(kind="float64", shape=(models,)),
    }


def trees_layout(start: str, n_features: int, rows: str) -> dict[str, Array]:
    """Arrays of `Trees`, whose names begin with ``start``; ``rows`` is the size that members are numbers of."""
    nodes, members = f"{start}nodes", f"{start}members"
    node = Array(kind="int32", shape=(nodes,), low=0, below=nodes)
    return {
        f"{start}roots": Array(kind="int64", shape=(f"{start}trees",), below=nodes),
        f"{start}feature": Array(kind="int32", shape=(nodes,), low=-1, below=n_features),
        f"{start}threshold": Array(kind="float32", shape=(nodes,)),
        f"{start}left": node,
        f"{start}right": node,
        f"{start}member_start": Array(kind="int64", shape=(f"{nodes} + 1",), low=0, order="never-falling"),
        f"{start}members": Array(kind="int32", shape=(members,), below=rows),
        f"{start}mass": Array(kind="float32", shape=(members,), low=0),
    }


def require_trees(loaded: Loaded, start: str) -> None:
    """Refuse offsets that do not fit, and trees with a node that does not come after its parent: no walk is endless."""
    arrays = {name: loaded.arrays[f"{start}{name}"] for name in ("feature", "left", "right", "roots")}
    require_offsets(
        f"{start}member_start",
        loaded.arrays[f"{start}member_start"],
        loaded.sizes[f"{start}members"],
        f"{start}members",
    )
    number = np.arange(arrays["feature"].size)
    splits = arrays["feature"] >= 0
    bad = splits & ((arrays["left"] <= number) | (arrays["right"] <= number))
    if not bad.any():
        return
    # Nodes that nothing leads to are never read; earlier versions left some behind.
    bad &= _reached(arrays)
    for side in ("left", "right"):
        good = ~bad | (arrays[side] > number)
        require(good, f"{start}{side}", arrays[side], "a node after its parent")


def _reached(arrays: dict[str, NDArray[Any]]) -> Bool:
    reached = np.zeros(arrays["feature"].size, dtype=np.bool_)
    level = np.unique(arrays["roots"])
    for _ in range(_DEEPEST):
        level = level[~reached[level]]
        if not level.size:
            return reached
        reached[level] = True
        level = level[arrays["feature"][level] >= 0]
        level = np.unique(np.concatenate([arrays["left"][level], arrays["right"][level]]))
    raise refuse("left", None, f"leads down more than {_DEEPEST} levels", "fewer")
