"""The hardest held-out pairs, by row, and the distributions of scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pairmark.models.pairs.splits import HeldOutPairs

ErrorKind = Literal["false-match", "false-non-match"]

KEPT = 200
"""Hardest pairs of each kind that a report keeps."""
BINS = 64
_TAIL = 0.0005
_SIDES = {"false-match": "hardest_different", "false-non-match": "hardest_same"}


@dataclass(frozen=True, kw_only=True)
class HardPairs:
    """Pairs of one kind, hardest first.

    Attributes
    ----------
    left, right : (n,) rows of the dataset, 0-based.
    scores : (n,) descending for different pairs, ascending for same ones.
    of : pairs of that kind that were scored.
    """

    left: NDArray[np.int64] = field(repr=False)
    right: NDArray[np.int64] = field(repr=False)
    scores: NDArray[np.float32] = field(repr=False)
    of: int

    def first(self, limit: int) -> list[dict[str, Any]]:
        """The first so many, JSON-able."""
        sides = (self.left, self.right, self.scores)
        rows = zip(*(side[:limit].tolist() for side in sides), strict=True)
        return [{"left": left, "right": right, "score": score} for left, right, score in rows]

    def wrong_at(self, threshold: float, kind: ErrorKind) -> HardPairs:
        """Those on the wrong side of a threshold."""
        limit = np.float32(threshold)
        wrong = self.scores > limit if kind == "false-match" else self.scores <= limit
        return HardPairs(
            left=self.left[wrong], right=self.right[wrong], scores=self.scores[wrong], of=self.of
        )


def error_arrays(pairs: HeldOutPairs, scores: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """The hardest pairs of both kinds, and histograms of the scores, as arrays for a report."""
    arrays: dict[str, NDArray[Any]] = {}
    for kind, name in _SIDES.items():
        mine = np.flatnonzero(~pairs.same if kind == "false-match" else pairs.same)
        hardest = -scores[mine] if kind == "false-match" else scores[mine]
        order = mine[np.argsort(hardest, kind="stable")[:KEPT]]
        arrays[f"{name}_rows"] = np.stack([pairs.left[order], pairs.right[order]], axis=1)
        arrays[f"{name}_scores"] = scores[order]
    # The outermost bins take what lies beyond, so that a single far score does not flatten the picture.
    low, high = np.quantile(scores, [_TAIL, 1 - _TAIL])
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    arrays["histogram_edges"] = edges
    inside = np.clip(scores, edges[0], edges[-1])
    for name, of in (("same", pairs.same), ("different", ~pairs.same)):
        arrays[f"histogram_{name}"] = np.histogram(inside[of], edges)[0].astype(np.int64)
    return arrays


def hard_pairs(arrays: Mapping[str, NDArray[Any]], kind: ErrorKind) -> HardPairs | None:
    """The hardest pairs of a report's arrays; None where they were not kept."""
    name = _SIDES[kind]
    if f"{name}_rows" not in arrays:
        return None
    rows = np.asarray(arrays[f"{name}_rows"])
    return HardPairs(
        left=rows[:, 0],
        right=rows[:, 1],
        scores=np.asarray(arrays[f"{name}_scores"]),
        of=int(arrays["histogram_different" if kind == "false-match" else "histogram_same"].sum()),
    )


def histograms(arrays: Mapping[str, NDArray[Any]]) -> dict[str, list[Any]] | None:
    """Counts of scores by bin, JSON-able; None where they were not kept."""
    if "histogram_edges" not in arrays:
        return None
    return {name: arrays[f"histogram_{name}"].tolist() for name in ("edges", "same", "different")}
