"""Servers to measure: models trained for them, their start and end, and a client of raw sockets.

The client spends as little as it can, and what is measured is the server's own CPU, summed over its threads. Linux only
(it reads /proc).
"""

import io
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ROOT

RAW = {"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"}
JSON = {"Content-Type": "application/json"}


def environment_of(folder: str) -> dict[str, str]:
    """Environment variables of a service whose home is the folder."""
    environment = {**os.environ, "PAIRMARK_HOME": folder, "PYTHONPATH": str(ROOT)}
    # Without the second, each start would compile this checkout's Python anew.
    for name in ("PAIRMARK_DATABASE_URL", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    return environment


def people(n: int, each: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of people, (n * each, width), and whose they are: as far apart as a person's own rows."""
    random = np.random.default_rng(1)
    y = np.repeat(np.arange(n), each)
    X = random.standard_normal((n, width))[y] + random.standard_normal((y.size, width))
    return X.astype(np.float32), y


def trained(
    environment: Mapping[str, str],
    jobs: Sequence[Mapping[str, Any]],
    *,
    request: Mapping[str, Any] | None = None,
    **arrays: np.ndarray,
) -> None:
    """Train models on a dataset ``points`` of the arrays, through the ordinary queue.

    Parameters
    ----------
    jobs : fields of the job requests.
    request : more fields of the dataset's.
    """
    from starlette.datastructures import UploadFile

    from pairmark.schemas.datasets import DatasetRequest
    from pairmark.schemas.jobs import JobRequest
    from pairmark.service.blobs import open_blobs
    from pairmark.service.datasets.ingest import Datasets
    from pairmark.service.db import open_database
    from pairmark.service.settings import Settings
    from pairmark.service.training.validation import TrainingQueue
    from pairmark.service.worker import Worker

    stream = io.BytesIO()
    np.savez(stream, **arrays)
    stream.seek(0)
    settings = Settings(home=Path(environment["PAIRMARK_HOME"]))
    database = open_database(settings)
    database.upgrade()
    Datasets(database, open_blobs(settings), settings).add(
        UploadFile(stream, filename="points.npz"),
        DatasetRequest.model_validate({"name": "points", **(request or {})}),
    )
    queue = TrainingQueue(database, settings)
    for job in jobs:
        queue.submit(JobRequest.model_validate({"dataset": "points", **job}))
    Worker(settings).run(threading.Event(), drain=True)
    states = {job.model: job.state for job in queue.page().items}
    database.dispose()
    if set(states.values()) != {"succeeded"}:
        raise RuntimeError(f"training ended as {states}")


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
    command: list[str], environment: dict[str, str], probe: str, folder: Path = ROOT
) -> Iterator[Served]:
    """A server that answers at ``probe``, started by the command and a port, for a while."""
    process, port = start(command, environment, folder)
    try:
        wait_until_ready(port, probe, process)
        yield Served(process, port)
    finally:
        stop(process)


def start(
    command: list[str], environment: dict[str, str], folder: Path = ROOT
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server at a free port, and return both."""
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


def wait_until_ready(port: int, path: str, process: subprocess.Popen[bytes]) -> None:
    """Ask until the server answers with 200."""
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


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server, and wait until it has."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
