"""Whose rows are held against a calibration: everybody's, and nobody's alone where many ask."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from pairmark.service.runtime.inputs import WINDOW, InputWatch


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
