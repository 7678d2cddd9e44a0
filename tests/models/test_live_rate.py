"""The sequential test of a false positive rate in use."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.models.calibration import live_rate
from pairmark.models.calibration.live_rate import RateWatch


def test_a_doubled_rate_is_seen_within_2000_pairs() -> None:
    rng = np.random.default_rng(0)
    seen = 0
    for _ in range(100):
        watch = RateWatch(0.02)
        watch.observe(rng.random(2_000) < 0.04)
        seen += watch.alarms > 0
    assert seen >= 90


def test_a_long_good_time_does_not_hide_a_bad_one() -> None:
    rng = np.random.default_rng(1)
    watch = RateWatch(0.02)
    watch.observe(rng.random(20_000) < 0.005)
    assert not watch.alarms
    watch.observe(rng.random(2_000) < 0.06)
    assert watch.alarms


def test_false_alarms_are_as_rare_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the promised rate exactly, the mean run to an alarm is at least the stated number of pairs."""
    monkeypatch.setattr(live_rate, "PAIRS_BETWEEN_FALSE_ALARMS", 500)
    rng = np.random.default_rng(2)
    watch = RateWatch(0.05)
    watch.observe(rng.random(200_000) < 0.05)
    assert watch.n / max(1, watch.alarms) >= 500
    # Not never either: a test that cannot alarm would pass the line above.
    assert watch.alarms > 0


@pytest.mark.parametrize("rate", [0.0, 1.0, float("nan")])
def test_a_rate_is_between_0_and_1(rate: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        RateWatch(rate)
