"""What keeping decisions for reviews costs: server CPU of `/match` of two equal models, one of which keeps decisions.

Measured as in `match_overhead`, in turns on one server, until everything is written. The policy is the default one: all
decisions are kept up to about 1,000 an hour, and a random sample of them beyond. Requests come from an hour that has
60,000 decisions already, as they do under load. Linux only.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any

import httpx
import numpy as np

from benchmarks._served import JSON, environment_of, request_of, running_server, trained
from benchmarks.common import Claim, Preset, Result, ratio
from benchmarks.http_overhead import DIMENSION, people
from benchmarks.match_overhead import QUERY

READ_S = 1.5
"""By then every process has read the policy."""
WRITTEN_S = 4.0
"""By then every process has written what it had kept and counted."""
EARLIER = 60_000
"""Decisions of the hour before the first one that is measured."""


def asked(model: str, body: Any) -> bytes:
    """A request of one of the models."""
    return request_of(f"/match?{QUERY}", json.dumps({"model": model, **body}).encode(), JSON)


def run(preset: Preset) -> Result:
    """Measure, in turns, with and without."""
    rounds, times = (9, 3_000) if preset == "quick" else (15, 6_000)
    random = np.random.default_rng(0)
    left, right = random.standard_normal((2, 100, DIMENSION)).astype(np.float32)
    hundred = {"left": left.tolist(), "right": right.tolist()}
    bodies: dict[str, tuple[Any, int]] = {
        "one pair as JSON": ({"left": left[0].tolist(), "right": right[0].tolist()}, times),
        "100 pairs as JSON": (hundred, times // 20),
    }
    rows: list[dict[str, Any]] = []
    claims = []
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder:
        environment = environment_of(folder)
        X, y = people(12, 40, DIMENSION)
        forest = {"n_estimators": 100, "n_pairs": 10_000, "random_state": 0}
        jobs = [{"learner": "similarity-forest", "model": name, "params": forest} for name in ("off", "on")]
        trained(environment, jobs, request={"classes": "y"}, X=X, y=y)
        serve = [sys.executable, "-m", "pairmark.service.cli", "serve", "--port"]
        with (
            running_server(serve, environment, "/readyz") as service,
            httpx.Client(base_url=f"http://127.0.0.1:{service.port}") as http,
        ):
            http.put("/models/on/policy", json={"reviews": {}}).raise_for_status()
            time.sleep(READ_S)
            service.ask(asked("on", hundred), EARLIER // 100)
            for name, (body, n) in bodies.items():
                spent: dict[str, list[float]] = {"off": [], "on": []}
                for turn in range(rounds + 1):
                    for policy in ("off", "on") if turn % 2 else ("on", "off"):
                        request = asked(policy, body)
                        service.ask(request, n // 10)
                        time.sleep(WRITTEN_S)
                        before = service.cpu()
                        service.ask(request, n)
                        time.sleep(WRITTEN_S)
                        if turn:
                            spent[policy].append((service.cpu() - before) / n)
                more = ratio(spent["on"], spent["off"]) - 1
                rows += [
                    {
                        "request": name,
                        "reviews": policy,
                        "CPU us a request": round(1e6 * statistics.median(seconds), 1),
                        "more than off": f"{more:+.1%}" if policy == "on" else "",
                    }
                    for policy, seconds in spent.items()
                ]
                claims.append(
                    Claim(
                        what=f"{name}: CPU of /match with reviews on beyond that without",
                        goal="at most 2 % more",
                        measured=round(more, 4),
                        holds=more <= 0.02,
                    )
                )
    return Result(rows=rows, claims=claims, facts={"load_average": os.getloadavg()[0]})
