"""Servers to measure: models trained for them, their start and end, and a client of raw sockets.

The client spends as little as it can, and what is measured is the server's own CPU, summed over its threads. Linux only
(it reads /proc).
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.common import ROOT

RAW = {"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"}
JSON = {"Content-Type": "application/json"}
SERVE = [sys.executable, "-m", "pairmark.service.cli", "serve", "--port"]


def environment_of(folder: str) -> dict[str, str]:
    """Environment variables of a service whose home is the folder."""
    environment = {**os.environ, "PAIRMARK_HOME": folder, "PYTHONPATH": str(ROOT)}
    # Without the second, each start would compile this checkout's Python anew.
    for name in ("PAIRMARK_DATABASE_URL", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    return environment


def trained(
    environment: Mapping[str, str],
    jobs: Sequence[Mapping[str, Any]],
    *,
    request: Mapping[str, Any] | None = None,
    files: Mapping[str, Path] | None = None,
    **arrays: np.ndarray,
) -> Any:
    """Train models on a dataset ``points`` of the arrays, or of files, through the ordinary queue; the settings.

    Parameters
    ----------
    jobs : fields of the job requests.
    request : more fields of the dataset's.
    files : what `Datasets.add` takes.
    """
    from pairmark.schemas.datasets import DatasetRequest
    from pairmark.schemas.jobs import JobRequest
    from pairmark.service.blobs import open_blobs
    from pairmark.service.datasets.ingest import Datasets
    from pairmark.service.db import open_database
    from pairmark.service.settings import Settings
    from pairmark.service.training.validation import TrainingQueue
    from pairmark.service.worker import Worker

    settings = Settings(home=Path(environment["PAIRMARK_HOME"]))
    if files is None:
        files = {"file": settings.home / "points.npz"}
        np.savez(files["file"], **arrays)
    with open_database(settings) as database:
        database.upgrade()
        asked = DatasetRequest.model_validate({"name": "points", **(request or {})})
        Datasets(database, open_blobs(settings), settings).add(request=asked, **files)
        queue = TrainingQueue(database, settings)
        for job in jobs:
            queue.submit(JobRequest.model_validate({"dataset": "points", **job}))
        Worker(settings).run(threading.Event(), drain=True)
        states = {job.model: job.state for job in queue.page().items}
    if set(states.values()) != {"succeeded"}:
        raise RuntimeError(f"training ended as {states}")
    return settings


def connected(port: int) -> socket.socket:
    """A connection to a server on this machine that sends at once."""
    wire = socket.create_connection(("127.0.0.1", port))
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return wire


def read_answer(wire: socket.socket) -> None:
    """Read one answer whole; raises `RuntimeError` unless it is a 200."""
    heard = _received(wire)
    while b"\r\n\r\n" not in heard:
        heard += _received(wire)
    head, _, body = heard.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"the server answered {heard[:400]!r}")
    at = head.lower().index(b"content-length:") + 15
    missing = int(head[at:].split(b"\r\n")[0]) - len(body)
    while missing > 0:
        missing -= len(_received(wire))


def _received(wire: socket.socket) -> bytes:
    received = wire.recv(1 << 20)
    if not received:
        raise RuntimeError("the server closed the connection before its answer was whole")
    return received


class Served:
    """A server process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port

    def cpu_of(self, request: bytes, times: int, connections: int) -> float:
        """CPU seconds a request, on connections that each have one request on the way."""
        with ExitStack() as stack:
            # New ones each time: a server closes those that idle while others have their turn.
            wires = [stack.enter_context(connected(self.port)) for _ in range(connections)]
            before = self.cpu()
            for _ in range(times // connections):
                for wire in wires:
                    wire.sendall(request)
                for wire in wires:
                    read_answer(wire)
            return (self.cpu() - before) / (times // connections * connections)

    def cpu(self) -> float:
        """Seconds of CPU that every thread of the server has used, in nanosecond steps."""
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9


def request_of(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """A POST request as bytes."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextmanager
def running_server(
    environment: dict[str, str], command: list[str] = SERVE, probe: str = "/readyz"
) -> Iterator[Served]:
    """A server, ours unless told otherwise, started by the command and a port, that answers at ``probe``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    process = subprocess.Popen(
        [*command, str(port)], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until_ready(port, probe, process)
        yield Served(process, port)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_ready(port: int, path: str, process: subprocess.Popen[bytes]) -> None:
    """Ask until the server answers with 200."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(f"http://127.0.0.1:{port}{path}", timeout=120, trust_env=False).is_success:
                return
        time.sleep(0.01)
    raise RuntimeError("the server did not become ready")
