"""Small files that become large, sent to a served place: what they cost it, and whether refusals name their limit."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from benchmarks._places import DIMENSION, database, furnish, scratch
from benchmarks.common import Claim

SIZE = 5_000_000
"""Bytes of an upload, at most."""
MEMORY_MB = 300.0
SLOWEST_S = 10.0
INSPECTED = 0.25
"""Share of the datasets that are only inspected."""
_LOOK_S = 0.05


def crafted_uploads(n: int, seed: int) -> tuple[dict[str, Any], list[Claim], list[str]]:
    """Send ``n`` of them, each kind in turn: the row of the table, the claims, and what was found."""
    from tests.fuzzing.crafted import MAKERS, crafted
    from tests.fuzzing.uploading import memory_peak, send, setting_of
    from tests.serving import serving

    statuses: Counter[int] = Counter()
    found: list[str] = []
    slowest = grown = 0.0
    started = time.monotonic()
    kinds = list(MAKERS)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch("crafted"))
        url, _ = stack.enter_context(database("sqlite", folder))
        server = stack.enter_context(
            serving(folder / "home", url, "--with-worker", PAIRMARK_LOG_LEVEL="ERROR")
        )
        furnish(server)
        with memory_peak(server.process.pid) as peak, _readers_peak(server.process.pid) as readers:
            for number in range(n):
                rng = np.random.default_rng([seed, number])
                upload = crafted(rng, kinds[number % len(kinds)], SIZE, DIMENSION)
                path = "/datasets/inspect" if rng.random() < INSPECTED else "/datasets"
                sent = time.monotonic()
                answer = send(server.http, upload, "people", path)
                seconds = time.monotonic() - sent
                slowest = max(slowest, seconds)
                statuses[answer.status_code] += 1
                where = f"{upload.kind}, {len(upload.body)} bytes, seed {seed}, number {number}"
                print(
                    f"{where}: {answer.status_code} in {seconds:.2f} s, +{peak() / 1e6:.0f} MB",
                    flush=True,
                )
                if answer.status_code >= 500:
                    found.append(f"{where}: {answer.status_code} {answer.text[:300]}")
                elif answer.status_code == 413 and setting_of(answer) is None:
                    found.append(f"{where}: no limit is named: {answer.text[:300]}")
            grown = peak() / 1e6
        crashes = int(server.process.poll() is not None or server.http.get("/healthz").status_code != 200)
    row = {
        "what": "crafted uploads", "database": "sqlite", "requests": n,
        "2xx": sum(count for status, count in statuses.items() if status < 300),
        "4xx": sum(count for status, count in statuses.items() if 400 <= status < 500),
        "5xx": sum(count for status, count in statuses.items() if status >= 500),
        "crashes": crashes, "found": len(found), "slowest, s": round(slowest, 2),
        "seconds": round(time.monotonic() - started),
    }  # fmt: skip
    claims = [
        Claim(what="memory that the service gains by crafted uploads", goal=f"at most {MEMORY_MB:g} MB",
              measured=round(grown), holds=grown <= MEMORY_MB),
        Claim(what="slowest crafted upload", goal=f"at most {SLOWEST_S:g} s", measured=round(slowest, 2),
              holds=slowest <= SLOWEST_S),
    ]  # fmt: skip
    print(f"readers' memory: at most {readers[0] / 1e6:.0f} MB at once", flush=True)
    return row, claims, found


@contextmanager
def _readers_peak(service: int) -> Iterator[list[int]]:
    """``[bytes]``: the most that the processes that read uploads had at once, seen by looks."""
    import psutil

    most = [0]
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_S):
            now = 0
            for one in psutil.Process(service).children(recursive=True):
                try:
                    if "pairmark.service.parser" in one.cmdline():
                        now += one.memory_info().rss
                except psutil.Error:
                    continue
            most[0] = max(most[0], now)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()
