"""CPU of fitting, scoring and searching beside an earlier commit: ``python -m benchmarks rates --against COMMIT``.

Both trees run in processes of their own, in turns, on the same data. The earlier one lies under ``var/cache``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
EARLIER = "29bb242"
"""The last commit before the kernels were taken apart."""
MOST = 1.05
PROCESSES = 4
"""Of each tree, started in turns: where a process's memory lies moves its rate by more than `MOST` allows."""
NAMES = (
    "fit one tree", "fit a forest of 8", "fit a forest of 2, boosted cells", "fit a forest of 4, discriminant",
    "score 100,000 pairs by 20 trees", "score 100,000 pairs by a metric", "search 40,000 rows for 50 queries",
)  # fmt: skip


def tasks() -> list[Any]:
    """Calls in the order of `NAMES`, by public names, which any commit has."""
    try:
        import pairmark as library
    except ImportError:
        import models as library  # type: ignore[no-redef]
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(1_000), 8)
    X = (rng.normal(size=(1_000, 32))[y] + 0.8 * rng.normal(size=(y.size, 32))).astype(np.float32)
    left, right = X[rng.integers(0, y.size, (2, 100_000))]
    tree, forest, common = (
        library.SimilarityTree,
        library.SimilarityForest,
        {"n_pairs": 50_000, "random_state": 0},
    )
    scorer = forest(n_estimators=20, **common).fit(X, y)
    metric = library.MetricSimilarity(whiten=True).fit(X, y)
    gallery = metric.index(np.tile(X, (5, 1)))
    return [
        lambda: tree(max_depth=10, **common).fit(X, y),
        lambda: forest(n_estimators=8, **common).fit(X, y),
        lambda: forest(n_estimators=2, leaf_rank="boosting", **common).fit(X, y),
        lambda: forest(n_estimators=4, pair_features="discriminant", **common).fit(X, y),
        lambda: scorer.pair_score(left, right),
        lambda: metric.pair_score(left, right),
        lambda: metric.top_k(X[:50], gallery, 10),
    ]


def answer() -> None:
    """Do each task named by its number on stdin; print its CPU seconds."""
    there = tasks()
    for line in sys.stdin:
        before = time.process_time()
        there[int(line)]()
        print(time.process_time() - before, flush=True)


def started(tree: Path) -> Any:
    """A process that answers with the code of a tree, on one thread."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    return subprocess.Popen([sys.executable, "-P", __file__], env=environment, cwd=tree, **pipes)


def run(preset: str) -> Any:
    """Measure the ratios round by round."""
    from benchmarks.common import Claim, Result, ratio

    commit = os.environ.get("PAIRMARK_AGAINST", EARLIER)
    earlier = ROOT / "var" / "cache" / "rates" / commit
    if not earlier.exists():
        earlier.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "x", "-C", earlier], input=archive, check=True)
    spent: list[tuple[list[float], list[float]]] = [([], []) for _ in NAMES]
    for number in range(PROCESSES):
        order = (0, 1) if number % 2 else (1, 0)
        both = {side: started((ROOT, earlier)[side]) for side in order}
        for turn in range(-1, 2 if preset == "quick" else 8):
            for task, lists in enumerate(spent):
                for side in (0, 1) if turn % 2 else (1, 0):
                    print(task, file=both[side].stdin)
                    seconds = float(both[side].stdout.readline())
                    if turn >= 0:  # The first round compiles.
                        lists[side].append(seconds)
        for process in both.values():
            process.stdin.close()
            process.wait()
    rows, claims = [], []
    for name, (here, there) in zip(NAMES, spent, strict=True):
        found = ratio(here, there)
        rows.append({"task": name, "CPU ms": round(1e3 * min(here), 2), f"over {commit}": round(found, 3)})
        claims.append(
            Claim(
                what=f"{name}: CPU over {commit}", goal=f"at most {MOST}", measured=found, holds=found <= MOST
            )
        )
    return Result(rows=rows, claims=claims, facts={"load_average": os.getloadavg()[0]})


if __name__ == "__main__":
    answer()
