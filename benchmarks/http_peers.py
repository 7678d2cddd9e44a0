"""Pairs of 128 numbers over HTTP: server CPU beside plain services of FastAPI, Starlette, Litestar and MLServer.

All answer cosines of one pair or of 100 sent as JSON, over 8 kept-alive connections, every one with a request on the
way. The client is raw sockets; what counts is the CPU of every thread of the server. Ours is `pairmark serve` with a
model of the learner ``metric``, statistics and live check included. The plain services (`_peer_apps`) check nothing and
run on uvicorn, uvloop and httptools without an access log: FastAPI with a pydantic body, as ``async def`` and as the
``def`` that its docs advise for blocking work; Starlette with orjson; Litestar with msgspec. MLServer runs a custom
runtime in its own process (``parallel_workers`` 0), one pair a request, without an access log.

MLServer wants older versions of what it shares with us, so it has an environment of its own: name its Python in
``PAIRMARK_MLSERVER`` (``python -m venv mls && mls/bin/pip install mlserver``). Without it that peer is left out. Linux.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._served import (
    JSON,
    Served,
    environment_of,
    people,
    read_answer,
    request_of,
    running_server,
    trained,
)  # fmt: skip
from benchmarks.common import Claim, Preset, Result, ratio
from benchmarks.http_overhead import DIMENSION

CONNECTIONS = 8
OURS, MLSERVER = "pairmark", "MLServer runtime"
FASTAPI, FASTAPI_DEF = "FastAPI + numpy, async def", "FastAPI + numpy, def"
STARLETTE, LITESTAR = "Starlette + orjson + numpy", "Litestar + numpy"
GOALS = {FASTAPI: 0.4, FASTAPI_DEF: 0.45, MLSERVER: 0.45}
GOAL_OF_MANY = 0.9
"""Of the fastest peer."""

RUNTIME = """
import numpy as np
from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput


class Cosine(MLModel):
    async def load(self):
        return True

    async def predict(self, payload):
        left, right = (np.array(part.data.root, dtype=np.float32) for part in payload.inputs)
        score = float(left @ right / np.sqrt((left @ left) * (right @ right)))
        output = ResponseOutput(name="score", shape=[1], datatype="FP32", data=[score])
        return InferenceResponse(model_name=self.name, outputs=[output])
"""
START = """
import json, os, sys
from mlserver.cli import main

port = int(sys.argv[1])
settings = {"http_port": port, "grpc_port": port + 1, "metrics_port": port + 2, "parallel_workers": 0, "debug": False}
json.dump(settings, open("settings.json", "w"))
sys.argv = ["mlserver", "start", os.getcwd()]
main()
"""


def _cpu_of(served: Served, request: bytes, times: int) -> float:
    """CPU seconds of the server a request, on connections that each have one request on the way."""
    with ExitStack() as stack:
        # New ones for each turn: a server closes those that idle while the others have theirs.
        wires = [
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port)))
            for _ in range(CONNECTIONS)
        ]
        for wire in wires:
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        before = served.cpu()
        for _ in range(times // CONNECTIONS):
            for wire in wires:
                wire.sendall(request)
            for wire in wires:
                read_answer(wire)
        return (served.cpu() - before) / (times // CONNECTIONS * CONNECTIONS)


def run(preset: Preset) -> Result:
    """Servers in turns: quick 9 rounds of 1,600 requests, full 25 of 4,000; a tenth of that with 100 pairs each."""
    rounds, times = (9, 1_600) if preset == "quick" else (25, 4_000)
    left, right = np.random.default_rng(0).standard_normal((2, 100, DIMENSION)).astype(np.float32)
    one = {"left": left[0].tolist(), "right": right[0].tolist()}
    inputs = [
        {"name": name, "shape": [DIMENSION], "datatype": "FP32", "data": values}
        for name, values in one.items()
    ]
    many = {"left": left.tolist(), "right": right.tolist()}
    paths = {
        OURS: "/similarity",
        FASTAPI: "/one",
        FASTAPI_DEF: "/one-def",
        STARLETTE: "/one",
        LITESTAR: "/one",
    }
    requests = {name: request_of(path, json.dumps(one).encode(), JSON) for name, path in paths.items()}
    requests[MLSERVER] = request_of("/v2/models/cosine/infer", json.dumps({"inputs": inputs}).encode(), JSON)
    paths = {OURS: "/similarity", FASTAPI: "/many", STARLETTE: "/many", LITESTAR: "/many"}
    batches = {name: request_of(path, json.dumps(many).encode(), JSON) for name, path in paths.items()}
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as place, ExitStack() as stack:
        environment = environment_of(place)
        X, y = people(60, 10, DIMENSION)
        trained(environment, [{"learner": "metric", "model": "cosine"}], X=X, y=y)
        served = _servers(Path(place), environment, stack)
        spent = _in_turns(served, requests, rounds, times)
        spent_on_many = _in_turns(served, batches, rounds, times // 10)
    rows = _rows("one pair", spent) + _rows("100 pairs", spent_on_many)
    shares = {(row["request"], row["server"]): row["ours over it"] for row in rows}
    claims = [
        Claim(
            what=f"one pair of {DIMENSION} numbers: server CPU over that of {name}",
            goal=f"at most {goal}",
            measured=shares["one pair", name],
            holds=shares["one pair", name] <= goal,
        )
        for name, goal in GOALS.items()
        if name in served
    ]
    of_fastest = max(
        share for (request, name), share in shares.items() if request != "one pair" and name != OURS
    )
    claims.append(
        Claim(
            what=f"100 pairs of {DIMENSION} numbers: server CPU over that of the fastest peer",
            goal=f"at most {GOAL_OF_MANY}",
            measured=of_fastest,
            holds=of_fastest <= GOAL_OF_MANY,
        )
    )
    return Result(rows=rows, claims=claims, facts={"connections": CONNECTIONS, "requests": rounds * times})


def _rows(request: str, spent: dict[str, list[float]]) -> list[dict[str, Any]]:
    return [
        {
            "request": request,
            "server": name,
            "CPU us a request": 1e6 * statistics.median(seconds),
            "ours over it": ratio(spent[OURS], seconds),
        }
        for name, seconds in spent.items()
    ]


def _servers(folder: Path, environment: dict[str, str], stack: ExitStack) -> dict[str, Served]:
    def plain(name: str) -> Served:
        command = [
            sys.executable, "-m", "uvicorn", f"benchmarks._peer_apps:{name}", "--no-access-log", "--loop", "uvloop",
            "--http", "httptools", "--log-level", "warning", "--port",
        ]  # fmt: skip
        return stack.enter_context(running_server(command, environment, "/"))

    serve = [sys.executable, "-m", "pairmark.service.cli", "serve", "--port"]
    fastapi = plain("fastapi")
    served = {
        OURS: stack.enter_context(running_server(serve, environment, "/readyz")),
        FASTAPI: fastapi,
        FASTAPI_DEF: fastapi,
        STARLETTE: plain("starlette"),
        LITESTAR: plain("litestar"),
    }
    python = os.environ.get("PAIRMARK_MLSERVER")
    if python is not None:
        start = _mlserver_folder(folder / "mlserver")
        bare = {key: value for key, value in environment.items() if key != "PYTHONPATH"}
        served[MLSERVER] = stack.enter_context(
            running_server([python, str(start)], bare, "/v2/health/ready", start.parent)
        )
    return served


def _mlserver_folder(folder: Path) -> Path:
    folder.mkdir()
    (folder / "runtime.py").write_text(RUNTIME)
    model = {"name": "cosine", "implementation": "runtime.Cosine"}
    (folder / "model-settings.json").write_text(json.dumps(model))
    start = folder / "start.py"
    start.write_text(START)
    return start


def _in_turns(
    served: dict[str, Served], requests: dict[str, bytes], rounds: int, times: int
) -> dict[str, list[float]]:
    contestants = [name for name in requests if name in served]
    for name in contestants:
        _cpu_of(served[name], requests[name], times // 4)
    spent: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds):
        for name in contestants if turn % 2 == 0 else reversed(contestants):
            spent[name].append(_cpu_of(served[name], requests[name], times))
    return spent
