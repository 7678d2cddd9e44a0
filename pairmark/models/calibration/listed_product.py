"""The matching-product bound for a list of pairs: matchings are sampled (``docs/matching-product-bound.md``, part 6).

A matching is drawn by visiting units, those with few listed pairs first and ties at random, each free one taking a
free neighbour: under P0 any with the same probability. The average of e_M(t) over P0 is what `matching_product` speaks
of. It is estimated by draws that prefer pairs below a pilot threshold, weighted by P0 / Q: unbiased at every t, and
monotone in t for the draws at hand, so that the threshold may be searched for with them. The pilot's own draws are not
used again. The order of visits must not depend on scores: P0 would, and the mean of e_M(t) could be anything.
"""

from __future__ import annotations

import math

import numpy as np

from pairmark.models.calibration.bounds import last_true
from pairmark.models.calibration.kernels.list_matchings import draw_matchings
from pairmark.models.calibration.matching_product import Mixture, ScoredGraph
from pairmark.models.core.arrays import Float64, Int32

N_DRAWS = 256
MOST_VISITS = 100_000_000
"""Listed pairs times draws; a longer list gets fewer draws."""
_PILOT_DRAWS = 48
_PILOT_ROUNDS = 2
_PILOT_START = 0.6
"""Where pilots begin, as a share of the rate asked for. It costs or saves draws; what answers is drawn afresh."""
_PREFERENCE = 0.8


class ListedPairs:
    """The bound for any list of pairs of units.

    Parameters
    ----------
    above : (k,) A by threshold number, as `pairmark.models.calibration.finite_sample.FiniteSample` has it.
    """

    def __init__(self, graph: ScoredGraph, above: Float64, *, seed: int) -> None:
        self._graph, self._above, self._seed = graph, above, seed
        edges = np.concatenate([graph.different, graph.same])
        self._n_edges = int(edges.shape[0])
        m = int(edges.max()) + 1
        ends = np.concatenate([edges[:, 0], edges[:, 1]])
        by_unit = np.argsort(ends, kind="stable")
        self._neighbour = np.concatenate([edges[:, 1], edges[:, 0]])[by_unit]
        self._edge = (by_unit % self._n_edges).astype(np.int32)
        self._degree = np.bincount(ends, minlength=m)
        self._start = np.concatenate([[0], np.cumsum(self._degree)]).astype(np.int64)

    def admits(self, at: int, fpr: float, limit: float, parts: Mixture) -> bool:
        """Whether a threshold of number ``at`` or lower is admitted."""
        lowest = self.lookup(fpr, limit, parts)
        return lowest is not None and lowest >= at

    def lookup(self, fpr: float, limit: float, parts: Mixture) -> int | None:
        """Number of the lowest threshold that is admitted; None when not even the highest is."""
        # A pilot threshold on the safe side, moved twice to where its own draws admit; the last search draws afresh.
        at = int(np.searchsorted(self._above, _PILOT_START * fpr, side="right")) - 1
        pilot = max(16, min(_PILOT_DRAWS, MOST_VISITS // (8 * self._n_edges)))
        for turn in range(_PILOT_ROUNDS):
            lowest = self._search(at, pilot, [self._seed, 3, turn], fpr, limit, parts)
            at = max(lowest if lowest is not None else at // 2, 0)
        n = max(32, min(N_DRAWS, MOST_VISITS // self._n_edges))
        return self._search(at, n, [self._seed, 4], fpr, limit, parts)

    def shares(self, at: int, fpr: float) -> Float64:
        """a of every listed pair of units at threshold number ``at``."""
        graph = self._graph
        end = int(np.searchsorted(graph.row_at, at))
        hit = np.bincount(
            graph.row_edge[:end], weights=graph.row_share[:end], minlength=graph.different.shape[0]
        )
        return np.concatenate([np.minimum(hit, 1.0), np.full(graph.same.shape[0], fpr)])

    def visits(self, rng: np.random.Generator, n: int) -> Int32:
        """(n, m) units in the order that each draw visits them: by the list and chance, never by scores."""
        return np.argsort(self._degree + rng.random((n, self._degree.size)), axis=1).astype(np.int32)

    def draw(self, at: int, n: int, seed: list[int], fpr: float) -> tuple[Int32, Float64]:
        """Matchings that prefer pairs below threshold number ``at``, and log P0 / Q of each."""
        rng = np.random.default_rng(seed)
        m = self._degree.size
        order = self.visits(rng, n)
        matched, log_ratio = np.empty((n, m // 2), dtype=np.int32), np.empty(n)
        # Pairs above the pilot threshold are taken less often, never not at all: P0 / Q stays bounded.
        weight = 1 - _PREFERENCE * self.shares(at, fpr)
        draw_matchings(
            self._start, self._neighbour, self._edge, weight, order, rng.random((n, m)), matched, log_ratio
        )
        return matched, log_ratio

    def _search(
        self, pilot: int, n: int, seed: list[int], fpr: float, limit: float, parts: Mixture
    ) -> int | None:
        matched, log_ratio = self.draw(pilot, n, seed, fpr)
        sizes = (matched >= 0).sum(axis=1)

        def admits(at: int) -> bool:
            # The last entry is that of the padding: no pair at all.
            share = np.append(self.shares(at, fpr), 0.0)[matched]
            logs = [
                math.log(part)
                + log_ratio
                + np.log1p(-shrink * share).sum(axis=1)
                - sizes * math.log1p(-shrink * fpr)
                for part, shrink in parts
            ]
            # The mean over n draws, as a sum.
            return bool(np.logaddexp.reduce(np.concatenate(logs)) >= limit + math.log(n))

        high = int(np.searchsorted(self._above, min(1.5 * fpr, 1.0), side="right"))
        return last_true(admits, high)
