"""The alarm rule by simulation: seldom raised without cause, raised with it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pairmark.models.calibration.calibration import Calibration
from pairmark.service.runtime.live import (
    FALSE_ALARM,
    MAX_RATES,
    PICKED,
    WINDOW,
    Reference,
    Watch,
    _margin,
    subsample,
)


def draw(rng: np.random.Generator, n: int, same_share: float, *, spread: float = 1.0) -> np.ndarray:
    """Scores of pairs of new people, some of whom are alike to everybody (heavy tails)."""
    same = rng.random(n) < same_share
    people = rng.standard_t(3, size=(2, n)) * 0.5
    people[1, same] = people[0, same]
    return (spread * (people.sum(axis=0) + rng.normal(size=n)) + 2.5 * same).astype(np.float32)


def calibration(rng: np.random.Generator, m: int = 150) -> Calibration:
    effect = rng.standard_t(3, size=m) * 0.5
    i, j = np.triu_indices(m, 1)
    left, right = np.concatenate([i, np.arange(m)]), np.concatenate([j, np.arange(m)])
    scores = effect[left] + effect[right] + rng.normal(size=left.size) + 2.5 * (left == right)
    units = np.stack([left, right], axis=1)
    return Calibration.fit(scores, left == right, units, n_replicates=1000, random_state=0)


def verdicts(watch: Watch, batches: list[tuple[np.ndarray, bool]]) -> list[bool]:
    alarms = []
    for scores, shared in batches:
        watch.count(scores, shared)
        alarms += [verdict.alarm for verdict in watch.verdicts]
        watch.verdicts.clear()
    return alarms


def watching(rng: np.random.Generator) -> Watch:
    reference = Reference.of(calibration(rng))
    assert reference is not None
    return Watch.over("faces", 1, reference)


def test_scores_like_calibration_s_seldom_raise_the_alarm_whatever_the_mixture() -> None:
    rng = np.random.default_rng(0)
    alarms: list[bool] = []
    for share in (0.0, 0.02, 0.5, 1.0):
        for _ in range(3):
            watch = watching(rng)
            alarms += verdicts(watch, [(draw(rng, 1_000, share), False) for _ in range(50)])
    assert len(alarms) == 600
    assert np.mean(alarms) <= FALSE_ALARM


def test_rows_that_meet_one_vector_count_as_one_draw() -> None:
    rng = np.random.default_rng(1)
    watch = watching(rng)
    verdicts = []
    for _ in range(2 * WINDOW):
        # One probe meets many: all its scores move together.
        probe = rng.standard_t(3) * 0.5
        scores = probe + rng.standard_t(3, size=70) * 0.5 + rng.normal(size=70)
        watch.count(scores.astype(np.float32), True)
        verdicts += watch.verdicts
        watch.verdicts.clear()
    assert [verdict.n_scores for verdict in verdicts] == [70 * WINDOW] * 2
    assert not any(verdict.alarm for verdict in verdicts)


def test_a_window_goes_on_until_the_verdict_before_was_read() -> None:
    rng = np.random.default_rng(8)
    watch = watching(rng)
    for _ in range(4):
        watch.count(draw(rng, 1_000, 0.1), False)
    assert [verdict.n_scores for verdict in watch.verdicts] == [1_000]
    watch.verdicts.clear()
    watch.count(draw(rng, 10, 0.1), False)
    assert [verdict.n_scores for verdict in watch.verdicts] == [3_010]
    assert watch.verdicts[0].limit < 0.04


@pytest.mark.parametrize("change", ["noise", "shifted", "constant"])
def test_other_scores_raise_it(change: str) -> None:
    rng = np.random.default_rng(2)
    watch = watching(rng)
    for _ in range(3):
        scores = {
            "noise": lambda: draw(rng, 1_000, 0.1, spread=30.0),
            "shifted": lambda: draw(rng, 1_000, 0.1) - np.float32(3),
            "constant": lambda: np.full(1_000, 0.5, np.float32),
        }[change]()
        assert verdicts(watch, [(scores, False)]) == [True]


def test_counts_are_those_above_each_threshold_one_by_one_and_in_bulk() -> None:
    rng = np.random.default_rng(3)
    one, bulk = (Watch.over("faces", 1, watching(np.random.default_rng(4)).reference) for _ in range(2))
    scores = np.concatenate([draw(rng, 300, 0.3), np.array(one.edges, dtype=np.float32)])
    for score in scores:
        one.count(np.array([score]), False)
    bulk.count(scores, False)
    edges = np.array(one.edges)
    above = [(scores > edge).sum() for edge in edges]
    assert np.cumsum(one.window[::-1])[::-1][1:].tolist() == above
    assert one.window == bulk.window


def test_clients_cannot_make_names_without_end() -> None:
    watch = watching(np.random.default_rng(5))
    for at in range(100):
        watch.decide(f"{at / 1000}", 2, 1)
    assert len(watch.decided) == MAX_RATES + 1
    assert watch.decided["other"] == [2 * (100 - MAX_RATES), 100 - MAX_RATES]
    many = np.arange(1_000_000, dtype=np.float32)
    assert 2 * len(subsample(many)) > PICKED >= len(subsample(many))
    assert subsample(many)[-1] > 990_000


def test_without_same_pairs_there_is_nothing_to_hold_scores_against() -> None:
    scores = np.random.default_rng(6).normal(size=100)
    assert Reference.of(Calibration.fit(scores, np.zeros(100, bool), n_replicates=1000)) is None


def test_the_margin_covers_what_independent_blocks_leave_open() -> None:
    rng = np.random.default_rng(7)
    n, margin = 40, _margin(40, 0.1)
    grid = np.arange(1, n + 1) / n
    far = []
    for _ in range(2_000):
        sorted_ = np.sort(rng.random(n))
        far.append(max((grid - sorted_).max(), (sorted_ - grid + 1 / n).max()))
    assert np.mean(np.array(far) > margin) <= 0.1
    assert margin < 3 / math.sqrt(n)
    assert _margin(0, 0.1) == 1.0
