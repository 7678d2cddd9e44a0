"""Matchings sampled inside of a list: against enumeration, and why the order of visits may not look at scores."""

from __future__ import annotations

import itertools
import math
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from pairmark.models.calibration.listed_product import ListedPairs
from pairmark.models.calibration.matching_product import ScoredGraph
from pairmark.models.pairs.samples import pair_sample


def exact(edges: list[tuple[int, int]], order: list[int], factor: dict[tuple[int, int], float]) -> float:
    """The mean over P0 of the product, visiting in this order: every path of the draw, by its probability."""
    if not order:
        return 1.0
    unit, rest = order[0], order[1:]
    mates = sorted({a + b - unit for a, b in edges if unit in (a, b)})
    if not mates:
        return exact(edges, rest, factor)
    total = 0.0
    for mate in mates:
        left = [e for e in edges if unit not in e and mate not in e]
        pair = (min(unit, mate), max(unit, mate))
        total += factor[pair] * exact(left, [u for u in rest if u != mate], factor)
    return total / len(mates)


def listed(scores: np.ndarray, units: np.ndarray, kind: type[ListedPairs] = ListedPairs) -> ListedPairs:
    sample = pair_sample(scores, np.zeros(scores.size), units)
    thresholds, above = sample.different.steps()
    graph = ScoredGraph.of(sample, thresholds)
    assert not graph.cell.size
    return kind(graph, above, seed=0)


@pytest.mark.parametrize("pilot", [0, 4, 9])
@pytest.mark.parametrize("at", [2, 7])
def test_the_estimate_is_unbiased_whatever_the_pilot(pilot: int, at: int) -> None:
    rng = np.random.default_rng(1)
    edges = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (3, 4), (4, 5), (2, 5), (1, 6)]
    units = np.array([*edges, (0, 1), (4, 5)])
    bound = listed(rng.random(units.shape[0]).astype(np.float32), units)  # type: ignore[attr-defined]
    fpr, shrink = 0.2, 0.8
    shares = bound.shares(at, fpr)
    different = bound._graph.different
    factor = {
        (min(a, b), max(a, b)): (1 - shrink * share) / (1 - shrink * fpr)
        for (a, b), share in zip(different.tolist(), shares.tolist(), strict=True)
    }
    degree = bound._degree
    orders = [
        list(itertools.chain(*parts))
        for parts in itertools.product(
            *(itertools.permutations(np.flatnonzero(degree == d).tolist()) for d in np.unique(degree))
        )
    ]
    truth = np.mean([exact(list(factor), order, factor) for order in orders])
    matched, log_ratio = bound.draw(pilot, 20_000, [1], fpr)
    gain = np.append(np.log1p(-shrink * shares) - math.log1p(-shrink * fpr), 0.0)[matched].sum(axis=1)
    values = np.exp(log_ratio + gain)
    assert values.mean() == pytest.approx(truth, abs=4 * values.std() / math.sqrt(values.size))
    for row in matched[:50]:
        taken = different[row[row >= 0]].ravel()
        assert np.unique(taken).size == taken.size


class FewestHitsFirst(ListedPairs):
    """What must not be done: units with few pairs above the threshold are visited first."""

    def visits(self, rng: np.random.Generator, n: int) -> NDArray[np.int32]:
        shares = self.shares(int(np.searchsorted(self._above, 0.1)), 0.1)
        hits = np.bincount(self._graph.different.ravel(), weights=np.repeat(shares, 2))
        return np.argsort(hits + 1e-3 * rng.random((n, hits.size)), axis=1).astype(np.int32)


def failures(kind: type[ListedPairs], n: int) -> int:
    """How often 10 % was exceeded by a threshold admitted at 10 %: everybody is compared with a few others."""
    admitted = 0
    m, fpr = 400, 0.1
    for seed in range(n):
        rng = np.random.default_rng([3, seed])
        first, second = rng.integers(0, m, (2, 2 * m))
        kept = first != second
        units = np.stack([first[kept], second[kept]], axis=1)
        scores = rng.random(units.shape[0]).astype(np.float32)  # type: ignore[attr-defined]
        bound = listed(scores, units, kind)
        at = bound.lookup(fpr, math.log(20), ((1.0, 0.8),))
        thresholds = pair_sample(scores, np.zeros(scores.size), units).different.steps()[0]
        admitted += at is not None and 1 - float(thresholds[at]) > fpr
    return admitted


def test_an_order_that_looks_at_scores_breaks_the_promise_and_ours_keeps_it() -> None:
    n = 60
    assert failures(ListedPairs, n) <= 8
    assert failures(FewestHitsFirst, n) > 16


class Recorded(ListedPairs):
    """Keeps the seeds of its draws."""

    seeds: ClassVar[list[tuple[int, ...]]] = []

    def draw(
        self, at: int, n: int, seed: list[int], fpr: float
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        self.seeds.append(tuple(seed))
        return super().draw(at, n, seed, fpr)


def test_the_draws_that_answer_are_none_of_the_pilots() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 100, (2, 300))
    units = np.stack([first, second], axis=1)[first != second]
    bound = listed(rng.random(units.shape[0]), units, Recorded)
    Recorded.seeds.clear()
    bound.lookup(0.2, math.log(20), ((1.0, 0.8),))
    *pilots, last = Recorded.seeds
    assert pilots
    assert last not in pilots
