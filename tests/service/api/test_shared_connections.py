"""Several processes accept from one socket: what has connections yields to the others, but not for ever."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from pairmark.service.api.connections import MOST_YIELDS, YIELD_S, Connections
from pairmark.service.settings import Settings

MANY = 5_000


async def seconds_to_take(*numbers: int) -> list[float]:
    """How long a process takes so many connections, and then so many."""
    connections, seconds = Connections(Settings()), []
    for n in numbers:
        start = time.perf_counter()
        for _ in range(n):
            connection: Any = object()
            connections.add(connection, "127.0.0.1")
        seconds.append(time.perf_counter() - start)
    return seconds


def as_one_of_several() -> list[float]:
    return asyncio.run(seconds_to_take(1 + MOST_YIELDS, MANY))


def test_one_of_several_processes_yields_after_each_of_its_first_connections() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        first, later = pool.submit(as_one_of_several).result()
    assert first >= MOST_YIELDS * YIELD_S
    assert later < MANY * YIELD_S


def test_a_process_alone_yields_to_nobody() -> None:
    (seconds,) = asyncio.run(seconds_to_take(MANY))
    assert seconds < MANY * YIELD_S
