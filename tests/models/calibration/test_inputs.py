"""Rows unlike those of the people who calibrated."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from pairmark import Plda
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.inputs import RowRanges
from pairmark.models.calibration.monitor import DriftTest
from pairmark.models.calibration.operating_point import ROWS_MONITORED
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.pairs.held_out import HeldOutPairs


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
    assert seen is not None
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
    scores = Plda().fit(*people(100, seed=3)).pair_score(X[left], X[right])
    plain = Calibration.fit(scores, pairs.same, pairs.units)
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
    assert again.inputs is not None
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
    assert check is not None
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
