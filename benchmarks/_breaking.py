"""A service under load whose clients remember what they were told, so that a benchmark can break it and count."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks._places import DIMENSION, ROOT

PATIENCE_S = 240.0
LAST_JOB_S = 900.0
LEASE_S = 3
_PAUSE_S = 0.2
_FEW_JOBS = 3
TRUE_REFUSALS = frozenset({503, 507})
"""Of the 5xx: what says that the service, or its disk, is away for now."""
MODEL = {"learner": "metric", "dataset": "people", "model": "people", "params": {"metric": "euclidean"}}


@dataclass
class Reported:
    """What clients were told, and so what must be there."""

    items: dict[str, int] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    jobs: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    aliases: list[int] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    acknowledged: int = 0


def vector(number: int) -> list[float]:
    """The vector that an item must have."""
    made: list[float] = np.random.default_rng(number).normal(size=DIMENSION).astype(np.float32).tolist()
    return made


class Place:
    """A service and a worker that can be killed and started again, and clients that write.

    Parameters
    ----------
    there : what `furnish` made.
    log : where the processes write what they have to say; beside the home by default.

    Attributes
    ----------
    may_cut : connections may end without an answer, since processes are killed.
    is_gentle : clients pause after each write and submit three jobs at most: tests share the cores with others.
    """

    may_cut = True
    is_gentle = False

    def __init__(
        self, home: Path, url: str, there: dict[str, Any], *, log: Path | None = None, **environment: str
    ) -> None:
        self._log, self.key = log or home.parent / "faults.log", there["key"]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PAIRMARK_")}
        self.environment = {
            **kept, "PAIRMARK_HOME": str(home), "PAIRMARK_DATABASE_URL": url, "PAIRMARK_LEASE_S": str(LEASE_S),
            # Workers die more often here than jobs end: each is to be done at last, however often it is lost.
            "PAIRMARK_MAX_ATTEMPTS": "1000",
            "PAIRMARK_LOG_LEVEL": "WARNING", "PYTHONPATH": str(ROOT), **environment,
        }  # fmt: skip
        self.api: subprocess.Popen[bytes] | None = None
        self.worker: subprocess.Popen[bytes] | None = None
        self.reported = Reported()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._random = random.Random(0)

    # ------------------------------------------------------------ processes

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a `pairmark` command in this place."""
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "pairmark.service.cli", *words], env=self.environment, cwd=ROOT,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def start_api(self, wait: bool = True) -> None:
        """Start the service, and wait until it is ready."""
        self.api = self.start("serve", "--port", str(self.port), "--wait", "60")
        if wait:
            self.await_ready()

    def start_worker(self) -> None:
        """Start the worker."""
        self.worker = self.start("worker", "--wait", "60")

    def await_ready(self) -> None:
        """Wait until the service is ready; starts it again if it ended."""
        deadline = time.monotonic() + PATIENCE_S
        with self.client() as http:
            while time.monotonic() < deadline:
                try:
                    if http.get("/readyz").status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                if self.api is not None and self.api.poll() is not None:
                    self.reported.wrong.append(
                        f"the service ended by itself with status {self.api.returncode}"
                    )
                    self.start_api(wait=False)
                time.sleep(0.1)
        raise RuntimeError("the service did not become ready again")

    def children(self) -> list[int]:
        """Process ids of attempts at jobs."""
        import psutil

        if self.worker is None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            return [one.pid for one in psutil.Process(self.worker.pid).children()]
        return []

    def close(self) -> None:
        """Stop clients and processes."""
        self.rest()
        for process in (self.api, self.worker):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()

    # ------------------------------------------------------------ clients

    def client(self) -> httpx.Client:
        """Of one's own."""
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, headers={"x-api-key": self.key})

    def load(self) -> None:
        """Let clients write until `rest`."""
        self._stop.clear()
        for work in (self.write_item, self.write_item, self._aliases, self._jobs, self._keys):
            self._threads.append(threading.Thread(target=self._repeated, args=(work, len(self._threads))))
            self._threads[-1].start()

    def rest(self) -> None:
        """Stop the clients."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _repeated(self, work: Callable[[httpx.Client, int], None], who: int) -> None:
        http = self.client()
        number = who * 10_000_000 + self._random.randrange(10**6)
        while not self._stop.is_set():
            try:
                work(http, number)
            except httpx.TransportError as error:
                # A connection to a process that is gone.
                if not self.may_cut:
                    self.reported.wrong.append(f"{work.__name__}: no answer: {error!r}")
                http.close()
                time.sleep(0.05)
                http = self.client()
            except Exception as error:
                self.reported.wrong.append(f"{work.__name__}: {error!r}")
            if self.is_gentle:
                self._stop.wait(_PAUSE_S)
            number += 1
        http.close()

    def ask(self, http: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
        """Ask, and count what is answered."""
        answer = http.request(method, path, **more)
        self.reported.statuses[answer.status_code] += 1
        if answer.status_code >= 500 and answer.status_code not in TRUE_REFUSALS:
            self.reported.wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        if answer.is_success and method != "GET":
            self.reported.acknowledged += 1
        return answer

    def write_item(self, http: httpx.Client, number: int) -> None:
        """Enrol an item, and erase one of four again."""
        name = f"i{number}"
        item = {"id": name, "subject": f"s{number % 50}", "vector": vector(number)}
        self.reported.unknown.add(name)
        if self.ask(http, "PUT", "/galleries/people/items", json={"items": [item]}).is_success:
            self.reported.items[name] = number
            self.reported.unknown.discard(name)
            if number % 4 == 0:
                self.reported.unknown.add(name)
                del self.reported.items[name]
                if self.ask(http, "DELETE", f"/galleries/people/items/{name}").is_success:
                    self.reported.erased.add(name)
                    self.reported.unknown.discard(name)
        else:
            time.sleep(0.1)

    def _aliases(self, http: httpx.Client, number: int) -> None:
        # An alias of its own each time, so that an answer that was lost leaves no doubt about others.
        if self.ask(http, "PUT", f"/models/people/aliases/a{number}", json={"version": 1}).is_success:
            self.reported.aliases.append(number)
        time.sleep(0.05)

    def _keys(self, http: httpx.Client, number: int) -> None:
        word = f"k{number}"
        answer = self.ask(
            http, "POST", "/keys", json={"name": word, "scopes": ["score"]}, headers={"x-request-id": word}
        )
        if answer.is_success:
            self.reported.keys[word] = answer.json()["id"]
        time.sleep(0.1)

    def _jobs(self, http: httpx.Client, number: int) -> None:
        word = f"j{number}"
        if self.is_gentle and len(self.reported.jobs) == _FEW_JOBS:
            return
        while not self._stop.is_set():
            try:
                answer = self.ask(http, "POST", "/jobs", json=MODEL, headers={"idempotency-key": word})
                if answer.is_success:
                    self.reported.jobs[word] = answer.json()["id"]
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        # A few jobs wait at any time, no crowd.
        for _ in range(100):
            if self._stop.wait(0.1):
                return
            try:
                if len(http.get("/jobs?state=queued").json()["items"]) < 2:
                    return
            except (httpx.TransportError, KeyError, ValueError):
                pass

    # ------------------------------------------------------------ the reckoning

    def reckon(self) -> dict[str, int]:
        """Compare what is there with what clients were told; the service is well again."""
        self.rest()
        reported = self.reported
        with self.client() as http:
            jobs = {word: self._finished(http, job) for word, job in reported.jobs.items()}
            there: dict[str, list[float]] = {}
            for item in _all(http, "/galleries/people/items?vectors=true&limit=500"):
                there[item["id"]] = item["vector"]
            found = http.post(
                "/galleries/people/search", json={"queries": vector(0), "k": 100_000}, timeout=120
            ).json()["results"][0]
            searched = {hit["id"] for hit in found}
            lost = [name for name in reported.items if name not in there or name not in searched]
            lost += [
                name
                for name, number in reported.items.items()
                if name in there and there[name] != vector(number)
            ]
            risen = [name for name in reported.erased if name in there or name in searched]
            if set(there) != searched:
                reported.wrong.append(f"search sees {len(searched)} items and the list {len(there)}")
            aliases = {one["alias"] for one in http.get("/models/people").json()["aliases"]}
            lost += [f"a{number}" for number in reported.aliases if f"a{number}" not in aliases]
            keys = {one["id"] for one in _all(http, "/keys?limit=500")}
            lost += [word for word, id in reported.keys.items() if id not in keys]
            failed = [
                f"{word}: {job['state']} {job['error']}"
                for word, job in jobs.items()
                if job["state"] != "succeeded"
            ]
            reported.wrong += failed
            versions: Counter[str] = Counter()
            for one in _all(http, "/models/people/versions?limit=100"):
                versions[http.get(f"/models/people/versions/{one['version']}").json()["lineage"]["job"]] += 1
            twice = [job for job, n in versions.items() if n > 1]
            lost += [
                word
                for word, job in reported.jobs.items()
                if jobs[word]["state"] == "succeeded" and not versions[job]
            ]
            entries = Counter(
                (entry["request_id"], entry["action"])
                for entry in _all(http, "/audit?action=key.create&limit=200")
            )
            lost += [f"audit of {word}" for word in reported.keys if entries[(word, "key.create")] == 0]
            twice += [f"audit of {word}" for word in reported.keys if entries[(word, "key.create")] > 1]
        return {"lost": len(lost) + len(risen), "twice": len(twice), "jobs": len(jobs)}

    def _finished(self, http: httpx.Client, job: str) -> dict[str, Any]:
        deadline = time.monotonic() + LAST_JOB_S
        while time.monotonic() < deadline:
            found: dict[str, Any] = http.get(f"/jobs/{job}").json()
            if found["state"] in ("succeeded", "failed", "cancelled"):
                return found
            time.sleep(0.2)
        raise RuntimeError(f"job {job} did not end")

    def row(self, what: str, where: str, faults: int, started: float) -> dict[str, Any]:
        """The line of the table, after `reckon`."""
        reckoned = self.reckon()
        refused = sum(n for status, n in self.reported.statuses.items() if status in TRUE_REFUSALS)
        for one in self.reported.wrong[:20]:
            print(f"WRONG {what}, {where}: {one}", file=sys.stderr, flush=True)
        row = {
            "fault": what, "on": where, "times": faults, "acknowledged": self.reported.acknowledged,
            "jobs": reckoned["jobs"], "refused (503, 507)": refused, "lost": reckoned["lost"],
            "twice": reckoned["twice"], "wrong": len(self.reported.wrong), "seconds": round(time.monotonic() - started),
        }  # fmt: skip
        print(row, flush=True)
        return row


def _all(http: httpx.Client, path: str) -> Iterator[dict[str, Any]]:
    cursor = None
    while True:
        page = http.get(
            path, params=None if cursor is None else {**dict(httpx.URL(path).params), "cursor": cursor}
        )
        if page.status_code != 200:
            raise RuntimeError(f"GET {path}: {page.status_code} {page.text[:300]}")
        yield from page.json()["items"]
        cursor = page.json()["next_cursor"]
        if cursor is None:
            return
