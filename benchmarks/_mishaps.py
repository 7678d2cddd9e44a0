"""What goes wrong once a year: killed backups, restores and migrations, disks that fill in a migration, clocks that
step, two services on one SQLite file, keys that are rotated. Each is tried many times."""

from __future__ import annotations

import atexit
import contextlib
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from benchmarks._breaking import Place, vector
from benchmarks._places import ROOT, furnish, scratch

OLDEST = "0004"
"""Revisions back to which migrations are tried."""
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
NOT_ROWS = frozenset({"alembic_version", "sqlite_sequence"})
CHANGE_SCHEMA = """
import sys
from pathlib import Path
from alembic import command
from alembic.config import Config
from pairmark import migrations
from pairmark.service.db import Database
url, way, revision = sys.argv[1:]
database = Database(url)
config = Config()
config.set_main_option("script_location", str(Path(migrations.__file__).parent))
print("ready", flush=True)
sys.stdin.readline()
with database.schema_change() as connection:
    config.attributes["connection"] = connection
    getattr(command, way)(config, revision)
database.dispose()
print("done", flush=True)
"""


@cache
def _prepared() -> tuple[Path, dict[str, Any]]:
    """A folder with a model and a gallery, and what is in it by name; made once a process."""
    from tests.serving import serving

    folder = Path(tempfile.mkdtemp(prefix="pm-prepared-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with serving(folder / "home", f"sqlite:///{folder}/pairmark.db") as server:
        return folder, furnish(server)


@contextlib.contextmanager
def furnished(name: str, **environment: str) -> Iterator[Place]:
    """A place on SQLite with a model and a gallery; nothing of it runs yet."""
    prepared, there = _prepared()
    with scratch(name) as folder:
        shutil.copytree(prepared, folder, dirs_exist_ok=True)
        place = Place(folder / "home", f"sqlite:///{folder}/pairmark.db", there, **environment)
        try:
            yield place
        finally:
            place.close()


def killed_backups(place: Place, times: int) -> dict[str, Any]:
    """kill -9 in `pairmark backup` while clients write: the file is whole or not there, and the next backup works."""
    started, rng = time.monotonic(), random.Random(0)
    folder = Path(place.environment["PAIRMARK_HOME"]).parent
    place.start_api()
    place.start_worker()
    seconds = _seconds(lambda: _ended(place.start("backup", str(folder / "whole.tar"))))
    place.load()
    for number in range(times):
        target = folder / f"b{number}.tar"
        process = place.start("backup", str(target))
        time.sleep(rng.uniform(0.3, 1.1) * seconds)
        process.kill()
        process.wait()
        if target.exists():
            if number % 10 == 0 or number == times - 1:
                _restored(place, target, folder / f"r{number}", whole=True)
            target.unlink()
    last = folder / "last.tar"
    if _ended(place.start("backup", str(last))):
        place.reported.wrong.append("no backup works after killed ones")
    else:
        _restored(place, last, folder / "last", whole=True)
    return place.row("kill -9 in backup", "sqlite", times, started)


def killed_restores(place: Place, times: int) -> dict[str, Any]:
    """kill -9 in `pairmark restore`: what is there is nothing or all, and restoring again makes it all."""
    started, rng = time.monotonic(), random.Random(0)
    folder = Path(place.environment["PAIRMARK_HOME"]).parent
    place.start_api()
    place.start_worker()
    with place.client() as http:
        for number in range(200):
            place.write_item(http, number)
    source = folder / "backup.tar"
    assert _ended(place.start("backup", str(source))) == 0
    expected = _restored(place, source, folder / "first", whole=True)
    seconds = _seconds(lambda: _restored(place, source, folder / "second", whole=True))
    for number in range(times):
        home = folder / f"r{number}"
        process = _elsewhere(place, home, "restore", str(source))
        time.sleep(rng.uniform(0.3, 1.1) * seconds)
        process.kill()
        process.wait()
        counts = _counts(home / "pairmark.db")
        rows = {
            name: n for name, n in counts.items() if name in expected and name not in ("audit", "revision")
        }
        full = {name: n for name, n in expected.items() if name in rows}
        if any(rows.values()) and rows != full:
            place.reported.wrong.append(f"a killed restore left a part: {rows}")
        status = _ended(_elsewhere(place, home, "restore", str(source)))
        if status != (1 if any(rows.values()) else 0):
            place.reported.wrong.append(f"restoring again ended with {status}")
        again = _counts(home / "pairmark.db")
        if {name: again.get(name) for name in full} != full:
            place.reported.wrong.append(f"after restoring again: {again}, expected {full}")
        shutil.rmtree(home, ignore_errors=True)
    return place.row("kill -9 in restore", "sqlite", times, started)


def full_migrations(place: Place, times: int) -> dict[str, Any]:
    """No space in the middle of an upgrade: refused in words and rolled back, and done when there is space."""
    from pairmark.migrations import HEAD, revisions
    from pairmark.service.db import Database
    from pairmark.service.errors import NotReady, StorageFailed

    started, rng = time.monotonic(), random.Random(0)
    file = Path(str(place.environment["PAIRMARK_DATABASE_URL"]).removeprefix("sqlite:///"))
    steps = [one for one in revisions() if OLDEST <= one < HEAD]
    refused = 0
    for number in range(times):
        copy = file.with_name(f"full{number}.db")
        _copy(file, copy)
        older = rng.choice(steps)
        _change_schema(copy, "downgrade", older)
        before = _counts(copy)
        # The log grows from nothing to so much; somewhere in between there is no more space.
        most = _log_bytes(copy)
        database = Database(f"sqlite:///{copy}")
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (rng.randrange(1, most), limit[1]))
        try:
            database.upgrade()
        except (StorageFailed, NotReady):
            refused += 1
        except Exception as error:
            place.reported.wrong.append(f"an upgrade without space: {error!r}"[:300])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        revision = database.revision()
        if revision not in (older, HEAD) or (revision == older and _counts(copy) != before):
            place.reported.wrong.append(f"an upgrade without space left revision {revision}")
        database.upgrade()
        if database.revision() != HEAD or _lost(before, _counts(copy)) or _integrity(copy) != "ok":
            place.reported.wrong.append(f"the upgrade from {older} did not go on when there was space")
        database.dispose()
        _remove(copy)
    print(f"{refused} of {times} upgrades were refused for lack of space", flush=True)
    place.start_api()
    place.start_worker()
    return place.row("disk full in migration", "sqlite", times, started)


def killed_migrations(place: Place, times: int) -> dict[str, Any]:
    """kill -9 in upgrades and downgrades, in turns: the schema is the old or the new one, with every row."""
    from pairmark.migrations import HEAD, revisions
    from pairmark.service.db import Database

    started, rng = time.monotonic(), random.Random(0)
    file = Path(str(place.environment["PAIRMARK_DATABASE_URL"]).removeprefix("sqlite:///"))
    steps = [one for one in revisions() if OLDEST <= one < HEAD]
    for number in range(times):
        copy = file.with_name(f"killed{number}.db")
        _copy(file, copy)
        older, way = rng.choice(steps), ("downgrade", "upgrade")[number % 2]
        if way == "upgrade":
            _change_schema(copy, "downgrade", older)
        before, source = _counts(copy), older if way == "upgrade" else HEAD
        target = HEAD if way == "upgrade" else older
        _change_schema(copy, way, target, kill_after=rng.uniform(0.0, 0.25))
        database = Database(f"sqlite:///{copy}")
        revision = database.revision()
        if revision not in (source, target):
            place.reported.wrong.append(f"a killed {way} from {source} to {target} left revision {revision}")
        remaining = _counts(copy)
        if revision == source and remaining != before:
            place.reported.wrong.append(f"a killed {way} changed rows and not the revision")
        # A downgrade that was done has dropped the tables that the older schema lacks.
        if revision != source and _lost(
            {name: n for name, n in before.items() if name in remaining}, remaining
        ):
            place.reported.wrong.append(f"a {way} lost rows: {before}, then {remaining}")
        database.upgrade()
        if database.revision() != HEAD or _lost(remaining, _counts(copy)) or _integrity(copy) != "ok":
            place.reported.wrong.append(f"no upgrade after a killed {way}")
        database.dispose()
        _remove(copy)
    place.start_api()
    place.start_worker()
    return place.row("kill -9 in upgrade and downgrade", "sqlite", times, started)


def stepped_clocks(place: Place, times: int) -> dict[str, Any]:
    """Clocks of every process step by up to two days, again and again, under load."""
    started, rng = time.monotonic(), random.Random(0)
    shift = Path(place.environment["PAIRMARK_BENCH_CLOCK"])
    place.start_api()
    place.start_worker()
    place.load()
    for _ in range(times):
        time.sleep(rng.uniform(0.2, 0.8))
        shift.write_text(str(rng.choice((-1, 1)) * 10 ** rng.uniform(0, 5.2)))
    shift.write_text("0")
    time.sleep(1)
    place.await_ready()
    return place.row("clock steps", "sqlite", times, started)


def two_services(place: Place, times: int) -> dict[str, Any]:
    """Two services on one SQLite file: what one acknowledged the other sees, under writes through both."""
    started = time.monotonic()
    place.start_api()
    place.start_worker()
    other = Place(Path(place.environment["PAIRMARK_HOME"]), place.environment["PAIRMARK_DATABASE_URL"],
                  {"key": place.key}, log=Path(place.environment["PAIRMARK_HOME"]).parent / "other.log")  # fmt: skip
    try:
        other.start_api()
        place.load()
        with place.client() as here, other.client() as there:
            for number in range(times):
                pair = (here, there) if number % 2 else (there, here)
                _seen_by_both(place, *pair, number)
    finally:
        other.close()
    place.reported.wrong += other.reported.wrong
    return place.row("two services on one file", "sqlite", times, started)


def _seen_by_both(place: Place, here: httpx.Client, there: httpx.Client, number: int) -> None:
    name, body = f"t{number}", {"queries": vector(10**9 + number), "k": 1}
    item = {"id": name, "vector": vector(10**9 + number)}
    # Busy for too long is refused in words, and tried again.
    if not _until(
        lambda: place.ask(here, "PUT", "/galleries/people/items", json={"items": [item]}).is_success
    ):
        place.reported.wrong.append(f"{name} could not be enrolled")
        return
    hits = place.ask(there, "POST", "/galleries/people/search", json=body).json()["results"][0]
    if not hits or hits[0]["id"] != name:
        place.reported.wrong.append(f"{name} was acknowledged and the other service does not find it")
    if not _until(lambda: place.ask(there, "POST", "/galleries/people/erase", json={"id": name}).is_success):
        place.reported.wrong.append(f"{name} could not be erased")
        return
    hits = place.ask(here, "POST", "/galleries/people/search", json=body).json()["results"][0]
    if hits and hits[0]["id"] == name:
        place.reported.wrong.append(f"{name} was erased and the other service still finds it")


def rotated_keys(place: Place, times: int) -> dict[str, Any]:
    """Keys are rotated while clients use them: no request with the newest key is refused, and the old one ends."""
    started = time.monotonic()
    place.start_api()
    place.start_worker()
    place.load()
    with place.client() as http:
        made = http.post("/keys", json={"name": "rotating", "scopes": ["score"]}).json()
        current, over, n_scores = [made["key"]], threading.Event(), [0]

        def score() -> None:
            body = {"model": "people", "left": vector(1), "right": vector(2)}
            with httpx.Client(base_url=place.url, timeout=60, trust_env=False) as caller:
                while not over.is_set():
                    key = current[0]
                    answer = caller.post("/similarity", json=body, headers={"x-api-key": key})
                    n_scores[0] += 1
                    # One that was rotated away in the meantime is still good: the overlap is minutes.
                    if answer.status_code != 200 and answer.status_code not in (503, 507):
                        place.reported.wrong.append(
                            f"a current key: {answer.status_code} {answer.text[:200]}"
                        )

        callers = [threading.Thread(target=score) for _ in range(4)]
        for caller in callers:
            caller.start()
        retired: list[tuple[str, str]] = []
        for _ in range(times):
            time.sleep(0.1)
            answer = place.ask(http, "POST", f"/keys/{made['id']}/rotate", json={"overlap_hours": 0.05})
            if not answer.is_success:
                continue
            retired.append((made["id"], current[0]))
            made = answer.json()
            current[0] = made["key"]
        time.sleep(0.5)
        over.set()
        for caller in callers:
            caller.join()
        ids = [one for one, _ in retired]
        if len({*ids, made["id"]}) != len(retired) + 1:
            place.reported.wrong.append("a rotation gave a key that there was")
        for id, key in retired:
            _until(lambda id=id: http.delete(f"/keys/{id}").status_code == 204)
            answer = http.post("/similarity", json={"model": "people", "left": vector(1), "right": vector(2)},
                               headers={"x-api-key": key})  # fmt: skip
            if answer.status_code != 401:
                place.reported.wrong.append(f"a revoked key is answered with {answer.status_code}")
    print(f"{n_scores[0]} scores while {len(retired)} keys were rotated", flush=True)
    return place.row("keys rotated under load", "sqlite", times, started)


MISHAPS: dict[str, Callable[[Place, int], dict[str, Any]]] = {
    one.__name__: one
    for one in (
        killed_backups, killed_restores, full_migrations, killed_migrations, stepped_clocks, two_services, rotated_keys
    )
}  # fmt: skip


def happened(name: str, times: int, *, is_gentle: bool = False) -> dict[str, Any]:
    """One of `MISHAPS` in a place of its own, whose clients may be gentle."""
    with scratch("clock") as folder:
        environment = {}
        if name == "stepped_clocks":
            (folder / "sitecustomize.py").write_text(SHIFTED_CLOCK)
            environment = {"PYTHONPATH": f"{folder}:{ROOT}", "PAIRMARK_BENCH_CLOCK": str(folder / "shift")}
        with furnished(name.replace("_", "-"), **environment) as place:
            place.is_gentle = is_gentle
            return MISHAPS[name](place, times)


# ---------------------------------------------------------------- helpers


def _until(done: Callable[[], bool], tries: int = 50) -> bool:
    for _ in range(tries):
        if done():
            return True
        time.sleep(0.1)
    return False


def _seconds(work: Callable[[], Any]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def _ended(process: subprocess.Popen[bytes]) -> int:
    return process.wait(timeout=120)


def _elsewhere(place: Place, home: Path, *words: str) -> subprocess.Popen[bytes]:
    environment = {**place.environment, "PAIRMARK_HOME": str(home)}
    del environment["PAIRMARK_DATABASE_URL"]
    with home.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "pairmark.service.cli", *words], env=environment, cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip


def _restored(place: Place, source: Path, home: Path, *, whole: bool) -> dict[str, int]:
    """Rows by table of what a backup restores to."""
    status = _ended(_elsewhere(place, home, "restore", str(source), "--keys", "keep"))
    if (status == 0) != whole:
        place.reported.wrong.append(f"{source.name} restores with status {status}")
    counts = _counts(home / "pairmark.db")
    shutil.rmtree(home, ignore_errors=True)
    return counts


def _counts(file: Path) -> dict[str, int]:
    """Rows by table; none where there is no file."""
    if not file.exists():
        return {}
    with contextlib.closing(sqlite3.connect(file, timeout=30)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
            for name in names
            if name not in NOT_ROWS
        }


def _integrity(file: Path) -> str:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


def _lost(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """Tables that had other numbers of rows; those that an older schema lacks are empty or new."""
    return [name for name, n in before.items() if after.get(name) != n]


def _copy(file: Path, target: Path) -> None:
    with (
        contextlib.closing(sqlite3.connect(file)) as source,
        contextlib.closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)


def _log_bytes(file: Path) -> int:
    """Size of the log of an upgrade that goes well."""
    from pairmark.service.db import Database

    copy = file.with_name(f"{file.stem}-log.db")
    _copy(file, copy)
    database = Database(f"sqlite:///{copy}")
    try:
        with database.engine.connect() as connection:
            # The last connection that closes empties the log.
            connection.exec_driver_sql("SELECT 1 FROM alembic_version").close()
            database.upgrade()
            return copy.with_name(copy.name + "-wal").stat().st_size
    finally:
        database.dispose()
        _remove(copy)


def _remove(file: Path) -> None:
    for end in ("", "-wal", "-shm"):
        file.with_name(file.name + end).unlink(missing_ok=True)


def _change_schema(file: Path, way: str, revision: str, *, kill_after: float | None = None) -> None:
    """Upgrade or downgrade in a process of its own, killed so many seconds after it began."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHANGE_SCHEMA, f"sqlite:///{file}", way, revision], cwd=ROOT,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    process.stdin.write(b"\n")
    process.stdin.flush()
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    _, errors = process.communicate(timeout=120)
    if kill_after is None and process.returncode:
        raise RuntimeError(f"{way} to {revision}: {errors.decode()[-500:]}")
