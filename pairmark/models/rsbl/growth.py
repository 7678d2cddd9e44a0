"""The growing space: Gaussian similarities to neighbors, layer on layer (Maszczyk & Duch, Algorithm 1).

A row that is the neighbor of c training rows gives c equal features. They are kept as one, multiplied by sqrt(c):
inner products and Euclidean distances, and so linear SVMs and nearest rows, are the same to rounding.
"""

from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import numpy as np

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.state import Array
from pairmark.models.rsbl import kernels

_LARGEST = 1e30


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """How a row becomes a point of the space of depth 0: (d,) float64 each. A constant feature has scale 1."""

    mean: Annotated[Float64, Array(shape=("width of 0",))]
    scale: Annotated[Float64, Array(shape=("width of 0",), positive=True)]

    @classmethod
    def of_rows(cls, X: Float32) -> "Inputs":
        """Learn from training rows, (n, d)."""
        deviations = X.std(axis=0, dtype=np.float64)
        # Equal numbers can have a spread by rounding: what does not vary is left as it is.
        varies = (X.max(axis=0) > X.min(axis=0)) & (deviations > 0)
        return cls(mean=X.mean(axis=0, dtype=np.float64), scale=np.where(varies, deviations, 1.0))

    def transform(self, X: Float32) -> Float32:
        """Rows in the space of depth 0, (n, d) float32; a row's point does not depend on the rows beside it."""
        return np.clip((X - self.mean) / self.scale, -_LARGEST, _LARGEST).astype(np.float32)


CODES: Final = {
    "euclidean": kernels.SQUARES,
    "manhattan": kernels.ABSOLUTES,
    "cosine": kernels.DOT,
}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What one layer adds to the space.

    Attributes
    ----------
    columns : (p,) numbers of the references whose similarities are the new features.
    counts : (p,) how many equal features each stands for.
    beta : of the Gaussians.
    """

    columns: Int64 = field(repr=False)
    counts: Float64 = field(repr=False)
    beta: float


class Distances:
    """Distances of rows to references in a space that gains features: nothing is added up twice.

    Parameters
    ----------
    metric : one of `CODES`.
    n, u : numbers of rows and references.
    """

    def __init__(self, metric: str, n: int, u: int) -> None:
        self._code = CODES[metric]
        self._acc = np.zeros((n, u), dtype=np.float32)
        self._squares, self._ref_squares = np.zeros(n), np.zeros(u)

    def extend(self, rows: Float32, refs: Float32, counts: Float64) -> None:
        """Add features, each already multiplied by the root of its count.

        Parameters
        ----------
        rows : (n, p). refs : (p, u). counts : (p,) how many equal features each stands for.
        """
        # Rows and references carry the root r of a feature's count c = r^2. Squared differences and products so count c
        # times by themselves; absolute differences take another r.
        of_root = self._code == kernels.ABSOLUTES
        factor = (np.sqrt(counts) if of_root else np.ones_like(counts)).astype(np.float32)
        rows, scaled = np.ascontiguousarray(rows), np.ascontiguousarray(refs * factor[:, None])
        kernels.accumulate(self._code, rows, factor, scaled, self._acc)
        if self._code == kernels.DOT:
            kernels.add_squares(rows, self._squares)
            kernels.add_squares(np.ascontiguousarray(refs.T), self._ref_squares)

    def squared(self) -> Float32:
        """Squared distances in the space so far, (n, u)."""
        if self._code == kernels.SQUARES:
            return self._acc
        out = np.empty_like(self._acc)
        kernels.squared_distances(self._code, self._acc, self._squares, self._ref_squares, out)
        return out


class Growth:
    """A space that grows over some rows, of which some train and some are references.

    Parameters
    ----------
    rows : (n, d) prepared inputs, the space of depth 0.
    train : rows whose neighbors become features.
    references : rows (among ``train``) that can be neighbors.
    beta : of the Gaussians; ``median``: one over the median squared distance, anew for each layer.
    """

    def __init__(
        self,
        rows: Float32,
        train: Int64,
        references: Int64,
        *,
        metric: str,
        k_max: int,
        beta: float | Literal["median"],
    ) -> None:
        self.train, self.references = train, references
        self.blocks: list[Float32] = [rows]
        self.layers: list[Layer] = []
        # No more neighbors than there are.
        self.k_max = min(k_max, references.size - 1)
        self._beta = beta
        self._distances = Distances(metric, rows.shape[0], references.size)
        # The last layer's features are asked for no distances, which would cost as much as all others together.
        self._pending: list[tuple[Float32, Float64]] = [(rows, np.ones(rows.shape[1]))]
        self._looked: tuple[Float32, Int64, float] | None = None

    @property
    def distances(self) -> Distances:
        """Of all rows to the references, in the space so far."""
        for rows, counts in self._pending:
            self._distances.extend(rows, np.ascontiguousarray(rows[self.references].T), counts)
        self._pending.clear()
        return self._distances

    def look(self) -> tuple[Float32, Int64, float]:
        """Squared distances (n, u), the neighbors of the training rows (n_train, k_max), and the width."""
        if self._looked is None:
            squared = self.distances.squared()
            near = squared if self.train.size == squared.shape[0] else squared[self.train]
            # The reference that each training row is itself, so that it is not its own neighbor; -1 for none.
            place_of = np.full(int(self.train.max()) + 1, -1, dtype=np.int64)
            place_of[self.references] = np.arange(self.references.size)
            places = place_of[self.train]
            neighbors = np.empty((self.train.size, self.k_max), dtype=np.int64)
            kernels.nearest(near, places, self.k_max, neighbors)
            beta = 1.0 / typical(near) if self._beta == "median" else float(self._beta)
            self._looked = squared, neighbors, beta
        return self._looked

    def counts(self, k: int) -> Float64:
        """How many new features the ``k``-th neighbors give each reference, (u,)."""
        _, neighbors, _ = self.look()
        return np.bincount(neighbors[:, k - 1], minlength=self.references.size).astype(np.float64)

    def features(self, columns: Int64, scale: Float64) -> Float32:
        """Gaussian features of all rows to some references, multiplied by ``scale``."""
        squared, _, beta = self.look()
        block = np.empty((squared.shape[0], columns.size), dtype=np.float32)
        kernels.gaussians(beta, squared, columns, scale, block)
        return block

    def commit(self, k: int) -> None:
        """Keep the features of the first ``k`` neighbors as a layer."""
        total = np.sum([self.counts(at) for at in range(1, min(k, self.k_max) + 1)], axis=0)
        columns = np.flatnonzero(total).astype(np.int64)
        layer = Layer(columns=columns, counts=total[columns], beta=self.look()[2])
        block = self.features(columns, np.sqrt(layer.counts))
        self.layers.append(layer)
        self.blocks.append(block)
        self._pending.append((block, layer.counts))
        self._looked = None


def typical(squared: Float32) -> float:
    """The median squared distance of different rows; 1 where all are equal."""
    positive = squared[:: max(1, squared.shape[0] // 1_000)]
    positive = positive[positive > 0]
    return float(np.median(positive)) if positive.size else 1.0


def walk_layers(rows: Float32, refs: list[Float32], layers: list[Layer], metric: str) -> list[Float32]:
    """Rows in the space that was grown: their inputs and each layer's features.

    Parameters
    ----------
    rows : (n, d) prepared inputs.
    refs : for each layer, what the space gained before it, at the references: (p, u).
    """
    blocks = [rows]
    counts = np.ones(rows.shape[1])
    if not layers:
        return blocks
    distances = Distances(metric, rows.shape[0], refs[0].shape[1])
    for block, layer in zip(refs, layers, strict=True):
        distances.extend(blocks[-1], block, counts)
        features = np.empty((rows.shape[0], layer.columns.size), dtype=np.float32)
        kernels.gaussians(layer.beta, distances.squared(), layer.columns, np.sqrt(layer.counts), features)
        blocks.append(features)
        counts = layer.counts
    return blocks
