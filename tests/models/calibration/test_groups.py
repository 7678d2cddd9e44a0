"""Rates within groups, and people without labels."""

import numpy as np
import pytest

from pairmark import operating_point
from pairmark.models.calibration.calibration import Calibration
from tests.models.pair_worlds import Grouped, Strangers

GROUPS = Grouped(m=360)


def test_the_rate_holds_within_each_group_that_has_enough_people() -> None:
    violations = {"group": 0, "whole": 0}
    for seed in range(30):
        drawn = GROUPS.draw(np.random.default_rng([3, seed]))
        given = {"units": drawn.units, "listing": "all"}
        grouped = operating_point(drawn.scores, drawn.same, 0.1, groups=GROUPS.names(drawn.units), **given)
        plain = operating_point(drawn.scores, drawn.same, 0.1, **given)
        assert grouped.threshold >= plain.threshold
        assert grouped.groups is not None
        kinds = {entry["group"]: entry["guarantee"] for entry in grouped.groups}
        assert kinds == {"lax": "finite-sample", "strict": "finite-sample", "tiny": "none"}
        violations["group"] += GROUPS.true_rate(grouped.threshold) > 0.1
        violations["whole"] += GROUPS.true_rate(plain.threshold) > 0.1
    # Each at most 1 in 20; without groups, people who look more alike than others are never noticed.
    assert violations["group"] <= 4
    assert violations["whole"] >= 25


def test_a_group_says_how_many_people_it_lacks() -> None:
    drawn = GROUPS.draw(np.random.default_rng(1))
    names = GROUPS.names(drawn.units)
    calibration = Calibration.fit(drawn.scores, drawn.same, drawn.units, groups=names)
    point = calibration.operating_point(0.1)
    tiny = next(entry for entry in point.groups or () if entry["group"] == "tiny")
    # Three groups and the whole share 5 %: 84 people then show 10 %.
    assert (tiny["n_units"], tiny["needs"]) == (12, 84 - 12)
    assert "lax, strict" in point.meaning or "strict, lax" in point.meaning
    # At all rates at once nothing is said of groups, and more people change nothing.
    together = calibration.operating_point(0.2, simultaneous=True).groups or ()
    assert [(entry["guarantee"], "needs" in entry) for entry in together] == 3 * [("none", False)]
    # Two of them and the whole share the 5 %, and the strictest of the three thresholds decides.
    thresholds = [
        operating_point(drawn.scores, drawn.same, 0.1, units=drawn.units, confidence=1 - 0.05 / 3).threshold
    ]
    for name in ("lax", "strict"):
        within = (names == name).all(axis=1)
        parts = drawn.scores[within], drawn.same[within]
        alone = operating_point(*parts, 0.1, units=drawn.units[within], confidence=1 - 0.05 / 3)
        thresholds.append(alone.threshold)
    assert point.threshold == max(thresholds)
    again = Calibration.from_state(*calibration.to_state())
    assert again.operating_point(0.1) == point
    nothing = again.without_guarantee().operating_point(0.1).as_dict()
    assert {entry["guarantee"] for entry in nothing["groups"]} == {"none"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"groups": [["a", "b"], ["c", "a"]] * 3},
            "into group 'c', another pair into 'a'; expected one group",
        ),
        ({"groups": [["a", None], *[["a", "a"]] * 5]}, "into group '', another pair into 'a'"),
        ({"groups": [["a", "b", "c"]] * 6}, "expected \\(6, 2\\)"),
        ({"units": None, "independent": True}, "groups are of units"),
        ({"units": None, "population": 100}, "a population is of pairs"),
    ],
)
def test_groups_that_say_nothing_clear_are_refused(change: dict, words: str) -> None:
    units = [[0, 1], [0, 2], [1, 2], [0, 0], [1, 1], [2, 2]]
    given = {"units": units, "groups": [["a", "a"]] * 6, "protocol": "open-set", **change}
    with pytest.raises(ValueError, match=words):
        operating_point([0.1, 0.3, 0.2, 0.9, 0.8, 0.7], [0, 0, 0, 1, 1, 1], 0.5, **given)


def test_strangers_of_whom_some_are_there_twice_by_chance_only_make_the_threshold_stricter() -> None:
    world = Strangers(labeled=40, strangers=260, population=4_000)
    violations = 0
    for seed in range(30):
        drawn = world.draw(np.random.default_rng([4, seed]))
        point = operating_point(drawn.scores, drawn.same, 0.02, units=drawn.units, protocol="open-set")
        violations += world.true_rate(point.threshold) > 0.02
        assert point.tpr is not None
    assert violations <= 4
