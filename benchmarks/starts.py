"""What starts cost: commands, imports, a service until it is ready, and first fits with and without compiled kernels.

CPU seconds of processes of their own, with all that they start: the least of several, imports included. First fits are
of the default and of a forest, of 1,000 rows of 20 numbers, from an empty cache of compiled kernels and from the cache
which that leaves. Linux only (it reads /proc). Run it where pandas is not installed: scikit-learn would import it
(``.venv/bin/python -m benchmarks starts --here``).
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product
from pathlib import Path

from benchmarks._served import environment_of, running_server, trained
from benchmarks.common import ONE_THREAD, Claim, Preset, Result, people, run_alone

FIRST_FIT = """
import numpy as np
from pairmark import {learner}
y = np.repeat(np.arange(100), 10)
X = np.random.default_rng(0).normal(size=(100, 20))[y] + .7 * np.random.default_rng(1).normal(size=(1_000, 20))
{learner}(n_jobs=1).fit(X, y).pair_score(X[:10], X[10:20])
"""
FITTED = {"the default": "SimilarityAuto", "a forest": "SimilarityForest"}
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
    "first fit of a forest, nothing compiled": 15.0,
}
"""CPU seconds at most."""
GOAL_RSS_MB, GOAL_INSTALLED_MB = 220, 400


def run(preset: Preset) -> Result:
    """A start a row."""
    repeats = 3 if preset == "quick" else 9
    spent: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder:
        environment = environment_of(folder) | ONE_THREAD
        X, y, _ = people(12, 40, 128)
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
        for turn, (what, learner) in product(range(repeats // 3), FITTED.items()):
            cold = environment | {"NUMBA_CACHE_DIR": f"{folder}/{learner}{turn}"}
            for state in ("nothing compiled", "all compiled"):
                command = [*CODE, FIRST_FIT.format(learner=learner)]
                _add(spent, f"first fit of {what}, {state}", command, cold)
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
        claims=[Claim.at_most(what, goal, float(value)) for what, (value, goal) in measured.items()],
        facts={
            "repeats": repeats,
            "installed_mb": {name: round(installed[name], 1) for name in largest},
            "load_average": os.getloadavg()[0],
        },
    )


def _add(
    spent: dict[str, list[float]], what: str, command: list[str], environment: Mapping[str, str]
) -> None:
    spent.setdefault(what, []).append(run_alone(command, environment).cpu)


def _ready(environment: Mapping[str, str]) -> tuple[float, float]:
    """CPU seconds and resident bytes of a service and what it starts, once it says that it is ready."""
    import psutil

    with running_server(dict(environment)) as service:
        server = psutil.Process(service.process.pid)
        members = [server, *server.children(recursive=True)]
        cpu = sum(sum(member.cpu_times()[:2]) for member in members)
        return cpu, sum(member.memory_info().rss for member in members)


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
