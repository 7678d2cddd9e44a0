"""What a request costs since an earlier commit: server CPU of both commits' services, measured in turns.

The earlier commit's files are unpacked under ``var/bench`` (``PAIRMARK_BENCH_BEFORE`` names another; default: the last
before tenants, quotas and reviews). Both have all on that they know: a key with a rate, a trace context, and decisions
of /match in the audit log only where a row says so. Linux only (it reads /proc).
"""

from __future__ import annotations

import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._served import JSON, ROOT, request_of, running_server
from benchmarks.common import Claim, Preset, Result, Skip, ratio
from benchmarks.http_overhead import DIMENSION

BEFORE = "a390aac"
GOAL = 1.03
SETTINGS = {"PAIRMARK_RATE_LIMIT": "1000000"}
TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}


def run(preset: Preset) -> Result:
    """Measure single pairs by both services."""
    commit = os.environ.get("PAIRMARK_BENCH_BEFORE", BEFORE)
    rounds, requests = (15, 1_000) if preset == "quick" else (41, 3_000)
    random = np.random.default_rng(0)
    left, right = random.standard_normal((2, DIMENSION)).astype(np.float32).tolist()
    body = json.dumps({"model": "points", "left": left, "right": right}).encode()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pairmark-bench-")))
        earlier = _checkout(commit)
        before_cli = "pairmark.service.cli" if (earlier / "pairmark").exists() else "service.cli"
        places = {
            "before": _Side(earlier, before_cli, folder / "before", SETTINGS),
            "now": _Side(ROOT, "pairmark.service.cli", folder / "now", SETTINGS),
        }
        served = {}
        for name, side in places.items():
            side.furnish(folder)
            command = [sys.executable, "-m", side.cli, "serve", "--port"]
            served[name] = stack.enter_context(
                running_server(command, side.environment, "/readyz", side.root)
            )
        cases = {
            "/similarity": {
                name: request_of("/similarity", body, {**JSON, **side.key, **TRACE})
                for name, side in places.items()
            },
            "/match": {
                name: request_of("/match?fpr=0.2", body, {**JSON, **side.key, **TRACE})
                for name, side in places.items()
            },
        }
        rows: list[dict[str, Any]] = []
        ratios: dict[str, float] = {}
        for case, sent in cases.items():
            spent: dict[str, list[float]] = {name: [] for name in served}
            for name, server in served.items():
                server.ask(sent[name], requests)
            for turn in range(rounds):
                for name in served if turn % 2 == 0 else reversed(served):
                    used = served[name].cpu()
                    served[name].ask(sent[name], requests)
                    spent[name].append((served[name].cpu() - used) / requests)
            ratios[case] = ratio(spent["now"], spent["before"])
            rows += [
                {
                    "request": case, "commit": commit if name == "before" else "this one",
                    "CPU us a request": round(1e6 * statistics.median(seconds), 1),
                    "least": round(1e6 * min(seconds), 1),
                    "of before": 1.0 if name == "before" else round(ratios[case], 3),
                    "least of before": 1.0 if name == "before" else round(min(spent["now"]) / min(spent["before"]), 3),
                }
                for name, seconds in spent.items()
            ]  # fmt: skip
    return Result(
        rows=rows,
        claims=[
            Claim(
                what="server CPU of one /similarity, with a rate, audit and tracing, of what it was",
                goal=f"at most {GOAL}", measured=round(ratios["/similarity"], 3), holds=ratios["/similarity"] <= GOAL,
            )
        ],
        facts={"before": commit, "rounds": rounds, "requests a round": requests, "load_average": os.getloadavg()[0]},
    )  # fmt: skip


class _Side:
    """One commit's service with a model and a key."""

    def __init__(self, root: Path, cli: str, home: Path, settings: dict[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PAIRMARK_")}
        self.root, self.cli, self.key = root, cli, {"x-api-key": ""}
        self.environment = {**kept, **settings, "PAIRMARK_HOME": str(home), "PYTHONPATH": str(root)}

    def furnish(self, folder: Path) -> None:
        """Make a model that costs next to nothing, so that the service is what is measured, and a key."""
        random = np.random.default_rng(1)
        y = np.repeat(np.arange(40), 12)
        X = random.standard_normal((40, DIMENSION))[y] + random.standard_normal((len(y), DIMENSION))
        file = folder / "points.npz"
        np.savez(file, X=X.astype(np.float32), y=y)
        self._run("db", "upgrade")
        self._run("datasets", "add", "points", str(file), "--label", "y")
        words = (
            "--learner",
            "metric",
            "--param",
            "metric=euclidean",
            "--dataset",
            "points",
            "--model",
            "points",
        )
        # Not the command line's own training, which gives up on a cold machine while kernels compile.
        self._run("train", *words, "--no-wait")
        self._run("worker", "--drain")
        self.key["x-api-key"] = json.loads(self._run("keys", "create", "--scope", "admin", "--json"))["key"]

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", self.cli, *words],
            cwd=self.root, env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{' '.join(words[:2])} in {self.root}: {done.stderr[-1000:]}")
        return done.stdout


def _checkout(commit: str) -> Path:
    """The files of a commit, kept under ``var/`` with the kernels that they compile: the next run finds them warm."""
    folder = ROOT / "var" / "bench" / commit
    if folder.exists():
        return folder
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=False)
    if packed.returncode:
        raise Skip(f"needs commit {commit} in this clone: {packed.stderr.decode().strip()[:200]}")
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(part, filter="data")
    part.rename(folder)
    return folder
