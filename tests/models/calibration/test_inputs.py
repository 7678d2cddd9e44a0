"""Rows unlike those of the people who calibrated, and streams and batches that show what single rows cannot."""

from functools import cache

import numpy as np
import pytest
from scipy.sparse import csr_array

from pairmark import Plda
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.inputs import DriftTest, RowRanges, StreamMonitor, describe_move
from pairmark.models.calibration.operating_point import ROWS_MONITORED
from pairmark.models.core.arrays import Float32, Int64
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.pairs.sampling import HeldOutPairs


def people(m: int, rows: int = 4, d: int = 32, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    centers = np.repeat(random.normal(size=(m, d)), rows, axis=0)
    X = 3 + centers + 0.5 * random.normal(size=centers.shape)
    return X.astype(np.float32), np.repeat(np.arange(m), rows)


def ranges(m: int = 120, **world: int) -> RowRanges:
    found = RowRanges.fit(*people(m, **world))
    assert found is not None
    return found


@pytest.mark.parametrize("d", [16, 128])
def test_rows_of_another_unit_and_rows_that_say_nothing_are_unlike(d: int) -> None:
    seen, (new, _) = ranges(d=d), people(200, 1, d=d, seed=1)
    assert seen.flags(new).mean() < 0.02
    one_off = new.copy()
    one_off[:, 3] *= 1_000
    for name, rows in {
        "another unit": new * np.float32(2.54 * 4),
        "a tenth": new * np.float32(0.1),
        "bytes": new * np.float32(255),
        "zeros": 0 * new,
        "constant": np.full_like(new, 3.0),
        "one feature x 1,000": one_off,
        "beyond reason": np.full_like(new, 3e38),
    }.items():
        assert seen.flags(rows).mean() > 0.98, name


def test_a_pass_over_both_sides_and_a_look_at_each_agree() -> None:
    seen, (new, _) = ranges(), people(20, 1, seed=1)
    assert not seen.unlike(new, new).size
    right = new.copy()
    right[7] *= 20
    flags = seen.unlike(new[:1], right)
    assert np.flatnonzero(flags).tolist() == [8]
    assert seen.flags(right).tolist() == flags[1:].tolist()
    records = np.array([["ann", 3.0]], dtype=object)
    assert not seen.unlike(records, records).size


def test_sparse_rows_are_held_against_what_sparse_rows_were() -> None:
    random = np.random.default_rng(0)
    X = (random.random((300, 200)) * (random.random((300, 200)) < 0.1)).astype(np.float32)
    seen = RowRanges.fit(csr_array(X), np.arange(300))
    assert seen.statistics(csr_array(X)) == pytest.approx(seen.statistics(X))
    assert seen.flags(csr_array(X)).sum() == 0
    assert seen.flags(csr_array(20 * X)).all()


@pytest.mark.parametrize(("m", "rows"), [(12, 4), (60, 4), (100, 1), (333, 1)])
def test_honest_rows_are_seldom_flagged(m: int, rows: int) -> None:
    shares = [
        ranges(m, rows=rows, seed=seed).flags(people(300, 1, seed=seed + 50)[0]).mean() for seed in range(8)
    ]
    assert np.mean(shares) < 0.015


def test_too_few_people_and_what_is_no_vector_have_no_ranges() -> None:
    X, y = people(40)
    assert RowRanges.fit(X[:12], y[:12]) is None
    assert RowRanges.fit(X.astype(object), y) is None
    assert RowRanges.fit(X[:20], np.zeros(20)) is None


def test_a_calibration_keeps_its_ranges_and_refuses_damaged_ones() -> None:
    X, y = people(60)
    left, right = np.triu_indices(len(X), 1)
    pairs = HeldOutPairs(
        left=left,
        right=right,
        same=y[left] == y[right],
        units=np.stack([y[left], y[right]], axis=1),
        protocol="open-set",
        listing="all",
    )
    plain = Calibration.fit(
        Plda().fit(*people(100, seed=3)).pair_score(X[left], X[right]), pairs.same, pairs.units
    )
    assert plain.inputs is None
    plain_tpr = plain.operating_point(0.1).tpr
    assert {one["status"] for one in plain.operating_point(0.1).assumes[:1]} == {"unchecked"}
    checked = plain.with_inputs(RowRanges.of_pairs(X, pairs))
    point = checked.operating_point(0.1)
    assert point.assumes == [
        {"assumption": "people-alike", "status": "monitored", "by": ROWS_MONITORED},
        {"assumption": "pairs-drawn", "status": "drawn"},
    ]
    facts = checked.summary()["inputs"]
    assert (facts["people"], facts["rows"], facts["measured_on"]) == (60, 240, "folds")
    # The rate says what people meet: pairs that are flagged do not match.
    assert point.tpr == pytest.approx(plain_tpr * (1 - facts["positive_pairs_flagged"]))
    assert plain_tpr - point.tpr < 0.01 + facts["flagged"] * 2
    arrays, meta = checked.to_state()
    again = Calibration.from_state(arrays, meta)
    assert again.operating_point(0.1) == point
    assert again.inputs.flags(10 * X).all()
    with pytest.raises(ArtefactError, match="inputs_scales"):
        Calibration.from_state({**arrays, "inputs_scales": arrays["inputs_scales"][:1]}, meta)


def test_test_people_measure_what_the_ranges_flag() -> None:
    X, y = people(80)
    rows = np.arange(len(X))
    pairs = [
        HeldOutPairs(
            left=part[:-1],
            right=part[1:],
            same=y[part[:-1]] == y[part[1:]],
            units=np.stack([y[part[:-1]], y[part[1:]]], axis=1),
            protocol="open-set",
        )
        for part in (rows[:200], rows[200:])
    ]
    X[200:220] *= 50
    check = RowRanges.of_pairs(X, pairs[0], test=pairs[1])
    assert check.facts["measured_on"] == "test"
    assert check.facts["flagged"] == pytest.approx(20 / 120, abs=0.02)
    assert check.facts["positive_pairs_flagged"] > 0.1


def test_a_stream_that_moved_is_told_and_people_who_return_are_not() -> None:
    random = np.random.default_rng(0)
    found = RowRanges.fit(random.normal(size=(150, 4)).astype(np.float32), np.arange(150))
    assert found is not None
    regulars = random.normal(size=(50, 1, 4))
    photos = (regulars + 0.2 * random.normal(size=(50, 100, 4))).reshape(-1, 4).astype(np.float32)
    like = DriftTest(found)
    like.observe(photos[random.permutation(len(photos))])
    assert like.moved is None
    for factor, where in ((0.5, "below"), (2.0, "above")):
        test = DriftTest(found)
        test.observe((factor * random.normal(size=(500, 4))).astype(np.float32))
        assert test.moved is not None
        assert where in test.moved
        assert test.n < 500
    few = RowRanges.fit(random.normal(size=(10, 4)).astype(np.float32), np.arange(10))
    assert few is not None
    unknown = DriftTest(few)
    unknown.observe(np.full((100, 4), 9, dtype=np.float32))
    assert (unknown.n, unknown.moved) == (0, None)


PEOPLE = 400


def crowd(m: int, rows: int, d: int, random: np.random.Generator) -> Float32:
    """Rows of new people, person after person."""
    X = random.normal(size=(m, 1, d)) + 0.5 * random.normal(size=(m, rows, d))
    return X.reshape(-1, d).astype(np.float32)


@cache
def calibrated(d: int) -> RowRanges:
    random = np.random.default_rng(d)
    training, rows = crowd(200, 4, d, random), crowd(PEOPLE, 3, d, random)
    ranges = RowRanges.fit(rows, np.repeat(np.arange(PEOPLE), 3), training)
    assert ranges is not None
    return ranges


def alarmed(d: int, rows: Float32) -> tuple[int | None, str | None]:
    """After how many rows a stream alarms, each of a request of its own, and what it says."""
    ranges = calibrated(d)
    monitor = StreamMonitor(ranges)
    like = rows[~ranges.flags(rows)]
    for start in range(0, len(like), 8):
        part = like[start : start + 8]
        monitor.observe(part, list(range(start, start + len(part))))
        if monitor.moved is not None:
            return start + len(part), monitor.moved
    return None, None


def traffic(name: str, n: int, random: np.random.Generator) -> Int64:
    """Who sends each row."""
    if name == "50 who return":
        return random.integers(0, 50, n)
    if name == "Zipf 1.5":
        return random.zipf(1.5, n)
    who = np.arange(1, n + 1)
    who[random.random(n) < {"all new": 0, "one makes half": 0.5, "one makes 60 %": 0.6}[name]] = 0
    return who


@pytest.mark.parametrize("name", ["all new", "50 who return", "Zipf 1.5", "one makes half", "one makes 60 %"])
@pytest.mark.parametrize("d", [3, 6, 16])
def test_people_who_return_raise_no_alarm(name: str, d: int) -> None:
    random = np.random.default_rng(1)
    who = np.unique(traffic(name, 2_000, random), return_inverse=True)[1]
    rows = random.normal(size=(who.max() + 1, d))[who] + 0.5 * random.normal(size=(who.size, d))
    assert alarmed(d, rows.astype(np.float32)) == (None, None)
    ranges = calibrated(d)
    batches = [rows[start : start + 500].astype(np.float32) for start in range(0, 2_000, 500)]
    assert [describe_move(ranges, batch) for batch in batches] == [None] * 4


def test_one_person_beyond_an_edge_who_sends_half_raises_no_alarm() -> None:
    random = np.random.default_rng(5)
    rows = crowd(1_500, 1, 6, random)
    # Larger than four of five who calibrated, and like them.
    large = np.array([2, -2, 2, -2, 1, 1]) + 0.5 * random.normal(size=(1_500, 6))
    mixed = np.where(random.random((1_500, 1)) < 0.5, large, rows).astype(np.float32)
    assert alarmed(6, mixed) == (None, None)
    assert alarmed(6, large.astype(np.float32)) == (None, None), "nobody else came"


def test_one_person_of_nearer_rows_who_sends_half_raises_no_alarm() -> None:
    random = np.random.default_rng(6)
    rows, near = crowd(1_500, 1, 16, random), 0.35 * random.normal(size=(1_500, 16))
    mixed = np.where(random.random((1_500, 1)) < 0.5, rows[:1] + near, rows)
    assert alarmed(16, mixed.astype(np.float32)) == (None, None)


@pytest.mark.parametrize(
    ("d", "directions", "within"), [(3, 1, 100), (6, 1, 100), (16, 1, 400), (16, 2, 200), (6, 2, 200)]
)
def test_an_embedder_that_collapses_is_told(d: int, directions: int, within: int) -> None:
    rows = crowd(1_500, 1, d, np.random.default_rng(2))
    middle = rows.mean(axis=0)
    axes = np.linalg.svd(rows - middle, full_matrices=False)[2][:directions]
    flat = (rows - middle) @ axes.T @ axes
    # As large as ever: no row by itself says it.
    flat *= np.linalg.norm(rows - middle, axis=1, keepdims=True) / np.linalg.norm(flat, axis=1, keepdims=True)
    after, said = alarmed(d, (middle + flat).astype(np.float32))
    assert after <= within
    assert said is not None


@pytest.mark.parametrize(("factor", "where"), [(0.5, "below"), (2.0, "above")])
def test_a_batch_in_another_unit_is_told_in_one_request(factor: float, where: str) -> None:
    ranges = calibrated(6)
    rows = crowd(600, 2, 6, np.random.default_rng(3)) * np.float32(factor)
    said = describe_move(ranges, rows[~ranges.flags(rows)])
    assert said is not None
    assert where in said
    assert describe_move(ranges, rows[:40]) is None
    # One person's frames are one person.
    frames = rows[:1] / np.float32(factor) + 0.1 * np.random.default_rng(4).normal(size=(600, 6))
    assert describe_move(ranges, frames.astype(np.float32)) is None
