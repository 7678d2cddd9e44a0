"""Missed matches by the time between samples, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.models.evaluation.pairs import rates_by_time


def pairs(n_people: int = 60, a_person: int = 8, seed: int = 0):
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(n_people), a_person)
    apart = rng.exponential(100.0, who.size)
    own = 4.0 - apart / 60 + rng.normal(size=who.size)
    others = rng.normal(size=3_000)
    left, right = rng.integers(0, n_people, (2, others.size))
    scores = np.concatenate([own, others]).astype(np.float32)
    same = np.repeat([True, False], [own.size, others.size])
    units = np.concatenate([np.stack([who, who], axis=1), np.stack([left, right], axis=1)])
    return scores, same, units, np.concatenate([apart, rng.exponential(100.0, others.size)])


def test_rates_are_those_of_counting() -> None:
    scores, same, units, apart = pairs()
    found = rates_by_time(scores, same, units, apart)
    assert found is not None
    assert [one["n_pairs"] for one in found["at"]] == [120, 120, 120, 120]
    missed = [one["fnmr_at_fmr"]["0.01"]["value"] for one in found["at"]]
    assert missed == sorted(missed)
    threshold = np.sort(scores[~same])[::-1][30]
    for one in found["at"]:
        inside = same & (apart >= one["shortest"]) & (apart <= one["longest"])
        shares = [
            (scores[inside & (units[:, 0] == person)] <= threshold).mean()
            for person in np.unique(units[inside, 0])
        ]
        assert one["n_units"] == len(shares)
        rate = one["fnmr_at_fmr"]["0.01"]
        assert rate["value"] == pytest.approx(np.mean(shares))
        assert rate["interval"][0] < rate["value"] < rate["interval"][1]


def test_times_that_say_nothing_are_left_out() -> None:
    scores, same, units, apart = pairs()
    assert rates_by_time(scores, same, units, np.full(apart.size, 3.0)) is None
    assert rates_by_time(scores, same, units, np.full(apart.size, np.nan)) is None
    known = np.where(np.arange(apart.size) % 2 == 0, apart, np.nan)
    some = rates_by_time(scores, same, units, known)
    assert some is not None
    assert sum(one["n_pairs"] for one in some["at"]) == 240
