"""What HTTP costs: the scoring route beside an endpoint that only echoes the same body.

The client is raw sockets in this process; what is measured is the server's own CPU, summed over its threads, so a
slow client changes nothing. Both servers run uvicorn with the same loop and parser. Linux only (it reads /proc).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from typing import Any

import numpy as np

from benchmarks._served import (
    JSON,
    RAW,
    environment_of,
    people,
    request_of,
    running_server,
    trained,
)
from benchmarks.common import Claim, Preset, Result, ratio

DIMENSION = 128
BULK_ANSWER = 4_000
"""Bytes of 1,000 float32 scores: an echo that sent a megabyte back would be an easier peer to beat."""


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """The floor: read a body and send it back, as far as a scoring route's answer would be long."""
    if scope["type"] != "http":
        return
    pieces = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            break
    body = b"".join(pieces)
    if len(body) > BULK_ANSWER * DIMENSION:
        body = body[:BULK_ANSWER]
    headers = [(b"content-type", b"application/octet-stream"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def run(preset: Preset) -> Result:
    """Measure, in turns, the echo and the route."""
    rounds, small, large = (9, 2_000, 60) if preset == "quick" else (25, 5_000, 200)
    random = np.random.default_rng(0)
    left, right = random.standard_normal((2, 1_000, DIMENSION)).astype(np.float32)
    one = {"left": left[0].tolist(), "right": right[0].tolist()}
    body = {name: json.dumps({"model": name, **one}).encode() for name in ("tree", "forest")}
    raw = left.tobytes() + right.tobytes()
    rows: list[dict[str, Any]] = []
    measured: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder:
        environment = environment_of(folder)
        train(environment)
        serve = [sys.executable, "-m", "pairmark.service.cli", "serve", "--port"]
        floor = [sys.executable, "-m", "uvicorn", "benchmarks.http_overhead:echo", "--no-access-log"]
        floor += [
            "--loop",
            "uvloop",
            "--http",
            "httptools",
            "--lifespan",
            "off",
            "--log-level",
            "warning",
            "--port",
        ]
        with (
            running_server(serve, environment, "/readyz") as service,
            running_server(floor, environment, "/") as echoing,
        ):
            cases = {
                "one pair as JSON, small tree": (request_of("/similarity", body["tree"], JSON), small),
                "one pair as JSON, forest of 100": (request_of("/similarity", body["forest"], JSON), small),
                "1,000 pairs as raw float32": (
                    request_of(f"/similarity?model=tree&dim={DIMENSION}", raw, RAW),
                    large,
                ),
            }
            for name, (request, requests) in cases.items():
                spent: dict[str, list[float]] = {"echo": [], "route": []}
                contestants = {"echo": echoing, "route": service}
                for contestant in contestants.values():
                    contestant.ask(request, requests // 4)
                for turn in range(rounds):
                    order = list(contestants) if turn % 2 == 0 else list(reversed(contestants))
                    for who in order:
                        before = contestants[who].cpu()
                        contestants[who].ask(request, requests)
                        spent[who].append((contestants[who].cpu() - before) / requests)
                measured[name] = ratio(spent["echo"], spent["route"])
                for who, seconds in spent.items():
                    middle = statistics.median(seconds)
                    rows.append(
                        {
                            "request": name,
                            "server": who,
                            "CPU us a request": round(1e6 * middle, 1),
                            "requests a CPU second": round(1 / middle),
                            "of the echo's rate": 1.0 if who == "echo" else round(measured[name], 3),
                        }
                    )
    single, forest, bulk = measured.values()
    return Result(
        rows=rows,
        claims=(
            Claim(
                what="one /similarity of two 128-float vectors, by a small tree",
                goal="at least 0.25 of the echo endpoint's requests per CPU second",
                measured=round(single, 3),
                holds=single >= 0.25,
            ),
            Claim(
                what="one /similarity of two 128-float vectors, by a forest of 100",
                goal="at least 0.25 of the echo endpoint's requests per CPU second",
                measured=round(forest, 3),
                holds=forest >= 0.25,
            ),
            Claim(
                what="1,000 pairs as raw float32, by one small tree: transport",
                goal="at least 0.7 of the echo endpoint's requests per CPU second",
                measured=round(bulk, 3),
                holds=bulk >= 0.7,
            ),
        ),
        facts={"load_average": os.getloadavg()[0]},
    )


def train(environment: dict[str, str]) -> None:
    """Two models of the dimension: a forest as people train it, and one small tree."""
    X, y = people(12, 40, DIMENSION)
    forest = {"n_estimators": 100, "n_pairs": 10_000}
    tree = {"max_depth": 2, "n_pairs": 10_000}
    asked = [
        {"learner": "similarity-forest", "model": "forest", "params": forest},
        {"learner": "similarity-tree", "model": "tree", "params": tree},
    ]
    trained(environment, asked, request={"classes": "y"}, X=X, y=y)
