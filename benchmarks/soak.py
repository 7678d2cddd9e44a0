"""Ten minutes of mixed load with training beside it: flat memory, no error, scoring that stays quick.

Clients score, decide, search, verify, enrol and erase; a worker trains one job after another. Before, the same client
scores on the idle service. Latencies are of a fresh single pair every 50 ms, so that they do not depend on how fast
other clients are. ``PAIRMARK_SOAK_S`` asks for another time.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np

from benchmarks._places import DIMENSION, database, furnish, scratch
from benchmarks.common import Claim, Preset, Result, Skip

SECONDS = {"quick": 120.0, "full": 600.0}
IDLE_S = 20.0
WARM_SHARE = 0.3
"""Of the time, before memory counts: caches fill at first."""
EVERY_S = 0.05
JOB = {
    "learner": "similarity-tree",
    "dataset": "people",
    "model": "beside",
    "params": {"max_depth": 3, "n_pairs": 5_000},
}


def run(preset: Preset) -> Result:
    """Load the service and watch it."""
    try:
        from tests.serving import serving
    except ImportError as error:
        raise Skip(f"needs the development environment ({error.name}): make .venv/.dev") from error
    import psutil

    seconds = float(os.environ.get("PAIRMARK_SOAK_S", SECONDS[preset]))
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(500, DIMENSION)).astype(np.float32)
    statuses: Counter[str] = Counter()
    failed: list[str] = []
    slowest: dict[str, float] = {}
    stop = threading.Event()
    with (
        scratch("soak") as folder,
        database("sqlite", folder) as (url, _),
        serving(
            folder / "home",
            url,
            "--with-worker",
            PAIRMARK_PROBE_LIMIT="0",
            PAIRMARK_VERIFY_LIMIT="0",
            PAIRMARK_LOG_LEVEL="WARNING",
        ) as server,
    ):
        furnish(server)
        headers = dict(server.http.headers)

        def client() -> httpx.Client:
            return httpx.Client(base_url=server.url, timeout=60, trust_env=False, headers=headers)

        def ask(http: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response | None:
            asked, route = time.perf_counter(), f"{method} {path.partition('?')[0]}"
            try:
                answer = http.request(method, path, **more)
            except httpx.HTTPError as error:
                failed.append(f"{method} {path}: {error!r}")
                return None
            finally:
                slowest[route] = max(slowest.get(route, 0.0), time.perf_counter() - asked)
            statuses[f"{method} {path.split('?')[0].split('/')[1]} {answer.status_code}"] += 1
            if answer.status_code >= 500:
                failed.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
            return answer

        def single(at: int) -> dict[str, Any]:
            return {
                "model": "people",
                "left": vectors[at % 500].tolist(),
                "right": vectors[(at + 1) % 500].tolist(),
            }

        def timed(lasting: float) -> list[float]:
            took, until, at = [], time.monotonic() + lasting, 0
            with client() as http:
                while time.monotonic() < until:
                    asked = time.perf_counter()
                    ask(http, "POST", "/similarity", json=single(at))
                    took.append(time.perf_counter() - asked)
                    at += 1
                    time.sleep(EVERY_S)
            return took

        def score(http: httpx.Client, at: int) -> None:
            ask(http, "POST", "/match?fpr=0.2", json=single(at))
            some = {
                "model": "people",
                "left": vectors[at % 400 : at % 400 + 100].tolist(),
                "right": vectors[:100].tolist(),
            }
            ask(http, "POST", "/similarity", json=some)

        def enrol(http: httpx.Client, at: int) -> None:
            item = {"id": f"x{at % 300}", "subject": f"s{at % 50}", "vector": vectors[at % 500].tolist()}
            ask(http, "PUT", "/galleries/people/items", json={"items": [item]})
            if at % 5 == 0:
                ask(http, "DELETE", f"/galleries/people/items/x{(at * 7) % 300}")

        def search(http: httpx.Client, at: int) -> None:
            ask(
                http,
                "POST",
                "/galleries/people/search",
                json={"queries": vectors[at % 500].tolist(), "k": 5},
            )
            probe = {"probe": vectors[at % 500].tolist()}
            ask(http, "POST", "/galleries/people/subjects/s0/verify?fpr=0.2", json=probe)
            ask(http, "GET", "/models/people/versions/1")

        def train(http: httpx.Client, at: int) -> None:
            answer = ask(http, "POST", "/jobs", json=JOB)
            while answer is not None and answer.status_code == 202 and not stop.is_set():
                state = http.get(f"/jobs/{answer.json()['id']}").json()["state"]
                if state not in ("queued", "running"):
                    statuses[f"job {state}"] += 1
                    if state == "failed":
                        failed.append("a job failed")
                    return
                stop.wait(0.5)

        def keep(work: Callable[[httpx.Client, int], None], pause: float) -> None:
            at = 0
            with client() as http:
                while not stop.wait(pause):
                    work(http, at)
                    at += 1

        timed(3.0)
        idle = timed(IDLE_S)
        threads = [
            threading.Thread(target=keep, args=args)
            for args in ((score, 0.05), (enrol, 0.05), (search, 0.05), (train, 0.1))
        ]
        for thread in threads:
            thread.start()
        process = psutil.Process(server.process.pid)
        memory: list[tuple[float, int]] = []
        started = time.monotonic()

        def watch() -> None:
            while not stop.wait(2.0):
                memory.append((time.monotonic() - started, process.memory_info().rss))

        watcher = threading.Thread(target=watch)
        watcher.start()
        loaded = timed(seconds)
        stop.set()
        for thread in (*threads, watcher):
            thread.join()
    late = [(at, rss) for at, rss in memory if at >= WARM_SHARE * seconds]
    slope = float(np.polyfit(*zip(*late, strict=True), 1)[0]) if len(late) > 2 else 0.0
    grown = slope * (1 - WARM_SHARE) * seconds / late[0][1] if late else 0.0
    p99_idle, p99 = (1e3 * float(np.quantile(one, 0.99)) for one in (idle, loaded))
    slower = round(p99 / p99_idle, 2)
    for one in failed[:20]:
        print(f"FAILED {one}", flush=True)
    often = (one for one in slowest.items() if "/items/" not in one[0] and "/jobs/" not in one[0])
    worst = {route: round(took, 3) for route, took in sorted(often, key=lambda one: -one[1])}
    print(f"slowest, s: {worst}", flush=True)
    requests = sum(n for name, n in statuses.items() if not name.startswith("job"))
    rows = [
        {
            "seconds": round(seconds), "requests": requests, "jobs trained": statuses["job succeeded"],
            "errors": len(failed), "p50 idle, ms": round(1e3 * float(np.median(idle)), 2),
            "p99 idle, ms": round(p99_idle, 2), "p50 loaded, ms": round(1e3 * float(np.median(loaded)), 2),
            "p99 loaded, ms": round(p99, 2), "memory at the end, MiB": round(late[-1][1] / 2**20) if late else 0,
            "growth after warming": round(grown, 4),
        }
    ]  # fmt: skip
    return Result(
        rows=rows,
        claims=[
            Claim(what="errors", goal="0", measured=len(failed), holds=not failed),
            Claim(what="growth of memory after warming, as a share", goal="at most 0.05", measured=round(grown, 4),
                  holds=grown <= 0.05),
            Claim(what="p99 of one /similarity under load, of idle", goal="at most 3", measured=slower,

                  holds=p99 <= 3 * p99_idle),
        ],
        facts={"statuses": dict(statuses), "slowest, s": worst, "load_average": os.getloadavg()[0]},
    )  # fmt: skip
