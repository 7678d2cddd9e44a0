"""The console in Chromium with 200 models and 1,000 jobs: first paint, bytes a page, and how fast the slider answers.

Run it in the development environment (``.venv/bin/python -m benchmarks console``): it needs selenium, chromium and
chromedriver.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._chromium import chromium, until
from benchmarks._crowd import crowd
from benchmarks.common import Claim, Preset, Result

ROOT = Path(__file__).parent.parent
N_MODELS, N_JOBS = 200, 1_000
PAGES = (
    "/",
    "/console/models",
    "/console/models/people",
    "/console/try",
    "/console/train",
    "/console/jobs",
    "/console/datasets",
    "/console/galleries",
    "/console/keys",
    "/console/audit",
    "/console/settings",
)
PAINT = """
const [seen] = performance.getEntriesByType("navigation");
const paint = performance.getEntriesByName("first-contentful-paint")[0];
const parts = performance.getEntriesByType("resource").filter((one) => !one.name.includes("/events"));
return [paint ? paint.startTime : null, seen.responseEnd, seen.decodedBodySize,
  parts.reduce((sum, one) => sum + one.decodedBodySize, seen.decodedBodySize)];
"""
SLIDE = """
const slider = document.querySelector("#rate"), took = [];
for (let at = 0; at < 40; at += 1) {
  const started = performance.now();
  slider.value = -2 + at / 40;
  slider.dispatchEvent(new Event("input"));
  took.push(performance.now() - started);
}
return took;
"""


def run(preset: Preset) -> Result:
    """Open every page several times, and move the slider."""
    rounds = 5 if preset == "quick" else 15
    rows: list[dict[str, Any]] = []
    with chromium() as browser, tempfile.TemporaryDirectory() as home, _served(Path(home)) as url:
        for path in PAGES:
            seen = []
            for _ in range(rounds + 1):
                browser.get(url + path)
                until(lambda: browser.execute_script(PAINT)[0] is not None)
                seen.append(browser.execute_script(PAINT))
            warm = np.array(seen[1:], dtype=float)
            rows.append(
                {
                    "page": path,
                    "first paint p50, ms": float(np.median(warm[:, 0])),
                    "first paint worst, ms": float(warm[:, 0].max()),
                    "first visit, ms": float(seen[0][0]),
                    "of which the server, ms": float(np.median(warm[:, 1])),
                    "page, kB": float(warm[-1, 2] / 1000),
                    "with scripts and styles, kB": float(warm[-1, 3] / 1000),
                }
            )
        browser.get(f"{url}/console/models/people")
        until(lambda: browser.execute_script("return document.querySelector('#curve path.curve') !== null"))
        slides = browser.execute_script(SLIDE)
    slide = float(max(slides))
    paint = max(row["first paint p50, ms"] for row in rows)
    bytes_ = max(row["with scripts and styles, kB"] for row in rows)
    return Result(
        rows=rows,
        claims=[
            Claim(
                what="first paint, slowest page, median, ms",
                goal="below 1,000",
                measured=paint,
                holds=paint < 1000,
            ),
            Claim(
                what="largest page with scripts and styles, kB",
                goal="below 200",
                measured=bytes_,
                holds=bytes_ < 200,
            ),
            Claim(
                what="the slider's slowest answer of 40, ms",
                goal="below 50",
                measured=slide,
                holds=slide < 50,
            ),
        ],
        facts={
            "slider's median answer, ms": float(np.median(slides)),
            "models": N_MODELS,
            "jobs": N_JOBS,
            "rounds": rounds,
            "load_average": os.getloadavg()[0],
        },
    )


@contextmanager
def _served(home: Path) -> Iterator[str]:
    from pairmark.client import Client

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PAIRMARK_")}
    environment |= {"PAIRMARK_HOME": str(home), "PYTHONPATH": str(ROOT)}
    cli = [sys.executable, "-m", "pairmark.service.cli"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [*cli, "serve", "--port", str(port), "--with-worker"],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: _answers(port))
        rng = np.random.default_rng(0)
        rows = np.repeat(rng.normal(size=(400, 16)), 3, axis=0) + 0.3 * rng.normal(size=(1200, 16))
        np.savez(home / "people.npz", X=rows.astype(np.float32), y=np.repeat(np.arange(400), 3))
        with Client(url) as client:
            client.add_dataset("people", home / "people.npz")
            client.train(dataset="people", model="people", learner="metric")
        crowd(home / "pairmark.db", model="people", n_models=N_MODELS, n_jobs=N_JOBS)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _answers(port: int) -> bool:
    import httpx

    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
