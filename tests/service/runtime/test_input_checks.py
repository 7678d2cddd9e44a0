"""What decides a served pair: the threshold to the last bit, rows held against a calibration, choices of columns."""

import itertools
import time
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.pairs.held_out import held_out_pairs
from pairmark.service.db import Database
from pairmark.service.runtime.inputs import WINDOW, InputWatch
from pairmark.service.runtime.missing_columns import MOST_CHOICES, SHARES, Patterns, UsedChoices
from pairmark.service.runtime.operating_points import (
    LoadedCalibration,
    OperatingPoints,
    PointRequest,
    ServedPoint,
)
from pairmark.service.tables import CalibrationRow
from tests.models.pair_worlds import COLUMNS, CellScorer, record_people


def counted(clients: Iterable[str]) -> list[str]:
    """Whose rows count, of new rows by these clients in turn."""
    watch, random = InputWatch("people", 1), np.random.default_rng(0)
    kept: list[str] = []
    for client in clients:
        before = len(watch.pending)
        watch.take(random.normal(size=4).astype(np.float32), client)
        kept += [client] * (len(watch.pending) - before)
    return kept


@pytest.mark.parametrize("n", [1, 2, 3, 7, 9, 10, 40])
def test_rows_of_few_clients_go_on_counting(n: int) -> None:
    clients = [f"client {number}" for number in range(n)]
    kept = counted(itertools.islice(itertools.cycle(clients), 4_000))
    assert set(kept[-5 * n :]) == set(clients)
    assert len(kept) >= 2_000


def test_who_asked_once_keeps_no_client_from_counting() -> None:
    assert counted(["once"] + 2_000 * ["often"]).count("often") >= 1_900


def test_a_client_that_floods_moves_nothing_by_itself_where_many_ask() -> None:
    others = (f"client {number}" for number in itertools.cycle(range(20)))
    kept = counted("flood" if turn % 4 else next(others) for turn in range(8_000))
    # Who comes first is alone for a while.
    for start in range(2 * WINDOW, len(kept) - WINDOW, WINDOW):
        assert Counter(kept[start : start + WINDOW])["flood"] <= WINDOW * 0.12
    assert len(kept) >= 2_000


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(threshold=FLOATS, scores=st.lists(FLOATS, max_size=20))
def test_matches_are_strictly_above(threshold: float, scores: list[float]) -> None:
    point = ServedPoint(threshold=np.float32(threshold), public={}, json=b"")
    with np.errstate(over="ignore"):
        beside = [np.nextafter(np.float32(threshold), np.float32(side)) for side in (-np.inf, np.inf)]
    values = [*scores, threshold, *(float(one) for one in beside if np.isfinite(one))]
    expected = [np.float32(value) > np.float32(threshold) for value in values]
    assert point.decide(np.array(values, dtype=np.float32)).astype(bool).tolist() == expected


SCORER, REQUEST = CellScorer(), PointRequest("c", 0.1, 0.95, "auto")
SIDES = [np.array(side) for side in itertools.product((False, True), repeat=COLUMNS)]
CHOICES = [np.stack([a, b])[None] for a, b in itertools.combinations_with_replacement(SIDES, 2)][1:]


def calibrated() -> Calibration:
    cells, who = record_people(150, np.random.default_rng(0))
    pairs = held_out_pairs(who, protocol="open-set", n_pairs=600, random_state=0)
    return Calibration.of_pairs(SCORER.score_pairs(cells, pairs.left, pairs.right), cells, pairs)


def test_an_owner_of_many_choices_lets_go_of_none_but_its_own() -> None:
    made = calibrated()
    points = OperatingPoints(lambda calibration_id: LoadedCalibration(made, None))
    point, patterns = points.compute(REQUEST), Patterns(points)
    quiet, *many = CHOICES[: MOST_CHOICES // SHARES + 3]
    patterns.find(SCORER, "tenant quiet", point, quiet)
    for choice in many:
        patterns.find(SCORER, "tenant busy", point, choice)
    kept = [patterns.find(SCORER, "", point, choice, may_work=False) is not None for choice in (quiet, *many)]
    assert kept[0], "another's"
    assert kept[1:] == [False, False, *([True] * (MOST_CHOICES // SHARES))]
    patterns.close()


def test_a_restart_forgets_no_choice_and_whose_it_is(database: Database) -> None:
    made, used = calibrated(), UsedChoices(database)
    points = OperatingPoints(lambda calibration_id: LoadedCalibration(made, None))
    point, before = points.compute(REQUEST), Patterns(points, used)
    quiet, *many = CHOICES[: MOST_CHOICES // SHARES + 3]
    # What cannot be stored, of a calibration that was deleted meanwhile, costs the answer nothing.
    before.find(SCORER, "tenant quiet", point, CHOICES[-1])
    assert used.of("c") == []
    with database.write() as session:
        row = CalibrationRow(id="c", name="c", protocol="open-set", blob="b", summary={}, created_at=0.0)
        session.add(row)
    for owner, choice in (("tenant quiet", quiet), *(("tenant busy", choice) for choice in many)):
        before.find(SCORER, owner, point, choice)
        # Killed here, or anywhere: each choice is stored as it is worked out.
    before.close()
    after = Patterns(OperatingPoints(lambda calibration_id: LoadedCalibration(made, None)), used)
    after.prepare(SCORER, REQUEST)
    deadline = time.monotonic() + 60
    for choice in (quiet, *many[2:]):
        while after.find(SCORER, "", point, choice, may_work=False) is None:
            assert time.monotonic() < deadline, "it was forgotten"
    assert after.find(SCORER, "", point, many[0], may_work=False) is None, "it was let go of"
    # The share of the one who asks for many is taken as it was.
    after.find(SCORER, "tenant busy", point, many[0])
    assert after.find(SCORER, "", point, many[2], may_work=False) is None
    assert after.find(SCORER, "", point, quiet, may_work=False) is not None
    after.close()
    with database.write() as session:
        session.delete(session.get(CalibrationRow, "c"))
    assert used.of("c") == [], "they go with their calibration"
