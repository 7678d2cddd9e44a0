"""What starts cost: commands, imports, a service until it is ready, and first fits with and without compiled kernels.

CPU seconds of processes of their own, with all that they start: the least of several, imports included. A first fit is
that of `similarity-auto`, of 1,000 rows of 20 numbers, from an empty cache of compiled kernels and from the cache which
that leaves. Linux only (it reads /proc). Run it where pandas is not installed: scikit-learn would import it
(``.venv/bin/python -m benchmarks starts --here``).
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from benchmarks._served import environment_of, people, start, stop, trained, wait_until_ready
from benchmarks.common import Claim, Preset, Result

FIRST_FIT = """
import numpy as np
from pairmark import SimilarityAuto
y = np.repeat(np.arange(100), 10)
X = np.random.default_rng(0).normal(size=(100, 20))[y] + .7 * np.random.default_rng(1).normal(size=(1_000, 20))
SimilarityAuto(n_jobs=1).fit(X, y).pair_score(X[:10], X[10:20])
"""
CODE = [sys.executable, "-c"]
IMPORTS = {
    "import scikit-learn's base class, which imports scipy.stats": "import sklearn.base",
    "import scipy.stats": "import scipy.stats",
    "import numba": "import numba",
    "import SimilarityForest": "from pairmark.models import SimilarityForest",
    "import all that is public": "from pairmark.models import *",
}
"""Beside learners, what all of them import."""
HELP = [sys.executable, "-m", "pairmark.service.cli", "--help"]
GOALS = {
    "pairmark --help": 0.25,
    "import SimilarityForest": 1.0,
    "service until it is ready": 2.5,
    "first fit of the default, nothing compiled": 8.0,
}
"""CPU seconds at most."""
GOAL_RSS_MB, GOAL_INSTALLED_MB = 220, 400


def run(preset: Preset) -> Result:
    """A start a row."""
    repeats = 3 if preset == "quick" else 9
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    spent: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder:
        environment = environment_of(folder) | threads
        X, y = people(12, 40, 128)
        forest = {
            "learner": "similarity-forest",
            "model": "forest",
            "params": {"n_estimators": 100, "n_pairs": 10_000},
        }
        trained(environment, [forest], request={"classes": "y"}, X=X, y=y)
        ready = [_ready(environment) for _ in range(repeats)]
        for _ in range(repeats):
            _add(spent, "python that does nothing", [*CODE, "pass"], environment)
            _add(spent, "pairmark --help", HELP, environment)
            for what, statement in IMPORTS.items():
                _add(spent, what, [*CODE, statement], environment)
        spent["service until it is ready"] = [cpu for cpu, _ in ready]
        for turn in range(repeats // 3):
            cold = environment | {"NUMBA_CACHE_DIR": f"{folder}/{turn}"}
            for state in ("nothing compiled", "all compiled"):
                _add(spent, f"first fit of the default, {state}", [*CODE, FIRST_FIT], cold)
    rss_mb = round(min(rss for _, rss in ready) / 1e6)
    installed = dict(_installed("pairmark"))
    rows = [
        {"start": what, "CPU, s": round(min(seconds), 2), "goal": GOALS.get(what)} for what, seconds in spent.items()
    ]  # fmt: skip
    measured = {f"CPU seconds: {row['start']}": (row["CPU, s"], row["goal"]) for row in rows if row["goal"]}
    measured["MB of memory (RSS) of a service that is ready, with a forest of 100 trees"] = (
        rss_mb,
        GOAL_RSS_MB,
    )
    measured["MB installed, with all that it needs"] = (round(sum(installed.values())), GOAL_INSTALLED_MB)
    largest = sorted(installed, key=lambda name: -installed[name])[:12]
    return Result(
        rows=rows,
        claims=[
            Claim(what=what, goal=f"at most {goal:g}", measured=float(value), holds=value <= goal)
            for what, (value, goal) in measured.items()
        ],
        facts={
            "repeats": repeats,
            "installed_mb": {name: round(installed[name], 1) for name in largest},
            "load_average": os.getloadavg()[0],
        },
    )


def _add(
    spent: dict[str, list[float]], what: str, command: list[str], environment: Mapping[str, str]
) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    spent.setdefault(what, []).append(seconds)


def _ready(environment: Mapping[str, str]) -> tuple[float, float]:
    """CPU seconds and resident bytes of a service and what it starts, once it says that it is ready."""
    process, port = start(
        [sys.executable, "-m", "pairmark.service.cli", "serve", "--port"], dict(environment)
    )
    try:
        wait_until_ready(port, "/readyz", process)
        members = list(_tree(process.pid))
        ticks = resident = 0
        for member in members:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
            resident += int(fields[21])
        return ticks / os.sysconf("SC_CLK_TCK"), resident * os.sysconf("SC_PAGE_SIZE")
    finally:
        stop(process)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            children = (thread / "children").read_text().split()
        except FileNotFoundError:
            # It ended meanwhile.
            continue
        for child in children:
            yield from _tree(int(child))


def _installed(name: str, reached: set[str] | None = None) -> Iterator[tuple[str, float]]:
    """A distribution and what it requires here, extras left out, with MB of files as installed."""
    from packaging.requirements import Requirement

    reached = set() if reached is None else reached
    key = name.lower().replace("_", "-")
    if key in reached:
        return
    reached.add(key)
    try:
        there = distribution(name)
    except PackageNotFoundError:
        return
    paths = [Path(str(there.locate_file(file))) for file in there.files or ()]
    yield key, sum(path.stat().st_size for path in paths if path.is_file()) / 1e6
    for line in there.requires or ():
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield from _installed(needed.name, reached)
