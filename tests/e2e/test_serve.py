"""``pairmark serve`` as a process: where it listens, how it ends, what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving import PAIRMARK, PATIENCE_S, ROOT, children_of, ended, free_port, until


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Settings of an embedded deployment under the test's folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PAIRMARK_")}
    return {**kept, "PAIRMARK_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}


def command(*words: str) -> list[str]:
    return [*PAIRMARK, *words]


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator:
    """Start ``pairmark serve`` and wait until it says where it answers."""
    running: list[subprocess.Popen[bytes]] = []

    def run(*words: str) -> subprocess.Popen[bytes]:
        reads, writes = os.pipe()
        with (tmp_path / "log").open("w") as log, open(writes, "wb") as said:
            process: Any = subprocess.Popen(
                command("serve", *words), cwd=ROOT, env=environment, stdout=said, stderr=log
            )
        process.stdout = open(reads)  # noqa: SIM115
        running.append(process)
        return process

    yield run
    for process in running:
        with process:
            process.kill()


def test_detached_it_returns_once_ready_and_goes_on(environment: dict[str, str], tmp_path: Path) -> None:
    words = command("serve", "--detach", "--json", "--port")
    started = subprocess.run(
        [*words, "0"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert started.returncode == 0, started.stderr
    facts = json.loads(started.stdout)
    try:
        assert httpx.get(f"{facts['url']}/readyz", timeout=PATIENCE_S).status_code == 200
        assert facts["url"] in Path(facts["log"]).read_text()
        assert Path(facts["log"]).parent == tmp_path
        again = subprocess.run(
            [*words, facts["url"].rpartition(":")[2]],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert again.returncode == 1
        assert "is taken: stop what listens there" in again.stderr
    finally:
        os.kill(facts["pid"], signal.SIGTERM)
    until(lambda: ended(facts["pid"]), "it ends")


def test_it_refuses_to_listen_beyond_loopback_without_a_key(environment: dict[str, str]) -> None:
    for host in ("0.0.0.0", "::"):
        refused = subprocess.run(
            command("serve", "--host", host, "--port", "0"), env=environment, capture_output=True, text=True
        )
        assert refused.returncode == 1
        assert "pairmark keys create" in refused.stderr


def test_beyond_loopback_every_request_needs_the_key(environment: dict[str, str], start) -> None:
    made = subprocess.run(
        command("keys", "create", "--scope", "admin", "--json"),
        env=environment,
        capture_output=True,
        text=True,
    )
    key = json.loads(made.stdout)["key"]
    port = free_port()
    process = start("--host", "0.0.0.0", "--port", str(port))
    assert f":{port}" in process.stdout.readline()
    url = f"http://127.0.0.1:{port}"
    assert httpx.get(f"{url}/models", timeout=PATIENCE_S).status_code == 401
    assert httpx.get(f"{url}/models", headers={"X-API-Key": key}, timeout=PATIENCE_S).status_code == 200
    assert httpx.get(f"{url}/healthz", timeout=PATIENCE_S).status_code == 200
    until_ready = time.monotonic() + PATIENCE_S
    while httpx.get(f"{url}/readyz", timeout=PATIENCE_S).status_code != 200:
        assert time.monotonic() < until_ready
        time.sleep(0.5)


def test_a_taken_port_is_said_plainly(environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words in (
            ["-m", "pairmark.service.cli", "serve", "--port", port],
            ["-m", "pairmark.service.demo", "--port", port],
        ):
            refused = subprocess.run(
                [sys.executable, *words], env=environment, capture_output=True, text=True
            )
            assert refused.returncode == 1
            assert f"port {port}" in refused.stderr
            assert "--port" in refused.stderr
            assert "Traceback" not in refused.stderr


def test_a_killed_service_takes_its_worker_along(start) -> None:
    process = start("--port", "0", "--with-worker")
    process.stdout.readline()
    beside = children_of(process.pid)
    process.kill()
    process.wait()
    until(lambda: all(map(ended, beside)), "its worker ends")


@pytest.mark.nightly
def test_several_processes_answer_one_port_and_add_up_their_metrics(start) -> None:
    port = free_port()
    process = start("--port", str(port), "--workers", "2")
    process.stdout.readline()
    for _ in range(20):
        assert httpx.get(f"http://127.0.0.1:{port}/learners", timeout=PATIENCE_S).status_code == 200
    metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S).text
    counted = [
        line
        for line in metrics.splitlines()
        if line.startswith("pairmark_requests") and '"/learners"' in line
    ]
    assert sum(float(line.rpartition(" ")[2]) for line in counted if "_total" in line) == 20
    pids = children_of(process.pid)
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    until(lambda: all(map(ended, pids)), "its processes end")
