"""The tests at the nodes of a similarity tree: one class for each kind of split.

A pair goes to a node's high child where the value that the node tests is above its threshold. Values are computed in
one order at training and at scoring time, so the cells that were counted are the cells that score.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool, Float32, Float64, Int32, Int64
from pairmark.models.similarity.kernels import boosting as boosting_kernels
from pairmark.models.similarity.kernels import scoring as scoring_kernels

Arrays = Mapping[str, NDArray[Any]]
"""By name, of several trees end to end; what there is none of may be None."""


class Splits(ABC):
    """The tests of all nodes of a tree, in the order of its nodes.

    Attributes
    ----------
    thresholds : (n_nodes,) float32.
    title : what a node that tests more than one pair feature is called, as ``feature`` and ``map``; else None.
    """

    thresholds: Float32
    title: ClassVar[tuple[str, str] | None] = None

    def __len__(self) -> int:
        return int(self.thresholds.size)

    @classmethod
    @abstractmethod
    def empty(cls) -> Self:
        """The splits of a tree that is one leaf."""

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """The nodes of several, at least one, end to end."""
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    @abstractmethod
    def value(self, node: int, f: Float32) -> NDArray[Any]:
        """What a node tests, of pairs with features f, (n, width)."""

    @abstractmethod
    def shares(self, node: int) -> list[tuple[int, float]]:
        """The pair features that a node rests on, with their shares of it; these sum to 1."""

    @abstractmethod
    def to_state(self, node_starts: Int64) -> dict[str, NDArray[Any]]:
        """Named arrays of several trees, whose nodes begin at ``node_starts``, (n_trees + 1,)."""

    @classmethod
    @abstractmethod
    def from_state(cls, arrays: Arrays, nodes: slice, tree: int) -> Self:
        """The splits of tree number ``tree``, whose nodes are ``nodes``, from the arrays of several trees."""

    def high(self, node: int, f: Float32) -> Bool:
        """Whether pairs with features f, (n, width), go to the node's high child."""
        return np.asarray(self.value(node, f) > self.thresholds[node], dtype=np.bool_)

    def contributions(self, node: int, f: Float32) -> tuple[Int64, Float64] | None:
        """Of a node that tests a sum: the features in it, and what each adds for one pair, (width,); else None."""
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class AxisSplits(Splits):
    """One pair feature a node.

    Attributes
    ----------
    features : (n_nodes,) int32: feature, plus the number of features for the pair map's second half, or from twice
        that number on a learned one.
    """

    features: Int32
    thresholds: Float32

    @classmethod
    def empty(cls) -> Self:
        return cls(features=np.empty(0, dtype=np.int32), thresholds=np.empty(0, dtype=np.float32))

    def value(self, node: int, f: Float32) -> Float32:
        return f[:, self.features[node]]

    def shares(self, node: int) -> list[tuple[int, float]]:
        return [(int(self.features[node]), 1.0)]

    def to_state(self, node_starts: Int64) -> dict[str, NDArray[Any]]:
        return {"node_feature": self.features, "node_threshold": self.thresholds}

    @classmethod
    def from_state(cls, arrays: Arrays, nodes: slice, tree: int) -> Self:
        return cls(features=arrays["node_feature"][nodes], thresholds=arrays["node_threshold"][nodes])


@dataclass(frozen=True, kw_only=True, eq=False)
class PlaneSplits(Splits):
    """A weighted sum of pair features a node.

    Attributes
    ----------
    planes : (n_nodes, all features) float32 weights.
    """

    planes: Float32
    thresholds: Float32
    title: ClassVar[tuple[str, str] | None] = ("weighted sum of pair features", "plane")

    @classmethod
    def empty(cls) -> Self:
        return cls(planes=np.empty((0, 0), dtype=np.float32), thresholds=np.empty(0, dtype=np.float32))

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        # Trees without a node have no width.
        return super().concatenate([part for part in parts if len(part)] or parts[:1])

    def value(self, node: int, f: Float32) -> Float32:
        values = np.empty(f.shape[0], dtype=np.float32)
        scoring_kernels.plane_values(f, np.array(self.planes[node]), values)
        return values

    def shares(self, node: int) -> list[tuple[int, float]]:
        return _by_size(np.abs(self.planes[node].astype(np.float64)))

    def contributions(self, node: int, f: Float32) -> tuple[Int64, Float64]:
        features = np.flatnonzero(self.planes[node])
        return features, (self.planes[node].astype(np.float64) * f)[features]

    def to_state(self, node_starts: Int64) -> dict[str, NDArray[Any]]:
        state = _numbered(node_starts, self.thresholds)
        return state | {"planes": self.planes} if len(self) else state

    @classmethod
    def from_state(cls, arrays: Arrays, nodes: slice, tree: int) -> Self:
        if arrays.get("planes") is None:
            return cls.empty()
        return cls(planes=arrays["planes"][nodes], thresholds=arrays["node_threshold"][nodes])


@dataclass(frozen=True, kw_only=True, eq=False)
class StumpSplits(Splits):
    """A sum of stumps a node: of the steps of those features that are above their thresholds.

    Attributes
    ----------
    counts : (n_nodes,) int64, how many stumps each node has.
    features, limits, steps : the stumps of all nodes end to end: int32, float32 and float32.
    """

    counts: Int64
    features: Int32
    limits: Float32
    steps: Float32
    thresholds: Float32
    title: ClassVar[tuple[str, str] | None] = ("sum of stumps on pair features", "boosting")

    @classmethod
    def empty(cls) -> Self:
        empty = np.empty(0, dtype=np.float32)
        counts, features = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        return cls(counts=counts, features=features, limits=empty, steps=empty, thresholds=empty)

    @property
    def starts(self) -> Int64:
        """(n_nodes + 1,) where each node's stumps begin."""
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)

    def _of(self, node: int) -> tuple[Int32, Float32, Float32]:
        stop = int(self.counts[: node + 1].sum())
        part = slice(stop - int(self.counts[node]), stop)
        return np.array(self.features[part]), np.array(self.limits[part]), np.array(self.steps[part])

    def value(self, node: int, f: Float32) -> Float64:
        values = np.empty(f.shape[0], dtype=np.float64)
        boosting_kernels.sums_of_stumps(f, *self._of(node), values)
        return values

    def shares(self, node: int) -> list[tuple[int, float]]:
        features, _, steps = self._of(node)
        return _by_size(np.bincount(features, weights=np.abs(steps.astype(np.float64))).astype(np.float64))

    def contributions(self, node: int, f: Float32) -> tuple[Int64, Float64]:
        features, limits, steps = self._of(node)
        above = (f[features] > limits).astype(np.float64)
        distinct = np.unique(features).astype(np.int64)
        amounts = np.bincount(features, weights=steps * above, minlength=f.size).astype(np.float64)
        return distinct, amounts[distinct]

    def to_state(self, node_starts: Int64) -> dict[str, NDArray[Any]]:
        state = _numbered(node_starts, self.thresholds)
        if not len(self):
            return state
        return state | {
            "stump_counts": self.counts,
            "stump_features": self.features,
            "stump_thresholds": self.limits,
            "stump_steps": self.steps,
            "stump_starts": self.starts[node_starts],
        }

    @classmethod
    def from_state(cls, arrays: Arrays, nodes: slice, tree: int) -> Self:
        if arrays.get("stump_counts") is None:
            return cls.empty()
        stumps = slice(*arrays["stump_starts"][tree : tree + 2].tolist())
        return cls(
            counts=arrays["stump_counts"][nodes],
            features=arrays["stump_features"][stumps],
            limits=arrays["stump_thresholds"][stumps],
            steps=arrays["stump_steps"][stumps],
            thresholds=arrays["node_threshold"][nodes],
        )


def _numbered(node_starts: Int64, thresholds: Float32) -> dict[str, NDArray[Any]]:
    """Thresholds, and what stands for features where nodes test several: -1 less a node's number in its tree."""
    numbers = np.concatenate([-1 - np.arange(n) for n in np.diff(node_starts)]).astype(np.int32)
    return {"node_feature": numbers, "node_threshold": thresholds}


def _by_size(weight: Float64) -> list[tuple[int, float]]:
    return [(int(i), float(weight[i] / weight.sum())) for i in np.flatnonzero(weight)]


KINDS: dict[str, type[Splits]] = {
    "cart": AxisSplits,
    "exhaustive": AxisSplits,
    "linear": PlaneSplits,
    "boosting": StumpSplits,
}
"""By the name of the LeafRank."""
