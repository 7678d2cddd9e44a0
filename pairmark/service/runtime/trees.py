"""The tree of a served version, as data and as a drawing."""

from __future__ import annotations

from typing import Any

from pairmark.service.errors import InvalidInput, ModelNotCapable
from pairmark.service.runtime.versions import LoadedVersion


def tree_data(version: LoadedVersion, number: int = 0) -> dict[str, Any]:
    """The version's tree as JSON-able data; ``number`` picks one of a forest's."""
    _, which = _tree(version, number)
    tree: dict[str, Any] = version.estimator.tree_data(version.feature_names, **which)
    return tree


def tree_svg(version: LoadedVersion, number: int = 0, depth: int = 5) -> str:
    """The same tree as a drawing, SVG text: its first ``depth`` levels. Raises what `tree_data` does."""
    n_trees, which = _tree(version, number)
    title = f"{version.entry.name}, version {version.entry.version}"
    if which:
        title += f", tree {number} of 0 to {n_trees - 1}"
    svg: str = version.estimator.tree_svg(version.feature_names, depth=depth, title=title, **which)
    return svg


def _tree(version: LoadedVersion, number: int) -> tuple[int, dict[str, int]]:
    """How many trees there are, and how the learner is asked for one; a lone tree needs no number."""
    entry = version.entry
    if not hasattr(version.estimator, "tree_data"):
        raise ModelNotCapable(f"{entry.name}:{entry.version} is a {entry.kind}, which has no tree to show")
    n_trees = len(getattr(version.estimator, "trees_", [None]))
    if not 0 <= number < n_trees:
        raise InvalidInput(
            f"tree: {number}; {entry.name}:{entry.version} has trees 0 to {n_trees - 1}", field="tree"
        )
    return n_trees, {"tree": number} if n_trees > 1 else {}
