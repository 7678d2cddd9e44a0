"""Faults around a running service: its worker killed, its database frozen."""

from __future__ import annotations

import os
import signal
import sys
import time

import psutil
import psycopg
import pytest
from sqlalchemy import make_url


def until(condition, what, patience_s=60.0):
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)
    return found


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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.nightly
def test_a_frozen_database_makes_the_service_not_ready_within_two_seconds(digits_deployment):
    server = digits_deployment
    assert server.http.get("/readyz").status_code == 200
    frozen = backends(server.environment["PAIRMARK_DATABASE_URL"])
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(3):
            asked = time.monotonic()
            answer = server.http.get("/readyz")
            assert time.monotonic() - asked < 2.0
            assert answer.status_code == 503
            assert answer.json()["type"] == "/problems/not-ready"
            assert "has not answered within" in answer.json()["detail"]
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    until(lambda: server.http.get("/readyz").status_code == 200, "the service is ready again")


def backends(url):
    """Process ids of the server's side of every connection to a database, as they are on this machine."""
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        statement = (
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return [row[0] for row in connection.execute(statement).fetchall()]
