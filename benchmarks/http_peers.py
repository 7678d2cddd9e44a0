"""One pair of 128 numbers over HTTP: server CPU beside plain FastAPI with numpy, and beside an MLServer runtime.

All three answer the cosine of one pair sent as JSON, over 8 kept-alive connections, every one with a request on the
way. The client is raw sockets; what counts is the CPU of every thread of the server. Ours is `pairmark serve` with a
model of the learner ``metric``, statistics and live check included; FastAPI is one route with a pydantic body on
uvicorn, uvloop and httptools without an access log, as ``async def`` and as the ``def`` that its docs advise for
blocking work; MLServer runs a custom runtime in its own process (``parallel_workers`` 0), without an
access log.

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
from pathlib import Path

import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel

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
GOAL = 0.45

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

plain = FastAPI()


class Pair(BaseModel):
    """Body of the plain route."""

    left: list[float]
    right: list[float]


@plain.post("/similarity")
async def similarity(pair: Pair) -> dict[str, list[float]]:
    """The cosine."""
    left, right = np.array(pair.left, dtype=np.float32), np.array(pair.right, dtype=np.float32)
    return {"scores": [float(left @ right / np.sqrt((left @ left) * (right @ right)))]}


@plain.post("/similarity-def")
def similarity_def(pair: Pair) -> dict[str, list[float]]:
    """The cosine, by a plain function, which FastAPI runs in a thread."""
    left, right = np.array(pair.left, dtype=np.float32), np.array(pair.right, dtype=np.float32)
    return {"scores": [float(left @ right / np.sqrt((left @ left) * (right @ right)))]}


@plain.get("/")
async def ready() -> str:
    """Whether it answers."""
    return "ready"


class _Wires:
    """Connections to a server, each with one request on the way."""

    def __init__(self, served: Served, port: int) -> None:
        self._served = served
        self._wires = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
        for wire in self._wires:
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def cpu_of(self, request: bytes, times: int) -> float:
        """CPU seconds of the server a request."""
        before = self._served.cpu()
        for _ in range(times // CONNECTIONS):
            for wire in self._wires:
                wire.sendall(request)
            for wire in self._wires:
                read_answer(wire)
        return (self._served.cpu() - before) / (times // CONNECTIONS * CONNECTIONS)


def run(preset: Preset) -> Result:
    """Servers in turns: quick 9 rounds of 1,600 requests, full 25 of 4,000."""
    rounds, times = (9, 1_600) if preset == "quick" else (25, 4_000)
    left, right = np.random.default_rng(0).standard_normal((2, DIMENSION)).astype(np.float32)
    pair = {"left": left.tolist(), "right": right.tolist()}
    inputs = [
        {"name": name, "shape": [DIMENSION], "datatype": "FP32", "data": values}
        for name, values in pair.items()
    ]
    requests = {
        OURS: request_of("/similarity", json.dumps(pair).encode(), JSON),
        FASTAPI: request_of("/similarity", json.dumps(pair).encode(), JSON),
        FASTAPI_DEF: request_of("/similarity-def", json.dumps(pair).encode(), JSON),
        MLSERVER: request_of("/v2/models/cosine/infer", json.dumps({"inputs": inputs}).encode(), JSON),
    }
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as place:
        folder = Path(place)
        environment = environment_of(place)
        X, y = people(60, 10, DIMENSION)
        trained(environment, [{"learner": "metric", "model": "cosine"}], X=X, y=y)
        spent = _measured(folder, environment, requests, rounds, times)
    rows, claims = [], []
    for name, seconds in spent.items():
        share = ratio(spent[OURS], seconds)
        rows.append(
            {"server": name, "CPU us a request": 1e6 * statistics.median(seconds), "ours over it": share}
        )
        if name != OURS:
            claims.append(
                Claim(
                    what=f"one pair of {DIMENSION} numbers: server CPU over that of {name}",
                    goal=f"at most {GOAL}",
                    measured=share,
                    holds=share <= GOAL,
                )
            )
    return Result(rows=rows, claims=claims, facts={"connections": CONNECTIONS, "requests": rounds * times})


def _measured(
    folder: Path, environment: dict[str, str], requests: dict[str, bytes], rounds: int, times: int
) -> dict[str, list[float]]:
    serve = [sys.executable, "-m", "pairmark.service.cli", "serve", "--port"]
    bare = [
        sys.executable, "-m", "uvicorn", "benchmarks.http_peers:plain", "--no-access-log", "--loop", "uvloop",
        "--http", "httptools", "--log-level", "warning", "--port",
    ]  # fmt: skip
    with (
        running_server(serve, environment, "/readyz") as ours,
        running_server(bare, environment, "/") as fastapi,
    ):
        served = {OURS: ours, FASTAPI: fastapi, FASTAPI_DEF: fastapi}
        python = os.environ.get("PAIRMARK_MLSERVER")
        if python is None:
            return _in_turns(served, requests, rounds, times)
        start = _mlserver_folder(folder / "mlserver")
        plain_environment = {key: value for key, value in environment.items() if key != "PYTHONPATH"}
        with running_server(
            [python, str(start)], plain_environment, "/v2/health/ready", start.parent
        ) as mlserver:
            return _in_turns({**served, MLSERVER: mlserver}, requests, rounds, times)


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
    wires = {name: _Wires(server, server.port) for name, server in served.items()}
    for name, wire in wires.items():
        wire.cpu_of(requests[name], times // 4)
    spent: dict[str, list[float]] = {name: [] for name in wires}
    for turn in range(rounds):
        for name in list(wires) if turn % 2 == 0 else list(reversed(wires)):
            spent[name].append(wires[name].cpu_of(requests[name], times))
    return spent
