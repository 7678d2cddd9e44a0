"""CPU of fitting, scoring and searching beside an earlier commit, and beside itself with fewer instructions.

``--against`` names the commit. The least that each task ever took over it is kept in ``results/rates.json`` (fact
``kept``): a task that takes a tenth more fails this run, and later ones too. What a tenth or less was gained is not
kept, as runs differ by that. All run in processes of their own, in turns, on the same data. On x86-64
two more processes, once, compile today's code for CPUs without AVX-512 (AVX2) and without AVX (SSE4): loops that are
vectorised for this machine's instructions alone are several times slower there. Numba keeps what each side compiles by
the CPU's name, so that only the first run compiles: quick takes some four minutes then, on two quiet cores.
"""

import json
import os
import platform
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

MOST = 1.10
"""CPU over what is kept, at most; where it is as much less, that is kept."""
MOST_NARROW = 2.5
"""CPU with AVX2 over that with what this machine has, at most."""
NARROW = {"AVX2": "haswell", "SSE4": "nehalem"} if platform.machine() == "x86_64" else {}
PROCESSES = 4
"""Of each tree, started in turns: where a process's memory lies moves its rate by more than `MOST` allows. With fewer
instructions there is one, since `MOST_NARROW` allows far more."""
NAMES = (
    "fit one tree", "fit a forest of 8",
    "score 100,000 pairs by 20 trees", "score 100,000 pairs by a metric", "search 40,000 rows for 50 queries",
    "search 80,000 rows by 40 trees, ranks", "search 80,000 rows by 40 trees, log-odds", "fit a RankBoost kernel",
    "fit a label ranking forest of 10", "fit a whitened metric", "score 100,000 pairs by PLDA",
    "score one pair by 20 trees, 300 times",
)  # fmt: skip


def tasks() -> list[Any]:
    """Calls in the order of `NAMES`, by public names, which any commit has."""
    library: Any = import_module("pairmark")
    if not Path(library.__file__).is_relative_to(Path.cwd()):
        raise RuntimeError(f"{library.__file__} is not the code of {Path.cwd()}, which was to be measured")
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
    plda = library.Plda().fit(X, y)
    metric = library.MetricSimilarity(whiten=True).fit(X, y)
    gallery = metric.index(np.tile(X, (5, 1)))
    people = (X[rng.integers(0, y.size, 80_000)] + 0.5 * rng.normal(size=(80_000, 32))).astype(np.float32)
    ranks = forest(n_estimators=40, aggregation="rank", **common).fit(X, y)
    odds = forest(n_estimators=40, aggregation="log-odds", **common).fit(X, y)
    columns = ranks.index(people), odds.index(people)
    halves, orders = (
        (X[:, 0] + X[:, 1] > 0).astype(int),
        np.argsort(np.argsort(X[:2_000, :6], axis=1), axis=1),
    )
    return [
        lambda: tree(max_depth=10, **common).fit(X, y),
        lambda: forest(n_estimators=8, **common).fit(X, y),
        lambda: scorer.pair_score(left, right),
        lambda: metric.pair_score(left, right),
        lambda: metric.top_k(X[:50], gallery, 10),
        lambda: ranks.top_k(X[:5], columns[0], 10),
        lambda: odds.top_k(X[:5], columns[1], 10),
        lambda: library.RankBoostKernel(n_estimators=100, random_state=0).fit(X, halves),
        lambda: library.LabelRankingForest(n_estimators=10, random_state=0).fit(X[:2_000, 6:], orders),
        lambda: library.MetricSimilarity(whiten=True).fit(X, y),
        lambda: plda.pair_score(left, right),
        lambda: [scorer.pair_score(left[at : at + 1], right[at : at + 1]) for at in range(300)],
    ]


def answer() -> None:
    """Do each task named by its number on stdin; print its CPU seconds."""
    there = tasks()
    for line in sys.stdin:
        before = time.process_time()
        there[int(line)]()
        print(time.process_time() - before, flush=True)


def started(tree: Path, cpu: str | None = None) -> Any:
    """A process that answers with the code of a tree, on one thread, compiled for this machine or for a CPU's name."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    if cpu is not None:
        environment |= {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    return subprocess.Popen([sys.executable, "-P", __file__], env=environment, cwd=tree, **pipes)


def run(preset: str) -> Any:
    """Measure the ratios round by round."""
    from benchmarks.common import RESULTS, ROOT, Claim, Result, earlier_commit, ratio

    commit, earlier = earlier_commit()
    file = RESULTS / "rates.json"
    facts = json.loads(file.read_text())["facts"] if file.exists() else {}
    kept = facts["kept"] if facts.get("kept_of") == commit else {}
    sides: dict[str, tuple[Path, str | None]] = {"here": (ROOT, None), commit: (earlier, None)}
    sides |= {name: (ROOT, cpu) for name, cpu in NARROW.items()}
    spent: list[dict[str, list[float]]] = [{side: [] for side in sides} for _ in NAMES]
    for number in range(PROCESSES):
        order = [side for side in sides if not number or side not in NARROW]
        order = order if number % 2 else order[::-1]
        processes = {side: started(*sides[side]) for side in order}
        for turn in range(-1, 2 if preset == "quick" else 8):
            for task, lists in enumerate(spent):
                for side in order if turn % 2 else reversed(order):
                    print(task, file=processes[side].stdin)
                    seconds = float(processes[side].stdout.readline())
                    if turn >= 0:  # The first round compiles.
                        lists[side].append(seconds)
        for process in processes.values():
            process.stdin.close()
            process.wait()
    rows, claims = [], []
    for name, lists in zip(NAMES, spent, strict=True):
        here = lists["here"]
        row = {"task": name, "CPU ms": round(1e3 * min(here), 2)}
        measured = ratio(here, lists[commit])
        row[f"over {commit}"] = round(measured, 3)
        narrow = {side: ratio(lists[side], here[: len(lists[side])]) for side in NARROW}
        row |= {f"{side} over this": round(over, 3) for side, over in narrow.items()}
        rows.append(row)
        if MOST * measured < kept.get(name, np.inf):
            kept[name] = measured
        claims.append(Claim.at_most(f"{name}: CPU over {commit}", MOST * kept[name], measured))
        if "AVX2" in NARROW:
            what = f"{name}: CPU with AVX2 over this machine's"
            claims.append(Claim.at_most(what, MOST_NARROW, narrow["AVX2"]))
    facts = {"load_average": os.getloadavg()[0], "kept_of": commit, "kept": kept}
    return Result(rows=rows, claims=claims, facts=facts)


if __name__ == "__main__":
    answer()
