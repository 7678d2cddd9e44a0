"""What is promised follows from how pairs came about; what is drawn follows from who the people are."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark import operating_point
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.calibration_seed import CalibrationSeed
from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.models.calibration.promises import askable
from pairmark.models.calibration.tpr_spread import expected_tpr
from pairmark.models.pairs.splits import held_out_pairs

NAMES = np.array([f"person {number:03}" for number in range(130)])


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


def test_the_random_number_is_the_peoples_own() -> None:
    drawn = CalibrationSeed.of_people(NAMES, b"secret")
    assert CalibrationSeed.of_people(NAMES[::-1].repeat(2), b"secret") == drawn
    assert CalibrationSeed.of_people(NAMES[1:], b"secret") != drawn
    assert CalibrationSeed.of_people(NAMES, b"another") != drawn
    assert CalibrationSeed.of_people([1, 2, 3]) == CalibrationSeed.of_people(np.array([3.0, 1.0, 2.0]))
    # Names that join to the same letters are other people.
    assert CalibrationSeed.of_people(["ab", "c"]) != CalibrationSeed.of_people(["a", "bc"])
    uniform = np.array(
        [CalibrationSeed.of_people(NAMES, bytes([a, b])).uniform for a in range(20) for b in range(20)]
    )
    assert 0 < uniform.min() < 0.02
    assert 0.98 < uniform.max() < 1
    assert uniform.mean() == pytest.approx(0.5, abs=0.06)


def test_versions_on_the_same_people_share_it_whatever_their_scores_and_rows_are() -> None:
    scores, same, units = people()
    named = NAMES[units]
    made = Calibration.fit(scores, same, named)
    other = Calibration.fit(-scores[::-1], same[::-1], named[::-1, ::-1])
    assert made.to_state()[1]["uniform"] == other.to_state()[1]["uniform"]
    assert made.to_state()[1]["seed"] == other.to_state()[1]["seed"]
    again = Calibration.fit(scores, same, named)
    assert again.operating_point(0.05) == made.operating_point(0.05)
    chosen = {
        Calibration.fit(scores, same, named, random_state=k).operating_point(0.05).threshold for k in range(9)
    }
    assert len(chosen) > 5


def test_the_type_of_names_is_no_seed() -> None:
    scores, same, units = people()
    kinds = [
        units,
        units.astype(np.int16),
        units.astype(float),
        units.astype(str),
        (units[:, 0], units[:, 1]),
    ]
    assert len({operating_point(scores, same, 0.05, units=kind).threshold for kind in kinds}) == 1


def test_no_random_number_costs_power_and_none_answers_below_the_floor() -> None:
    scores, same, units = people()
    plain = Calibration.fit(scores, same, units, chance=CalibrationSeed(uniform=1.0, seed=0)).operating_point(
        0.05
    )
    thresholds = []
    for uniform in (0.9, 0.5, 0.1, 0.001):
        made = Calibration.fit(scores, same, units, chance=CalibrationSeed(uniform=uniform, seed=0))
        thresholds.append(made.operating_point(0.05).threshold)
        with pytest.raises(InsufficientCalibrationData):
            made.operating_point(0.044)
        assert made.smallest_fpr()["finite-sample"] == pytest.approx(1 - 0.05 ** (1 / 65), rel=1e-4)
    assert plain.threshold >= thresholds[0]
    assert thresholds == sorted(thresholds, reverse=True)
    assert thresholds[0] > thresholds[-1]


def test_no_random_number_serves_a_rate_above_what_was_asked() -> None:
    """A tiny U passes thresholds whose own pairs show more: nobody would believe that promise."""
    chance = CalibrationSeed(uniform=1e-4, seed=0)
    listed, same_listed, units_listed = thin(0.3)
    inside = units_listed[:, 0] // 5 == units_listed[:, 1] // 5
    blocks = listed[inside], same_listed[inside], units_listed[inside]
    for (scores, same, units), origin in (
        (people(), {}),
        ((listed, same_listed, units_listed), {"listing": "random"}),
        (blocks, {"blocks": "components"}),
    ):
        made = Calibration.fit(scores, same, units, chance=chance, **origin)
        smallest = made.smallest_fpr()["finite-sample"]
        assert smallest is not None
        rates = [fpr for fpr in (0.1, 0.2, 0.3, 0.5) if fpr > smallest]
        assert rates
        for fpr in rates:
            assert (scores[~same] > made.operating_point(fpr).threshold).mean() <= fpr
        band = made.fpr_band()
        assert band is not None
        for threshold, fpr in zip(band.thresholds, band.fpr, strict=True):
            assert (scores[~same] > threshold).mean() <= fpr


@pytest.mark.parametrize(
    ("options", "origin", "guarantee"),
    [
        ({}, "unknown", "none"),
        ({"listing": "random"}, "random", "finite-sample"),
        ({"listing": "drawn"}, "drawn", "finite-sample"),
        ({"blocks": "components"}, "blocks", "finite-sample"),
        ({"units": None}, "unnamed", "none"),
        ({"units": None, "independent": True}, "independent", "finite-sample"),
        ({"units": None, "population": 100_000}, "population", "finite-population"),
    ],
)
def test_a_list_is_promised_what_its_origin_allows(options: dict, origin: str, guarantee: str) -> None:
    scores, same, units = thin(0.3)
    asked = {"units": units, **options}
    if "blocks" in options:
        asked["units"] = units // 2 * 2 + (units % 2)
        inside = asked["units"][:, 0] // 5 == asked["units"][:, 1] // 5
        scores, same, asked["units"] = scores[inside], same[inside], asked["units"][inside]
    point = operating_point(scores, same, 0.3, **asked)
    assert (point.origin, point.guarantee) == (origin, guarantee)
    if guarantee == "none":
        # What would change it is said.
        assert "Nothing is promised" in point.meaning
        assert "independent=True" in point.meaning or "listing='random'" in point.meaning
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
        ({"units": some[2], "blocks": np.arange(some[0].size) % 3}, "another block"),
        ({"units": some[2], "blocks": np.zeros(3)}, "one block a pair"),
        ({"units": some[2], "blocks": "parts"}, "components"),
        ({"blocks": "components"}, "blocks are for lists of people"),
    ):
        with pytest.raises(ValueError, match=said):
            operating_point(some[0], some[1], 0.1, **options)


def test_blocks_that_match_everything_are_counted_as_blocks() -> None:
    """60 blocks support 4.9 %, and one whose pairs all match takes its share of the rate, whatever its pairs are."""
    within = np.stack(np.triu_indices(4, 1), axis=1)
    units = np.concatenate([within + 4 * block for block in range(60)])
    rng = np.random.default_rng(0)
    scores = rng.standard_normal(len(units))
    same = np.zeros(len(units))
    by_column = {"blocks": units[:, 0] // 4, "random_state": 0}
    point = operating_point(scores, same, 0.05, units=units, **by_column)
    assert (point.n_units, point.n_independent) == (60, 60)
    assert point == operating_point(scores, same, 0.05, units=units, blocks="components", random_state=0)
    with pytest.raises(InsufficientCalibrationData, match="blocks"):
        operating_point(scores, same, 0.048, units=units, **by_column)
    loud = operating_point(
        np.where(units[:, 0] < 4, 9.0, scores), same, 0.05, units=units, blocks="components", random_state=0
    )
    assert loud.threshold > point.threshold
    # Cells are Pairmark's own, or they are blocks.
    cells = held_out_pairs(np.arange(240), protocol="open-set", n_pairs=len(units), random_state=0)
    few = rng.standard_normal(len(cells))
    assert operating_point(few, cells.same, 0.05, units=cells.units).guarantee == "none"
    assert (
        operating_point(few, cells.same, 0.05, units=cells.units, listing="drawn").guarantee
        == "finite-sample"
    )


def test_a_stored_calibration_keeps_its_origin_and_its_random_number() -> None:
    scores, same, units = thin(0.4)
    inside = units[:, 0] // 5 == units[:, 1] // 5
    for made in (
        Calibration.fit(scores, same, units, listing="random"),
        Calibration.fit(scores[inside], same[inside], units[inside], blocks="components"),
        Calibration.fit(scores, same, population=50_000),
    ):
        arrays, meta = made.to_state()
        again = Calibration.from_state(arrays, meta)
        assert again.operating_point(0.3) == made.operating_point(0.3)
        for name, value in (("uniform", 0.0), ("uniform", 2.0), ("origin", "mine")):
            with pytest.raises(ValueError, match="origin or random number"):
                Calibration.from_state(arrays, {**meta, name: value})


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
    assert smallest is not None
    assert 0.001 < smallest < 0.01
    assert made.operating_point(smallest).fpr == smallest
    with pytest.raises(InsufficientCalibrationData, match=f"rates of {askable(smallest):g} and above"):
        made.operating_point(0.9 * smallest)
    assert Calibration.fit(scores, same, population=4_000).smallest_fpr()["finite-sample"] < 1 / 4_000


def test_false_negative_rates_hold_together_under_a_simultaneous_promise() -> None:
    rng = np.random.default_rng(0)
    same = np.arange(1_100) >= 700
    scores = (rng.standard_normal(same.size) + 3 * same).astype(np.float32)
    made = Calibration.fit(scores, same, independent=True)
    for fnr in (0.02, 0.05):
        alone, together = (
            made.operating_point(0.1, fnr=fnr, simultaneous=simultaneous) for simultaneous in (False, True)
        )
        assert together.fnr_threshold < alone.fnr_threshold
        assert together.fnr_upper_bound <= fnr
    with pytest.raises(InsufficientCalibrationData, match="false negative rate"):
        made.operating_point(0.1, fnr=0.011, simultaneous=True)


def test_the_price_near_the_floor_is_said_and_falls_with_people() -> None:
    point = operating_point(*people()[:2], 0.05, units=people()[2])
    assert point.price is not None
    assert point.price.low <= point.price.tpr <= point.price.high
    assert point.price.low <= point.tpr <= point.price.high
    assert 220 < point.price.steady_units < 250
    assert operating_point(*people()[:2], 0.2, units=people()[2]).price is None
    last = (0.0, 0.0)
    for multiple in (1.0, 1.5, 2.0, 4.0, 20.0):
        middle, low, high = expected_tpr(0.01, multiple, 0.9)
        assert low <= middle <= high <= 0.9 + 1e-12
        assert (middle, low) > last
        last = (middle, low)
