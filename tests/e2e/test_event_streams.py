"""Many idle event streams keep nobody else from being served."""

from __future__ import annotations

import socket
import statistics
import time
from contextlib import ExitStack

import psutil

from pairmark.service.api.jobs import MAX_STREAMS
from tests.service.conftest import people

PATIENCE_S = 60.0
WATCHED_S = 3.0


def opened(stack: ExitStack, server, job: str) -> bytes:
    """Open a stream that stays open; returns what it began with."""
    stream = stack.enter_context(socket.create_connection(("127.0.0.1", server.http.base_url.port)))
    stream.settimeout(PATIENCE_S)
    stream.sendall(f"GET /jobs/{job}/events HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    said = b""
    while b"retry: 1000" not in said and b"/problems/" not in said:
        piece = stream.recv(65_536)
        assert piece, said
        said += piece
    return said


def median_ms(server, n: int = 40) -> float:
    """Milliseconds of a request that asks the database."""
    took = []
    for _ in range(n):
        asked = time.perf_counter()
        assert server.http.get("/datasets").status_code == 200
        took.append(1e3 * (time.perf_counter() - asked))
    return statistics.median(took)


def test_two_hundred_idle_streams_keep_nobody_waiting_and_cost_next_to_nothing(serve):
    server = serve()
    server.upload("people", *people(40, 5))
    # Nobody takes the job, so its streams stay idle.
    asked = {"learner": "metric", "dataset": "people", "model": "people"}
    job = server.http.post("/jobs", json=asked).json()["id"]
    alone = median_ms(server)
    with ExitStack() as stack:
        for _ in range(MAX_STREAMS):
            assert b"200 OK" in opened(stack, server, job)
        refused = opened(stack, server, job)
        assert b"429" in refused
        assert f"{MAX_STREAMS} event streams are open already".encode() in refused
        process = psutil.Process(server.process.pid)
        used = sum(process.cpu_times()[:2])
        time.sleep(WATCHED_S)
        share = (sum(process.cpu_times()[:2]) - used) / WATCHED_S
        # They had cost .3 of a core, each asking the database for itself.
        assert share < 0.15, f"idle streams cost {share:.2f} of a core"
        beside = median_ms(server)
        assert beside < 3 * alone + 5, f"{beside:.1f} ms beside the streams, {alone:.1f} ms alone"
        # News reaches all of them.
        assert server.http.post(f"/jobs/{job}/cancel").status_code == 200
        began = time.monotonic()
        while len(psutil.Process(server.process.pid).net_connections("tcp")) > 20:
            assert time.monotonic() - began < PATIENCE_S, "the streams did not end with their job"
            time.sleep(0.1)
