"""What HTTP costs: the scoring route beside an endpoint that only echoes the same body, and how soon it serves.

The client is raw sockets in this process; what is measured is the server's own CPU, summed over its threads, so a
slow client changes nothing. Both servers run uvicorn with the same loop and parser. Linux only (it reads /proc).
"""

from __future__ import annotations

import io
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Claim, Preset, Result, ratio

DIMENSION = 128
BULK_ANSWER = 4_000
"""Bytes of 1,000 float32 scores: an echo that sent a megabyte back would be an easier peer to beat."""
ROOT = Path(__file__).parent.parent
RAW = {"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"}
JSON = {"Content-Type": "application/json"}


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
        environment = {**os.environ, "PAIRMARK_HOME": folder, "PYTHONPATH": str(ROOT)}
        environment.pop("PAIRMARK_DATABASE_URL", None)
        _train(environment)
        ready = [_ready_seconds(environment) for _ in range(3)]
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
        with _server(serve, environment, "/readyz") as service, _server(floor, environment, "/") as echoing:
            cases = {
                "one pair as JSON, small tree": (_request("/similarity", body["tree"], JSON), small),
                "one pair as JSON, forest of 100": (_request("/similarity", body["forest"], JSON), small),
                "1,000 pairs as raw float32": (
                    _request(f"/similarity?model=tree&dim={DIMENSION}", raw, RAW),
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
    start = statistics.median(ready)
    single, forest, bulk = measured.values()
    return Result(
        rows=rows,
        claims=(
            Claim(
                what="one /similarity of two 128-float vectors, by a small tree",
                goal="at least 0.25 of the echo's rate per server CPU",
                measured=round(single, 3),
                holds=single >= 0.25,
            ),
            Claim(
                what="one /similarity of two 128-float vectors, by a forest of 100",
                goal="at least 0.25 of the echo's rate per server CPU",
                measured=round(forest, 3),
                holds=forest >= 0.25,
            ),
            Claim(
                what="1,000 pairs as raw float32, by one small tree: transport",
                goal="at least 0.7 of the echo's rate per server CPU",
                measured=round(bulk, 3),
                holds=bulk >= 0.7,
            ),
            Claim(
                what="seconds from start to ready, kernels in the cache",
                goal="at most 3",
                measured=round(start, 2),
                holds=start <= 3,
            ),
        ),
        facts={"ready_seconds": ready, "load_average": os.getloadavg()[0]},
    )


class _Served:
    """A server process and one kept-alive connection to it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port
        self._wire = socket.create_connection(("127.0.0.1", port))
        self._wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes, times: int) -> None:
        """Send the request so often, one after another, and read each answer whole."""
        wire = self._wire
        for _ in range(times):
            wire.sendall(request)
            heard = wire.recv(1 << 20)
            while b"\r\n\r\n" not in heard:
                heard += wire.recv(1 << 20)
            head, _, body = heard.partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"the server answered {heard[:400]!r}")
            at = head.lower().index(b"content-length:") + 15
            missing = int(head[at:].split(b"\r\n")[0]) - len(body)
            while missing > 0:
                missing -= len(wire.recv(1 << 20))

    def cpu(self) -> float:
        """Seconds of CPU that every thread of the server has used, in nanosecond steps."""
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def close(self) -> None:
        """Stop the server."""
        self._wire.close()
        _stop(self.process)


def _request(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextmanager
def _server(
    command: list[str], environment: dict[str, str], probe: str, folder: Path = ROOT
) -> Iterator[_Served]:
    process, port = _start(command, environment, folder)
    try:
        _await(port, probe, process)
        served = _Served(process, port)
    except BaseException:
        _stop(process)
        raise
    try:
        yield served
    finally:
        served.close()


def _start(
    command: list[str], environment: dict[str, str], folder: Path = ROOT
) -> tuple[subprocess.Popen[bytes], int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen(
        [*command, str(port)],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return process, port


def _await(port: int, path: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=120) as wire:
                wire.sendall(request)
                if wire.recv(64).startswith(b"HTTP/1.1 200"):
                    return
        except OSError:
            pass
        time.sleep(0.01)
    raise RuntimeError("the server did not become ready")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ready_seconds(environment: dict[str, str]) -> float:
    started = time.perf_counter()
    process, port = _start([sys.executable, "-m", "pairmark.service.cli", "serve", "--port"], environment)
    try:
        _await(port, "/readyz", process)
        return time.perf_counter() - started
    finally:
        _stop(process)


def _train(environment: dict[str, str]) -> None:
    """Two models of the dimension, through the ordinary queue: a forest as people train it, and one small tree."""
    from pairmark.service.blobs import open_blobs
    from pairmark.service.datasets import Datasets
    from pairmark.service.datasets.schemas import DatasetRequest
    from pairmark.service.db import open_database
    from pairmark.service.jobs.worker import Worker
    from pairmark.service.settings import Settings
    from pairmark.service.training.schemas import JobRequest
    from pairmark.service.training.submission import TrainingQueue

    random = np.random.default_rng(1)
    y = np.repeat(np.arange(12), 40)
    X = random.standard_normal((12, DIMENSION))[y] + random.standard_normal((len(y), DIMENSION))
    stream = io.BytesIO()
    np.savez(stream, X=X.astype(np.float32), y=y)
    stream.seek(0)
    settings = Settings(home=Path(environment["PAIRMARK_HOME"]))
    database = open_database(settings)
    database.upgrade()
    Datasets(database, open_blobs(settings), settings).add(
        stream, DatasetRequest.model_validate({"name": "points"}), filename="points.npz"
    )
    queue = TrainingQueue(database, settings)
    asked = [
        ("similarity-forest", "forest", {"n_estimators": 100, "n_pairs": 10_000}),
        ("similarity-tree", "tree", {"max_depth": 2, "n_pairs": 10_000}),
    ]
    for learner, model, params in asked:
        queue.submit(JobRequest(learner=learner, dataset="points", model=model, params=params))
    Worker(settings).run(threading.Event(), drain=True)
    states = {job.model: job.state for job in queue.page().items}
    database.dispose()
    if set(states.values()) != {"succeeded"}:
        raise RuntimeError(f"training ended as {states}")
