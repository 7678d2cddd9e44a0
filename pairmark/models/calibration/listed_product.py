"""The matching-product bound for a list of pairs: an average over matchings inside of it
(``docs/matching-product-bound.md``, part 6).

Each matching is found by visiting units, those with few listed pairs first and ties by a permutation, each free one
taking a free neighbour. Which matchings these are follows from the list alone, never from scores or classes, so that
their average is what `matching_product` speaks of, and monotone in t.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from pairmark.models.calibration.bounds import last_true
from pairmark.models.calibration.kernels.list_matchings import list_matchings
from pairmark.models.calibration.matching_product import Mixture, ScoredGraph
from pairmark.models.core.arrays import Float64, Int32
from pairmark.models.pairs.order import stream_of

N_MATCHINGS = 1_000
MOST_VISITS = 100_000_000
"""Listed pairs times matchings; of a longer list there are fewer."""
_FEWEST = 32


class ListedPairs:
    """The bound for any list of pairs of units.

    Parameters
    ----------
    above : (k,) A by threshold number, as `pairmark.models.calibration.finite_sample.FiniteSample` has it.
    """

    def __init__(self, graph: ScoredGraph, above: Float64) -> None:
        self._graph, self._above = graph, above

    def admits(self, at: int, fpr: float, limit: float, parts: Mixture) -> bool:
        """Whether the statistic at threshold number ``at`` reaches e^limit."""
        # The last entry is that of the padding: no pair at all.
        share = np.append(self.shares(at, fpr), 0.0)[self.matchings]
        sizes = (self.matchings >= 0).sum(axis=1)
        logs = [
            math.log(part) + np.log1p(-shrink * share).sum(axis=1) - sizes * math.log1p(-shrink * fpr)
            for part, shrink in parts
        ]
        # The mean over matchings, as a sum.
        return bool(np.logaddexp.reduce(np.concatenate(logs)) >= limit + math.log(sizes.size))

    def lookup(self, fpr: float, limit: float, parts: Mixture) -> int | None:
        """Number of the lowest threshold that is admitted; None when not even the highest is."""
        high = int(np.searchsorted(self._above, min(1.5 * fpr, 1.0), side="right"))
        return last_true(lambda at: self.admits(at, fpr, limit, parts), high)

    def shares(self, at: int, fpr: float) -> Float64:
        """a of every listed pair of units at threshold number ``at``."""
        graph = self._graph
        end = int(np.searchsorted(graph.row_at, at))
        hit = np.bincount(
            graph.row_edge[:end], weights=graph.row_share[:end], minlength=graph.different.shape[0]
        )
        return np.concatenate([np.minimum(hit, 1.0), np.full(graph.same.shape[0], fpr)])

    @cached_property
    def matchings(self) -> Int32:
        """(n, m // 2) numbers of the listed pairs in each matching, -1 after the last."""
        edges = np.concatenate([self._graph.different, self._graph.same])
        n_edges, m = int(edges.shape[0]), int(edges.max()) + 1
        degree = np.bincount(edges.ravel(), minlength=m)
        ends, others = edges.T.ravel(), edges[:, ::-1].T.ravel()
        # Neighbours by their number: that of a pair says how high it scored, and whether it is the same.
        by_unit = np.lexsort((others, ends))
        n = max(_FEWEST, min(N_MATCHINGS, MOST_VISITS // n_edges))
        uniform = np.random.Generator(stream_of(m, n_edges)).random((2, n, m))
        order = np.argsort(degree + uniform[0], axis=1).astype(np.int32)
        matched = np.empty((n, m // 2), dtype=np.int32)
        start = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
        numbers = (by_unit % n_edges).astype(np.int32)
        list_matchings(start, others[by_unit], numbers, order, uniform[1], matched)
        return matched
