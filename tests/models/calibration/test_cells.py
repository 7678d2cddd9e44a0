"""Thresholds for the columns that are there and within groups; people without labels; scores that are none."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pairmark import FellegiSunter, RecordSimilarity, operating_point
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.records import (
    MOST_PAIRS,
    CalibrationRecords,
    blanked_subjects,
    costs_of_columns,
    score_subject_pairs,
    supports_columns,
    without_columns,
)
from pairmark.models.core.scores import SampleSets
from pairmark.models.pairs.sampling import HeldOutPairs, held_out_pairs, subject_pairs
from pairmark.models.records.tables import cells_of
from tests.models.pair_worlds import (
    COLUMNS,
    CellScorer,
    Grouped,
    Strangers,
    lacking,
    record_people,
    stranger_scores,
)


def calibrated(m: int, seed: int, n_pairs: int = 5_000, missing: float = 0.0) -> Calibration:
    return calibrated_records(*record_people(m, np.random.default_rng(seed), missing=missing), n_pairs)


def calibrated_records(cells: Any, who: np.ndarray, n_pairs: int = 5_000) -> Calibration:
    pairs = held_out_pairs(who, protocol="open-set", n_pairs=n_pairs, random_state=0)
    return Calibration.of_pairs(CellScorer().score_pairs(cells, pairs.left, pairs.right), cells, pairs)


def test_each_choice_of_columns_keeps_the_rate() -> None:
    """Where one threshold lets strangers of whom little is known match, that of the columns there does not."""
    n, rate = 40, 0.05
    for places in ((0,), (1, 2), (0, 1, 2, 3)):
        columns = lacking(*places)
        strangers = stranger_scores(columns)
        one, own = [], []
        for seed in range(n):
            calibration = calibrated(150, seed)
            assert supports_columns(calibration, columns, rate, 0.95)
            whole = without_columns(calibration, columns, CellScorer()).whole
            one.append((strangers > calibration.operating_point(rate).threshold).mean() > rate)
            own.append((strangers > whole.operating_point(rate).threshold).mean() > rate)
        assert sum(own) <= 6, "at most one in twenty, and chance"
        assert len(places) < 4 or sum(one) > n / 2


def test_pairs_that_lack_just_these_columns_have_a_say() -> None:
    calibration = calibrated(400, 1, n_pairs=20_000, missing=0.05)
    whole, natural = without_columns(calibration, lacking(0), CellScorer())
    assert natural.summary()["n_negative_pairs"] < whole.summary()["n_negative_pairs"]
    assert without_columns(calibration, lacking(0, 1, 2, 3), CellScorer()).natural is None


def test_groups_keep_the_rate_without_columns_too() -> None:
    cells, who = record_people(400, np.random.default_rng(6))
    pairs = held_out_pairs(who, protocol="open-set", n_pairs=100_000, random_state=0)
    # People of the second half look more alike; a tenth of all are of no group.
    names = np.array(["lax", "strict"])[(who >= 200).astype(int)]
    names[who % 10 == 0] = ""
    grouped = replace(pairs, groups=names[np.stack([pairs.left, pairs.right], axis=1)])
    scores = CellScorer().score_pairs(cells, pairs.left, pairs.right)
    calibration = Calibration.from_state(*Calibration.of_pairs(scores, cells, grouped).to_state())
    whole = without_columns(calibration, lacking(0), CellScorer()).whole
    plain = without_columns(Calibration.of_pairs(scores, cells, pairs), lacking(0), CellScorer()).whole
    point, alone = whole.operating_point(0.1), plain.operating_point(0.1)
    assert [(entry["group"], entry["n_units"], entry["guarantee"]) for entry in point.groups or ()] == [
        ("lax", 180, "finite-sample"),
        ("strict", 180, "finite-sample"),
    ]
    assert alone.groups is None
    assert point.threshold > alone.threshold, "three guarantees at once, each within its own people"


def test_what_says_nothing_is_not_decided() -> None:
    calibration = calibrated(150, 1)
    with pytest.raises(ValueError, match="equal"):
        without_columns(calibration, lacking(*range(COLUMNS)), CellScorer())
    cells, who = record_people(150, np.random.default_rng(1))
    cells[:-10, 1] = None
    scarce = calibrated_records(cells, who)
    assert not supports_columns(scarce, lacking(0), 0.05, 0.95), "hardly anybody has column 1"
    assert supports_columns(scarce, lacking(0, 1), 0.05, 0.95)


def test_some_pairs_of_all_people_are_kept_and_count_as_fully() -> None:
    calibration = calibrated(600, 3, n_pairs=120_000)
    records = calibration.records
    assert len(records.same) < 2 * MOST_PAIRS
    assert np.unique(records.units).size == 600
    whole = without_columns(calibration, lacking(0), CellScorer()).whole
    assert whole.summary()["n_negative_pairs"] == np.sum(~records.same), "all of these decide"
    assert whole.smallest_fpr()["finite-sample"] == calibration.smallest_fpr()["finite-sample"]


def test_subjects_are_decided_by_the_columns_that_all_their_samples_have() -> None:
    columns, scorer, rate = lacking(0, 1, 2, 3), CellScorer(), 0.05
    cells, who = record_people(200, np.random.default_rng(2), samples=3, missing=0.05)
    drawn = subject_pairs(who, 2, 1, n_pairs=6_000)
    subjects = SampleSets(rows=cells, index=drawn.index, counts=drawn.counts)
    scores = score_subject_pairs(scorer, subjects, drawn.left, drawn.right, "mean")
    pairs = HeldOutPairs(
        left=drawn.left, right=drawn.right, same=drawn.same, units=drawn.units, protocol="open-set"
    )
    calibration = Calibration.fit(scores, pairs.same, pairs.units, **pairs.origin)
    calibration.with_records(CalibrationRecords.of(subjects, pairs, "mean"))
    stored = Calibration.from_state(*calibration.to_state())
    own = without_columns(stored, columns, scorer).whole.operating_point(rate).threshold
    new, _ = record_people(4_000, np.random.default_rng(3), samples=3)
    left, right = new.reshape(4_000, 3, COLUMNS)[:, :2].copy(), new[2::3]
    # One sample of the two lacks them.
    left[:, 0, columns[0]] = None
    sides = (
        SampleSets.of_rows(left.reshape(8_000, COLUMNS), np.full(4_000, 2)),
        SampleSets.of_rows(np.roll(right, 1, axis=0)),
    )
    strangers = scorer._subject_score(*blanked_subjects(*sides), "mean")
    assert (strangers > calibration.operating_point(rate).threshold).mean() > 2 * rate
    assert 0 < (strangers > own).mean() <= rate


def test_likely_choices_of_columns_are_scored_beforehand_and_say_what_they_cost() -> None:
    cells, who = record_people(300, np.random.default_rng(4), missing=0.02)
    cells[:150, 1] = None
    pairs = held_out_pairs(who, protocol="open-set", n_pairs=5_000, random_state=0)
    scorer = CellScorer()
    scores = scorer.score_pairs(cells, pairs.left, pairs.right)
    calibration = Calibration.of_pairs(scores, cells, pairs, scorer=scorer)
    complete, *costs = costs_of_columns(
        Calibration.from_state(*calibration.to_state()), 0.05, 0.95, Unasked()
    )
    assert complete["lacked"] == []
    assert complete["tpr"] > 0.9
    assert {(column,) for column in range(COLUMNS)} <= {tuple(cost["lacked"]) for cost in costs}
    assert max(cost["share"] for cost in costs if cost["lacked"] == [1]) > 0.3
    plain = without_columns(Calibration.of_pairs(scores, cells, pairs), lacking(1), scorer)
    tpr = min(plain.points(0.05), key=lambda point: -point.threshold).tpr
    assert next(cost["tpr"] for cost in costs if cost["lacked"] == [1]) == tpr


def test_a_choice_is_rounded_up_to_the_best_one_that_contains_it() -> None:
    cells, who = record_people(200, np.random.default_rng(7), missing=0.05)
    pairs = held_out_pairs(who, protocol="open-set", n_pairs=5_000, random_state=0)
    records = Calibration.of_pairs(
        CellScorer().score_pairs(cells, pairs.left, pairs.right), cells, pairs, scorer=CellScorer()
    ).records
    columns = lacking(0, 1)
    covers = records.cover(columns)
    assert covers
    tprs = dict(zip(records.codes, records.tprs, strict=True))
    ranked = [tprs[code] for code, _ in covers]
    assert ranked == sorted(ranked, reverse=True)
    assert ranked[0] > ranked[-1]
    for _, sides in covers:
        assert (sides | ~columns).all(), "nothing is compared that the pair lacks"


@pytest.mark.parametrize(("n_columns", "n_first"), [(2, 1), (5, 1), (10, 1), (11, 2)])
def test_whatever_a_pair_lacks_a_prepared_choice_contains_it_and_little_more(
    n_columns: int, n_first: int
) -> None:
    """By brute force; of many columns those that cost least leave together, as one."""
    cells, who = record_people(40, np.random.default_rng(7), missing=0.02, columns=n_columns)
    records = CalibrationRecords.of(
        cells, held_out_pairs(who, protocol="open-set", n_pairs=500, random_state=0)
    )
    prepared = records.with_patterns(CellScorer()).patterns[:, 0]
    n_more = []
    for chosen in itertools.product((False, True), repeat=n_columns):
        lacked = np.array(chosen)
        if lacked.any() and not lacked.all():
            containing = prepared[(prepared | ~lacked).all(axis=1)]
            n_more.append(int(containing.sum(axis=1).min() if len(containing) else n_columns) - lacked.sum())
    assert max(n_more) <= 2 + n_first - 1
    assert len(prepared) < 110


class Unasked(CellScorer):
    def score_pairs(self, cells: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        raise AssertionError("these scores are kept")


def test_records_come_back_as_they_were_and_damaged_ones_are_refused() -> None:
    cells = np.array([["a", 1.0], [None, 2.0], ["c", None], ["d", 4.0]], dtype=object)
    cells[0, 1] = (52.1, 4.3)
    left, right = np.array([0, 0, 3, 1]), np.array([1, 3, 2, 2])
    units = np.stack([left, right], axis=1)
    same = np.array([False, True, False, False])
    pairs = HeldOutPairs(left=left, right=right, same=same, units=units, protocol="closed-set")
    made = Calibration.fit([0.1, 0.9, 0.3, 0.2], same, units, protocol="closed-set", listing="drawn")
    arrays, facts = made.with_records(CalibrationRecords.of(cells, pairs)).to_state()
    back = Calibration.from_state(arrays, facts).records
    assert back.subjects.rows.tolist() == cells.tolist()
    assert back.lacked[3].tolist() == [[True, False], [False, True]]
    for name, wrong in (
        ("records_left", left + 9),
        ("records_cells", np.frombuffer(b'[["a"], ["b", 1]]', dtype=np.uint8)),
        ("records_same", same[:2]),
    ):
        with pytest.raises(ValueError, match="records_"):
            Calibration.from_state({**arrays, name: wrong}, facts)
    assert CalibrationRecords.of(np.ones((4, 2), dtype=np.float32), pairs) is None


def test_a_long_list_of_all_pairs_keeps_its_origin_without_columns() -> None:
    cells, _ = record_people(230, np.random.default_rng(8), samples=1)
    left, right = np.triu_indices(230, 1)
    listed = HeldOutPairs(
        left=left,
        right=right,
        same=np.zeros(left.size, dtype=np.bool_),
        units=np.stack([left, right], axis=1),
        protocol="open-set",
        listing=None,
    )
    calibration = Calibration.of_pairs(CellScorer().score_pairs(cells, left, right), cells, listed)
    whole = without_columns(calibration, lacking(0), CellScorer()).whole
    assert (calibration.facts.origin, whole.facts.origin) == ("all", "drawn")
    assert whole.operating_point(0.05).guarantee == "finite-sample"


@pytest.mark.parametrize(
    "model", [RecordSimilarity(n_estimators=16, n_pairs=2_000), FellegiSunter(n_pairs=2_000)]
)
def test_what_was_compare_once_scores_as_records_with_blanked_cells(model: Any) -> None:
    """To the last bit, whatever the kinds of columns and the cells that records lack of themselves."""
    g = np.random.default_rng(4)
    who = np.repeat(np.arange(120), 2)
    texts = [f"{'abcdefgh'[at % 8]}nna{at // 7} {'klmnop'[at % 6]}ell" for at in who]
    table = {
        "name": [text[: -int(cut)] for text, cut in zip(texts, g.integers(1, 3, who.size), strict=True)],
        "all fields": [f"street {at % 40} no {at % 9}" for at in who],
        "born": [f"19{50 + at % 40}-0{1 + at % 9}-11" for at in who],
        "size": [float(at) + float(x) for at, x in zip(who, g.normal(size=who.size), strict=True)],
        "at": [f"{at % 80},{at % 170}" for at in who],
    }
    for column in table.values():
        for at in np.flatnonzero(g.random(who.size) < 0.2):
            column[at] = None
    model.set_params(
        columns={
            "name": "name",
            "all fields": "text",
            "born": "date:YYYY-MM-DD",
            "size": "number",
            "at": "place",
        }
    ).fit(table, who)
    cells = cells_of(table, model.schema_, "X")
    pairs = held_out_pairs(who, protocol="open-set", n_pairs=3_000, random_state=0)
    records = CalibrationRecords.of(cells, pairs)
    assert records is not None
    for places in ((0,), (1, 4), (0, 1), (2, 3, 4)):
        columns = lacking(*places)
        blanked = cells.copy()
        blanked[:, list(places)] = None
        expected = model.score_pairs(blanked, pairs.left, pairs.right)
        np.testing.assert_array_equal(records.scored_without(columns, model), expected)


GROUPS = Grouped(m=360)


def test_the_rate_holds_within_each_group_that_has_enough_people() -> None:
    violations = {"group": 0, "whole": 0}
    for seed in range(12):
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
    assert violations["group"] <= 1
    assert violations["whole"] >= 10


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
    for seed in range(15):
        drawn = world.draw(np.random.default_rng([4, seed]))
        point = operating_point(drawn.scores, drawn.same, 0.02, units=drawn.units, protocol="open-set")
        violations += world.true_rate(point.threshold) > 0.02
        assert point.tpr is not None
    assert violations <= 1


def test_distances_given_as_scores_are_told() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(150), 2)
    X = rng.normal(size=(150, 8))[y] + 0.3 * rng.normal(size=(300, 8))
    i, j = np.triu_indices(len(X), 1)
    distances = np.linalg.norm(X[i] - X[j], axis=1)
    with pytest.raises(ValueError, match="positive pairs score lower than negative ones"):
        operating_point(distances, y[i] == y[j], 0.05, units=(y[i], y[j]))
    assert operating_point(-distances, y[i] == y[j], 0.05, units=(y[i], y[j])).tpr > 0.9
