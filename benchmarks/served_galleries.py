"""A served gallery beside that of an earlier commit: exact searches, upserts, searches meanwhile, memory.

``--against`` names the commit. Two services, one of today's code and one of that commit's, take turns on the same data
over HTTP: 200,000 vectors of 64 numbers (full: 1,000,000), searched by a metric and by a forest of 20 trees. CPU is the
server's; memory is what the gallery adds to its resident set, over the bytes of the vectors.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks._served import JSON, Served, environment_of, people, request_of, running_server
from benchmarks.common import ROOT, Claim, Preset, Result, earlier_commit, ratio

WIDTH, EACH = 64, 10
MOST = 1.05
LEARNERS: dict[str, dict[str, Any]] = {
    "metric": {"learner": "metric"},
    "forest": {"learner": "similarity-forest", "params": {"n_estimators": 20, "random_state": 0}},
}
_BATCH, _SEARCHES, _CONNECTED_S = 1_000, 20, 600.0


class ServedGallery:
    """A service of one commit, and what is asked of it."""

    def __init__(self, service: Served) -> None:
        self._service = service
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=_CONNECTED_S)

    def train(self, X: np.ndarray, y: np.ndarray) -> None:
        """Train both models on the rows, by the ordinary queue."""
        stream = io.BytesIO()
        np.savez(stream, X=X, y=y)
        self._ask(
            "POST", "/datasets", files={"file": ("points.npz", stream.getvalue())}, data={"name": "points"}
        )
        for model, job in LEARNERS.items():
            fields = {"dataset": "points", "model": model, "promote": True, **job}
            started = self._ask("POST", "/jobs", json=fields)
            while started["state"] in ("queued", "running"):
                time.sleep(0.2)
                started = self._ask("GET", f"/jobs/{started['id']}")
            if started["state"] != "succeeded":
                raise RuntimeError(f"training {model} ended as {started['state']}: {started['error']}")

    def enroll(self, gallery: str, rows: np.ndarray, first_id: int = 0) -> float:
        """Upsert rows in batches; CPU seconds an item."""
        before = self._service.cpu()
        for start in range(0, len(rows), 50 * _BATCH):
            vectors = rows[start : start + 50 * _BATCH]
            ids = np.arange(first_id + start, first_id + start + len(vectors)).astype(str)
            self.upsert(gallery, vectors, ids)
        return (self._service.cpu() - before) / len(rows)

    def upsert(self, gallery: str, vectors: np.ndarray, ids: np.ndarray) -> None:
        """One bulk request."""
        stream = io.BytesIO()
        np.savez(stream, ids=ids, vectors=vectors)
        headers = {"Content-Type": "application/x-npz"}
        self._ask("PUT", f"/galleries/{gallery}/items", content=stream.getvalue(), headers=headers)

    def make(self, gallery: str) -> None:
        """An empty gallery of the model of that name."""
        self._ask("PUT", f"/galleries/{gallery}", json={"model": gallery})

    def search_cpu(self, gallery: str, query: np.ndarray) -> float:
        """CPU seconds of a search for one vector."""
        body = json.dumps({"queries": query.tolist(), "k": 10}).encode()
        request = request_of(f"/galleries/{gallery}/search", body, JSON)
        return self._service.cpu_of(request, _SEARCHES, 1)

    def found(self, gallery: str, query: np.ndarray) -> list[str]:
        """Ids of the ten nearest."""
        answer = self._ask("POST", f"/galleries/{gallery}/search", json={"queries": query.tolist(), "k": 10})
        return [match["id"] for match in answer["results"][0]]

    def wait_while_upserting(self, gallery: str, query: np.ndarray, rows: np.ndarray) -> float:
        """Median seconds of a search while another client upserts batches."""
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                self.upsert(gallery, rows[:_BATCH], np.arange(_BATCH).astype(str))

        writer = threading.Thread(target=write)
        writer.start()
        waits = []
        for _ in range(2 * _SEARCHES):
            started = time.perf_counter()
            self.found(gallery, query)
            waits.append(time.perf_counter() - started)
        stop.set()
        writer.join()
        return statistics.median(waits)

    def resident(self) -> int:
        """Bytes of the server's memory."""
        lines = Path(f"/proc/{self._service.process.pid}/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def _ask(self, method: str, path: str, **sent: Any) -> Any:
        answer = self._client.request(method, path, **sent)
        if answer.is_error:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        return answer.json()


def run(preset: Preset) -> Result:
    """Enroll, then measure in turns."""
    commit, earlier = earlier_commit()
    n, rounds = (200_000, 5) if preset == "quick" else (1_000_000, 9)
    rows, _ = people(n // EACH, EACH, WIDTH)
    X, y = people(300, 8, WIDTH)
    measured: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        sides = {}
        for side, code in {"here": ROOT, commit: earlier}.items():
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="pairmark-bench-"))
            environment = {**environment_of(home), "PYTHONPATH": str(code)}
            serve = [sys.executable, "-m", "pairmark.service.cli", "serve", "--with-worker", "--port"]
            sides[side] = ServedGallery(
                stack.enter_context(running_server(serve, environment, "/readyz", code))
            )
            sides[side].train(X, y)

        def in_turns(what: str, measure: Callable[[ServedGallery], float], times: int = rounds) -> None:
            for turn in range(times):
                for side in sides if turn % 2 else reversed(sides):
                    measured[what][side].append(measure(sides[side]))

        for gallery in LEARNERS:
            for service in sides.values():
                service.make(gallery)
                service.enroll(gallery, rows[: 20 * _BATCH])
                service.found(gallery, rows[0])
            empty = {side: service.resident() for side, service in sides.items()}
            in_turns(
                f"{gallery}: CPU an item enrolled",
                lambda service, gallery=gallery: service.enroll(gallery, rows[20 * _BATCH :], 20 * _BATCH),
                1,
            )
            for side, service in sides.items():
                memory = (service.resident() - empty[side]) / rows[20 * _BATCH :].nbytes
                measured[f"{gallery}: memory over raw vectors"][side].append(memory)
            in_turns(
                f"{gallery}: CPU of a search of {n:,}",
                lambda service, gallery=gallery: service.search_cpu(gallery, rows[1]),
            )
            in_turns(
                f"{gallery}: CPU an item upserted again",
                lambda service, gallery=gallery: service.enroll(gallery, rows[: 10 * _BATCH]),
            )
            in_turns(
                f"{gallery}: median of a search while upserting, s",
                lambda service, gallery=gallery: service.wait_while_upserting(gallery, rows[1], rows),
                3,
            )
    table, claims = [], []
    for what, sides_of in measured.items():
        over = ratio(sides_of["here"], sides_of[commit])
        here, before = (statistics.median(sides_of[side]) for side in ("here", commit))
        table.append({"what": what, "here": here, commit: before, "ratio": round(over, 3)})
        claims.append(
            Claim(what=f"{what}: over {commit}", goal=f"at most {MOST}", measured=over, holds=over <= MOST)
        )
    return Result(rows=table, claims=claims, facts={"load_average": os.getloadavg()[0]})
