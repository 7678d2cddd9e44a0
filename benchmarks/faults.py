"""Faults under load: nothing that was acknowledged is lost, nothing is done twice, every refusal is in words.

- kill -9 of the API, the worker, the worker's child and PostgreSQL at random moments;
- PostgreSQL stopped for some seconds, and back;
- the disk full at every kind of write, and read-only (a tmpfs of the benchmark's own; needs root on Linux);
- the clocks of every process set a day ahead and back;
- S3 that refuses, resets and stalls (moto's server behind a proxy).

Beside each, clients enrol and erase items, move an alias, make keys and submit jobs with idempotency keys.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
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

from benchmarks._places import DIMENSION, ROOT, Postgres, database, furnish, scratch
from benchmarks.common import Claim, Preset, Result, Skip

KILLS = {"quick": {"sqlite": 8, "postgresql": 12}, "full": {"sqlite": 40, "postgresql": 60}}
PATIENCE_S = 240.0
LAST_JOB_S = 900.0
LEASE_S = 3
TRUE_REFUSALS = frozenset({503, 507})
"""Of the 5xx: what says that the service, or its disk, is away for now."""
MODEL = {"learner": "metric", "dataset": "people", "model": "people", "params": {"metric": "euclidean"}}
SHIFTED_CLOCK = """
import os, time
_now, _file = time.time, os.environ["PAIRMARK_BENCH_CLOCK"]
def _shifted():
    try:
        with open(_file) as stream:
            return _now() + float(stream.read() or 0)
    except (OSError, ValueError):
        return _now()
time.time = _shifted
"""


@dataclass
class Told:
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
    """

    def __init__(self, home: Path, url: str, there: dict[str, Any], **environment: str) -> None:
        self._home, self._key = home, there["key"]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PAIRMARK_")}
        self._environment = {
            **kept, "PAIRMARK_HOME": str(home), "PAIRMARK_DATABASE_URL": url, "PAIRMARK_LEASE_S": str(LEASE_S),
            "PAIRMARK_LOG_LEVEL": "WARNING", "PYTHONPATH": str(ROOT), **environment,
        }  # fmt: skip
        self.api: subprocess.Popen[bytes] | None = None
        self.worker: subprocess.Popen[bytes] | None = None
        self.told = Told()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._random = random.Random(0)
        self.quiet = False

    # ------------------------------------------------------------ processes

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self._home.parent / "faults.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "pairmark.service.cli", *words], env=self._environment, cwd=ROOT,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def start_api(self, wait: bool = True) -> None:
        """Start the service, and wait until it is ready."""
        self.api = self._start("serve", "--port", str(self._port), "--wait", "60")
        if wait:
            self.await_ready()

    def start_worker(self) -> None:
        """Start the worker."""
        self.worker = self._start("worker", "--wait", "60")

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
                    self.told.wrong.append(f"the service ended by itself with status {self.api.returncode}")
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
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, headers={"x-api-key": self._key})

    def load(self) -> None:
        """Let clients write until `rest`."""
        self._stop.clear()
        for work in (self._items, self._items, self._aliases, self._jobs, self._keys):
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
            except httpx.TransportError:
                # A connection to a process that is gone.
                http.close()
                time.sleep(0.05)
                http = self.client()
            except Exception as error:
                self.told.wrong.append(f"{work.__name__}: {error!r}")
            number += 1
        http.close()

    def ask(self, http: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
        """Ask, and count what is answered."""
        answer = http.request(method, path, **more)
        self.told.statuses[answer.status_code] += 1
        if answer.status_code >= 500 and answer.status_code not in TRUE_REFUSALS:
            self.told.wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        if answer.is_success and method != "GET":
            self.told.acknowledged += 1
        return answer

    def _items(self, http: httpx.Client, number: int) -> None:
        name = f"i{number}"
        item = {"id": name, "subject": f"s{number % 50}", "vector": vector(number)}
        self.told.unknown.add(name)
        if self.ask(http, "PUT", "/galleries/people/items", json={"items": [item]}).is_success:
            self.told.items[name] = number
            self.told.unknown.discard(name)
            if number % 4 == 0:
                self.told.unknown.add(name)
                del self.told.items[name]
                if self.ask(http, "DELETE", f"/galleries/people/items/{name}").is_success:
                    self.told.erased.add(name)
                    self.told.unknown.discard(name)
        else:
            time.sleep(0.1)

    def _aliases(self, http: httpx.Client, number: int) -> None:
        # An alias of its own each time, so that an answer that was lost leaves no doubt about others.
        if self.ask(http, "PUT", f"/models/people/aliases/a{number}", json={"version": 1}).is_success:
            self.told.aliases.append(number)
        time.sleep(0.05)

    def _keys(self, http: httpx.Client, number: int) -> None:
        word = f"k{number}"
        answer = self.ask(
            http, "POST", "/keys", json={"name": word, "scopes": ["score"]}, headers={"x-request-id": word}
        )
        if answer.is_success:
            self.told.keys[word] = answer.json()["id"]
        time.sleep(0.1)

    def _jobs(self, http: httpx.Client, number: int) -> None:
        word = f"j{number}"
        while not self._stop.is_set():
            try:
                answer = self.ask(http, "POST", "/jobs", json=MODEL, headers={"idempotency-key": word})
                if answer.is_success:
                    self.told.jobs[word] = answer.json()["id"]
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
        told = self.told
        with self.client() as http:
            jobs = {word: self._finished(http, job) for word, job in told.jobs.items()}
            there: dict[str, list[float]] = {}
            for item in _all(http, "/galleries/people/items?vectors=true&limit=500"):
                there[item["id"]] = item["vector"]
            found = http.post(
                "/galleries/people/search", json={"queries": vector(0), "k": 100_000}, timeout=120
            ).json()["results"][0]
            searched = {hit["id"] for hit in found}
            lost = [name for name in told.items if name not in there or name not in searched]
            lost += [
                name for name, number in told.items.items() if name in there and there[name] != vector(number)
            ]
            risen = [name for name in told.erased if name in there or name in searched]
            if set(there) != searched:
                told.wrong.append(f"search sees {len(searched)} items and the list {len(there)}")
            aliases = {one["alias"] for one in http.get("/models/people").json()["aliases"]}
            lost += [f"a{number}" for number in told.aliases if f"a{number}" not in aliases]
            keys = {one["id"] for one in _all(http, "/keys?limit=500")}
            lost += [word for word, id in told.keys.items() if id not in keys]
            failed = [
                f"{word}: {job['state']} {job['error']}"
                for word, job in jobs.items()
                if job["state"] != "succeeded"
            ]
            told.wrong += failed
            versions: Counter[str] = Counter()
            for one in _all(http, "/models/people/versions?limit=100"):
                versions[http.get(f"/models/people/versions/{one['version']}").json()["lineage"]["job"]] += 1
            twice = [job for job, n in versions.items() if n > 1]
            lost += [
                word
                for word, job in told.jobs.items()
                if jobs[word]["state"] == "succeeded" and not versions[job]
            ]
            entries = Counter(
                (entry["request_id"], entry["action"])
                for entry in _all(http, "/audit?action=key.create&limit=200")
            )
            lost += [f"audit of {word}" for word in told.keys if entries[(word, "key.create")] == 0]
            twice += [f"audit of {word}" for word in told.keys if entries[(word, "key.create")] > 1]
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
        refused = sum(n for status, n in self.told.statuses.items() if status in TRUE_REFUSALS)
        for one in self.told.wrong[:20]:
            print(f"WRONG {what}, {where}: {one}", file=sys.stderr, flush=True)
        row = {
            "fault": what, "on": where, "times": faults, "acknowledged": self.told.acknowledged,
            "jobs": reckoned["jobs"], "refused (503, 507)": refused, "lost": reckoned["lost"],
            "twice": reckoned["twice"], "wrong": len(self.told.wrong), "seconds": round(time.monotonic() - started),
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


def run(preset: Preset) -> Result:
    """Break things, one after another."""
    try:
        import tests.serving  # noqa: F401
    except ImportError as error:
        raise Skip(f"needs the development environment ({error.name}): make .venv/.dev") from error
    rows = []
    for kind, kills in KILLS[preset].items():
        rows.append(
            _with_place(
                kind, lambda place, server, kind=kind, kills=kills: _kills(place, server, kind, kills)
            )
        )
    rows.append(_with_place("postgresql", _stopped))
    rows += [
        _with_place(kind, lambda place, _, kind=kind: _clocks(place, kind), clock=True)
        for kind in ("sqlite", "postgresql")
    ]
    rows += _disks()
    rows.append(_s3())
    rows = [row for row in rows if row is not None]
    kills_done = sum(row["times"] for row in rows if row["fault"].startswith("kill"))
    totals = {name: sum(row[name] for row in rows) for name in ("lost", "twice", "wrong")}
    goal = sum(KILLS[preset].values())
    return Result(
        rows=rows,
        claims=[
            Claim(what="kills", goal=f"at least {goal}", measured=kills_done, holds=kills_done >= goal),
            Claim(what="acknowledged writes lost", goal="0", measured=totals["lost"], holds=totals["lost"] == 0),
            Claim(what="done twice", goal="0", measured=totals["twice"], holds=totals["twice"] == 0),
            Claim(what="other errors (500, hangs, ends of processes, failed jobs)", goal="0",
                  measured=totals["wrong"], holds=totals["wrong"] == 0),
        ],
        facts={"lease_s": LEASE_S},
    )  # fmt: skip


def _with_place(
    kind: str,
    work: Callable[[Place, Postgres | None], dict[str, Any]],
    *,
    clock: bool = False,
    **settings: str,
) -> dict[str, Any]:
    from tests.serving import serving

    with scratch("faults") as folder, database(kind, folder) as (url, server):
        with serving(folder / "home", url, "--with-worker", **settings) as prepared:
            there = furnish(prepared)
        environment = dict(settings)
        if clock:
            (folder / "clock").mkdir()
            (folder / "clock" / "sitecustomize.py").write_text(SHIFTED_CLOCK)
            environment["PYTHONPATH"] = f"{folder / 'clock'}:{ROOT}"
            environment["PAIRMARK_BENCH_CLOCK"] = str(folder / "shift")
        place = Place(folder / "home", url, there, **environment)
        try:
            place.start_api()
            place.start_worker()
            return work(place, server)
        finally:
            place.close()


def _kills(place: Place, server: Postgres | None, kind: str, kills: int) -> dict[str, Any]:
    started, rng = time.monotonic(), random.Random(1)
    targets = ["api", "worker", "child", *(["database"] if server else [])]
    done: Counter[str] = Counter()
    place.load()
    for number in range(kills):
        time.sleep(rng.uniform(0.2, 1.2))
        target = targets[number % len(targets)]
        if target == "child":
            deadline = time.monotonic() + 20
            while not (children := place.children()) and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(rng.uniform(0, 2.0))
            children = place.children() or children
            if not children:
                target = "worker"
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        if target == "api":
            assert place.api is not None
            place.api.kill()
            place.api.wait()
            place.start_api()
        elif target == "worker":
            assert place.worker is not None
            place.worker.kill()
            place.worker.wait()
            place.start_worker()
        elif target == "database":
            assert server is not None
            server.kill()
            server.start()
            place.await_ready()
        done[target] += 1
        print(f"{kind}: {number + 1} of {kills} kills, {place.told.acknowledged} acknowledged", flush=True)
    shown = ", ".join(f"{n} {target}" for target, n in sorted(done.items()))
    return place.row(f"kill -9 ({shown})", kind, kills, started)


def _stopped(place: Place, server: Postgres | None) -> dict[str, Any]:
    """PostgreSQL away for ten seconds, three times: scoring goes on, /readyz says so within 2 s."""
    assert server is not None
    started = time.monotonic()
    pair = {"model": "people", "left": vector(1), "right": vector(2)}
    place.load()
    for _ in range(3):
        time.sleep(2)
        server.kill()
        away = time.monotonic()
        with place.client() as http:
            while time.monotonic() - away < 10:
                asked = time.monotonic()
                ready = http.get("/readyz")
                if ready.status_code != 503 or time.monotonic() - asked > 2:
                    took = time.monotonic() - asked
                    place.told.wrong.append(
                        f"/readyz without a database: {ready.status_code} after {took:.1f} s"
                    )
                scored = http.post("/similarity", json=pair)
                if scored.status_code != 200:
                    place.told.wrong.append(
                        f"/similarity without a database: {scored.status_code} {scored.text[:200]}"
                    )
                time.sleep(0.5)
        server.start()
        place.await_ready()
    assert place.api is not None
    if place.api.poll() is not None:
        place.told.wrong.append("the service ended while its database was away")
    return place.row("PostgreSQL stopped 10 s and back", "postgresql", 3, started)


def _clocks(place: Place, kind: str) -> dict[str, Any]:
    """A day ahead, back to now, a day behind, and back."""
    started = time.monotonic()
    shift = Path(place._environment["PAIRMARK_BENCH_CLOCK"])
    place.load()
    for seconds in (86_400, 0, -86_400, 0):
        time.sleep(4)
        shift.write_text(str(seconds))
    time.sleep(4)
    place.await_ready()
    return place.row("clocks a day ahead, back, behind, back", kind, 4, started)


# ---------------------------------------------------------------- disks


def _disks() -> list[dict[str, Any]]:
    """The disk full, then read-only, on a tmpfs: data, database and temporary files together."""
    from tests.serving import serving

    with scratch("faults") as folder:
        disk = folder / "disk"
        disk.mkdir()
        mounted = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(disk)]
        if subprocess.run(mounted, capture_output=True, check=False).returncode:
            print("NOT RUN: a full and a read-only disk (mounting a tmpfs needs root on Linux)", flush=True)
            return []
        try:
            url, home = f"sqlite:///{disk}/pairmark.db", disk / "home"
            (disk / "tmp").mkdir()
            with serving(home, url, "--with-worker") as prepared:
                there = furnish(prepared)
                export = prepared.http.get("/models/people/versions/1/export").content
            place = Place(home, url, there, TMPDIR=str(disk / "tmp"))
            try:
                place.start_api()
                place.start_worker()
                return [_full(place, disk, export), _read_only(place, disk, export)]
            finally:
                place.close()
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=False)


def _writes(place: Place, export: bytes) -> None:
    """Every kind of write once; each is done or refused in words."""
    X = np.random.default_rng(0).normal(size=(400, DIMENSION)).astype(np.float32)
    word = secrets.token_hex(4)
    csv = "\n".join(["label," + ",".join(f"x{at}" for at in range(DIMENSION)), *(
        f"p{at // 2}," + ",".join(map(str, row)) for at, row in enumerate(X)
    )]).encode()  # fmt: skip
    with place.client() as http:
        for number in range(20):
            place._items(http, int(word, 16) * 100 + number)
        requests: list[tuple[str, str, dict[str, Any]]] = [
            ("POST", "/datasets", {"data": {"name": f"d{word}", "label": "label"}, "files": {"file": ("d.csv", csv)}}),
            ("POST", "/datasets/inspect", {"data": {"label": "label"}, "files": {"file": ("d.csv", csv)}}),
            ("POST", "/models", {"data": {"name": f"m{word}"}, "files": {"file": ("m.zip", export)}}),
            ("GET", "/models/people/versions/1/export", {}),
            ("PUT", "/galleries/people/items?prefix=b", {
                "content": X.tobytes(), "headers": {"content-type": "application/octet-stream"}}),
            ("PUT", f"/galleries/g{word}", {"json": {"model": "people"}}),
            ("POST", "/jobs", {"json": MODEL}),
            ("POST", "/calibrations", {"json": {
                "name": f"c{word}", "scores": X[:, 0].tolist(), "same": [int(one) for one in X[:, 0] > 0]}}),
            ("POST", "/models/people/versions/1/calibrations", {"json": {"dataset": "people"}}),
            ("PUT", "/models/people/aliases/full", {"json": {"version": 1}}),
            ("POST", "/keys", {"json": {"name": word, "scopes": ["score"]}}),
            ("DELETE", "/galleries/people/subjects/s7", {}),
            ("GET", "/models", {}),
            ("POST", "/similarity", {"json": {"model": "people", "left": vector(1), "right": vector(2)}}),
        ]  # fmt: skip
        for method, path, more in requests:
            if "s7" in path:
                place.told.erased -= {name for name in place.told.erased if int(name[1:]) % 50 == 7}
                for name in [name for name, number in place.told.items.items() if number % 50 == 7]:
                    place.told.unknown.add(name)
                    del place.told.items[name]
            try:
                place.ask(http, method, path, **more)
            except httpx.TransportError as error:
                place.told.wrong.append(f"{method} {path}: {error!r}")


def _full(place: Place, disk: Path, export: bytes) -> dict[str, Any]:
    started, times = time.monotonic(), 0
    filler = disk / "filler"
    for left_bytes in (0, 4_096, 65_536, 300_000, 1_000_000):
        room = os.statvfs(disk)
        with contextlib.suppress(OSError), filler.open("wb") as stream:
            for _ in range(max(0, (room.f_bavail * room.f_frsize - left_bytes) // 4_096)):
                stream.write(b"x" * 4_096)
        _writes(place, export)
        times += 1
        filler.unlink()
        time.sleep(0.5)
        _writes(place, export)
    place.await_ready()
    return place.row("disk full at every kind of write", "sqlite", times, started)


def _read_only(place: Place, disk: Path, export: bytes) -> dict[str, Any]:
    place.told.wrong.clear()
    place.told.statuses.clear()
    place.told.acknowledged = 0
    started, times = time.monotonic(), 0
    for _ in range(2):
        # What is open for writing keeps a remount from being allowed; a full quota of inodes it is not.
        if subprocess.run(
            ["mount", "-o", "remount,ro", str(disk)], capture_output=True, check=False
        ).returncode:
            if place.worker is not None:
                place.worker.kill()
                place.worker.wait()
            if place.api is not None:
                place.api.kill()
                place.api.wait()
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            place.api = place._start("serve", "--port", str(place._port), "--wait", "5")
            time.sleep(5)
            if place.api.poll() is None:
                with contextlib.suppress(RuntimeError):
                    _writes(place, export)
                place.api.kill()
                place.api.wait()
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            place.start_api()
            place.start_worker()
        else:
            _writes(place, export)
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        times += 1
        time.sleep(0.5)
        _writes(place, export)
    place.await_ready()
    return place.row("disk read-only", "sqlite", times, started)


# ---------------------------------------------------------------- S3


class FlakyProxy:
    """Passes TCP connections on to a port; ``mode`` says how it fails: ``well``, ``refuse``, ``reset`` or ``stall``."""

    def __init__(self, port: int) -> None:
        self._target, self.mode = port, "well"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError), near:
            if self.mode == "refuse":
                return
            with socket.create_connection(("127.0.0.1", self._target)) as far:
                threading.Thread(target=self._pipe, args=(far, near), daemon=True).start()
                self._pipe(near, far)

    def _pipe(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65_536):
                if self.mode == "reset":
                    target.shutdown(socket.SHUT_RDWR)
                    source.shutdown(socket.SHUT_RDWR)
                    return
                while self.mode == "stall":
                    time.sleep(0.1)
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()


def _s3() -> dict[str, Any]:
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    proxy = FlakyProxy(moto.get_host_and_port()[1])
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}", "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench", "AWS_DEFAULT_REGION": "us-east-1", "PAIRMARK_ARTEFACTS": "s3://faults/x",
    }  # fmt: skip
    try:
        import boto3

        client = boto3.client(
            "s3", endpoint_url=settings["AWS_ENDPOINT_URL"], aws_access_key_id="bench", aws_secret_access_key="bench",
            region_name="us-east-1",
        )  # fmt: skip
        client.create_bucket(Bucket="faults")

        def work(place: Place, _: Postgres | None) -> dict[str, Any]:
            started = time.monotonic()
            with place.client() as http:
                export = http.get("/models/people/versions/1/export").content
            for mode in ("refuse", "reset", "stall"):
                proxy.mode = mode
                threading.Timer(6.0, lambda: setattr(proxy, "mode", "well")).start()
                _writes(place, export)
                proxy.mode = "well"
                _writes(place, export)
            return place.row("S3 refuses, resets, stalls", "sqlite", 3, started)

        return _with_place("sqlite", work, **settings)
    finally:
        proxy.close()
        moto.stop()
