"""Faults under load: nothing that was acknowledged is lost, nothing is done twice, every refusal is in words.

- kill -9 of the API, the worker, the worker's child and PostgreSQL at random moments;
- PostgreSQL stopped for some seconds, and back; PostgreSQL standing still (SIGSTOP), and going on;
- two API replicas and two workers on PostgreSQL and S3, restarted one after the other;
- the disk full at every kind of write, and read-only (a tmpfs of the benchmark's own; needs root on Linux);
- the clocks of every process set a day ahead and back;
- S3 that refuses, resets and stalls (moto's server behind a proxy);
- kill -9 in backup, restore, upgrade and downgrade, no space in a migration, clocks that step at random, two services
  on one SQLite file, keys rotated under load.

Beside each, clients enrol and erase items, move an alias, make keys and submit jobs with idempotency keys.
A run that was cut goes on with the faults that it had not finished.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks._breaking import LEASE_S, MODEL, Place, vector
from benchmarks._mishaps import MISHAPS, SHIFTED_CLOCK, happened
from benchmarks._places import DIMENSION, ROOT, Postgres, bucket, database, furnish, scratch
from benchmarks._rolling import rolled
from benchmarks.common import Claim, Parts, Preset, Result, Skip

KILLS = {"quick": {"sqlite": 8, "postgresql": 12}, "full": {"sqlite": 40, "postgresql": 60}}
KILLS_A_PART = 10
TRIES = {"quick": 5, "full": 100}
"""Of each mishap of `_mishaps`."""
ROLLS = {"quick": 1, "full": 4}
"""How often every process is restarted."""
FROZEN_TIMEOUT_S = 3
CHILD_PATIENCE_S = 90.0
"""Longest wait for a worker that has just started to begin an attempt."""


def run(preset: Preset) -> Result:
    """Break things, one after another."""
    try:
        import tests.serving  # noqa: F401
    except ImportError as error:
        raise Skip(f"needs the development environment ({error.name}): make .venv/.dev") from error
    parts = Parts("faults", preset, ("pairmark",))
    rows = []
    for kind, kills in KILLS[preset].items():
        some = [
            parts.get(
                f"kills {kind} {seed}",
                partial(_with_place, kind, partial(_kills, kind=kind, kills=n, seed=seed)),
            )
            for seed, n in enumerate(_split(kills))
        ]
        rows.append(_together(some))
    rows.append(parts.get("stopped", lambda: _with_place("postgresql", _stopped)))
    frozen = {"PAIRMARK_DATABASE_TIMEOUT_S": str(FROZEN_TIMEOUT_S)}
    rows.append(parts.get("frozen", lambda: _with_place("postgresql", _frozen, **frozen)))
    rows.append(parts.get("rolling", lambda: rolled(ROLLS[preset])))
    rows += [
        parts.get(f"clocks {kind}", partial(_with_place, kind, partial(_clocks, kind=kind), clock=True))
        for kind in ("sqlite", "postgresql")
    ]
    rows += parts.get("disks", _disks)
    rows.append(parts.get("s3", _s3))
    tries = TRIES[preset]
    mishaps = [parts.get(f"{name} {tries}", partial(happened, name, tries)) for name in MISHAPS]
    rows += mishaps
    parts.forget()
    kills_done = sum(row["times"] for row in rows if row["fault"].endswith("in turns"))
    totals = {name: sum(row[name] for row in rows) for name in ("lost", "twice", "wrong")}
    goal = sum(KILLS[preset].values())
    return Result(
        rows=rows,
        claims=[
            Claim(what="kills", goal=f"at least {goal}", measured=kills_done, holds=kills_done >= goal),
            Claim(what="tries of each mishap", goal=f"at least {tries}", measured=min(row["times"] for row in mishaps),
                  holds=all(row["times"] >= tries for row in mishaps)),
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


def _split(kills: int) -> list[int]:
    """Kills of each part: one that takes some minutes."""
    return [min(KILLS_A_PART, kills - at) for at in range(0, kills, KILLS_A_PART)]


def _together(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows of one fault as one."""
    return {
        name: value if isinstance(value, str) else sum(row[name] for row in rows)
        for name, value in rows[0].items()
    }


def _kills(place: Place, server: Postgres | None, *, kind: str, kills: int, seed: int) -> dict[str, Any]:
    started, rng = time.monotonic(), random.Random(seed)
    targets = ["api", "worker", "child", *(["database"] if server else [])]
    done: Counter[str] = Counter()
    place.load()
    for number in range(kills):
        time.sleep(rng.uniform(0.2, 1.2))
        target = targets[number % len(targets)]
        if target == "child":
            deadline = time.monotonic() + CHILD_PATIENCE_S
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
        print(
            f"{kind}: {number + 1} of {kills} kills, {place.reported.acknowledged} acknowledged", flush=True
        )
    print(f"{kind}: {dict(done)}", flush=True)
    return place.row(f"kill -9 of {', '.join(targets)} in turns", kind, kills, started)


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
                    place.reported.wrong.append(
                        f"/readyz without a database: {ready.status_code} after {took:.1f} s"
                    )
                scored = http.post("/similarity", json=pair)
                if scored.status_code != 200:
                    place.reported.wrong.append(
                        f"/similarity without a database: {scored.status_code} {scored.text[:200]}"
                    )
                time.sleep(0.5)
        server.start()
        place.await_ready()
    assert place.api is not None
    if place.api.poll() is not None:
        place.reported.wrong.append("the service ended while its database was away")
    return place.row("PostgreSQL stopped 10 s and back", "postgresql", 3, started)


def _frozen(place: Place, server: Postgres | None) -> dict[str, Any]:
    """PostgreSQL standing still for ten seconds, three times: nobody waits for ever, /readyz says so within 2 s."""
    assert server is not None
    import psutil

    started = time.monotonic()
    pair = {"model": "people", "left": vector(1), "right": vector(2)}
    place.load()
    for _ in range(3):
        time.sleep(2)
        postmaster = psutil.Process(server.pid)
        family = [postmaster, *postmaster.children(recursive=True)]
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.suspend()
        still = time.monotonic()
        try:
            with place.client() as http:
                while time.monotonic() - still < 10:
                    for method, path, more, status, most in (
                        ("GET", "/readyz", {}, 503, 2.0),
                        ("POST", "/similarity", {"json": pair}, 200, 5.0),
                    ):
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
    return place.row("PostgreSQL frozen 10 s", "postgresql", 3, started)


def _clocks(place: Place, server: Postgres | None, *, kind: str) -> dict[str, Any]:
    """A day ahead, back to now, a day behind, and back."""
    started = time.monotonic()
    shift = Path(place.environment["PAIRMARK_BENCH_CLOCK"])
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
            # A log on the same disk would be cut when the disk is full, and keep it from becoming read-only.
            place = Place(home, url, there, log=folder / "faults.log", TMPDIR=str(disk / "tmp"))
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
            place.write_item(http, int(word, 16) * 100 + number)
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
                place.reported.erased -= {name for name in place.reported.erased if int(name[1:]) % 50 == 7}
                for name in [name for name, number in place.reported.items.items() if number % 50 == 7]:
                    place.reported.unknown.add(name)
                    del place.reported.items[name]
            try:
                place.ask(http, method, path, **more)
            except httpx.TransportError as error:
                place.reported.wrong.append(f"{method} {path}: {error!r}")


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
    place.reported.wrong.clear()
    place.reported.statuses.clear()
    place.reported.acknowledged = 0
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
            _remount_read_only(disk)
            place.api = place.start("serve", "--port", str(place.port), "--wait", "5")
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


def _remount_read_only(disk: Path) -> None:
    """A killed worker's job ends a moment after it, and has files open for writing until then."""
    for _ in range(150):
        again = subprocess.run(
            ["mount", "-o", "remount,ro", str(disk)], capture_output=True, text=True, check=False
        )
        if not again.returncode:
            return
        time.sleep(0.2)
    raise RuntimeError(f"the disk is still in use after 30 s: {again.stderr}")


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
    with bucket("faults") as (port, settings):
        proxy = FlakyProxy(port)

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

        try:
            behind = {**settings, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
            return _with_place("sqlite", work, **behind)
        finally:
            proxy.close()
