"""The alarm rule by simulation: seldom raised without cause, raised with it."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.models.calibration.calibration import Calibration
from pairmark.service.runtime.live import (
    FALSE_ALARM,
    MAX_RATES,
    PICKED,
    Reference,
    Watch,
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
    return Calibration.fit(scores, left == right, units, n_replicates=1000)


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


def test_clients_cannot_make_names_without_end() -> None:
    watch = watching(np.random.default_rng(5))
    for at in range(100):
        watch.decide(f"{at / 1000}", 2, 1)
    assert len(watch.decided) == MAX_RATES + 1
    assert watch.decided["other"] == [2 * (100 - MAX_RATES), 100 - MAX_RATES]
    many = np.arange(1_000_000, dtype=np.float32)
    assert 2 * len(subsample(many)) > PICKED >= len(subsample(many))
    assert subsample(many)[-1] > 990_000
