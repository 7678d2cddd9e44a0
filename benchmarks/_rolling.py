"""Two API replicas and two workers on PostgreSQL and S3, restarted one after the other under load.

The clients stand behind what a proxy does: it asks /readyz of each replica, opens a connection for each request, and
takes another replica when a connection is refused. A request that was sent is never sent again.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from benchmarks._breaking import PATIENCE_S, Place
from benchmarks._places import bucket, database, furnish, scratch

DRAIN_S = 1.5
CHECK_S = 0.2
GRACE_S = 30.0
"""Longest that a process may take to end."""


class Proxy(httpx.BaseTransport):
    """Sends each request to one of the replicas that were ready when it looked last.

    Parameters
    ----------
    ports : of the replicas, changed in place as they come and go.
    """

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._turn = itertools.count()
        self._under = httpx.HTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Ask a replica; another when the connection is refused."""
        first = next(self._turn)
        ports = list(self._ports)
        request.read()
        for at in range(len(ports)):
            request.url = request.url.copy_with(host="127.0.0.1", port=ports[(first + at) % len(ports)])
            with contextlib.suppress(httpx.ConnectError):
                return self._under.handle_request(request)
        raise httpx.ConnectError("no replica took the connection")

    def close(self) -> None:
        """Close what is open."""
        self._under.close()


class Replicas(Place):
    """A place of two services and two workers, each with a folder of its own."""

    may_cut = False

    def __init__(self, home: Path, url: str, there: dict[str, Any], **environment: str) -> None:
        super().__init__(home, url, there, PAIRMARK_DRAIN_S=str(DRAIN_S), **environment)
        self._places = [
            Place(home.parent / name, url, there, PAIRMARK_DRAIN_S=str(DRAIN_S), **environment)
            for name in ("a", "b")
        ]
        self._ready: list[int] = []
        self._done = threading.Event()
        self._checking = threading.Thread(target=self._check, daemon=True)

    def open(self) -> None:
        """Start everything."""
        for place in self._places:
            place.start_api()
            place.start_worker()
        self._ready[:] = [place.port for place in self._places]
        self._checking.start()

    def client(self) -> httpx.Client:
        """Of one's own, behind the proxy."""
        headers = {"x-api-key": self.key}
        return httpx.Client(base_url=self.url, timeout=60, headers=headers, transport=Proxy(self._ready))

    def _check(self) -> None:
        with httpx.Client(timeout=2, trust_env=False) as http:
            while not self._done.wait(CHECK_S):
                for place in self._places:
                    try:
                        ready = http.get(f"{place.url}/readyz").status_code == 200
                    except httpx.TransportError:
                        ready = False
                    if ready and place.port not in self._ready:
                        self._ready.append(place.port)
                    elif not ready and place.port in self._ready:
                        self._ready.remove(place.port)

    def roll(self) -> None:
        """Restart every process, one at a time, as an upgrade does."""
        for place in self._places:
            assert place.api is not None
            self._stop_one(place.api)
            place.start_api()
            deadline = time.monotonic() + PATIENCE_S
            while place.port not in self._ready and time.monotonic() < deadline:
                time.sleep(CHECK_S)
        for place in self._places:
            assert place.worker is not None
            self._stop_one(place.worker)
            place.start_worker()

    def _stop_one(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.reported.wrong.append(f"a process had not ended {GRACE_S:g} s after SIGTERM")
            process.kill()
            process.wait()
        else:
            if status != 0:
                self.reported.wrong.append(f"a process ended with {status} after SIGTERM")

    def close(self) -> None:
        """Stop clients and processes."""
        super().close()
        self._done.set()
        for place in self._places:
            place.close()


def rolled(times: int, *, is_gentle: bool = False) -> dict[str, Any]:
    """Restart everything so often under load, whose clients may be gentle; returns the row of the table."""
    from tests.serving import serving

    with (
        scratch("rolling") as folder,
        database("postgresql", folder) as (url, _),
        bucket("rolling") as (_, settings),
    ):
        with serving(folder / "first", url, "--with-worker", **settings) as prepared:
            there = furnish(prepared)
        place = Replicas(folder / "first", url, there, **settings)
        place.is_gentle = is_gentle
        try:
            place.open()
            started = time.monotonic()
            place.load()
            time.sleep(1)
            for _ in range(times):
                place.roll()
            time.sleep(1)
            return place.row(
                "rolling restart of 2 replicas and 2 workers on S3", "postgresql", 4 * times, started
            )
        finally:
            place.close()
