"""Trees whose nodes test one feature each, as the type checker sees them."""

from __future__ import annotations

from typing import Any

from pairmark.models.similarity.node_splits import AxisSplits
from pairmark.models.similarity.packing import AxisTrees
from pairmark.models.similarity.trees import Tree


def axis(tree: Tree) -> AxisSplits:
    """The tree's splits."""
    assert isinstance(tree.splits, AxisSplits)
    return tree.splits


def packed(model: Any) -> AxisTrees:
    """The model's trees as they are scored."""
    assert isinstance(model._packed, AxisTrees)
    return model._packed
