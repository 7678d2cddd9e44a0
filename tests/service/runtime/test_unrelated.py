"""Probes of unrelated requests, scored against each other."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pairmark.service.runtime import unrelated
from pairmark.service.runtime.unrelated import POOL, UnrelatedCheck


class Scored:
    """A version that scores by inner products."""

    calibration_id: str | None = "c"
    entry: Any = SimpleNamespace(name="people", version=3)

    def score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return (left * right).sum(axis=1).astype(np.float32)


async def answer(check: UnrelatedCheck, rows: np.ndarray, fpr: float = 0.02, threshold: float = 0.5) -> None:
    version: Any = Scored()
    for row in rows:
        check.take(version, row[None], f"{fpr:g}", fpr, threshold)
    await asyncio.gather(*check._scoring)


def test_a_live_rate_of_twice_the_promised_one_raises_the_alarm() -> None:
    rng = np.random.default_rng(0)

    def probes(rate: float) -> np.ndarray:
        # Two of these match when both hold the mark, which is so for a share of the pairs.
        marked = rng.random(4_000) < np.sqrt(rate)
        return np.stack([marked, np.zeros(4_000), rng.random(4_000) / 100], axis=1).astype(np.float32)

    async def run(rate: float) -> Any:
        check = UnrelatedCheck(enabled=True)
        await answer(check, probes(rate))
        (pairs,) = check.versions()
        return pairs.watches["0.02", np.float32(0.5)]

    bad, good = asyncio.run(run(0.04)), asyncio.run(run(0.01))
    assert bad.alarms
    assert not good.alarms
    assert good.n == 4_000 // POOL * POOL // 2


def test_users_who_return_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    check = UnrelatedCheck(enabled=True)
    users = np.random.default_rng(0).random((2 * POOL, 3)).astype(np.float32)
    asyncio.run(answer(check, users[np.random.default_rng(1).integers(0, len(users), 40 * POOL)]))
    (pairs,) = check.versions()
    assert pairs.counts()["0.02"][0] == POOL
    # No more is remembered than there is room for.
    monkeypatch.setattr(unrelated, "MOST_REMEMBERED", 10)
    check = UnrelatedCheck(enabled=True)
    asyncio.run(answer(check, np.concatenate([users[:20], users[:5]])))
    assert len(check.versions()[0].digests) == 10
    assert len(check.versions()[0].probes) == 25


def test_nothing_is_kept_where_that_is_not_wanted_and_pools_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = UnrelatedCheck(enabled=False)
    asyncio.run(answer(check, np.ones((4, 3), dtype=np.float32)))
    assert check.versions() == []
    monkeypatch.setattr(unrelated, "MOST_NUMBERS", 30)
    check = UnrelatedCheck(enabled=True)
    asyncio.run(answer(check, np.random.default_rng(0).random((40, 3)).astype(np.float32)))
    assert len(check.versions()[0].probes) == 10
