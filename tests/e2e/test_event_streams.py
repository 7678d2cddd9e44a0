"""Many idle event streams keep nobody else from being served."""

from __future__ import annotations

import socket
import statistics
import time
from contextlib import ExitStack

import psutil
import pytest

from pairmark.service.api.jobs import MAX_STREAMS
from tests.service.conftest import people

PATIENCE_S = 60.0
WATCHED_S = 3.0


class Stream:
    """An event stream of a job, read by hand."""

    def __init__(self, stack: ExitStack, server, job: str) -> None:
        self._socket = stack.enter_context(socket.create_connection(("127.0.0.1", server.http.base_url.port)))
        self._socket.settimeout(PATIENCE_S)
        self._socket.sendall(f"GET /jobs/{job}/events HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        self.said = b""

    def read_to(self, mark: bytes) -> bytes:
        """Everything up to a mark, once it has come."""
        while mark not in self.said:
            piece = self._socket.recv(65_536)
            assert piece, self.said
            self.said += piece
        return self.said


def median_ms(server, n: int = 40) -> float:
    """Milliseconds of a request that asks the database."""
    took = []
    for _ in range(n):
        asked = time.perf_counter()
        assert server.http.get("/datasets").status_code == 200
        took.append(1e3 * (time.perf_counter() - asked))
    return statistics.median(took)


@pytest.mark.nightly
def test_two_hundred_idle_streams_keep_nobody_waiting_and_cost_next_to_nothing(serve):
    server = serve(process=True)
    server.upload("people", *people(40, 5))
    # Nobody takes the job, so its streams stay idle.
    asked = {"learner": "metric", "dataset": "people", "model": "people"}
    job = server.http.post("/jobs", json=asked).json()["id"]
    alone = median_ms(server)
    with ExitStack() as stack:
        streams = [Stream(stack, server, job) for _ in range(MAX_STREAMS)]
        for stream in streams:
            assert b"200 OK" in stream.read_to(b"retry: 1000")
        refused = Stream(stack, server, job).read_to(b"/problems/")
        assert b"429" in refused
        process = psutil.Process(server.process.pid)
        used = sum(process.cpu_times()[:2])
        time.sleep(WATCHED_S)
        share = (sum(process.cpu_times()[:2]) - used) / WATCHED_S
        # They had cost .3 of a core, each asking the database for itself.
        assert share < 0.15, f"idle streams cost {share:.2f} of a core"
        beside = median_ms(server)
        assert beside < 3 * alone + 5, f"{beside:.1f} ms beside the streams, {alone:.1f} ms alone"
        # News reaches all of them.
        assert server.http.post(f"/jobs/{job}/cancel").status_code == 202
        cancelled = time.perf_counter()
        for stream in streams:
            stream.read_to(b"event: done")
        assert time.perf_counter() - cancelled < 5
