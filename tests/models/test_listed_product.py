"""Matchings inside of a list: against enumeration, and blind to scores."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from pairmark.models.calibration import finite_sample
from pairmark.models.calibration.finite_sample import ListedPairs, ScoredGraph
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


def listed(scores: np.ndarray, units: np.ndarray) -> ListedPairs:
    sample = pair_sample(scores, np.zeros(scores.size), units)
    thresholds, above = sample.different.steps()
    graph = ScoredGraph.of(sample, thresholds)
    assert not graph.cell.size
    return ListedPairs(graph, above)


def test_matchings_are_those_of_the_list_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their mean is that over every path of the visits, and each is a matching."""
    monkeypatch.setattr(finite_sample, "N_MATCHINGS", 20_000)
    rng = np.random.default_rng(1)
    edges = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (3, 4), (4, 5), (2, 5), (1, 6)]
    units = np.array([*edges, (0, 1), (4, 5)])
    bound = listed(rng.random(len(units)).astype(np.float32), units)
    fpr, shrink = 0.2, 0.8
    for at in (2, 7):
        shares = bound.shares(at, fpr)
        different = bound._graph.different
        factor = {
            (min(a, b), max(a, b)): (1 - shrink * share) / (1 - shrink * fpr)
            for (a, b), share in zip(different.tolist(), shares.tolist(), strict=True)
        }
        degree = np.bincount(different.ravel())
        orders = [
            list(itertools.chain(*parts))
            for parts in itertools.product(
                *(itertools.permutations(np.flatnonzero(degree == d).tolist()) for d in np.unique(degree))
            )
        ]
        truth = np.mean([exact(list(factor), order, factor) for order in orders])
        gain = np.append(np.log1p(-shrink * shares) - math.log1p(-shrink * fpr), 0.0)
        values = np.exp(gain[bound.matchings].sum(axis=1))
        assert values.mean() == pytest.approx(truth, abs=4 * values.std() / math.sqrt(values.size))
        assert bound.admits(at, fpr, math.log(values.mean()) - 1e-9, ((1.0, shrink),))
        assert not bound.admits(at, fpr, math.log(values.mean()) + 1e-9, ((1.0, shrink),))
    for row in bound.matchings[:50]:
        taken = different[row[row >= 0]].ravel()
        assert np.unique(taken).size == taken.size


def test_matchings_are_blind_to_scores_and_labels() -> None:
    rng = np.random.default_rng(2)
    units = rng.permutation(np.stack(np.triu_indices(40, 1), axis=1))[:200]
    found = set()
    for _ in range(5):
        same = rng.random(200) < 0.3
        sample = pair_sample(rng.random(200), same, units, protocol="closed-set")
        graph = ScoredGraph.of(sample, sample.different.steps()[0])
        ends = np.concatenate([graph.different, graph.same, [[-1, -1]]])[
            ListedPairs(graph, np.zeros(1)).matchings
        ]
        found.add(np.sort(ends, axis=2).tobytes())
    assert len(found) == 1
