"""Faults around a running service: its worker killed, its database frozen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url


def until(condition, what, patience_s=60.0):
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)
    return found


def children_of(pid):
    """Process ids of the children of a process, with their states."""
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in listed.splitlines()]
    return {int(child): state for child, parent, state in rows if int(parent) == pid}


def test_a_killed_worker_is_started_again_and_leaves_no_zombie(serve):
    server = serve("--with-worker", PAIRMARK_LEASE_S="2")

    def workers():
        return server.http.get("/readyz").json()["workers"]

    until(workers, "a worker is alive")
    (first,) = children_of(server.process.pid)
    os.kill(first, signal.SIGKILL)
    (second,) = until(
        lambda: [pid for pid in children_of(server.process.pid) if pid != first], "another worker runs"
    )
    assert first not in children_of(server.process.pid)
    until(workers, "the new worker is alive")
    server.process.terminate()
    server.process.wait(20)
    until(lambda: not Path(f"/proc/{second}").exists(), "the worker ends with the service")


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
