"""What is promised follows from how pairs came about; nothing follows from what people are called."""

import numpy as np
import pytest

from pairmark import operating_point
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.guarantees import askable, expected_tpr
from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.models.pairs.sampling import held_out_pairs


def people(m: int = 130, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores and names of all pairs of people, and of one same pair each."""
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(m, 0)
    same = first == second
    effects = 0.5 * rng.standard_normal(m)
    scores = effects[first] + effects[second] + rng.standard_normal(first.size) + 4 * same
    return scores.astype(np.float32), same, np.stack([first, second], axis=1)


def thin(share: float, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A random part of those pairs."""
    scores, same, units = people()
    kept = np.random.default_rng(seed).random(scores.size) < share
    return scores[kept], same[kept], units[kept]


def renamed(units: np.ndarray, seed: int) -> list[np.ndarray]:
    """The same people by other names: shuffled numbers, other types, words."""
    numbers = np.random.default_rng(seed).permutation(10_000)[: units.max() + 1][units]
    return [numbers, numbers.astype(np.int16), numbers.astype(float), numbers.astype(str)]


@pytest.mark.parametrize("how", ["all", "list", "cells"])
@pytest.mark.parametrize("fpr", [0.05, 0.1, 0.3])
def test_names_play_no_part_in_a_threshold(how: str, fpr: float) -> None:
    scores, same, units = people()
    options: dict[str, object] = {}
    if how == "list":
        scores, same, units = thin(0.5)
        options = {"listing": "random-people"}
    elif how == "cells":
        pairs = held_out_pairs(np.arange(260) // 2, protocol="open-set", n_pairs=2_000, random_state=0)
        scores = np.random.default_rng(2).standard_normal(len(pairs)) + 4.0 * pairs.same
        same, units, options = pairs.same, pairs.units, {"listing": "drawn"}
    plain = Calibration.fit(scores, same, units, **options)
    arrays, meta = plain.to_state()
    for names in renamed(units, seed=1):
        made = Calibration.fit(scores, same, names, **options)
        assert made.operating_point(fpr) == plain.operating_point(fpr)
        if fpr > 0.05:
            assert made.operating_point(fpr, fnr=0.1) == plain.operating_point(fpr, fnr=0.1)
        again, facts = made.to_state()
        assert facts == meta
        for name, array in arrays.items():
            np.testing.assert_array_equal(again[name], array)


def test_which_pairs_are_drawn_does_not_depend_on_names() -> None:
    y = np.random.default_rng(0).integers(0, 300, 900)
    for n_pairs in (500, 10**6):
        drawn = [
            held_out_pairs(codes, protocol="open-set", n_pairs=n_pairs, random_state=0)
            for codes in (y, np.random.default_rng(1).permutation(300)[y])
        ]
        np.testing.assert_array_equal(drawn[0].left, drawn[1].left)
        np.testing.assert_array_equal(drawn[0].right, drawn[1].right)


@pytest.mark.parametrize("times", [1.2, 2.0])
def test_another_order_of_rows_moves_the_tpr_by_no_more_than_two_hundredths(times: float) -> None:
    m = round(118 * times)
    rng = np.random.default_rng(0)
    scores, same, units = people(m)
    oracle = np.sort(2 * 0.5 * rng.standard_normal(100_000) + rng.standard_normal(100_000) + 4)
    found = []
    for _ in range(20):
        order = rng.permutation(scores.size)
        threshold = operating_point(scores[order], same[order], 0.05, units=units[order]).threshold
        found.append(1 - np.searchsorted(oracle, threshold) / oracle.size)
    assert max(found) - min(found) <= 0.02


def test_what_is_expected_rises_with_people_and_never_passes_the_best() -> None:
    tprs = [expected_tpr(0.01, multiple) for multiple in (1.0, 1.1, 1.5, 2.0, 4.0, 20.0)]
    assert tprs == sorted(tprs)
    assert tprs[0] < 0.6
    assert 0.8 < tprs[-1] <= 0.9


@pytest.mark.parametrize(
    ("options", "origin", "guarantee"),
    [
        ({}, "unknown", "none"),
        ({"listing": "random-people"}, "random", "finite-sample"),
        ({"listing": "random-rows"}, "random-rows", "none"),
        ({"listing": "drawn"}, "drawn", "finite-sample"),
        ({"units": None}, "unnamed", "none"),
        ({"units": None, "independent": True}, "independent", "finite-sample"),
        ({"units": None, "population": 100_000}, "population", "finite-population"),
    ],
)
def test_a_list_is_promised_what_its_origin_allows(options: dict, origin: str, guarantee: str) -> None:
    scores, same, units = thin(0.3)
    point = operating_point(scores, same, 0.3, **{"units": units, **options})
    assert (point.origin, point.guarantee) == (origin, guarantee)
    if guarantee == "none":
        # What would change it is said.
        assert "Nothing is guaranteed" in point.meaning
        assert "independent=True" in point.meaning or "listing='random-people'" in point.meaning
    else:
        assert "30 %" in point.meaning
        assert " if " in point.meaning


def test_all_pairs_are_recognised_and_what_is_declared_is_checked() -> None:
    scores, same, units = people()
    assert operating_point(scores, same, 0.1, units=units).origin == "all"
    some = thin(0.5)
    for options, said in (
        ({"units": some[2], "listing": "all"}, "not every two"),
        ({"units": some[2], "listing": "chosen"}, "expected None or one of"),
        ({"units": some[2], "independent": True}, "not both"),
        ({"population": 10}, "at least the"),
    ):
        with pytest.raises(ValueError, match=said):
            operating_point(some[0], some[1], 0.1, **options)


def test_complete_parts_of_a_list_are_cells_only_where_they_were_drawn() -> None:
    cells = held_out_pairs(np.arange(240), protocol="open-set", n_pairs=360, random_state=0)
    scores = np.random.default_rng(0).standard_normal(len(cells))
    guarantees = [
        operating_point(
            scores, cells.same, 0.05, units=cells.units, protocol="open-set", listing=listing
        ).guarantee
        for listing in (None, "drawn")
    ]
    assert guarantees == ["none", "finite-sample"]


def test_a_stored_calibration_keeps_its_origin() -> None:
    scores, same, units = thin(0.4)
    for made in (
        Calibration.fit(scores, same, units, listing="random-people"),
        Calibration.fit(scores, same, population=50_000),
    ):
        arrays, meta = made.to_state()
        assert Calibration.from_state(arrays, meta).operating_point(0.3) == made.operating_point(0.3)
        with pytest.raises(ValueError, match="origin is not produced by fit"):
            Calibration.from_state(arrays, {**meta, "origin": "mine"})


def test_a_population_is_promised_what_its_sample_shows() -> None:
    rng = np.random.default_rng(0)
    scores, same = rng.standard_normal(4_000).astype(np.float32), rng.random(4_000) < 0.1
    some = rng.permutation(4_000)[:600]
    point = operating_point(scores[some], same[some], 0.05, population=4_000)
    assert point.population == {"pairs": 4_000, "judged": 600}
    assert (scores[~same] > np.float32(point.threshold)).mean() <= 0.05
    whole = operating_point(scores, same, 0.05, population=4_000)
    # Nothing is left to chance where everything was judged.
    assert (scores[~same] > np.float32(whole.threshold)).mean() == pytest.approx(0.05, abs=0.001)
    assert whole.threshold < point.threshold
    # The smallest rate is one that is answered, and a smaller one is refused and says so.
    made = Calibration.fit(scores[some], same[some], population=4_000)
    smallest = made.smallest_fpr()["finite-sample"]
    assert 0.001 < smallest < 0.01
    assert made.operating_point(smallest).fpr == smallest
    with pytest.raises(InsufficientCalibrationData, match=f"rates of {askable(smallest):g} and above"):
        made.operating_point(0.9 * smallest)
    assert Calibration.fit(scores, same, population=4_000).smallest_fpr()["finite-sample"] < 1 / 4_000


def test_false_negative_rates_hold_together_under_a_simultaneous_promise() -> None:
    rng = np.random.default_rng(0)
    same = np.arange(1_100) >= 700
    made = Calibration.fit(
        (rng.standard_normal(same.size) + 3 * same).astype(np.float32), same, independent=True
    )
    for fnr in (0.02, 0.05):
        alone, together = (
            made.operating_point(0.1, fnr=fnr, simultaneous=simultaneous) for simultaneous in (False, True)
        )
        assert together.fnr_threshold < alone.fnr_threshold
        assert together.fnr_upper_bound <= fnr
    with pytest.raises(InsufficientCalibrationData, match="false negative rate"):
        made.operating_point(0.1, fnr=0.011, simultaneous=True)
