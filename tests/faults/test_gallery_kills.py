"""kill -9 at random points of single writes and bulk imports: what was acknowledged is there, nothing is half there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.serving import ROOT

KINDS = ("sqlite", "postgresql")
WIDTH = 8
ROUNDS = {"sqlite": 30, "postgresql": 20}


@pytest.mark.parametrize("kind", KINDS)
def test_fifty_kills_lose_nothing_that_was_acknowledged(
    kind: str, new_database: Callable[..., str], tmp_path: Path
) -> None:
    script = Path(__file__).parent / "gallery_writers.py"
    done = subprocess.run(
        [sys.executable, str(script), new_database(kind), str(tmp_path), str(ROUNDS[kind])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    reported = json.loads(done.stdout)
    assert reported["acknowledged"] >= ROUNDS[kind]
    assert (reported["missing"], reported["risen"], reported["half"]) == ([], [], [])
    assert reported["counted"] == reported["found"] == reported["viewed"]
    assert reported["same"]
