"""The product bound for lists made by blocking: the block is the unit (``docs/matching-product-bound.md``, part 7).

Pairs are listed inside of blocks only (all with one postcode, say), so pairs of one block depend on each other in ways
that their people do not account for. Blocks are independent: no matching is needed, and the average over matchings of
`matching_product` becomes a product over all blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.bounds import last_true
from pairmark.models.calibration.matching_product import Mixture
from pairmark.models.core.arrays import Float32, Float64, Int32
from pairmark.models.pairs.samples import Side

_PARTS = ("row_block", "row_at", "row_share")


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Different pairs by the block that they are in.

    Attributes
    ----------
    row_block : (R,) int32 block of each different pair, best score first.
    row_at : (R,) int32 ascending: a row lies above threshold number k exactly when its ``row_at`` is below k.
    row_share : (R,) float64 its share of its block.
    n : blocks.
    """

    row_block: Int32 = field(repr=False)
    row_at: Int32 = field(repr=False)
    row_share: Float64 = field(repr=False)
    n: int

    @classmethod
    def of(cls, side: Side, thresholds: Float32) -> Self:
        """The blocks of a sample's different pairs (`PairSample.by_block`: its edges are blocks)."""
        return cls(
            row_block=side.edge.astype(np.int32),
            row_at=np.searchsorted(-thresholds, -side.scores).astype(np.int32),
            row_share=side.weight * side.n_blocks,
            n=side.n_blocks,
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {f"block_{name}": getattr(self, name) for name in _PARTS}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        rows = {name: arrays[f"block_{name}"] for name in _PARTS}
        return cls(**rows, n=int(rows["row_block"].max()) + 1)

    def lookup(self, fpr: float, limit: float, parts: Mixture) -> int | None:
        """Number of the lowest threshold that is admitted; None when not even the highest is."""
        return last_true(lambda at: self.admits(at, fpr, limit, parts), int(self.row_at[-1]) + 1)

    def admits(self, at: int, fpr: float, limit: float, parts: Mixture) -> bool:
        """Whether the product at threshold number ``at`` reaches e^limit."""
        end = int(np.searchsorted(self.row_at, at))
        hit = np.bincount(self.row_block[:end], weights=self.row_share[:end], minlength=self.n)
        # Shares of one block sum to 1; rounding may carry them past it.
        share = np.minimum(hit, 1.0)
        logs = [
            math.log(part) + float(np.log1p(-shrink * share).sum()) - self.n * math.log1p(-shrink * fpr)
            for part, shrink in parts
        ]
        return bool(np.logaddexp.reduce(logs) >= limit)
