"""``pairmark serve`` and ``make demo`` as processes: where they listen, how they end, what they leave behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from pairmark.service.api.docs import GUIDE
from tests.serving import (
    PAIRMARK,
    PATIENCE_S,
    ROOT,
    Serve,
    children_of,
    command,
    ended,
    free_port,
    until,
)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Settings of an embedded deployment under the test's folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PAIRMARK_")}
    return {**kept, "PAIRMARK_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator:
    """Start ``pairmark serve`` and wait until it says where it answers."""
    running: list[subprocess.Popen[bytes]] = []

    def run(*words: str) -> subprocess.Popen[bytes]:
        reads, writes = os.pipe()
        with (tmp_path / "log").open("w") as log, open(writes, "wb") as said:
            process: Any = subprocess.Popen(
                [*PAIRMARK, "serve", *words], cwd=ROOT, env=environment, stdout=said, stderr=log
            )
        process.stdout = open(reads)  # noqa: SIM115
        running.append(process)
        return process

    yield run
    for process in running:
        with process:
            process.kill()


def test_detached_it_returns_once_ready_and_goes_on(environment: dict[str, str], tmp_path: Path) -> None:
    words = [*PAIRMARK, "serve", "--detach", "--json", "--port", "0"]
    started = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert started.returncode == 0, started.stderr
    facts = json.loads(started.stdout)
    try:
        assert httpx.get(f"{facts['url']}/readyz", timeout=PATIENCE_S).status_code == 200
        assert facts["url"] in Path(facts["log"]).read_text()
        assert Path(facts["log"]).parent == tmp_path
        port = facts["url"].rpartition(":")[2]
        again = command("serve", "--detach", "--port", port, PAIRMARK_HOME=str(tmp_path))
        assert again.returncode == 1
        assert "is taken: stop what listens there" in again.stderr
    finally:
        os.kill(facts["pid"], signal.SIGTERM)
    until(lambda: ended(facts["pid"]), "it ends")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_it_refuses_to_listen_beyond_loopback_without_a_key(tmp_path: Path, host: str) -> None:
    refused = command("serve", "--host", host, "--port", "0", PAIRMARK_HOME=str(tmp_path))
    assert refused.returncode == 1
    assert "pairmark keys create" in refused.stderr


def test_beyond_loopback_every_request_needs_the_key(environment: dict[str, str], start) -> None:
    home = {"PAIRMARK_HOME": environment["PAIRMARK_HOME"]}
    key = json.loads(command("keys", "create", "--scope", "admin", "--json", **home).stdout)["key"]
    port = free_port()
    assert f":{port}" in start("--host", "0.0.0.0", "--port", str(port)).stdout.readline()
    url = f"http://127.0.0.1:{port}"
    assert httpx.get(f"{url}/models", timeout=PATIENCE_S).status_code == 401
    assert httpx.get(f"{url}/models", headers={"X-API-Key": key}, timeout=PATIENCE_S).status_code == 200
    assert httpx.get(f"{url}/healthz", timeout=PATIENCE_S).status_code == 200
    until(lambda: httpx.get(f"{url}/readyz", timeout=PATIENCE_S).status_code == 200, "it is ready")


def test_a_taken_port_is_said_plainly(environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for refused in (
            command("serve", "--port", port, PAIRMARK_HOME=environment["PAIRMARK_HOME"]),
            subprocess.run(
                [sys.executable, "-m", "pairmark.service.demo", "--port", port],
                env=environment,
                capture_output=True,
                text=True,
            ),
        ):
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


DEMO = "import sys; from pairmark.service import demo; demo.BUDGET_S = 5.0; sys.exit(demo.main())"
"""With a shorter race."""


def demo(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", DEMO, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=560,
    )


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_once_answers_and_stops_and_a_second_run_reuses(environment: dict[str, str], tmp_path: Path) -> None:
    port = free_port()
    first = demo(environment, "--once", "--port", str(port))
    assert first.returncode == 0, first.stderr
    assert len(re.findall(r"^curl -s ", first.stdout, re.MULTILINE)) == 3
    assert re.search(r"^similarity: \S+ for 3 and 3", first.stdout, re.MULTILINE)
    points = [
        json.loads(line.partition(": ")[2])
        for line in first.stdout.splitlines()
        if line.startswith("operating point")
    ]
    assert [point["guarantee"] for point in points] == ["finite-sample"]
    assert [point["fpr"] for point in points] == [0.01]
    assert points[0]["protocol"] == "closed-set"
    assert points[0]["fpr_upper_bound"] <= 0.01
    # The default learner, without a policy that weakens the promise; what the labels are is said.
    assert "(similarity-auto)" in first.stdout
    assert "asymptotic" not in first.stdout
    assert "uploaded as `classes`" in first.stdout
    assert re.search(r"^match at fpr=0.01: 3 and 3 are the same$", first.stdout, re.MULTILINE)
    assert re.search(r"^match at fpr=0.01: 3 and 0 are different$", first.stdout, re.MULTILINE)
    assert re.search(r"^fpr=0.0001 is refused: ", first.stdout, re.MULTILINE)
    assert f"Console: http://127.0.0.1:{port}/" in first.stdout
    # An address that is named leads somewhere.
    assert ("/guide/" in first.stdout) == GUIDE.is_dir()
    # The bodies that the lines send are in a file that curl can read.
    assert first.stdout.count(f"-d @{tmp_path / 'pair.json'}") == 2
    assert set(json.loads((tmp_path / "pair.json").read_text())) == {"model", "left", "right"}
    second = demo(environment, "--once", "--port", str(port))
    assert second.returncode == 0, second.stderr
    assert second.stdout.count("exists already") == 2
    # The same questions get the same answers from the model that was kept.
    assert second.stdout.partition("Ask it")[2] == first.stdout.partition("Ask it")[2]


@pytest.mark.nightly
def test_a_demo_that_is_stopped_has_ended_its_service(environment: dict[str, str]) -> None:
    words = [sys.executable, "-m", "pairmark.service.demo", "--port", str(free_port())]
    unbuffered = environment | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, env=unbuffered, stdout=subprocess.PIPE, text=True) as process:
        next(line for line in process.stdout if "uploaded as CSV" in line)
        beside = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        assert "stopped" in process.stdout.read()
    assert process.returncode == 0
    assert [ended(pid) for pid in beside] == [True]


PAGE = Path(__file__).parents[2] / "docs" / "rankboost.md"
ADDRESS = "http://127.0.0.1:8000"
WORDS = (
    [
        "free",
        "entry",
        "WIN",
        "won",
        "prize",
        "claim",
        "now",
        "cash",
        "urgent",
        "call",
        "mobile",
        "reply",
        "text",
    ],
    [
        "home",
        "later",
        "dinner",
        "sorry",
        "love",
        "tomorrow",
        "bus",
        "meet",
        "class",
        "mum",
        "sleep",
        "work",
        "ok",
    ],
)
COMMON = ["i", "you", "the", "a", "to", "have", "is", "it", "we", "and", "at", "for", "me", "my"]


def messages(n: int, seed: int) -> tuple[list[str], list[int]]:
    """Short messages of two kinds that share most of their words."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, n)
    made = []
    for kind in kinds:
        own = rng.choice(WORDS[kind], rng.integers(2, 6))
        made.append(" ".join(rng.permutation([*own, *rng.choice(COMMON, 5), f"w{rng.integers(500)}"])))
    return made, kinds.tolist()


@pytest.mark.nightly
def test_the_page_leads_from_raw_texts_to_a_served_similarity(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = serve(job_thread=True)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) >= 4
    texts, topics = messages(1_000, 0)
    # What a reader has before the page begins.
    names: dict[str, Any] = {"texts": texts, "topics": topics, "more_texts": messages(400, 1)[0]}
    for block in blocks:
        exec(compile(block.replace(ADDRESS, deployment.url), str(PAGE), "exec"), names)
    decided = names["decision"]
    assert isinstance(decided["matches"][0]["match"], bool), decided
    assert decided["operating_point"]["fpr"] == 0.05
    sparse = names["sparse"]
    alike = {
        "left": sparse("you have won a cash prize claim now"),
        "right": sparse("WIN free entry text now"),
    }
    unlike = {**alike, "right": sparse("sorry mum home later for dinner")}
    scores = [deployment.http.post("/similarity", json=pair).json()["scores"][0] for pair in (alike, unlike)]
    assert scores[0] > scores[1]
    # Alignment with the perfect kernel, which is 1 for rows of one topic and -1 for others.
    kernel, perfect = names["K"], np.where(names["y"][:, None] == names["y"], 1.0, -1.0)
    assert 0.1 < (kernel * perfect).sum() / (np.linalg.norm(kernel) * np.linalg.norm(perfect)) <= 1.0


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
    assert server.process.wait(60) == 0
    until(lambda: not second.is_running(), "the worker ends with the service")
