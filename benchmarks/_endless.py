"""Requests that never end, sent to a served place: the memory that they cost, and what others wait for meanwhile."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import numpy as np

from benchmarks._places import database, scratch
from benchmarks.common import Claim

MEMORY_MB = 5.0
HEALTHY_MS = 50.0


def endless_requests(megabytes: int) -> tuple[dict[str, Any], list[Claim]]:
    """Send so much in each way, one after another: the row of the table, and the claims."""
    from tests.e2e.test_endless_requests import ENDLESS, memory, send_endlessly
    from tests.serving import serving

    started = time.monotonic()
    waits: list[float] = []
    grown: dict[str, float] = {}
    connections = crashes = 0
    with (
        scratch("endless") as folder,
        database("sqlite", folder) as (url, _),
        serving(folder / "home", url) as server,
    ):
        assert server.cli("keys", "create", "--scope", "admin").returncode == 0
        over = threading.Event()

        def look() -> None:
            with httpx.Client(timeout=60, trust_env=False) as http:
                while not over.is_set():
                    asked = time.perf_counter()
                    http.get(f"{server.url}/healthz")
                    waits.append(time.perf_counter() - asked)
                    time.sleep(0.005)

        # What a first connection of each kind loads is no growth.
        for begin, piece in ENDLESS.values():
            send_endlessly(server, begin, piece, len(piece))
        looking = threading.Thread(target=look)
        looking.start()
        for what, (begin, piece) in ENDLESS.items():
            before = memory(server, "VmRSS")
            connections += send_endlessly(server, begin, piece, megabytes * 1024 * 1024)
            grown[what] = memory(server, "VmRSS") - before
            print(f"{what}: {grown[what]:+.1f} MiB", flush=True)
        over.set()
        looking.join()
        crashes = int(server.process.poll() is not None)
    p99 = 1e3 * float(np.percentile(waits, 99))
    row = {
        "what": "requests without an end", "database": "sqlite", "requests": connections, "2xx": 0,
        "4xx": connections, "5xx": 0, "crashes": crashes, "found": 0, "slowest, s": round(max(waits), 2),
        "seconds": round(time.monotonic() - started),
    }  # fmt: skip
    most = max(grown, key=grown.__getitem__)
    claims = [
        Claim(what=f"memory gained by {megabytes} MB of each ({most})", goal=f"at most {MEMORY_MB:g} MB",
              measured=round(grown[most], 1), holds=grown[most] <= MEMORY_MB),
        Claim(what="/healthz meanwhile, 99th percentile", goal=f"at most {HEALTHY_MS:g} ms", measured=round(p99, 1),
              holds=p99 <= HEALTHY_MS),
    ]  # fmt: skip
    return row, claims
