"""What a second core brings: requests by a second process, trees of a forest by a second thread or Dask worker.

Two services on the same models, of one process and of two (``pairmark serve --workers``), take turns. One client of raw
sockets asks over kept-alive connections, each of which sends its next request once it has the answer. The client shares
both cores with the service, so what it takes of a core stands beside the gain. With a pool of keys each request shows
the next of 256 keys, each of which has a rate. A forest of 4,000 rows is fitted by one thread and two, and on a Dask
cluster of one worker and two: the same forest to the last bit. Loops that share nothing say what the machine gives.

Wall time: it needs two cores that nothing else uses. Linux only (it reads /proc).
"""

from __future__ import annotations

import json
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from joblib import parallel_config
from threadpoolctl import threadpool_limits

from benchmarks._served import JSON, environment_of, people, read_answer, request_of, running_server
from benchmarks.common import Claim, Preset, Result, ratio
from benchmarks.http_overhead import DIMENSION, train
from benchmarks.match_overhead import QUERY
from pairmark.models import SimilarityForest

CONNECTIONS, KEYS = 6, 256
"""Connections: fewer than the batches that one process takes at once, 8."""
GOAL = 1.8
LOOP = """
import sys, time
until, turns = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < until:
    sum(range(10_000))
    turns += 1
print(turns)
"""


def run(preset: Preset) -> Result:
    """One and two in turns, each as a rate: turns, requests or fits a second."""
    rounds, fits, seconds = (5, 2, 1.5) if preset == "quick" else (15, 5, 4.0)
    loops = {n: partial(_loops, n, seconds) for n in (1, 2)}
    rows = [_row("loops that share nothing", "a second process", _in_turns(loops, rounds))]
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder, ExitStack() as stack:
        environment = environment_of(folder)
        train(environment)
        keys = _keys(folder)
        serve = [sys.executable, "-m", "pairmark.service.cli", "serve", "--workers"]
        ports = {
            n: stack.enter_context(running_server([*serve, str(n), "--port"], environment, "/readyz")).port
            # The two first: both of its processes are up once the one is.
            for n in (2, 1)
        }
        for name, requests in _requests(keys).items():
            clients = {n: _Client(port, requests) for n, port in ports.items()}
            asked = {n: partial(client.rate, seconds) for n, client in clients.items()}
            rows.append(_row(name, "a second process", _in_turns(asked, rounds), clients[2].cores()))
    X, y = people(200, 20, 64)
    forests: list[Any] = []

    def fits_a_second(jobs: int, **parallel: Any) -> float:
        begun = time.perf_counter()
        with parallel_config(**parallel), threadpool_limits(jobs):
            forest = SimilarityForest(random_state=0, n_jobs=jobs).fit(X, y)
            forests.append(forest.pair_score(X[1:], X[:-1]))
        return 1 / (time.perf_counter() - begun)

    threads = {n: partial(fits_a_second, n) for n in (1, 2)}
    rows.append(_row("fits of a forest", "a second thread", _in_turns(threads, fits)))
    with ExitStack() as stack:
        on_dask = {
            n: partial(fits_a_second, n, backend="dask", client=stack.enter_context(_cluster(n)))
            for n in (1, 2)
        }
        rows.append(_row("fits of a forest", "a second Dask worker", _in_turns(on_dask, fits)))
    if any((scores != forests[0]).any() for scores in forests):
        raise AssertionError("forests differ by where their trees grew")
    claims = [
        Claim(
            what=f"{row['work']}: rate with {row['beside']} over that without",
            goal=f"at least {GOAL}",
            measured=row["gain"],
            holds=row["gain"] >= GOAL,
        )
        for row in rows[1:]
    ]
    return Result(rows=rows, claims=claims, facts={"load_average": os.getloadavg()[0]})


def _in_turns(contestants: Mapping[int, Callable[[], float]], rounds: int) -> dict[int, list[float]]:
    """Rates of both in each round, after one that does not count."""
    rates: dict[int, list[float]] = {n: [] for n in contestants}
    for turn in range(rounds + 1):
        for n in sorted(contestants, reverse=turn % 2 == 1):
            rates[n].append(contestants[n]())
    return {n: each[1:] for n, each in rates.items()}


def _row(
    work: str, beside: str, rates: Mapping[int, Sequence[float]], client: float | None = None
) -> dict[str, Any]:
    return {
        "work": work,
        "beside": beside,
        "a second, without": statistics.median(rates[1]),
        "a second, with": statistics.median(rates[2]),
        "gain": round(ratio(rates[2], rates[1]), 3),
        "cores of the client": client,
    }


def _loops(processes: int, seconds: float) -> float:
    command = [sys.executable, "-c", LOOP, str(seconds)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(processes)]
    return sum(int(process.communicate()[0]) for process in running) / seconds


def _keys(folder: str) -> list[str]:
    from pairmark.service.db import open_database
    from pairmark.service.keys import Keys
    from pairmark.service.settings import Settings

    settings = Settings(home=Path(folder))
    with open_database(settings) as database:
        keys = Keys(database, settings)
        return [keys.create(f"{number}", ["score"], rate=1e5).key for number in range(KEYS)]


def _requests(keys: Sequence[str]) -> dict[str, list[bytes]]:
    left, right = np.random.default_rng(0).standard_normal((2, 100, DIMENSION)).astype(np.float32)
    one = {"model": "forest", "left": left[0].tolist(), "right": right[0].tolist()}
    many = {"model": "forest", "left": left.tolist(), "right": right.tolist()}

    def asked(path: str, body: dict[str, Any], shown: Sequence[str]) -> list[bytes]:
        written = json.dumps(body).encode()
        return [request_of(path, written, {**JSON, "X-API-Key": key}) for key in shown]

    return {
        "/similarity of one pair": asked("/similarity", one, keys[:1]),
        "/similarity of one pair, a pool of 256 keys": asked("/similarity", one, keys),
        "/similarity of 100 pairs": asked("/similarity", many, keys[:1]),
        "/match of 100 pairs": asked(f"/match?{QUERY}", many, keys[:1]),
    }


class _Client:
    """Connections to a service, each with one request on the way, and what this process takes to serve them."""

    def __init__(self, port: int, requests: Sequence[bytes]) -> None:
        self._requests = cycle(requests)
        self._shares: list[float] = []
        self._wires = {}
        self._ready = select.epoll()
        for _ in range(CONNECTIONS):
            wire = socket.create_connection(("127.0.0.1", port))
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._wires[wire.fileno()] = wire
            self._ready.register(wire, select.EPOLLIN)

    def rate(self, seconds: float) -> float:
        """Answers a second."""
        begun, cpu, answers = time.perf_counter(), time.process_time(), 0
        for wire in self._wires.values():
            wire.sendall(next(self._requests))
        until = begun + seconds
        while time.perf_counter() < until:
            for number, _ in self._ready.poll():
                read_answer(self._wires[number])
                self._wires[number].sendall(next(self._requests))
                answers += 1
        wall = time.perf_counter() - begun
        self._shares.append((time.process_time() - cpu) / wall)
        for wire in self._wires.values():
            read_answer(wire)
        return answers / wall

    def cores(self) -> float:
        """Cores that this process was busy with, at the median."""
        return statistics.median(self._shares)


@contextmanager
def _cluster(workers: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client
