"""kill -9 while records are put into links, entities merged and files made anew: what was acknowledged is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pairmark.client import Client
from tests.service.test_links import table, write
from tests.serving import ROOT, serving

ROUNDS = 50


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_fifty_kills_lose_and_double_no_record(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'links.db'}"
    with serving(tmp_path / "home", url, job_thread=True) as server, Client(server.url) as client:
        client.add_dataset(
            "people", write(tmp_path / "people.csv", table(300, "dependent")[1]), unlabelled=True
        )
        made = client.link("people")
        script = str(Path(__file__).parent / "link_writers.py")
        done = subprocess.run(
            [sys.executable, script, made["id"], str(ROUNDS)],
            cwd=ROOT,
            env=os.environ | server.environment,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    reported = json.loads(done.stdout)
    assert reported["acknowledged"] >= ROUNDS
    assert (reported["missing"], reported["twice"], reported["again"]) == ([], [], "k0-0")
    assert reported["counted"] == reported["records"]
