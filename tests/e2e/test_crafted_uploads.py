"""Small files that become large: each is read or refused within bounds, and the refusal names the setting."""

from __future__ import annotations

import gzip
import io
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from tests.parquet import parquet
from tests.serving import PATIENCE_S, RunningServer, answered, serving

MIB = 1024 * 1024
ROLES = {"name": "crafted", "label": "y"}


@pytest.fixture(scope="module")
def served(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with a budget of time that tests can wait for."""
    limits = {"PAIRMARK_PARSE_TIMEOUT_S": "4", "PAIRMARK_MAX_UNPACKED_RATIO": "30"}
    with serving(
        tmp_path_factory.mktemp("crafted"), new_database("sqlite"), process=True, **limits
    ) as server:
        yield server


def refused(server: RunningServer, filename: str, body: bytes) -> dict[str, Any]:
    answer = answered(server.http.post("/datasets", data=ROLES, files={"file": (filename, body)}), 413)
    reported: dict[str, Any] = answer.json()
    return reported


def test_a_packed_file_is_refused_by_what_it_becomes(served: RunningServer) -> None:
    bomb = gzip.compress(b"x,y\n" + b"0,1\n1,2\n" * 9_000_000, 6)
    reported = refused(served, "x.csv.gz", bomb)
    assert reported["setting"] == "PAIRMARK_MAX_UNPACKED_RATIO"
    assert "PAIRMARK_MAX_UNPACKED_RATIO raises this" in str(reported["detail"])
    stream = io.BytesIO()
    np.savez_compressed(stream, X=np.zeros((70 * MIB // 64, 8)), y=np.arange(70 * MIB // 64) // 2)
    assert refused(served, "x.npz", stream.getvalue())["setting"] == "PAIRMARK_MAX_UNPACKED_RATIO"
    rows = parquet("SELECT 1 AS x, (i % 2) AS y FROM range(20_000_000) r(i)")
    assert refused(served, "x.parquet", rows)["setting"] == "PAIRMARK_MAX_UNPACKED_RATIO"


def fork_servers(server: RunningServer) -> list[psutil.Process]:
    """Processes that readers of uploads are forked from."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    return [
        one
        for one in children
        if one.status() != psutil.STATUS_ZOMBIE
        and "pairmark.service.parser" in one.cmdline()
        and "pairmark.service.parser" not in one.parent().cmdline()
    ]


def stored(server: RunningServer, body: bytes) -> httpx.Response:
    return server.http.post("/datasets", data=ROLES, files={"file": ("x.csv", body)})


def test_a_reader_that_dies_takes_nothing_down(served: RunningServer) -> None:
    """The next upload has a fork server again, should the one there is be killed."""
    # The first upload starts it, which is this one where the test runs alone.
    assert stored(served, b"x,y\n1,a\n2,a\n3,b\n").status_code == 201
    (fork_server,) = fork_servers(served)
    fork_server.kill()
    while fork_server.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert stored(served, b"x,y\n1,a\n2,a\n4,b\n").status_code == 201
    assert httpx.get(f"{served.url}/healthz", timeout=PATIENCE_S).status_code == 200
