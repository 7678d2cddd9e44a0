"""Requests without an end beside their bodies: trailers, chunk extensions, heads, frames of chunks, pipelines."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.serving import RunningServer, serving

MIB = 1024 * 1024
HOST = b"Host: 127.0.0.1\r\n"
CHUNKED = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
REFUSED = b"POST /similarity HTTP/1.1\r\n" + HOST + CHUNKED
"""Answered 401 before its body is read."""
READ = b"POST /login HTTP/1.1\r\n" + HOST + CHUNKED
"""Its body is read without a key."""
GET = b"GET /healthz HTTP/1.1\r\n" + HOST
LONG = b"POST /login HTTP/1.1\r\n" + HOST + b"Content-Length: 100000\r\n\r\n" + b" " * 100_000
"""Its body comes in one piece, as its length is declared."""
FIELDS = b"ab: cd\r\n" * 8_000

ENDLESS = {
    "trailers after a refusal": (REFUSED + b"2\r\n{}\r\n0\r\n", FIELDS),
    "trailers": (READ + b"2\r\n{}\r\n0\r\n", FIELDS),
    "one trailer after a refusal": (REFUSED + b"2\r\n{}\r\n0\r\na: ", b"x" * 65_536),
    "one trailer": (READ + b"2\r\n{}\r\n0\r\na: ", b"x" * 65_536),
    "one chunk extension": (READ + b"2;", b"x" * 65_536),
    "chunk extensions": (READ, (b"20;" + b"x" * 1_000 + b"\r\n" + b" " * 32 + b"\r\n") * 60),
    "a chunk size": (READ, b"0" * 65_536),
    "tiny chunks": (READ, b"1\r\n \r\n" * 10_000),
    "header fields": (GET, FIELDS),
    "header fields behind a long body": (LONG + GET, FIELDS),
    "one header field": (GET + b"a: ", b"x" * 65_536),
    "lines of a header field": (GET + b"a: b\r\n", b" folded\r\n" * 7_000),
    "a request line": (b"GET /", b"x" * 65_536),
    "a method": (b"", b"A" * 65_536),
    "empty lines": (b"", b"\r\n" * 32_768),
    "requests": (b"", (GET + b"\r\n") * 1_500),
}


@pytest.fixture(scope="module")
def locked(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with a key, which none of the callers here has."""
    with serving(tmp_path_factory.mktemp("locked"), new_database("sqlite"), process=True) as server:
        assert server.cli("keys", "create", "--scope", "admin").returncode == 0
        yield server


def connect(server: RunningServer) -> socket.socket:
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname, address.port), timeout=15)


def heard(wire: socket.socket) -> bytes:
    """Everything until the server closes its side."""
    reported = b""
    with contextlib.suppress(ConnectionError):
        while piece := wire.recv(65536):
            reported += piece
    return reported


def send_endlessly(server: RunningServer, begin: bytes, piece: bytes, total: int) -> int:
    """Send so many bytes, over a new connection whenever one is closed; returns how many connections that took."""
    sent = count = 0
    while sent < total:
        count += 1
        with connect(server) as wire:
            reading = threading.Thread(target=heard, args=(wire,))
            reading.start()
            with contextlib.suppress(OSError):
                wire.sendall(begin)
                while sent < total:
                    wire.sendall(piece)
                    sent += len(piece)
            with contextlib.suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)
            reading.join()
    return count


def memory(server: RunningServer, name: str) -> float:
    """MiB of the server's memory in ``/proc``: ``VmRSS`` now, ``VmHWM`` at most since the last reset."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith(name)]
    return int(line.split()[1]) / 1024


@contextlib.contextmanager
def healthy(server: RunningServer, *, grown: float, seconds: float) -> Iterator[None]:
    """Fails when the server's memory grows by so many MiB in the block, or an answer of /healthz takes as long."""
    over = threading.Event()
    waits: list[float] = []

    def look() -> None:
        with httpx.Client(timeout=60, trust_env=False) as http:
            while not over.is_set():
                started = time.perf_counter()
                assert http.get(f"{server.url}/healthz").status_code == 200
                waits.append(time.perf_counter() - started)
                time.sleep(0.005)

    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
    before = memory(server, "VmRSS")
    looking = threading.Thread(target=look)
    looking.start()
    time.sleep(0.1)
    try:
        yield
    finally:
        over.set()
        looking.join()
    assert memory(server, "VmHWM") - before < grown
    assert waits
    assert max(waits) < seconds


@pytest.mark.parametrize("what", ENDLESS)
def test_what_never_ends_costs_no_memory_and_holds_nobody(locked: RunningServer, what: str) -> None:
    begin, piece = ENDLESS[what]
    with healthy(locked, grown=24, seconds=1.0):
        assert send_endlessly(locked, begin, piece, 96 * MIB) > 4, "a connection goes on and on"


@pytest.mark.parametrize(
    ("what", "status"),
    [
        ("trailers", 431),
        ("one trailer", 431),
        ("one chunk extension", 431),
        ("chunk extensions", 431),
        ("a chunk size", 431),
        ("tiny chunks", 431),
        ("header fields", 431),
        ("one header field", 431),
        ("a request line", 431),
        ("empty lines", 431),
        ("lines of a header field", 400),
        ("a method", 400),
    ],
)
def test_what_never_ends_is_refused_in_words(locked: RunningServer, what: str, status: int) -> None:
    begin, piece = ENDLESS[what]
    with connect(locked) as wire:
        wire.sendall(begin + piece * 3)
        answer = heard(wire)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"connection: close" in answer
    if status == 431:
        assert b"65536 bytes" in answer or b"256 header fields" in answer


def test_header_fields_are_counted(locked: RunningServer) -> None:
    for count, status in ((250, 200), (257, 431)):
        with connect(locked) as wire:
            wire.sendall(GET + b"Connection: close\r\n" + b"A: b\r\n" * (count - 2) + b"\r\n")
            assert heard(wire).startswith(b"HTTP/1.1 %d " % status), count
