"""What versions decide on, held against their calibrations."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from pairmark.models.calibration.inputs import DriftTest, RowRanges
from pairmark.service.runtime import inputs
from pairmark.service.runtime.inputs import InputChecks, InputWatch

RANDOM = np.random.default_rng(0)
VERSION = SimpleNamespace(entry=SimpleNamespace(name="m", version=1), calibration_id="c1")


def rows(n: int, scale: float = 1.0) -> np.ndarray:
    return (scale * RANDOM.normal(size=(n, 6))).astype(np.float32)


@pytest.fixture
def ranges() -> RowRanges:
    found = RowRanges.fit(rows(200), np.arange(200))
    assert found is not None
    return found


def asked(checks: InputChecks, ranges: RowRanges, requests: list[tuple[str, np.ndarray]]) -> InputWatch:
    async def ask() -> InputWatch:
        for client, sent in requests:
            flags = ranges.unlike(sent)
            checks.note(VERSION, ranges, sent, flags if flags.size else None, client, n_rows=len(sent))
            await asyncio.sleep(0)
        (watch,) = checks.watches()
        return watch

    return asyncio.run(ask())


def test_a_stream_that_halves_alarms_once_and_like_ones_do_not(ranges: RowRanges) -> None:
    told: list[tuple[str, str]] = []
    checks = InputChecks(lambda *alarm: told.append(alarm))
    watch = asked(checks, ranges, [(f"k{at % 20}", rows(2)) for at in range(1_000)])
    assert watch.test.n > 1_900
    assert watch.test.moved is None
    asked(checks, ranges, [(f"k{at % 20}", rows(2, 0.5)) for at in range(300)])
    assert [calibration for calibration, _ in told] == ["c1"]
    assert "below" in told[0][1]


def test_one_client_does_not_take_the_others_guarantee(ranges: RowRanges) -> None:
    checks = InputChecks(lambda *_: pytest.fail("one client is no stream"))
    requests = [("odd", rows(8, 0.5)) if at % 2 else (f"k{at % 40}", rows(1)) for at in range(2_000)]
    watch = asked(checks, ranges, requests)
    assert watch.test.moved is None
    # Zeros are told at each decision, and are no part of the stream.
    asked(checks, ranges, [("odd", np.zeros((8, 6), dtype=np.float32))] * 500)
    assert watch.test.moved is None


def test_a_vector_counts_once_and_a_request_for_few(
    ranges: RowRanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "TOGETHER", 10**6)
    checks = InputChecks(lambda *_: None)
    again = rows(1)
    watch = asked(checks, ranges, [("k", again)] * 50 + [("k", rows(1_000))])
    assert len(watch.pending) == 1 + inputs.PICKED


def test_counts_are_of_the_day(ranges: RowRanges, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = InputWatch("m", 1, DriftTest(ranges))
    now = [86_400.0 * 10]
    monkeypatch.setattr("time.time", lambda: now[0])
    watch.count(10, 2)
    watch.count(4, 0)
    assert watch.today == [14, 2]
    now[0] += 86_400
    watch.count(3, 1)
    assert (watch.today, watch.rows, watch.unlike) == ([3, 1], 17, 3)
