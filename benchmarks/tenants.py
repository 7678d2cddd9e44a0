"""What one tenant's worst does to another's single scores: p99 of `/similarity` for one pair, alone and beside it.

The busy tenant sends, from a process of its own: single scores over many connections, batches as raw float32 and as
JSON, and requests that handlers of the framework answer. Quiet and busy times take turns in one server; their ratio is
the claim. Clients, server and whatever else runs share the machine's cores.
"""

import json
import multiprocessing
import os
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._served import (
    JSON,
    RAW,
    connected,
    environment_of,
    read_answer,
    request_of,
    running_server,
    trained,
)
from benchmarks.common import Claim, Preset, Result, people

WIDTH = 64


def run(preset: Preset) -> Result:
    """Measure, in turns, a quiet and a busy service."""
    rounds, times = (3, 500) if preset == "quick" else (9, 2_000)
    random = np.random.default_rng(0)
    left, right = random.standard_normal((2, 100_000, WIDTH)).astype(np.float32)
    X, y, _ = people(60, 5, WIDTH)
    rows: list[dict[str, Any]] = []
    claims = []
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder:
        environment = environment_of(folder)
        models = [{"model": name, "learner": "metric", "promote": True} for name in ("a/faces", "b/faces")]
        trained(environment, models, X=X, y=y)
        keys = {tenant: _key(folder, tenant) for tenant in ("a", "b")}
        one = {"left": left[0].tolist(), "right": right[0].tolist()}
        headers = {name: {"Authorization": f"Bearer {key}"} for name, key in keys.items()}
        single = request_of("/similarity", json.dumps(one).encode(), {**JSON, **headers["b"]})
        many = {"left": left[:2_500].tolist(), "right": right[:2_500].tolist()}
        worst = {
            "single scores over 64 connections": (
                64,
                request_of("/similarity", json.dumps(one).encode(), {**JSON, **headers["a"]}),
            ),
            "raw batches of 100,000 pairs over 6 connections": (
                6,
                request_of("/similarity", left.tobytes() + right.tobytes(), {**RAW, **headers["a"]}),
            ),
            "JSON batches of 2,500 pairs over 6 connections": (
                6,
                request_of("/similarity", json.dumps(many).encode(), {**JSON, **headers["a"]}),
            ),
            "reports over 32 connections": (
                32,
                request_of("/models/a/faces/versions/1/report", b"", headers["a"]).replace(
                    b"POST", b"GET", 1
                ),
            ),
        }
        with running_server(environment) as service:
            for name, (connections, request) in worst.items():
                quiet: list[float] = []
                busy: list[float] = []
                for _ in range(rounds):
                    quiet += _waits(service.port, single, times)
                    stop = multiprocessing.get_context("spawn").Event()
                    attack = multiprocessing.get_context("spawn").Process(
                        target=_flood, args=(service.port, request, connections, stop)
                    )
                    attack.start()
                    time.sleep(2.0)
                    busy += _waits(service.port, single, times)
                    stop.set()
                    attack.join(20)
                    attack.kill()
                alone, beside = (1e3 * float(np.quantile(one, 0.99)) for one in (quiet, busy))
                median = 1e3 * float(np.median(busy))
                rows.append(
                    {
                        "the other tenant sends": name,
                        "p99 alone, ms": round(alone, 2),
                        "p99 beside it, ms": round(beside, 2),
                        "median beside it, ms": round(median, 2),
                        "ratio of p99": round(beside / alone, 2),
                    }
                )
                claims.append(
                    Claim(
                        what=f"p99 of single scores beside {name}",
                        goal="at most 3x of alone",
                        measured=round(beside / alone, 3),
                        holds=beside <= 3 * alone,
                    )
                )
    return Result(rows=rows, claims=claims, facts={"load_average": os.getloadavg()[0]})


def _key(folder: str, tenant: str) -> str:
    from pairmark.service.db import open_database
    from pairmark.service.keys import Keys
    from pairmark.service.settings import Settings

    settings = Settings(home=Path(folder))
    with open_database(settings) as database:
        return Keys(database).create(tenant, ["score", "train"], tenant=tenant).key


def _waits(port: int, request: bytes, times: int) -> list[float]:
    waits = []
    with connected(port) as wire:
        for _ in range(times):
            started = time.perf_counter()
            wire.sendall(request)
            read_answer(wire)
            waits.append(time.perf_counter() - started)
    return waits


def _flood(port: int, request: bytes, connections: int, stop: Any) -> None:
    def send() -> None:
        while not stop.is_set():
            with suppress(OSError, RuntimeError, ValueError), connected(port) as wire:
                while not stop.is_set():
                    wire.sendall(request)
                    read_answer(wire)

    threads = [threading.Thread(target=send, daemon=True) for _ in range(connections)]
    for thread in threads:
        thread.start()
    stop.wait()
