"""Tree nodes packed into one word each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.base import Float32
from pairmark.models.similarity.kernels import scoring as scoring_kernels


class Narrow(NamedTuple):
    """Nodes of one word each, see `scoring_kernels.score_narrow`.

    Attributes
    ----------
    nodes : (n_nodes,) uint64. thresholds : (n_nodes,) float32. lows, scales : (features,) float32.
    """

    nodes: NDArray[np.uint64]
    thresholds: Float32
    lows: Float32
    scales: Float32

    def spanning(self, n_features: int) -> Narrow:
        """The same with entries for so many features: none is tested beyond those there are."""
        if n_features <= self.lows.size:
            return self
        more = np.zeros(n_features - self.lows.size, dtype=np.float32)
        return self._replace(lows=np.append(self.lows, more), scales=np.append(self.scales, more))


def narrow_nodes(
    node_features: list[NDArray[np.int32]],
    node_thresholds: list[Float32],
    children: list[list[NDArray[np.uint64]]],
) -> Narrow | None:
    """The nodes as words, tree by tree, or None where a tree or the number of features is too large for their bits.

    The steps of a feature's places span all but the outermost thousandths of its thresholds: where many values fall
    on one step scoring is slower, never wrong.
    """
    features = np.concatenate(node_features)
    last = max((int(side.max(initial=0)) for its in children for side in its), default=0)
    n_features = int(features.max(initial=-1)) + 1
    if last >> scoring_kernels.CHILD_BITS or n_features > 1 << scoring_kernels.FEATURE_BITS:
        return None
    thresholds = np.concatenate(node_thresholds).astype(np.float32) + np.float32(0.0)
    order = np.argsort(features.astype(np.uint16), kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(features, minlength=n_features))])
    lows, scales = np.zeros(n_features), np.ones(n_features)
    for f in range(n_features):
        own = np.sort(thresholds[order[bounds[f] : bounds[f + 1]]]).astype(np.float64)
        if own.size:
            rest = own.size // 1_000
            low, span = own[rest], own[own.size - 1 - rest] - own[rest]
            if span == 0.0:
                span = max(abs(low) * 1e-3, 1e-12)
            lows[f] = max(low - span / 2.0, -3e38)
            scales[f] = scoring_kernels.TOP_PLACE / (2.0 * span)
    words = np.empty(features.size, dtype=np.uint64)
    narrow = Narrow(words, thresholds, lows.astype(np.float32), scales.astype(np.float32))
    low, high = (np.concatenate([its[side] for its in children]) for side in range(2))
    scoring_kernels.pack_narrow(features, thresholds, low, high, narrow.lows, narrow.scales, words)
    return narrow
