"""Recursive similarity features on many rows: handwritten digits (MNIST), time, memory and accuracy against n.

``all rows``: every training row can be a neighbour, the algorithm as it stands (with a machine of squared hinge loss);
``L landmarks``: only so many rows, drawn class by class, can. Raw pixels, ``standardize=False``; width .03 and C = .1
were chosen on other training images, 4,000 to learn from and 4,000 to judge. Every contestant runs in a process of
its own, whose peak memory is told. Beside them, 3 nearest neighbours on the same rows.

Quick: up to 5,000 rows, and all 60,000 with 1,000 landmarks; full: 20,000 rows too, more landmarks, two layers. The
test images (10,000; quick: the first 5,000) judge only.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.common import Claim, Preset, Result
from benchmarks.mnist import _read
from pairmark.models import RSBL

SETTINGS: dict[str, Any] = {
    "depth": 1, "k_max": 10, "patience": 1, "n_folds": 2, "beta": 0.03, "C": 0.1, "standardize": False,
    "random_state": 0, "n_jobs": 2,
}  # fmt: skip
ALL = "all rows"
KNN = "3 nearest neighbours"


def run(preset: Preset) -> Result:
    """Train and judge each in turn."""
    quick = preset == "quick"
    rows = []
    tasks: list[tuple[int, str, dict[str, Any]]] = []
    for n in (1_000, 5_000, 60_000) if quick else (1_000, 5_000, 20_000, 60_000):
        tasks.append((n, KNN, {}))
        if n <= 5_000:
            tasks.append((n, ALL, {"max_references": n}))
        landmarks = {1_000: [250], 5_000: [500, 1_000, 2_000]}.get(n, [1_000 if quick else 4_000])
        tasks += [(n, f"{many:,} landmarks", {"max_references": many}) for many in landmarks]
    if not quick:
        deep = {"max_references": 2_000, "depth": 2}
        tasks += [(60_000, "2,000 landmarks, depth 2", deep)]
    context = multiprocessing.get_context("spawn")
    for task in tasks:
        # Not multiprocessing.Pool: its processes are daemons, in which joblib allows one thread only.
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            rows.append(pool.submit(_measured, quick, *task).result())
        print(rows[-1], flush=True)
    return Result(
        rows=rows,
        claims=_claims(rows),
        facts={"settings": SETTINGS, "test_images": 5_000 if quick else 10_000},
    )


def _measured(quick: bool, n: int, name: str, params: dict[str, Any]) -> dict[str, Any]:
    X, y, test_X, test_y = _read()
    drawn = np.sort(np.random.default_rng(0).permutation(len(y))[:n])
    X, y = X[drawn].copy(), y[drawn]
    if quick:
        test_X, test_y = test_X[:5_000], test_y[:5_000]
    if name == KNN:
        model: Any = KNeighborsClassifier(3, n_jobs=2)
    else:
        model = RSBL(**{**SETTINGS, **params})
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(X, y)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    asked = time.perf_counter()
    reported = np.concatenate([model.predict(test_X[at : at + 500]) for at in range(0, len(test_y), 500)])
    asked = time.perf_counter() - asked
    return {
        "rows": n,
        "contestant": name,
        "accuracy, %": 100 * float((reported == test_y).mean()),
        "k'": None if name == KNN else "+".join(map(str, model.k_)),
        "features": X.shape[1] if name == KNN else model.n_components_,
        "training s": wall,
        "training CPU s": cpu,
        "peak GiB of training": peak,
        "1,000 points classified in s": 1_000 * asked / len(test_y),
    }


def _claims(rows: list[dict[str, Any]]) -> list[Claim]:
    def of(n: int, start: str) -> dict[str, Any]:
        return next(row for row in rows if row["rows"] == n and row["contestant"].startswith(start))

    exact, some = of(5_000, ALL), of(5_000, "2,000 landmarks")
    claims = [
        Claim(
            what="5,000 rows: points of accuracy that 2,000 landmarks cost against all rows",
            goal="none: stated only",
            measured=exact["accuracy, %"] - some["accuracy, %"],
            holds=True,
        )
    ]
    most = max(row["rows"] for row in rows)
    ours = next(row for row in rows if row["rows"] == most and "landmarks" in row["contestant"])
    near = of(most, KNN)
    gained = ours["accuracy, %"] - near["accuracy, %"]
    claims.append(
        Claim(
            what=f"{most:,} rows: points above 3 nearest neighbours",
            goal="at least 0.3",
            measured=gained,
            holds=gained >= 0.3,
        )
    )
    claims.append(
        Claim(
            what=f"{most:,} rows: minutes of training",
            goal="under 20",
            measured=ours["training s"] / 60,
            holds=ours["training s"] < 1_200,
        )
    )
    claims.append(
        Claim(
            what=f"{most:,} rows: peak memory, GiB",
            goal="under 4",
            measured=ours["peak GiB of training"],
            holds=ours["peak GiB of training"] < 4,
        )
    )
    return claims
