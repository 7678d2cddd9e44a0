"""Makes the pictures of the console in the README and the docs: ``make screenshots``.

Serves a fresh installation with made-up people, trains on them through the job queue, and photographs the pages in
headless Chromium. Needs chromium and chromedriver.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from sklearn.datasets import load_digits

ROOT = Path(__file__).parent.parent
PICTURES = Path(__file__).parent / "pictures"
# name, address, colour scheme, width and height in pixels (None: the whole page)
SHOTS: tuple[tuple[str, str, str, int, int | None], ...] = (
    ("overview", "/", "light", 1280, 900),
    ("model", "/console/models/badges", "light", 1280, 1060),
    ("train", "/console/train?dataset=badge-photos:1", "light", 1280, 900),
    ("gallery", "/console/galleries/staff", "light", 1280, 900),
    ("review", "/console/reviews/REVIEW", "light", 1280, 900),
)
COLOURS = 112
PATIENCE_S = 300.0


def main() -> None:
    """Make all pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, _served(Path(home)) as http:
        _furnish(http)
        driver = _chromium()
        try:
            review = _reviewed(http)
            for name, address, scheme, width, height in SHOTS:
                url = f"{http.base_url}".rstrip("/") + address.replace("REVIEW", review)
                _photograph(driver, url, name, scheme, width, height)
        finally:
            driver.quit()


@contextmanager
def _served(home: Path) -> Iterator[httpx.Client]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PAIRMARK_")}
    environment = {**kept, "PAIRMARK_HOME": str(home), "PYTHONPATH": str(ROOT)}
    cli = [sys.executable, "-m", "pairmark.service.cli"]
    subprocess.run([*cli, "db", "upgrade"], cwd=ROOT, env=environment, check=True)
    with (home / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [*cli, "serve", "--port", str(port), "--with-worker"],
            cwd=ROOT,
            env=environment,
            stderr=log,
            stdout=log,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as http:
            _until(lambda: _ready(http))
            yield http
    finally:
        process.terminate()
        process.wait(20)


def _ready(http: httpx.Client) -> bool:
    try:
        return http.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def _until(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the service did not come so far in time")
        time.sleep(0.2)


def _people(n: int, samples: int, seed: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    spread = 1 + np.random.default_rng(5).random(32)
    centres = np.repeat(rng.normal(size=(n, 32)), samples, axis=0)
    who = np.array([f"person-{first + at // samples:04d}" for at in range(n * samples)])
    return (centres + 0.5 * spread * rng.normal(size=centres.shape)).astype(np.float32), who


def _furnish(http: httpx.Client) -> None:
    digits, classes = load_digits(return_X_y=True)
    for name, (X, y) in {
        "badge-photos": _people(2600, 3, 0),
        "digits": (digits.astype(np.float32), classes),
        "small-study": _people(40, 4, 3),
    }.items():
        stream = io.BytesIO()
        np.savez(stream, X=X, y=y)
        stream.seek(0)
        roles = {"name": name, **({"classes": "y"} if name == "digits" else {})}
        http.post("/datasets", data=roles, files={"file": (f"{name}.npz", stream)}).raise_for_status()
    forest = {"n_estimators": 20, "n_pairs": 30_000, "random_state": 0}
    for learner, dataset, model, params in (
        ("metric", "badge-photos", "badges", {"metric": "euclidean"}),
        ("metric", "badge-photos", "badges", {"metric": "cosine", "whiten": True}),
        ("similarity-forest", "digits", "digits", forest),
        ("metric", "small-study", "small-study", {"metric": "cosine"}),
    ):
        job = http.post(
            "/jobs", json={"learner": learner, "dataset": dataset, "model": model, "params": params}
        ).raise_for_status()
        number = job.json()["id"]
        _until(lambda number=number: http.get(f"/jobs/{number}").json()["state"] not in ("queued", "running"))
    http.put("/galleries/staff", json={"model": "badges"}).raise_for_status()
    X, who = _people(120, 2, 9, first=5000)
    items = [
        {"id": f"{one}-{at % 2}", "subject": one, "vector": vector.tolist(), "metadata": {"site": "north"}}
        for at, (one, vector) in enumerate(zip(who.tolist(), X, strict=True))
    ]
    http.put("/galleries/staff/items", json={"items": items}).raise_for_status()


def _reviewed(http: httpx.Client) -> str:
    """The id of a review with 140 judgements, one of them wrong."""
    X, who = _people(500, 2, 11, first=9000)
    pairs = {"left": X[::2].tolist(), "right": X[1::2].tolist()}
    refs = [[f"door-1/{at:04d}", one] for at, one in enumerate(who[::2].tolist())]
    asked = {"model": "badges", **pairs, "refs": refs}
    http.put("/models/badges/policy", json={"reviews": {"sides": True}}).raise_for_status()
    time.sleep(3)
    http.post("/match?fpr=0.1", json=asked).raise_for_status()
    time.sleep(7)
    asked = {"source": {"model": "badges"}, "name": "October", "judged_twice": 0.1}
    review = str(http.post("/reviews", json=asked).raise_for_status().json()["id"])
    for at in range(14):
        items = http.get(f"/reviews/{review}/next", params={"n": 10, "by": "ada"}).json()["items"]
        outcomes = [
            {"item": one["item"], "same": (at, place) != (4, 2), "by": "ada"}
            for place, one in enumerate(items)
        ]
        http.post(f"/reviews/{review}/outcomes", json={"outcomes": outcomes}).raise_for_status()
    items = http.get(f"/reviews/{review}/next", params={"n": 12, "by": "grace"}).json()["items"]
    outcomes = [{"item": one["item"], "same": True, "by": "grace"} for one in items]
    http.post(f"/reviews/{review}/outcomes", json={"outcomes": outcomes}).raise_for_status()
    return review


def _chromium() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def _photograph(
    driver: webdriver.Chrome, url: str, name: str, scheme: str, width: int, height: int | None
) -> None:
    feature = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": feature})
    size = {"width": width, "height": height or 900, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(url)
    time.sleep(2)
    picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    path = PICTURES / f"{name}.png"
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}  {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
