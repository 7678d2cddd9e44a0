"""Operating points: floors, refusals, ties, invariances, saving, bad input."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from pairmark.models import InsufficientCalibrationData, OperatingPoint, operating_point
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.guarantees import candidate_share, tpr_by_people
from pairmark.models.core.artefact import read_artefact, write_artefact
from pairmark.models.pairs.sampling import held_out_pairs
from tests.models.pair_worlds import Classes, People, Scored


def all_pairs(m: int, seed: int = 0) -> Scored:
    """One different pair for each pair of m identities, and one same pair each."""
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(m, 1)
    who = np.arange(m)
    units = np.concatenate([np.stack([first, second], axis=1), np.stack([who, who], axis=1)])
    same = units[:, 0] == units[:, 1]
    return Scored(
        scores=(rng.standard_normal(same.size) + 2 * same).astype(np.float32), same=same, units=units
    )


def fitted(drawn: Scored, **options: object) -> Calibration:
    return Calibration.fit(drawn.scores, drawn.same, drawn.units, **{"listing": "drawn", **options})


@pytest.mark.parametrize(("fpr", "identities"), [(0.1, 58), (0.05, 118), (0.01, 598)])
def test_identities_a_rate_takes(fpr: float, identities: int) -> None:
    drawn = all_pairs(identities)
    point = operating_point(*short(drawn), fpr, units=drawn.units, **FINITE)
    # At the floor nothing but the largest score of the disjoint pairs will do: one in m of all that were scored.
    assert np.float32(point.threshold) in drawn.scores[~drawn.same]
    assert point.observed_fpr < fpr
    assert point.fpr_upper_bound <= fpr
    fewer = all_pairs(identities - 1)
    with pytest.raises(InsufficientCalibrationData) as refused:
        operating_point(*short(fewer), fpr, units=fewer.units, **FINITE)
    assert refused.value.required_units["finite-sample"] == identities
    assert refused.value.smallest_fpr["finite-sample"] == pytest.approx(
        1 - 0.05 ** (1 / ((identities - 1) // 2))
    )


FINITE = {"method": "finite-sample"}


def short(drawn: Scored) -> tuple[np.ndarray, np.ndarray]:
    return drawn.scores, drawn.same


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99, 0.8])
@pytest.mark.parametrize("world", [People(m=80), Classes(m=120), Classes(m=300, n_pairs=3_000)])
def test_the_smallest_rate_is_answered_and_anything_below_refused(
    world: People | Classes, confidence: float
) -> None:
    calibration = fitted(world.draw(np.random.default_rng(0)))
    for method, smallest in calibration.smallest_fpr(confidence).items():
        if smallest is None:
            continue
        assert calibration.operating_point(smallest, confidence, method).method == method
        with pytest.raises(InsufficientCalibrationData) as refused:
            calibration.operating_point(smallest * 0.999, confidence, method)
        assert refused.value.smallest_fpr[method] == smallest
        assert refused.value.required_units[method] is not None


def test_how_many_pairs_are_independent_is_what_the_graph_says() -> None:
    """A list of P pairs with at most D at one identity counts floor(P / (D + 1)); disjoint pairs count each."""
    rng = np.random.default_rng(0)
    pairs = held_out_pairs(np.arange(50), protocol="open-set", n_pairs=150, random_state=0)
    partial = Calibration.fit(rng.random(len(pairs)), np.zeros(len(pairs)), pairs.units)
    assert partial.operating_point(0.5).n_independent == 25
    disjoint = Calibration.fit(rng.random(40), np.zeros(40), np.arange(80).reshape(40, 2))
    assert disjoint.operating_point(0.5).n_independent == 40
    star = np.stack([np.zeros(9, dtype=int), np.arange(1, 10)], axis=1)
    starred = Calibration.fit(rng.random(9), np.zeros(9), star)
    # All nine share a person: one pair is all that can be matched, and it reaches 1 - 0.05.
    assert starred.smallest_fpr() == {"finite-sample": pytest.approx(0.95), "bootstrap": None}
    with pytest.raises(InsufficientCalibrationData, match=r"finite-sample answers rates of 0\.95 and above"):
        starred.operating_point(0.9)


def test_people_with_many_samples_do_not_decide_the_rate() -> None:
    """Rows of one pair of identities are averaged: 100 rows of one pair count as one."""
    drawn = all_pairs(70)
    plain = fitted(drawn).operating_point(0.3, method="finite-sample")
    # One above the threshold: if rows counted, it alone would take the rate to four times what it is.
    loud = int(np.flatnonzero(~drawn.same.astype(bool))[drawn.scores[~drawn.same.astype(bool)].argmax()])
    repeated = np.concatenate([np.arange(drawn.scores.size), np.full(100, loud)])
    again = Calibration.fit(drawn.scores[repeated], drawn.same[repeated], drawn.units[repeated])
    point = again.operating_point(0.3, method="finite-sample")
    assert (point.threshold, point.observed_fpr) == (plain.threshold, pytest.approx(plain.observed_fpr))
    assert point.n_negative_pairs == plain.n_negative_pairs + 100


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**31),
    levels=st.sampled_from([3, 20, 10**6]),
    method=st.sampled_from(["finite-sample", "bootstrap"]),
    closed=st.booleans(),
)
def test_the_scale_of_scores_does_not_matter(seed: int, levels: int, method: str, closed: bool) -> None:
    rng = np.random.default_rng(seed)
    drawn = Classes(m=90).draw(rng) if closed else all_pairs(90, seed)
    scores = (np.argsort(np.argsort(drawn.scores)) * levels // drawn.scores.size).astype(np.float32)

    def point(values: np.ndarray) -> OperatingPoint | None:
        calibration = Calibration.fit(values, drawn.same, drawn.units, n_replicates=1_000)
        try:
            return calibration.operating_point(0.2, method=method)
        except InsufficientCalibrationData:
            return None

    # Exact in float32: 2 r + 1 for r below a million.
    base, moved = point(scores), point(2 * scores + 1)
    assert (base is None) == (moved is None)
    if base is not None and moved is not None:
        assert moved.threshold == 2 * base.threshold + 1
        assert moved.fpr_upper_bound == pytest.approx(base.fpr_upper_bound, rel=1e-9)
        assert moved.tpr == pytest.approx(base.tpr)


@pytest.mark.parametrize("method", ["finite-sample", "bootstrap"])
def test_threshold_falls_and_bound_holds_as_the_rate_rises(method: str) -> None:
    drawn = People(m=200, effect=0.3, n_pairs=20_000).draw(np.random.default_rng(0))
    calibration = fitted(drawn)
    smallest = calibration.smallest_fpr()[method]
    assert smallest is not None
    last = np.inf
    for fpr in np.linspace(smallest, 0.4, 12):
        point = calibration.operating_point(float(fpr), 0.95, method)
        assert point.threshold <= last
        assert point.observed_fpr <= point.fpr_upper_bound <= fpr
        assert point.guarantee == {"finite-sample": "finite-sample", "bootstrap": "asymptotic"}[method]
        # What matches is what is counted, strictly above and in float32.
        above = drawn.scores > np.float32(point.threshold)
        assert point.observed_fpr == pytest.approx(
            edge_mean(above[~drawn.same], drawn.units[~drawn.same]), rel=1e-9, abs=1e-12
        )
        assert point.tpr == pytest.approx(edge_mean(above[drawn.same], drawn.units[drawn.same]))
        last = point.threshold


def edge_mean(values: np.ndarray, units: np.ndarray) -> float:
    """Average within each pair of units, then over pairs of units, by hand."""
    edge = np.unique(np.sort(units, axis=1), axis=0, return_inverse=True)[1].ravel()
    return float(np.mean(np.bincount(edge, weights=values) / np.bincount(edge)))


def test_auto_is_finite_sample_or_a_refusal_that_says_what_others_would_answer() -> None:
    calibration = fitted(People(m=200, effect=0.3, n_pairs=30_000).draw(np.random.default_rng(0)))
    assert calibration.operating_point(0.1).guarantee == "finite-sample"
    with pytest.raises(InsufficientCalibrationData) as refused:
        calibration.operating_point(0.01)
    others = refused.value.alternatives
    assert set(others) == {"bootstrap", "estimate"}
    for method, guarantee in (("bootstrap", "asymptotic"), ("estimate", "none")):
        point = calibration.operating_point(0.01, method=method)
        assert (point.method, point.guarantee) == (None if guarantee == "none" else method, guarantee)
        assert others[method] == point.as_dict()
    allowed = calibration.operating_point(0.01, allow_asymptotic=True)
    assert allowed == calibration.operating_point(0.01, method="bootstrap")
    assert calibration.operating_point(0.1, allow_asymptotic=True).method == "finite-sample"
    with pytest.raises(InsufficientCalibrationData) as all_refused:
        calibration.operating_point(1e-5, method="bootstrap")
    assert all_refused.value.alternatives["finite-sample"]["refused"]
    json.dumps(all_refused.value.alternatives, allow_nan=False)


def test_an_estimate_promises_nothing_and_says_what_holds_at_its_threshold() -> None:
    """Its threshold's rate is about the one asked; the finite-sample bound there holds however it was chosen."""
    world = People(m=40, effect=0.5, n_pairs=3_000)
    ratios, exceeded = [], 0
    for seed in range(60):
        point = fitted(world.draw(np.random.default_rng(seed))).operating_point(0.02, 0.9, "estimate")
        rate = world.true_rate(point.threshold)
        ratios.append(rate / 0.02)
        # The bound stands in words only: beside no guarantee there is none that could be taken for one.
        bound = float(point.meaning.rpartition("at most ")[2].partition(" %.")[0]) / 100
        exceeded += rate > bound
        assert (point.guarantee, point.method, point.confidence, point.fpr_upper_bound) == (
            "none",
            *[None] * 3,
        )
        assert not {"method", "confidence", "fpr_upper_bound"} & set(point.as_dict())
        assert bound > 0.02
    assert 0.6 < np.median(ratios) < 1.5
    assert exceeded <= 12
    few = Calibration.fit([0.1, 0.9], [0, 1]).operating_point(0.5, method="estimate")
    assert "at most" not in few.meaning


def test_true_positives_of_few_people_are_not_taken_for_many() -> None:
    drawn = People(m=60, per=20, n_pairs=8_000).draw(np.random.default_rng(0))
    point = fitted(drawn).operating_point(0.2)
    assert drawn.same.sum() > 1_000
    low, high = point.tpr_interval
    # Sixty people, not a thousand pairs: Wilson's interval at 60.
    assert low < point.tpr < high
    assert high - low > 1.5 * 1.96 * np.sqrt(point.tpr * (1 - point.tpr) / 240)


def test_without_same_pairs_there_is_no_true_positive_rate() -> None:
    drawn = all_pairs(80)
    different = ~drawn.same
    point = operating_point(
        drawn.scores[different], drawn.same[different], 0.2, units=drawn.units[different], protocol="open-set"
    )
    assert (point.tpr, point.tpr_interval) == (None, None)
    json.dumps(point.as_dict(), allow_nan=False)


@pytest.mark.parametrize("world", [People(m=90), Classes(m=150)])
def test_saved_and_loaded_it_answers_alike_to_the_last_bit(world: People | Classes, tmp_path: Path) -> None:
    calibration = fitted(world.draw(np.random.default_rng(0)))
    arrays, meta = calibration.to_state()
    write_artefact(tmp_path / "c", kind="calibration", params={}, meta=meta, arrays=arrays)
    stored = read_artefact(tmp_path / "c")
    loaded = Calibration.from_state(stored.arrays, stored.meta)
    for fpr in (0.4, 0.1, 0.01):
        for confidence in (0.95, 0.99):
            for method in ("auto", "finite-sample", "bootstrap"):
                assert answer(calibration, fpr, confidence, method) == answer(loaded, fpr, confidence, method)
    assert loaded.summary() == calibration.summary()
    again, again_meta = loaded.to_state()
    assert again_meta == meta
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, again[name])
    json.dumps([loaded.summary(), again_meta], allow_nan=False)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("thresholds", np.nan, "'thresholds', row 3: is nan"),
        ("above", 2.0, "'above', row 3"),
        ("graph_row_edge", 2**30, "'graph_row_edge', row 3"),
        ("bootstrap_thresholds", np.inf, "'bootstrap_thresholds', row 3"),
        ("bootstrap_upper", np.nan, "'bootstrap_upper', row 0: is nan"),
    ],
)
def test_a_stored_calibration_is_not_trusted(name: str, value: float, message: str) -> None:
    arrays, meta = fitted(People(m=90).draw(np.random.default_rng(0))).to_state()
    bad = np.array(arrays[name])
    bad.reshape(-1)[3] = value
    with pytest.raises(ValueError, match=message):
        Calibration.from_state({**arrays, name: bad}, meta)
    with pytest.raises(ValueError, match=name):
        Calibration.from_state({**arrays, name: arrays[name].astype(np.complex128)}, meta)


def answer(calibration: Calibration, fpr: float, confidence: float, method: str) -> object:
    try:
        return calibration.operating_point(fpr, confidence, method)
    except InsufficientCalibrationData as refused:
        return str(refused), refused.smallest_fpr, refused.required_units


def test_newer_or_broken_state_is_refused() -> None:
    arrays, meta = fitted(all_pairs(30)).to_state()
    with pytest.raises(ValueError, match="upgrade"):
        Calibration.from_state(arrays, {**meta, "state_version": 99})
    with pytest.raises(ValueError, match="'thresholds' is missing"):
        Calibration.from_state({k: v for k, v in arrays.items() if k != "thresholds"}, meta)


GOOD = all_pairs(20)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fpr": 0}, "fpr is 0; expected a number strictly between 0 and 1"),
        ({"fpr": 1}, "fpr is 1;"),
        ({"fpr": -1}, "fpr is -1;"),
        ({"fpr": float("nan")}, "fpr is nan;"),
        ({"fpr": "abc"}, "fpr is 'abc'"),
        ({"confidence": 0}, "confidence is 0;"),
        ({"confidence": 1}, "confidence is 1;"),
        ({"confidence": 2}, "confidence is 2;"),
        ({"method": "magic"}, "expected one of 'auto', 'finite-sample', 'bootstrap', 'estimate'"),
        ({"method": "bootstrap", "confidence": 0.93}, "0.90, 0.95 and 0.99"),
        ({"scores": np.where(np.arange(210) == 7, np.nan, 1.0)}, r"scores\[7\] is nan; expected finite"),
        ({"scores": np.where(np.arange(210) == 7, -np.inf, 1.0)}, r"scores\[7\] is -inf"),
        ({"scores": np.where(np.arange(210) == 7, 1e39, 1.0)}, r"scores\[7\] is 1e\+39"),
        ({"scores": np.ones(210)}, "all 210 scores are equal"),
        ({"scores": np.array(["a"] * 210)}, "dtype <U1; expected one number a pair"),
        ({"scores": np.ones((210, 1))}, r"shape \(n_pairs,\)"),
        ({"same": np.ones(210)}, "no pair marked different"),
        ({"same": np.full(210, 2)}, "other than 0 and 1"),
        ({"same": np.ones(3)}, r"expected \(210,\)"),
        ({"units": np.zeros(210)}, r"expected \(210, 2\)"),
        ({"units": np.zeros((210, 2), dtype=int)}, "single unit"),
        ({"units": np.full((210, 2), np.nan)}, "none missing"),
        ({"same": np.zeros(210)}, "pair 190 is marked different but carries the same unit twice"),
    ],
)
def test_bad_input_is_named(changes: dict, said: str) -> None:
    given = {"scores": GOOD.scores, "same": GOOD.same, "fpr": 0.5, "units": GOOD.units, **changes}
    scores, same, fpr = given.pop("scores"), given.pop("same"), given.pop("fpr")
    with pytest.raises(ValueError, match=said):
        operating_point(scores, same, fpr, **given)


def test_protocol_follows_from_units_and_contradictions_are_named() -> None:
    assert fitted(GOOD).protocol == "open-set"
    drawn = Classes(m=40).draw(np.random.default_rng(0))
    assert fitted(drawn).protocol == "closed-set"
    for scored, protocol, said in (
        (drawn, "open-set", "in open-set use the unit is the identity"),
        (GOOD, "closed-set", "a sample with itself"),
        (GOOD, "auto", "expected 'open-set' or 'closed-set'"),
    ):
        with pytest.raises(ValueError, match=said):
            fitted(scored, protocol=protocol)
    twice = np.concatenate([drawn.units, drawn.units[:1]])
    with pytest.raises(ValueError, match="marked both same and different"):
        Calibration.fit(np.append(drawn.scores, 0.5), np.append(drawn.same, ~drawn.same[0]), twice)


def test_ids_of_photos_are_no_classes_unless_somebody_says_so() -> None:
    """As samples of classes 300 photos of 60 people would support rates that 60 people cannot."""
    photos = np.stack(np.triu_indices(300, 1), axis=1)
    same = photos[:, 0] // 5 == photos[:, 1] // 5
    scores = np.random.default_rng(0).normal(size=len(photos)) + 3 * same
    for kept in (slice(None), ~same):
        with pytest.raises(ValueError, match=r"protocol is missing.*'open-set'.*'closed-set'"):
            operating_point(scores[kept], same[kept], 0.05, units=photos[kept])
    assert operating_point(scores, same, 0.05, units=photos, protocol="closed-set").protocol == "closed-set"
    with pytest.raises(InsufficientCalibrationData):
        operating_point(scores, same, 0.05, units=photos // 5)
    # Nothing is named, or people are: nothing is asked.
    operating_point(scores, same, 0.05, independent=True)
    operating_point(scores, same, 0.2, units=photos // 5)


def test_units_that_hardly_differ_are_told() -> None:
    spelled = np.array([f"Ann {i}" for i in range(20)])[GOOD.units]
    spelled[3] = np.char.lower(spelled[3])
    with pytest.warns(UserWarning, match="units: labels that only case.*'Ann .*' and 'ann "):
        operating_point(GOOD.scores, GOOD.same, 0.5, units=spelled, listing="random-people")


def test_a_band_holds_at_all_of_its_steps() -> None:
    world = People(m=400, effect=0.4, n_pairs=20_000)
    calibration = fitted(world.draw(np.random.default_rng(3)))
    band = calibration.fpr_band(0.95)
    assert (np.diff(band.thresholds) < 0).all()
    assert (np.diff(band.fpr) > 0).all()
    # The rate is at most what is said at all steps of this draw.
    assert all(world.true_rate(float(t)) <= f for t, f in zip(band.thresholds, band.fpr, strict=True))
    assert band.fpr[0] >= calibration.smallest_fpr()["finite-sample"]


@pytest.mark.parametrize("method", ["auto", "finite-sample", "bootstrap"])
@pytest.mark.parametrize("fpr", [1e-12, 1.175494351e-38, 1e-308, 5e-324])
def test_rates_smaller_than_arithmetic_holds_are_refused_like_any_other(fpr: float, method: str) -> None:
    """Found by fuzzing /match: the tail underflowed and the count of people needed was a division by zero."""
    for drawn in (all_pairs(30), Classes(m=90).draw(np.random.default_rng(0))):
        with pytest.raises(InsufficientCalibrationData) as caught:
            fitted(drawn).operating_point(fpr, method=method)
        json.dumps([caught.value.smallest_fpr, caught.value.required_units], allow_nan=False)


def test_match_review_different_keep_both_promises_together() -> None:
    """Between the thresholds is the review; both rates hold at once in at least the share that is stated."""
    world = People(m=150, per=3, effect=0.5, n_pairs=12_000)
    broken = 0
    n = 120
    for seed in range(n):
        point = fitted(world.draw(np.random.default_rng(seed))).operating_point(0.1, 0.9, fnr=0.05)
        assert point.fnr_upper_bound is not None
        assert point.fnr_threshold <= point.threshold
        assert (point.confidence, point.guarantee) == (0.9, "finite-sample")
        # A same pair's score: twice the person's effect, noise, and 4.
        fnr = norm.cdf((point.fnr_threshold - 4) / np.sqrt(1 + 4 * 0.25))
        broken += world.true_rate(point.threshold) > 0.1 or fnr > point.fnr_upper_bound
    assert broken <= binom.ppf(0.999, n, 0.1)
    drawn = world.draw(np.random.default_rng(0))
    calibration = fitted(drawn)
    point = calibration.operating_point(0.1, 0.9, fnr=0.05)
    doubtful = (drawn.scores > point.fnr_threshold) & (drawn.scores <= point.threshold)
    assert point.review_same == pytest.approx(doubtful[drawn.same].mean(), abs=0.01)
    assert point.review_different == pytest.approx(doubtful[~drawn.same].mean(), abs=0.01)
    with pytest.raises(InsufficientCalibrationData, match=r"false negative rate of 0\.001") as refused:
        calibration.operating_point(0.2, fnr=0.001)
    assert refused.value.required_units["finite-sample"] > 1_000
    with pytest.raises(ValueError, match="goes with method"):
        calibration.operating_point(0.1, method="bootstrap", fnr=0.1)


def test_a_simultaneous_promise_is_a_step_of_the_band() -> None:
    calibration = fitted(People(m=300, effect=0.4, n_pairs=40_000).draw(np.random.default_rng(3)))
    band = calibration.fpr_band(0.95)
    assert band is not None
    alone, together = calibration.operating_point(0.1), calibration.operating_point(0.1, simultaneous=True)
    assert (alone.simultaneous, together.simultaneous) == (False, True)
    assert together.threshold >= alone.threshold
    assert together.fpr_upper_bound <= 0.1
    assert together.threshold in band.thresholds
    with pytest.raises(InsufficientCalibrationData, match="together with all others"):
        calibration.operating_point(float(band.fpr[0]) / 2, simultaneous=True)


def test_a_promise_for_candidates_is_the_bands_at_its_share() -> None:
    shares = [candidate_share(number) for number in range(1, 2_000)]
    assert shares[:3] == [1 / 2, 1 / 6, 1 / 12]
    assert 0.999 < sum(shares) < 1
    calibration = fitted(People(m=400, effect=0.4, n_pairs=20_000).draw(np.random.default_rng(3)))
    point = calibration.operating_point(0.2, 0.9, simultaneous=True, candidate=3)
    band = calibration.fpr_band(1 - 0.1 / 12)
    assert (point.candidate, point.confidence) == (3, 0.9)
    assert point.threshold in band.thresholds
    assert point.threshold >= calibration.operating_point(0.2, 0.9, simultaneous=True).threshold
    with pytest.raises(InsufficientCalibrationData, match="for 1000000 versions"):
        calibration.operating_point(0.02, 0.9, simultaneous=True, candidate=10**6)
    with pytest.raises(ValueError, match="finite-sample"):
        calibration.operating_point(0.2, method="bootstrap", simultaneous=True)
    with pytest.raises(ValueError, match="number"):
        candidate_share(0)


def test_an_estimate_from_few_negative_pairs_has_an_interval_and_a_stricter_threshold() -> None:
    rng = np.random.default_rng(2)
    rates = []
    for _ in range(40):
        scores = np.concatenate([rng.normal(size=80), 4 + rng.normal(size=40)])
        point = operating_point(scores, np.arange(120) >= 80, 0.01, method="estimate", independent=True)
        assert point.fpr_interval[0] <= point.observed_fpr <= point.fpr_interval[1]
        assert "interval" in point.meaning
        rates.append(norm.sf(point.threshold))
    # One standard error stricter than what the tail's fit says.
    assert np.mean(rates) < 0.008
    many = np.concatenate([rng.normal(size=3_000), 4 + rng.normal(size=40)])
    few = operating_point(many, np.arange(3_040) >= 3_000, 0.01, method="estimate", independent=True)
    assert few.fpr_interval is None


def test_what_more_people_bring_is_told_from_these_scores() -> None:
    calibration = fitted(People(m=130, n_pairs=20_000).draw(np.random.default_rng(0)))
    table = tpr_by_people(calibration, 0.05)
    assert [row["people"] for row in table] == [130, 230, 330, 530]
    tpr = [row["tpr"] for row in table]
    assert tpr[0] == calibration.operating_point(0.05).tpr
    assert tpr[1] > tpr[0] + 0.05, "near the minimum the next hundred bring most"
    # What so many people do bring, on average of ten draws.
    many = People(m=330, n_pairs=60_000)
    there = [fitted(many.draw(np.random.default_rng(seed))).operating_point(0.05).tpr for seed in range(10)]
    assert abs(np.mean([rate or 0 for rate in there]) - tpr[2]) < 0.1
    # Too few for the rate: from the minimum on.
    assert tpr_by_people(calibration, 0.01)[0]["people"] == 598
