"""What a decision costs beside a score: server CPU of `/match` and of `/similarity` for the same body.

Measured as in `http_overhead`: a raw socket client, and the CPU of every thread of the server. Both routes also count
what they score for the live check. The body is one pair for the forest, and batches for a small tree, where the
decision weighs most. Linux only.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from typing import Any

import numpy as np

from benchmarks._served import JSON, RAW, environment_of, request_of, running_server
from benchmarks.common import Claim, Preset, Result, ratio
from benchmarks.http_overhead import DIMENSION, train

QUERY = "fpr=0.2&confidence=0.9"


def run(preset: Preset) -> Result:
    """Measure, in turns, both routes of one server."""
    rounds, small, batch, large = (15, 1_500, 60, 60) if preset == "quick" else (41, 5_000, 200, 200)
    random = np.random.default_rng(0)
    left, right = random.standard_normal((2, 1_000, DIMENSION)).astype(np.float32)
    one = {"model": "forest", "left": left[0].tolist(), "right": right[0].tolist()}
    many = {"model": "forest", "left": left[:100].tolist(), "right": right[:100].tolist()}
    raw = left.tobytes() + right.tobytes()
    bulk = f"model=tree&dim={DIMENSION}"
    rows: list[dict[str, Any]] = []
    claims = []
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder:
        environment = environment_of(folder)
        train(environment)
        serve = [sys.executable, "-m", "pairmark.service.cli", "serve", "--port"]
        with running_server(serve, environment, "/readyz") as service:
            for name, body, headers, query, times in (
                ("one pair as JSON", json.dumps(one).encode(), JSON, "", small),
                ("100 pairs as JSON", json.dumps(many).encode(), JSON, "", batch),
                ("1,000 pairs as raw float32", raw, RAW, bulk, large),
            ):
                requests = {
                    "/similarity": request_of(f"/similarity?{query}".rstrip("?"), body, headers),
                    "/match": request_of(f"/match?{QUERY}&{query}".rstrip("&"), body, headers),
                }
                spent: dict[str, list[float]] = {route: [] for route in requests}
                for request in requests.values():
                    service.ask(request, times // 4)
                for turn in range(rounds):
                    for route in list(requests) if turn % 2 == 0 else list(reversed(requests)):
                        before = service.cpu()
                        service.ask(requests[route], times)
                        spent[route].append((service.cpu() - before) / times)
                more = ratio(spent["/match"], spent["/similarity"]) - 1
                for route, seconds in spent.items():
                    rows.append(
                        {
                            "request": name,
                            "route": route,
                            "CPU us a request": round(1e6 * statistics.median(seconds), 1),
                            "more than /similarity": "" if route != "/match" else f"{more:+.1%}",
                        }
                    )
                claims.append(
                    Claim(
                        what=f"{name}: CPU of /match beyond that of /similarity",
                        goal="at most 5 % more",
                        measured=round(more, 4),
                        holds=more <= 0.05,
                    )
                )
    return Result(rows=rows, claims=claims, facts={"load_average": os.getloadavg()[0]})
