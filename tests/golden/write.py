"""``python tests/golden/write.py CHECKOUT ARCHIVE``: keep what an earlier version of Pairmark writes.

Run with an environment that fits the checkout. The archive holds

- ``artefacts/NAME``: a fitted learner of each kind, with ``answers.npz``: what it answered to the rows of ``rows.npz``;
- ``home/``: a home with SQLite, a dataset, a model with its calibration, a gallery;
- ``export.zip``: the model as that version exported it;
- ``answers.json``: requests to the service and their answers.

Once written an archive is never changed: a version that cannot read it breaks its users' deployments.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

SMALL = {
    "n_estimators": 3, "n_pairs": 400, "max_depth": 4, "leaf_depth": 2, "random_state": 0, "n_folds": 2, "depth": 1,
    "k_max": 3, "max_iter": 3, "n_iter": 3, "hidden": (4,), "budget_seconds": 0.001, "candidates": ["neighbours"],
}  # fmt: skip
OF_KIND: dict[str, dict[str, Any]] = {"similarity-auto": {"candidates": ["cosine"]}}
WAYS: dict[str, tuple[dict[str, Any], ...]] = {
    "similarity-forest": (
        {"leaf_rank": "boosting"},
        {"pair_features": "discriminant"},
        {"leaf_rank": "linear"},
    ),
    "metric": ({"whiten": True}, {"metric": "manhattan"}),
}
CALLS = ("score_against", "transform", "predict_proba", "predict")


def rows() -> tuple[np.ndarray, np.ndarray]:
    """40 people of 3 samples, 6 features."""
    rng = np.random.default_rng(7)
    X = np.repeat(rng.normal(size=(40, 6)) * 2, 3, axis=0) + rng.normal(size=(120, 6)) * 0.5
    return X.astype(np.float32), np.repeat(np.arange(40), 3)


def answers(model: Any, X: np.ndarray) -> dict[str, np.ndarray]:
    """What a fitted learner says of rows."""
    found = {}
    if hasattr(model, "pair_score"):
        found["pair_score"] = model.pair_score(X[:60], X[60:120])
        found["score_against"] = model.score_against(X[:5], X)
    for name in ("transform", "predict_proba", "predict"):
        if hasattr(model, name):
            try:
                found[name] = np.asarray(getattr(model, name)(X[:20]))
            except (AttributeError, TypeError, ValueError, NotImplementedError):
                continue
    return found


def artefacts(package: str, checkout: Path, folder: Path) -> None:
    """Fit and save every learner that the checkout has."""
    models = importlib.import_module("pairmark" if package else "models")
    home = "core.registry" if (checkout / "models" / "core" / "registry.py").exists() else "registry"
    registry = importlib.import_module(f"{package}models.{home}")
    X, y = rows()
    Y = np.argsort(np.argsort(X[:, :4], axis=1), axis=1).astype(np.float64)
    for spec in registry.LEARNERS:
        for at, way in enumerate(({}, *WAYS.get(spec.kind, ()))):
            given = {**SMALL, **OF_KIND.get(spec.kind, {}), **way}
            known = {name: value for name, value in given.items() if name in spec.params.model_fields}
            try:
                model = spec.estimator(**known).fit(X, Y if spec.needs == "rankings" else y)
            except Exception as error:
                print(f"not kept: {spec.kind} {way}: {error}")
                continue
            place = folder / (spec.kind + (f"-{at}" if at else ""))
            models.save(model, place)
            np.savez(place.with_name(f"{place.name}.answers.npz"), **answers(model, X))
    np.savez(folder / "rows.npz", X=X, y=y)


def service(package: str, checkout: Path, folder: Path) -> None:
    """Serve, train, search, and keep the home with what was answered."""
    import httpx

    home = folder / "home"
    home.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "PAIRMARK_HOME": str(home), "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-m", f"{package}service.cli", "serve", "--port", str(port), "--with-worker"]
    log = (folder / "serve.log").open("wb")
    process = subprocess.Popen(command, cwd=checkout, env=environment, stdout=log, stderr=log)
    kept: list[dict[str, Any]] = []
    X, y = rows()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as http:
            until = time.monotonic() + 900
            while time.monotonic() < until:
                try:
                    if http.get("/readyz").status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                time.sleep(0.5)
            stream = io.BytesIO()
            np.savez(stream, X=X, y=y)
            http.post(
                "/datasets", data={"name": "people"}, files={"file": ("people.npz", stream.getvalue())}
            ).raise_for_status()
            job = http.post(
                "/jobs",
                json={
                    "learner": "similarity-forest", "dataset": "people", "model": "faces", "promote": True,
                    "params": {"n_estimators": 3, "n_pairs": 400, "max_depth": 4, "leaf_depth": 2, "random_state": 0},
                    "evaluation": {"protocol": "open-set", "n_pairs": 2000},
                },
            )  # fmt: skip
            job.raise_for_status()
            while (state := http.get(f"/jobs/{job.json()['id']}").json())["state"] in ("queued", "running"):
                time.sleep(0.5)
            assert state["state"] == "succeeded", state
            http.put("/galleries/people", json={"model": "faces"}).raise_for_status()
            items = [
                {
                    "id": f"i{at}",
                    "subject": f"s{y[at]}",
                    "vector": X[at].tolist(),
                    "metadata": {"even": at % 2 == 0},
                }
                for at in range(0, 120, 2)
            ]
            http.put("/galleries/people/items", json={"items": items}).raise_for_status()
            http.delete("/galleries/people/items/i4").raise_for_status()
            pairs = {"left": X[:6].tolist(), "right": X[1:7].tolist()}
            for method, path, body in (
                ("POST", "/similarity", pairs),
                ("POST", "/match?fpr=0.3&method=finite-sample", pairs),
                ("POST", "/match?fpr=0.5&method=finite-sample&confidence=0.9", pairs),
                ("POST", "/galleries/people/search", {"queries": X[:4].tolist(), "k": 5}),
                ("GET", "/models/faces/versions/1", None),
                ("GET", "/galleries/people/items?limit=3", None),
                ("GET", "/datasets/people", None),
            ):
                answer = http.request(method, path, json=body)
                print(method, path, answer.status_code)
                kept.append(
                    {
                        "method": method,
                        "path": path,
                        "body": body,
                        "status": answer.status_code,
                        "answer": answer.json(),
                    }
                )
    finally:
        process.terminate()
        process.wait(60)
    (folder / "answers.json").write_text(json.dumps(kept))
    exported = [
        sys.executable,
        "-m",
        f"{package}service.cli",
        "models",
        "export",
        "faces:1",
        str(folder / "export.zip"),
    ]
    subprocess.run(exported, cwd=checkout, env=environment, check=False)
    with sqlite3.connect(home / "pairmark.db") as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def main() -> None:
    """Write the archive."""
    checkout, archive = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    sys.path.insert(0, str(checkout))
    os.chdir(checkout)
    package = "pairmark." if (checkout / "pairmark").exists() else ""
    folder = Path(tempfile.mkdtemp())
    (folder / "artefacts").mkdir()
    artefacts(package, checkout, folder / "artefacts")
    service(package, checkout, folder)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_LZMA) as bundle:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.suffix not in (".log", ".db-wal", ".db-shm"):
                bundle.write(file, file.relative_to(folder))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
