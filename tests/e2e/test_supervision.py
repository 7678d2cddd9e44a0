"""Faults around a running service: its worker killed, its database frozen."""

from __future__ import annotations

import psutil

from tests.serving import until


def test_a_killed_worker_is_started_again_and_leaves_no_zombie(serve):
    server = serve("--with-worker", PAIRMARK_LEASE_S="2")

    def workers():
        return server.http.get("/readyz").json()["workers"]

    until(workers, "a worker is alive")
    service = psutil.Process(server.process.pid)
    (first,) = service.children()
    first.kill()
    (second,) = until(
        lambda: [child for child in service.children() if child != first], "another worker runs"
    )
    assert first not in service.children()
    until(workers, "the new worker is alive")
    server.process.terminate()
    assert server.process.wait(20) == 0
    until(lambda: not second.is_running(), "the worker ends with the service")
