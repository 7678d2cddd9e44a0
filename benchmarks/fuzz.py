"""Requests and bodies that nobody means well: no crash, no hang, no 5xx, no answer that the document does not know.

Five parts, the first two on SQLite and on PostgreSQL, with API keys in force:

- requests from the whole OpenAPI document, with real ids through its links (`tests/fuzzing/requests.py`);
- bodies of every binary and text format with mistakes in their structure, and exported versions changed with their
  checksums kept true (`tests/fuzzing/bodies.py`);
- trailers, chunk extensions, heads, tiny chunks and pipelines without an end (`tests/e2e/test_endless_requests.py`);
- files of at most 5 MB that unpack to far more, or take long to read (`tests/fuzzing/crafted.py`);
- states of every learner changed in memory and loaded, in a process of its own with bounds checks in the kernels.

``PAIRMARK_FUZZ_SEED`` asks for other requests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks._crafted import crafted_uploads
from benchmarks._endless import endless_requests
from benchmarks._places import DIMENSION, ROOT, database, furnish, scratch
from benchmarks.common import Claim, Preset, Result, Skip

BODIES = {"quick": 600, "full": 1_800}
"""Mutated bodies on each database."""
REQUESTS = {"quick": 1_000, "full": 10_200}
STATES = {"quick": 300, "full": 1_500}
CRAFTED = {"quick": 56, "full": 200}
ENDLESS_MB = {"quick": 10, "full": 100}
"""Sent in each way that never ends."""
SLOWEST_S = 30.0
ARTEFACT_SHARE = 100
"""One body in so many is an exported version: each is tried in a process of its own, which takes a second."""


def run(preset: Preset) -> Result:
    """Fuzz each database's service, then the loader."""
    try:
        from tests.fuzzing.requests import DocumentFuzz  # noqa: F401
    except ImportError as error:
        raise Skip(f"needs the development environment ({error.name}): make .venv/.dev") from error
    seed = int(os.environ.get("PAIRMARK_FUZZ_SEED", "0"))
    rows: list[dict[str, Any]] = []
    found: list[str] = []
    for kind in ("sqlite", "postgresql"):
        with scratch("fuzz") as folder:
            reported = _served(kind, folder, preset, seed)
        rows += reported["rows"]
        found += reported["found"]
    row, bounded, unbounded = crafted_uploads(CRAFTED[preset], seed)
    rows.append(row)
    found += unbounded
    row, endless = endless_requests(ENDLESS_MB[preset])
    rows.append(row)
    bounded += endless
    states = _states(STATES[preset], seed)
    rows.append(states["row"])
    found += states["found"]
    requests = sum(row["requests"] for row in rows if row["what"] == "OpenAPI document")
    mutated = sum(row["requests"] for row in rows if row["what"] != "OpenAPI document")
    crashes = sum(row["crashes"] for row in rows)
    errors = sum(row["5xx"] for row in rows)
    slowest = max(row["slowest, s"] for row in rows)
    asked = {"quick": (2_000, 1_200), "full": (20_000, 5_000)}[preset]
    return Result(
        rows=rows,
        claims=[
            Claim(what="requests from the document", goal=f"at least {asked[0]:,}", measured=requests,
                  holds=requests >= asked[0]),
            Claim(what="mutated artefacts and bodies", goal=f"at least {asked[1]:,}", measured=mutated,
                  holds=mutated >= asked[1]),
            Claim(what="crashes", goal="0", measured=crashes, holds=crashes == 0),
            Claim(what="5xx answers", goal="0", measured=errors, holds=errors == 0),
            Claim(what="answers that the document does not allow, and requests without one", goal="0",
                  measured=len(found), holds=not found),
            Claim(what="slowest answer", goal=f"at most {SLOWEST_S:g} s", measured=round(slowest, 2),
                  holds=slowest <= SLOWEST_S),
            *bounded,
        ],
        facts={"seed": seed, "found": found},
    )  # fmt: skip


def _served(kind: str, folder: Path, preset: Preset, seed: int) -> dict[str, Any]:
    from tests.fuzzing.requests import DocumentFuzz
    from tests.fuzzing.sending import BodyFuzz
    from tests.serving import serving

    with database(kind, folder) as (url, _):
        with serving(folder / "home", url, "--with-worker") as server:
            there = furnish(server)
            keys = [there["key"]]
            for scopes in (["score"], ["decide:people"], ["gallery:people"], ["train:people"], ["import"]):
                made = server.http.post("/keys", json={"name": "fuzz", "scopes": scopes})
                keys.append(made.json()["key"])
        # Without a worker: made-up jobs are queued, seen and cancelled, not run.
        with serving(folder / "home", url, PAIRMARK_LOG_LEVEL="ERROR") as server:
            server.http.headers["x-api-key"] = there["key"]
            document = server.http.get("/openapi.json").json()
            export = server.http.get("/models/people/versions/1/export").content
            fuzz = DocumentFuzz(
                server.url, document, there["names"], keys=(*keys, "pm_nobody"), dimension=DIMENSION,
                random_state=seed,
            )  # fmt: skip
            started = time.monotonic()
            operations = sum(1 for _ in fuzz.operations())
            turn = 0
            while fuzz.counts.requests < REQUESTS[preset] and turn < 20:
                left = REQUESTS[preset] - fuzz.counts.requests
                fuzz.run(max(4, min(100, left // operations + 1)), turn)
                turn += 1
                print(f"{kind}: {fuzz.counts.requests} requests, {len(fuzz.counts.found)} found", flush=True)
            asked_s = time.monotonic() - started
            bodies = BodyFuzz(
                server.url,
                model="people",
                gallery="people",
                dimension=DIMENSION,
                export=export,
                key=there["key"],
            )
            started = time.monotonic()
            kinds = list(bodies.kinds)
            cheap = [one for one in kinds if one != "artefact"]
            for number in range(BODIES[preset]):
                one = "artefact" if number % ARTEFACT_SHARE == 0 else cheap[number % len(cheap)]
                bodies.send(one, 1_000_000 * seed + number)
            sent_s = time.monotonic() - started
            crashes = _crashes(server)
    documents = fuzz.counts
    by_class = documents.by_class()
    rows = [
        {
            "what": "OpenAPI document", "database": kind, "requests": documents.requests,
            "2xx": by_class.get("2xx", 0), "4xx": by_class.get("4xx", 0), "5xx": by_class.get("5xx", 0),
            "crashes": crashes, "found": len(documents.found), "slowest, s": round(documents.slowest, 2),
            "seconds": round(asked_s),
        },
        *(
            {
                "what": name, "database": kind, "requests": sum(counted.values()),
                "2xx": _of(counted, 2), "4xx": _of(counted, 4), "5xx": _of(counted, 5), "crashes": 0,
                "found": sum(1 for one in bodies.counts.found if one.startswith(f"{name},")),
                "slowest, s": round(bodies.counts.slowest, 2), "seconds": round(sent_s),
            }
            for name, counted in sorted(bodies.counts.statuses.items())
        ),
    ]  # fmt: skip
    reached, every = len(documents.reached), len(documents.statuses)
    print(f"{kind}: {reached} of {every} operations answered 2xx, {documents.linked} requests through links")
    found = [f"{kind}: {one}" for one in (*documents.found, *bodies.counts.found)]
    if crashes:
        found.append(f"{kind}: the service ended:\n{server.log.read_text()[-2000:]}")
    return {"rows": rows, "found": found}


def _of(counted: Counter[int], digit: int) -> int:
    return sum(n for status, n in counted.items() if status // 100 == digit)


def _crashes(server: Any) -> int:
    """1 when the service's process is gone or answers no more."""
    if server.process.poll() is not None:
        return 1
    return 0 if server.http.get("/healthz").status_code == 200 else 1


def _states(n: int, seed: int) -> dict[str, Any]:
    """Mutated states of every learner, loaded in a process of its own with bounds checks."""
    environment = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(ROOT / "var" / "cache" / "numba-boundscheck"),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
    }
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzzing.states", str(n), str(seed)],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    counted = Counter(line.split()[0] for line in lines)
    found = [line.removeprefix("FOUND ") for line in lines if line.startswith("FOUND")]
    crashed = int(done.returncode != 0)
    if crashed:
        found.append(f"loading states ended with {done.returncode}: {done.stderr[-1500:]}")
    return {
        "row": {
            "what": "learner states", "database": "-",
            "requests": counted["refused"] + counted["harmless"] + counted["FOUND"],
            "2xx": counted["harmless"], "4xx": counted["refused"], "5xx": 0, "crashes": crashed,
            "found": len(found), "slowest, s": 0.0, "seconds": round(time.monotonic() - started),
        },
        "found": found,
    }  # fmt: skip
