"""The service for tests, on a socket: in a thread of the tests' process, or as the process that people start.

A thread saves the seconds that a process takes to import. What is about processes, their logs or their memory asks
for one.
"""

import atexit
import csv
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
import uvicorn
from sklearn.datasets import load_digits
from starlette.datastructures import UploadFile

from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.app import create_app
from pairmark.service.audit import Actor, acting_as
from pairmark.service.blobs import Blobs, open_blobs
from pairmark.service.cli import main
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database, open_database
from pairmark.service.errors import PairmarkError
from pairmark.service.jobs.leases import Leases
from pairmark.service.settings import Settings
from pairmark.service.worker import attempt_error, runner_of

ROOT = Path(__file__).parent.parent
PATIENCE_S = 240.0
POLL_S = 0.2
PAIRMARK = (sys.executable, "-m", "pairmark.service.cli")


@dataclass
class RunningServer:
    """A served deployment: its address, its folder, its process."""

    url: str
    home: Path
    environment: dict[str, str]
    log: Path
    http: httpx.Client
    worker: str
    started: subprocess.Popen[bytes] | None = None
    jobs: "JobThread | None" = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of `pairmark serve`."""
        assert self.started is not None, "this server is a thread: ask for `process=True`"
        return self.started

    def cli(self, *words: str, ends: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a ``pairmark`` command, which ends so, in this deployment."""
        done = command(
            *words,
            **{name: value for name, value in self.environment.items() if name.startswith("PAIRMARK_")},
        )
        assert done.returncode == ends, done.stderr
        return done

    def enroll(self, gallery: str, model: str, vectors: Sequence[Any]) -> None:
        """Make a gallery of a model, with items ``i0`` of subject ``s0`` and so on."""
        answered(self.http.put(f"/galleries/{gallery}", json={"model": model}), 201)
        items = [
            {"id": f"i{at}", "subject": f"s{at}", "vector": list(map(float, row))}
            for at, row in enumerate(vectors)
        ]
        answered(self.http.put(f"/galleries/{gallery}/items", json={"items": items}))

    def key(self, *scopes: str, **options: str) -> dict[str, Any]:
        """A key made on the command line, with its id."""
        words = [word for scope in scopes for word in ("--scope", scope)]
        words += [word for name, value in options.items() for word in (f"--{name}", value)]
        return json.loads(self.cli("keys", "create", *words, "--json").stdout)

    @contextmanager
    def settings(self) -> Iterator[pytest.MonkeyPatch]:
        """Have this process find the deployment's settings in its environment."""
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("PAIRMARK_")]:
                patch.delenv(name)
            for name, value in self.environment.items():
                if name.startswith("PAIRMARK_"):
                    patch.setenv(name, value)
            yield patch

    @contextmanager
    def storage(self) -> Iterator[tuple[Database, Blobs, Settings]]:
        """What the deployment stores, opened in this process."""
        with self.settings():
            settings = Settings()
        database = Database(settings.resolved_database_url)
        try:
            yield database, open_blobs(settings), settings
        finally:
            database.dispose()

    def upload(self, name: str, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
        """Store a labelled matrix; few labels are classes.

        A server without a worker process does not read it, this process does: each server's first upload costs two
        seconds.
        """
        stream = io.BytesIO()
        np.savez(stream, X=X, y=y)
        stream.seek(0)
        roles = {"name": name, **({"classes": "y"} if np.unique(y).size < 30 else {})}
        if self.worker != "process":
            with self.storage() as place:
                request = DatasetRequest.model_validate(roles)
                added = Datasets(*place).add(UploadFile(stream, filename=f"{name}.npz"), request)
                return added.model_dump(mode="json")
        files = {"file": (f"{name}.npz", stream)}
        return answered(self.http.post("/datasets", data=roles, files=files), 201).json()

    def train(self, **request: Any) -> dict[str, Any]:
        """Submit a job and wait until it succeeds; few held-out pairs are enough, unless the request says otherwise."""
        request.setdefault("evaluation", {"n_pairs": 20_000})
        job = self.finished(answered(self.http.post("/jobs", json=request), 202).json()["id"])
        assert job["state"] == "succeeded", job
        return job

    def finished(self, job: str) -> dict[str, Any]:
        """The job, once it has ended; a server without a worker has it run in this process.

        That makes the same version, and saves the start of three processes.
        """
        if self.worker == "none":
            with self.storage() as place:
                leases = Leases(place[0], place[2])
                while claim := leases.claim(THREAD):
                    _attempt(leases, claim, place)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            reported = self.http.get(f"/jobs/{job}").json()
            if reported["state"] in ("succeeded", "failed", "cancelled"):
                return reported
            time.sleep(0.1)
        raise AssertionError(f"job {job} did not end")


def command(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a ``pairmark`` command with these settings alone, in this process: one of its own takes two seconds.

    The tests of the docs and of the wheel run commands as processes.
    """
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(ROOT)
        for name in [name for name in os.environ if name.startswith("PAIRMARK_")]:
            patch.delenv(name)
        # `main` sets the second for what it starts.
        for name, value in {**environment, "PYTHONSAFEPATH": "1"}.items():
            patch.setenv(name, value)
        try:
            main([*map(str, words)])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


Place = tuple[Database, Blobs, Settings]
THREAD = "thread of the tests"


def _attempt(leases: Leases, claim: Any, place: Place) -> None:
    with acting_as(Actor(name=f"job {claim.job_id}")):
        error = attempt_error(claim, runner_of(claim, *place), sys.maxsize)
    if error is not None:
        leases.fail(claim, error)


class JobThread(threading.Thread):
    """A worker that runs a deployment's jobs in this process: each makes the same version, and starts no process.

    Tests of the worker itself have worker processes.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(name=THREAD, daemon=True)
        self._place, self._leases, self._over = place, Leases(place[0], place[2]), threading.Event()
        self.at_work = threading.Lock()
        """Whoever holds it keeps jobs waiting."""

    def stop(self) -> None:
        """Finish the job at hand and end."""
        self._over.set()
        self.join(PATIENCE_S)

    def run(self) -> None:
        """Work until stopped."""
        while not self._over.wait(POLL_S):
            # Some tests take the database away for a while.
            with suppress(PairmarkError):
                self._leases.mark_alive(THREAD)
                if not self.at_work.acquire(blocking=False):
                    continue
                try:
                    while not self._over.is_set() and (claim := self._leases.claim(THREAD)):
                        self._run(claim)
                finally:
                    self.at_work.release()

    def _run(self, claim: Any) -> None:
        is_done = threading.Event()
        watch = threading.Thread(target=self._watch, args=(claim, is_done), daemon=True)
        watch.start()
        try:
            _attempt(self._leases, claim, self._place)
        finally:
            is_done.set()
            watch.join()

    def _watch(self, claim: Any, is_done: threading.Event) -> None:
        """Renew the lease; once a cancelled job says how far it is, it ends."""
        while not is_done.wait(POLL_S):
            with suppress(PairmarkError):
                if self._leases.renew(claim):
                    self._leases.cancelled(claim)
                    return


def free_port() -> int:
    """A port that nobody listens on, and that the system gives to nobody else while this process runs.

    A server takes two seconds to listen, or is killed and started again; tests beside it ask for ports meanwhile. On
    Linux a port that is bound and may be used again is open to who names it.
    """
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    port = int(probe.getsockname()[1])
    if sys.platform == "linux":
        atexit.register(probe.close)
    else:
        probe.close()
    return port


class ServerThread(threading.Thread):
    """What a process of ``pairmark serve`` runs, on a listening socket, in this process."""

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        super().__init__(name="server of the tests", daemon=True)
        self._listener = listener
        config = uvicorn.Config(
            create_app(settings),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=10,
            loop="uvloop",
            http="pairmark.service.api.protocol:BoundedProtocol",
            ws="none",
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Answer until stopped."""
        self._server.run(sockets=[self._listener])

    def stop(self) -> None:
        """End as the process does that is told to."""
        self._server.should_exit = True
        self.join(PATIENCE_S)


@contextmanager
def serving(
    home: Path,
    database_url: str,
    *options: str,
    process: bool = False,
    job_thread: bool = False,
    **environment: str,
) -> Iterator[RunningServer]:
    """Serve a database until the block ends.

    Parameters
    ----------
    options : of ``pairmark serve``, e.g. ``--with-worker``; with any, it is a process.
    process : run ``pairmark serve`` rather than a thread of this process.
    job_thread : run jobs in a thread of this process (`JobThread`).
    environment : settings by name, e.g. ``PAIRMARK_MAX_BODY_BYTES="1000"``; ``{port}`` in them is the server's.
    """
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PAIRMARK_")},
        "PAIRMARK_HOME": str(home),
        "PAIRMARK_DATABASE_URL": database_url,
        # Other tests want the cores as well.
        "PAIRMARK_JOB_THREADS": "1",
        # What a command or another process has changed is seen by the next request.
        "PAIRMARK_CATALOGUE_TTL_S": "0",
        "PYTHONPATH": str(ROOT),
        **{name: value.replace("{port}", str(port)) for name, value in environment.items()},
    }
    log = home / "serve.log"
    url = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        http = stack.enter_context(httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False))
        server = RunningServer(
            url=url,
            home=home,
            environment=environment,
            log=log,
            http=http,
            worker="thread" if job_thread else "process" if "--with-worker" in options else "none",
        )
        if process or options:
            server.started = stack.enter_context(_process(server, port, options))
        else:
            stack.enter_context(_thread(server, port))
        _await_ready(server)
        if job_thread:
            server.jobs = JobThread(stack.enter_context(server.storage()))
            server.jobs.start()
            stack.callback(server.jobs.stop)
        yield server


@contextmanager
def _process(server: RunningServer, port: int, options: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    # The pipe to its stdin closes when this process is gone, however it went, and the server stops.
    words = [*PAIRMARK, "serve", "--port", str(port), "--until-stdin-closes", *options]
    with server.log.open("ab") as stream:
        process = subprocess.Popen(
            words, cwd=ROOT, env=server.environment, stdin=subprocess.PIPE, stdout=stream, stderr=stream
        )
    with process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
            # In the report of a test that failed; what a thread logs is there already.
            errors = [line for line in server.log.read_text().splitlines() if '"level": "error"' in line]
            print(*errors[-20:], sep="\n", file=sys.stderr)


@contextmanager
def _thread(server: RunningServer, port: int) -> Iterator[None]:
    with server.settings():
        settings = Settings()
        with open_database(settings) as database:
            database.upgrade()
        thread = ServerThread(settings, socket.create_server(("127.0.0.1", port), backlog=2048))
    thread.start()
    try:
        yield
    finally:
        thread.stop()


def answered(answer: httpx.Response, status: int = 200) -> httpx.Response:
    """The answer, which has this status."""
    assert answer.status_code == status, answer.text
    return answer


def problem(answer: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    """What a refusal says."""
    assert answered(answer, status).headers["content-type"] == "application/problem+json"
    reported: dict[str, Any] = answer.json()
    assert reported["type"] == f"/problems/{slug}"
    return reported


def csv_table(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Columns as CSV."""
    stream = io.StringIO(newline="")
    lines = csv.writer(stream)
    lines.writerow(columns)
    lines.writerows(zip(*columns.values(), strict=True))
    return stream.getvalue().encode()


def parquet(query: str) -> bytes:
    """The rows of a query as Parquet."""
    import duckdb

    with tempfile.TemporaryDirectory() as folder, duckdb.connect(config={"threads": "1"}) as connection:
        file = Path(folder) / "x.parquet"
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)")
        return file.read_bytes()


def npz(**arrays: Any) -> bytes:
    """Arrays, packed."""
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def until(found: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """What is found, once it is there."""
    deadline = time.monotonic() + patience_s
    while not (there := found()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)
    return there


def children_of(pid: int) -> list[int]:
    """Process ids of the children of a process that still run."""
    return [one.pid for one in psutil.Process(pid).children() if not ended(one.pid)]


def ended(pid: int) -> bool:
    """Whether a process is no more, or a zombie that nobody waited for."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextmanager
def dask_process(folder: Path, environment: dict[str, str], kind: str, *words: str) -> Iterator[Any]:
    """A scheduler or a worker, a process of its own as on another machine; it is killed in the end."""
    with (folder / f"{len(list(folder.glob('*.log')))}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{kind}", *words, "--no-dashboard"],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _await_ready(server: RunningServer) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and (server.started is None or server.started.poll() is None):
        try:
            if server.http.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    said = server.log.read_text()[-4000:] if server.log.exists() else "nothing"
    raise AssertionError(f"the server did not become ready; its log says:\n{said}")


Serve = Callable[..., RunningServer]


@pytest.fixture
def serve(tmp_path: Path, new_database: Callable[..., str]) -> Iterator[Serve]:
    """``serve(*options, kind="sqlite", process=False, job_thread=False, **settings)`` -> a server of the test's own."""
    with ExitStack() as stack:

        def start(*options: str, kind: str = "sqlite", **settings: Any) -> RunningServer:
            home = tmp_path / f"home-{kind}"
            return stack.enter_context(serving(home, new_database(kind), *options, **settings))

        yield start


@pytest.fixture(scope="session")
def plain_server(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server as it comes, without worker, on SQLite, shared by the session. Tests must not make keys of it."""
    with serving(tmp_path_factory.mktemp("plain"), new_database("sqlite")) as server:
        yield server


@pytest.fixture(scope="session")
def digits_deployment(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server whose jobs are run, and a forest trained on handwritten digits, shared by the session, on PostgreSQL.

    Tests may add to it under names of their own, and must not move its aliases or make keys.
    """
    home = tmp_path_factory.mktemp("digits")
    with serving(home, new_database("postgresql"), process=True, job_thread=True) as server:
        X, y = load_digits(return_X_y=True)
        X = X.astype(np.float32)
        server.upload("digits", X, y)
        job = server.train(
            learner="similarity-forest",
            dataset="digits",
            model="digits",
            params={"n_estimators": 8, "n_pairs": 20_000, "max_depth": 6, "random_state": 0},
        )
        server.facts.update(X=X, y=y, job=job)
        yield server


@pytest.fixture(autouse=True)
def _shared_server_left_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """A key, or another model in production, would fail tests of other files, depending on their order."""
    yield
    if "digits_deployment" in request.fixturenames:
        listed = request.getfixturevalue("digits_deployment").http.get("/models?limit=500")
        assert listed.status_code == 200, f"this test left a key on the shared server: {listed.text}"
        models = listed.json()["items"]
        promoted = {one["name"] for one in models if any(a["alias"] == "production" for a in one["aliases"])}
        assert promoted <= {"digits", "orders"}, f"this test promoted {promoted} on the shared server"
