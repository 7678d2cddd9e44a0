"""How fast GHOST learns: iterations a second and seconds in all against points, features and order.

The authors' code, for reference: 41.6 s to learn from 92 points x 60 features, order 2 with paths (measured elsewhere).
"""

from __future__ import annotations

import resource
import statistics
import time
from typing import Any

import numpy as np

from benchmarks.common import Claim, Preset, Result
from pairmark.models import Ghost

AUTHORS_SECONDS = 41.6
SHAPES: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (92, 60, {"graph": "knn"}),
    (92, 60, {}),
    (92, 60, {"graph": "knn", "order": 3}),
    (92, 60, {"graph": "knn", "order": 4}),
    (500, 60, {"graph": "knn"}),
    (500, 1_000, {}),
    (500, 60, {"graph": "knn", "order": 3}),
    (2_000, 100, {}),
    (2_000, 100, {"graph": "knn"}),
    (2_000, 100, {"graph": "knn", "order": 3}),
)


def run(preset: Preset) -> Result:
    """Full: sets of three as well over every one of a class's points (max_sets=1000), and 20,000 rows in parts."""
    shapes = list(SHAPES)
    if preset == "full":
        shapes.append((2_000, 100, {"graph": "knn", "order": 3, "max_sets": 1_000}))
        shapes.append((20_000, 100, {}))
    rows = []
    for n, K, params in shapes:
        X, y = _data(n, K)
        # Every iteration is made, and all rows are one training set, so that shapes can be compared.
        model = Ghost(random_state=0, tol=0.0, subset_size=2_048, **params)
        if n <= 500:
            model.fit(X, y)  # kernels compile
        wall, cpu = [], []
        for _ in range(5 if n <= 100 else 1):
            started, worked = time.perf_counter(), time.process_time()
            model.fit(X, y)
            wall.append(time.perf_counter() - started)
            cpu.append(time.process_time() - worked)
        rows.append(
            {
                "points": n,
                "features": K,
                "order": params.get("order", 2),
                "graph": "graph" in params,
                "sets a class": params.get("max_sets", 256) if params.get("order", 2) > 2 else None,
                "seconds": statistics.median(wall),
                "CPU s": statistics.median(cpu),
                "iterations": len(model.history_),
                "iterations / s": len(model.history_) / statistics.median(wall),
                "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
            }
        )
    small, large = rows[0], next(row for row in rows if row["points"] == 2_000 and row["order"] == 3)
    claims = [
        Claim(
            what="92 points x 60 features, order 2 with paths: CPU seconds of a whole fit, 50 iterations",
            goal=f"at most {AUTHORS_SECONDS / 1000:.2g}, a thousandth of the author's code",
            measured=small["CPU s"],
            holds=small["CPU s"] <= 0.042,
        ),
        Claim(
            what="2,000 points x 100 features, order 3 with a graph: seconds",
            goal="at most 60",
            measured=large["seconds"],
            holds=large["seconds"] <= 60,
        ),
        Claim(
            what="the same: peak memory of the process, GB", goal="at most 2",
            measured=large["peak GB"], holds=large["peak GB"] <= 2,
        ),
    ]  # fmt: skip
    return Result(rows=rows, claims=claims, facts={"author_seconds": AUTHORS_SECONDS})


def _data(n: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that differ a little in 40 % of the features."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    X = rng.standard_normal((n, K))
    X[:, : int(0.4 * K)] += y[:, None]
    return X.astype(np.float32), y
