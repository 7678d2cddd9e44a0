"""The cache of the service is bounded, forgets what was used longest ago, and makes a value once."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from pairmark.service.caches import BoundedCache


def test_the_least_recently_used_is_dropped_first() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    assert cache.put("a", 1) == cache.put("b", 2) == []
    assert cache.get("a") == 1
    assert cache.put("c", 3) == ["b"]
    assert cache.get("b") is None
    assert cache.entries() == [("a", 1), ("c", 3)]
    cache.drop(["a", "not there"])
    assert len(cache) == 1


def test_threads_that_ask_at_once_share_one_value() -> None:
    cache: BoundedCache[int, object] = BoundedCache(4)
    barrier, made = threading.Barrier(8), []

    def make() -> object:
        made.append(1)
        time.sleep(0.01)
        return object()

    def ask(_: int) -> object:
        barrier.wait()
        return cache.get_or_make(7, make)

    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(ask, range(8)))
    assert len(made) == len(set(map(id, values))) == 1
