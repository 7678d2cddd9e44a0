"""Rates compared between groups, against enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from pairmark.models.calibration.groups import GroupRates, Rate, differentials, group_rates


def rates(values: dict[str, tuple[float, tuple[float, float]]]) -> list[GroupRates]:
    def rate(value: float, joint: tuple[float, float]) -> Rate:
        return Rate(value=value, interval=joint, joint_interval=joint, n_pairs=9, n_units=9)

    nothing = Rate(value=None, interval=(0, 1), joint_interval=(0, 1), n_pairs=0, n_units=0)
    return [
        GroupRates(group=name, fpr=rate(*reported), fpr_with_all=nothing, tpr=nothing, warning=None)
        for name, reported in values.items()
    ]


def test_the_interval_of_a_ratio_is_its_range_on_the_box_of_rates():
    rng = np.random.default_rng(7)
    for _ in range(6):
        low = 10 ** rng.uniform(-4, -1, 3)
        high = low * 10 ** rng.uniform(0, 1, 3)
        value = np.sqrt(low * high)
        (found,) = differentials(rates({str(g): (value[g], (low[g], high[g])) for g in range(3)}))
        grid = [np.geomspace(low[g], high[g], 25) for g in range(3)]
        ratios = [max(p) / np.prod(p) ** (1 / 3) for p in itertools.product(*grid)]
        overall = found.max_over_geomean
        assert overall.value == pytest.approx(value.max() / np.prod(value) ** (1 / 3))
        assert overall.high == pytest.approx(max(ratios))
        assert min(ratios) * 0.97 <= overall.low <= min(ratios) + 1e-12
        own = [p[1] / np.prod(p) ** (1 / 3) for p in itertools.product(*grid)]
        assert found.groups["1"].low == pytest.approx(min(own))
        assert found.groups["1"].high == pytest.approx(max(own))


def test_a_group_without_false_matches_leaves_the_ratio_unbounded_above():
    (found,) = differentials(rates({"a": (0.0, (0.0, 0.01)), "b": (0.2, (0.1, 0.3))}))
    assert found.rate == "fpr"
    assert found.max_over_geomean.value is None
    assert found.max_over_geomean.high is None
    assert found.max_over_geomean.low == pytest.approx(math.sqrt(0.1 / 0.01))
    assert found.worst == "b"
    assert not differentials(rates({"a": (0.1, (0.0, 0.2))}))


@pytest.mark.nightly
def test_joint_intervals_are_wider_and_cover_alike_groups():
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(100):
        people = 60
        group = np.arange(people) % 3
        left, right = np.triu_indices(people, 1)
        person = rng.normal(size=people) * 0.5
        scores = rng.normal(size=left.size) + person[left] + person[right]
        units = np.stack([left, right], axis=1)
        found = group_rates(scores, np.zeros(left.size, bool), units, group[units], 1.0)
        (reported,) = differentials(found)
        covered += reported.max_over_geomean.low <= 1.0 + 1e-12
        assert all(
            one.fpr.joint_interval[0]
            <= one.fpr.interval[0]
            <= one.fpr.interval[1]
            <= one.fpr.joint_interval[1]
            for one in found
        )
    assert covered >= 93
