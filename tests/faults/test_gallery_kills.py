"""kill -9 at random points of single writes and bulk imports: what was acknowledged is there, nothing is half there."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.serving import ROOT, serving

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


def test_several_workers_see_one_truth_and_a_killed_service_keeps_it(
    new_database: Callable[..., str], tmp_path: Path
) -> None:
    # Two services on one SQLite file: `test_mishaps`.
    url = new_database("postgresql")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, WIDTH)).astype(np.float32)
    vectors = rng.normal(size=(400, WIDTH)).astype(np.float32)

    def found(address: str) -> set[str]:
        # A connection of its own, so that any worker may answer.
        with httpx.Client(base_url=address, timeout=60, trust_env=False) as http:
            body = {"queries": vectors[0].tolist(), "k": 1000}
            return {hit["id"] for hit in http.post("/galleries/g/search", json=body).json()["results"][0]}

    acknowledged: list[str] = []
    with serving(tmp_path, url, "--with-worker", "--workers", "2") as deployment:
        deployment.upload("d", X, np.repeat(np.arange(30), 3))
        job = deployment.train(learner="metric", dataset="d", model="m", params={"metric": "euclidean"})
        assert job["state"] == "succeeded", job
        assert deployment.http.put("/galleries/g", json={"model": "m"}).status_code == 201
        for at in range(40):
            item = {"id": f"i{at}", "vector": vectors[at].tolist()}
            with httpx.Client(base_url=deployment.url, timeout=60, trust_env=False) as http:
                assert http.put("/galleries/g/items", json={"items": [item]}).json()["upserted"] == 1
                acknowledged.append(f"i{at}")
                if at % 10 == 9:
                    gone = acknowledged.pop(0)
                    assert http.delete(f"/galleries/g/items/{gone}").json()["items"] == 1
            assert found(deployment.url) == set(acknowledged)

        def write() -> None:
            with httpx.Client(base_url=deployment.url, timeout=60, trust_env=False) as http:
                try:
                    for start in range(40, 400, 20):
                        some = range(start, start + 20)
                        items = [{"id": f"i{at}", "vector": vectors[at].tolist()} for at in some]
                        if http.put("/galleries/g/items", json={"items": items}).json()["upserted"] == 20:
                            acknowledged.extend(f"i{at}" for at in some)
                except httpx.TransportError:
                    pass

        thread = threading.Thread(target=write)
        thread.start()
        while len(acknowledged) < 100 and thread.is_alive():
            time.sleep(0.005)
        deployment.process.kill()
        thread.join()
    with serving(tmp_path, url, process=True) as deployment:
        there = found(deployment.url)
        assert set(acknowledged) <= there
        for name in sorted(there)[:50]:
            kept = deployment.http.get(f"/galleries/g/items/{name}").json()["vector"]
            assert kept == vectors[int(name[1:])].tolist()
