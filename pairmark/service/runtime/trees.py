"""Trees of served versions as data."""

from __future__ import annotations

from typing import Any

from pairmark.service.errors import InvalidInput, ModelNotCapable
from pairmark.service.runtime.versions import LoadedVersion


def tree_data(version: LoadedVersion, number: int = 0) -> dict[str, Any]:
    """The version's tree as JSON-able data; ``number`` picks one of a forest's."""
    entry = version.entry
    if not hasattr(version.estimator, "tree_data"):
        raise ModelNotCapable(f"{entry.name}:{entry.version} is a {entry.kind}, which has no tree to show")
    n_trees = len(getattr(version.estimator, "trees_", [None]))
    if not 0 <= number < n_trees:
        raise InvalidInput(
            f"tree: {number}; {entry.name}:{entry.version} has trees 0 to {n_trees - 1}", field="tree"
        )
    # A lone tree needs no number.
    which = {"tree": number} if n_trees > 1 else {}
    tree: dict[str, Any] = version.estimator.tree_data(version.feature_names, **which)
    return tree
