"""Streams and batches of rows: what single rows cannot show is told, and people like those who calibrated are not."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from pairmark.models.calibration.inputs import RowRanges
from pairmark.models.calibration.monitor import StreamMonitor, describe_move
from pairmark.models.core.arrays import Float32, Int64

PEOPLE = 400


def people(m: int, rows: int, d: int, random: np.random.Generator) -> Float32:
    """Rows of new people, person after person."""
    X = random.normal(size=(m, 1, d)) + 0.5 * random.normal(size=(m, rows, d))
    return X.reshape(-1, d).astype(np.float32)


@cache
def calibrated(d: int) -> RowRanges:
    random = np.random.default_rng(d)
    training, rows = people(200, 4, d, random), people(PEOPLE, 3, d, random)
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
    rows = people(1_500, 1, 6, random)
    # Larger than four of five who calibrated, and like them.
    large = np.array([2, -2, 2, -2, 1, 1]) + 0.5 * random.normal(size=(1_500, 6))
    mixed = np.where(random.random((1_500, 1)) < 0.5, large, rows).astype(np.float32)
    assert alarmed(6, mixed) == (None, None)
    assert alarmed(6, large.astype(np.float32)) == (None, None), "nobody else came"


def test_one_person_of_nearer_rows_who_sends_half_raises_no_alarm() -> None:
    random = np.random.default_rng(6)
    rows, near = people(1_500, 1, 16, random), 0.35 * random.normal(size=(1_500, 16))
    mixed = np.where(random.random((1_500, 1)) < 0.5, rows[:1] + near, rows)
    assert alarmed(16, mixed.astype(np.float32)) == (None, None)


@pytest.mark.parametrize(
    ("d", "directions", "within"), [(3, 1, 100), (6, 1, 100), (16, 1, 400), (16, 2, 200), (6, 2, 200)]
)
def test_an_embedder_that_collapses_is_told(d: int, directions: int, within: int) -> None:
    random = np.random.default_rng(2)
    rows = people(1_500, 1, d, random)
    middle = rows.mean(axis=0)
    axes = np.linalg.svd(rows - middle, full_matrices=False)[2][:directions]
    flat = (rows - middle) @ axes.T @ axes
    # As large as ever: no row by itself says it.
    flat *= np.linalg.norm(rows - middle, axis=1, keepdims=True) / np.linalg.norm(flat, axis=1, keepdims=True)
    after, said = alarmed(d, (middle + flat).astype(np.float32))
    assert after is not None
    assert after <= within
    assert said is not None


@pytest.mark.parametrize(("factor", "where"), [(0.5, "below"), (2.0, "above")])
def test_a_batch_in_another_unit_is_told_in_one_request(factor: float, where: str) -> None:
    ranges = calibrated(6)
    rows = people(600, 2, 6, np.random.default_rng(3)) * np.float32(factor)
    said = describe_move(ranges, rows[~ranges.flags(rows)])
    assert said is not None
    assert where in said
    assert describe_move(ranges, rows[:40]) is None
    # One person's frames are one person.
    frames = rows[:1] / np.float32(factor) + 0.1 * np.random.default_rng(4).normal(size=(600, 6))
    assert describe_move(ranges, frames.astype(np.float32)) is None
