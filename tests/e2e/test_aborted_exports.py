"""What an answer needed on disk goes when it ends, begun or not, and at the next start after a crash."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from tests.serving import RunningServer, Serve


def unfinished(server: RunningServer) -> list[Path]:
    """What is under way in storage."""
    return sorted((server.home / "artefacts" / "tmp").iterdir())


def asked(server: RunningServer, path: str) -> socket.socket:
    address = urlsplit(server.url)
    wire = socket.create_connection((address.hostname, address.port), timeout=20)
    # Little is sent ahead: the answer cannot end before it is read.
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    wire.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return wire


def await_none(server: RunningServer) -> None:
    deadline = time.monotonic() + 30
    while unfinished(server) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert unfinished(server) == []


def test_aborted_exports_leave_nothing(serve: Serve) -> None:
    server = serve()
    rng = np.random.default_rng(0)
    # More numbers than a connection takes at once.
    server.upload("d", rng.normal(size=(80, 1_000)).astype(np.float32), np.repeat(np.arange(40), 2))
    params = {"metric": "euclidean", "whiten": True}
    job = server.train(learner="metric", dataset="d", model="m", params=params)
    assert job["state"] == "succeeded", job
    path = "/models/m/versions/1/export"
    before = set(Path("/tmp").glob("pairmark-export-*"))
    for turn in range(40):
        wire = asked(server, path)
        if turn % 2:
            # Half of them leave when the answer has begun.
            assert wire.recv(16).startswith(b"HTTP/1.1 200")
        wire.close()
    assert server.http.get(path).status_code == 200
    assert server.http.get("/models/m/versions/99/export").status_code == 404
    await_none(server)
    assert set(Path("/tmp").glob("pairmark-export-*")) == before


def test_what_a_crash_left_goes_at_the_next_start(serve: Serve) -> None:
    server = serve()
    left = server.home / "artefacts" / "tmp" / "0123456789abcdef01234567"
    left.mkdir()
    (left / "half").write_bytes(b"x")
    left.with_suffix(".lock").touch()
    server.process.kill()
    server.process.wait()
    # No worker tidies up here: the service does.
    again = serve()
    await_none(again)
    actions = [one["action"] for one in again.http.get("/audit?action=recovery").json()["items"]]
    assert actions == ["recovery.storage"]
