"""Trees whose nodes test one feature each, as the type checker sees them."""

from __future__ import annotations

from typing import Any


def axis(tree: Any) -> Any:
    """The tree's splits."""
    assert hasattr(tree.splits, "features")
    return tree.splits
