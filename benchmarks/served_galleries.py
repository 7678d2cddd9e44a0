"""A served gallery: enrolling, searches alone and beside upserts, upserting again, memory.

200,000 vectors of 128 numbers (full: 1,000,000), searched over HTTP by a metric and by a forest of 20 trees, one vector
at a time. CPU is the server's; memory is what the gallery adds to its resident set, over the bytes of the vectors.
"""

import io
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks._served import Served, environment_of, running_server, trained
from benchmarks.common import Claim, Preset, Result, people

WIDTH, EACH = 128, 10
LEARNERS: dict[str, dict[str, Any]] = {
    "metric": {"learner": "metric"},
    "forest": {"learner": "similarity-forest", "params": {"n_estimators": 20, "random_state": 0}},
}
MOST_MEMORY = 2.0
"""Over raw vectors, of which a search reads one form."""
GIVEN_BACK_S = 32.0
"""Twice a minute the service gives back what it has freed: after an import, as much as the vectors."""
MOST_BESIDE = {"p50": 1.5, "p99": 3.0}
_BATCH, _IMPORTED, _SEARCHES = 1_000, 50_000, 100


class ServedGallery:
    """A gallery of a service, named like its model, and what is asked of it."""

    def __init__(self, service: Served, name: str) -> None:
        self._service, self._name = service, name
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=600.0)
        self._ask("PUT", "", json={"model": name})

    def enroll(self, rows: np.ndarray, first_id: int = 0, most: int = _IMPORTED) -> float:
        """Upsert rows; CPU seconds an item."""
        before = self._service.cpu()
        for start in range(0, len(rows), most):
            stream, vectors = io.BytesIO(), rows[start : start + most]
            ids = np.arange(first_id + start, first_id + start + len(vectors)).astype(str)
            np.savez(stream, ids=ids, vectors=vectors)
            headers = {"Content-Type": "application/x-npz"}
            self._ask("PUT", "/items", content=stream.getvalue(), headers=headers)
        return (self._service.cpu() - before) / len(rows)

    def waits(self, queries: np.ndarray) -> dict[str, float]:
        """CPU and seconds of a search for the ten nearest of one vector."""
        taken, before = [], self._service.cpu()
        for query in queries:
            body = json.dumps({"queries": [query.tolist()], "k": 10})
            started = time.perf_counter()
            self._ask("POST", "/search", content=body, headers={"Content-Type": "application/json"})
            taken.append(time.perf_counter() - started)
        cpu = (self._service.cpu() - before) / len(queries)
        return {"CPU": cpu, "p50": float(np.median(taken)), "p99": float(np.quantile(taken, 0.99))}

    @contextmanager
    def upserting(self, rows: np.ndarray) -> Iterator[None]:
        """Another client upserts batches meanwhile."""
        ended = threading.Event()

        def write() -> None:
            while not ended.is_set():
                self.enroll(rows[:_BATCH])

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            ended.set()
            writer.join()

    def resident(self) -> int:
        """Bytes of the server's memory."""
        lines = Path(f"/proc/{self._service.process.pid}/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def _ask(self, method: str, path: str, **sent: Any) -> None:
        answer = self._client.request(method, f"/galleries/{self._name}{path}", **sent)
        if answer.is_error:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text[:300]}")


def run(preset: Preset) -> Result:
    """A gallery of each learner, one after the other."""
    n = 200_000 if preset == "quick" else 1_000_000
    rows, _, _ = people(n // EACH, EACH, WIDTH)
    X, y, _ = people(300, 8, WIDTH)
    table: list[dict[str, Any]] = []
    claims: list[Claim] = []
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as home:
        environment = environment_of(home)
        jobs = [{"model": name, "promote": True, **job} for name, job in LEARNERS.items()]
        trained(environment, jobs, X=X, y=y)
        with running_server(environment) as service:
            for name in LEARNERS:
                gallery = ServedGallery(service, name)
                # What is loaded or compiled for the first rows and searches counts nowhere.
                gallery.enroll(rows[:_BATCH])
                gallery.waits(rows[:2])
                empty = gallery.resident()
                enrolled = gallery.enroll(rows[_BATCH:], _BATCH)
                gallery.waits(rows[:2])
                time.sleep(GIVEN_BACK_S)
                memory = (gallery.resident() - empty) / rows[_BATCH:].nbytes
                alone = gallery.waits(rows[:_SEARCHES])
                with gallery.upserting(rows):
                    beside = gallery.waits(rows[:_SEARCHES])
                again = gallery.enroll(rows[:_IMPORTED], most=_BATCH)
                table.append(
                    {
                        "gallery": name,
                        "CPU us an item enrolled": 1e6 * enrolled,
                        "upserted again": 1e6 * again,
                        "memory over raw vectors": memory,
                        "CPU ms a search": 1e3 * alone["CPU"],
                        **{f"{name_of} ms alone": 1e3 * alone[name_of] for name_of in MOST_BESIDE},
                        **{f"{name_of} ms beside upserts": 1e3 * beside[name_of] for name_of in MOST_BESIDE},
                    }
                )
                claims.append(Claim.at_most(f"{name}: memory over raw vectors", MOST_MEMORY, memory))
                for share, most in MOST_BESIDE.items():
                    what = f"{name}: {share} of a search beside upserts over alone"
                    claims.append(Claim.at_most(what, most, beside[share] / alone[share]))
    return Result(rows=table, claims=claims, facts={"items": n, "load_average": os.getloadavg()[0]})
