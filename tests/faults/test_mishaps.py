"""kill -9 at random points, power cuts, clocks that step: what was acknowledged is there, nothing is half there."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from benchmarks.faults import happened
from pairmark.client import Client
from pairmark.service.blobs import Blobs
from pairmark.service.db import Database
from tests.service.test_links import table, write
from tests.serving import ROOT, serving

ROUNDS = 50


def killed(what: str, rounds: int, *words: str, **environment: str) -> dict[str, Any]:
    """What was acknowledged by writers that were killed, beside what is there."""
    script = Path(__file__).parent / "writers.py"
    done = subprocess.run(
        [sys.executable, str(script), what, str(rounds), *words],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_fifty_kills_lose_and_double_no_record(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "home", f"sqlite:///{tmp_path / 'links.db'}", job_thread=True) as server,
        Client(server.url) as client,
    ):
        client.add_dataset(
            "people", write(tmp_path / "people.csv", table(300, "dependent")[1]), unlabelled=True
        )
        made = client.link("people")
        reported = killed("links", ROUNDS, made["id"], **server.environment)
    assert reported["acknowledged"] >= ROUNDS
    assert (reported["missing"], reported["twice"], reported["again"]) == ([], [], "k0-0")
    assert reported["counted"] == reported["records"]


def test_a_blob_is_flushed_with_its_folder_before_its_key_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: set[int] = set()
    flush = os.fsync

    def fsync(descriptor: int) -> None:
        flushed.add(os.fstat(descriptor).st_ino)
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    blobs = Blobs(tmp_path / "artefacts")
    with blobs.workspace() as folder:
        (folder / "a.npy").write_bytes(b"one" * 50)
        (folder / "in").mkdir()
        (folder / "in" / "b.json").write_bytes(b"{}")
        key = blobs.put_folder(folder)
    stored = blobs.folder(key)
    for path in (stored, *stored.rglob("*"), *list(stored.parents)[:2]):
        assert path.stat().st_ino in flushed, path


def test_sqlite_flushes_every_commit(new_database: Callable[..., str]) -> None:
    database = Database(new_database("sqlite"))
    with database.read() as session:
        # 2: FULL, which SQLite documents to keep what was committed through a power cut, in WAL mode too.
        assert session.execute(text("PRAGMA synchronous")).scalar_one() == 2
    database.dispose()


@pytest.mark.nightly
@pytest.mark.skipif(
    sys.platform != "linux", reason="clocks that step and killed groups of processes need Linux"
)
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "kind", "times"),
    [
        ("killed", "sqlite", 4),
        ("stepped_clocks", "sqlite", 6),
        ("two_services", "sqlite", 6),
        ("frozen", "postgresql", 1),
        ("rolling_restart", "postgresql", 1),
    ],
)
def test_nothing_is_lost_doubled_or_half(name: str, kind: str, times: int) -> None:
    row = happened(name, kind, times, is_gentle=True)
    assert row["acknowledged"] > 0
    assert (row["lost"], row["twice"], row["wrong"]) == (0, 0, 0), row
    if name == "rolling_restart":
        assert row["refused (503, 507)"] == 0


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [
        ("sqlite", 12),
        ("postgresql", 8),
        pytest.param("sqlite", ROUNDS, marks=pytest.mark.nightly),
        pytest.param("postgresql", ROUNDS, marks=pytest.mark.nightly),
    ],
)
def test_kills_lose_nothing_that_was_acknowledged(
    kind: str, rounds: int, new_database: Callable[..., str], tmp_path: Path
) -> None:
    reported = killed("gallery", rounds, new_database(kind), str(tmp_path))
    assert reported["acknowledged"] >= rounds
    assert (reported["missing"], reported["risen"], reported["half"]) == ([], [], [])
    assert reported["counted"] == reported["found"] == reported["viewed"]
    assert reported["same"]
