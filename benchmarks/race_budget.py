"""Whether `SimilarityAuto(budget_seconds=...)` keeps to it where people start: the first fit of a fresh environment.

Made people of several shapes, each fit in a new process whose cache of compiled kernels is empty: what compiles in a
fit is part of its seconds, imports are not. Fit and race go by the CPU time of one thread, which on a machine of its
own is what the clock shows: so what else runs does not count. ``quick``: six shapes at 5 s. ``full``: all shapes at 30
and 5 s, six at 120 s. A run that was cut goes on where it stood; after ``PAIRMARK_RACE_BUDGET_SECONDS`` it begins no
further fit, and the result is what ran.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.common import Claim, Parts, Preset, Result

# People, rows of each, features.
SHAPES = (
    (10, 2, 4),
    (2, 100, 8),
    (3, 60, 13),
    (20, 30, 22),
    (40, 8, 31),
    (30, 10, 1_024),
    (60, 4, 1_000),
    (20, 12, 3_000),
    (10, 100, 64),
    (100, 10, 32),
    (200, 5, 128),
    (300, 20, 16),
    (500, 4, 256),
    (1_000, 2, 512),
    (50, 400, 31),
    (1_000, 10, 64),
    (100, 100, 784),
    (2_000, 5, 128),
    (3_000, 3, 32),
    (5_000, 2, 64),
)
FEW = ((10, 2, 4), (20, 30, 22), (60, 4, 1_000), (200, 5, 128), (50, 400, 31), (2_000, 5, 128))
_FACTOR, _SECONDS = 1.2, 5.0
"""A fit may take the budget by this, and these seconds more."""
_CHILD = "from benchmarks.race_budget import report_fit; report_fit()"


def run(preset: Preset) -> Result:
    """A fit a row."""
    parts = Parts("race_budget", preset)
    cases = [(shape, 5) for shape in FEW]
    if preset == "full":
        cases = [(shape, budget) for budget in (30, 5) for shape in SHAPES] + [(shape, 120) for shape in FEW]
    end = time.monotonic() + float(os.environ.get("PAIRMARK_RACE_BUDGET_SECONDS", "inf"))
    rows = [
        parts.get(f"{shape}, {budget}", lambda shape=shape, budget=budget: _first_fit(shape, budget))
        for shape, budget in cases
        if time.monotonic() < end or f"{shape}, {budget}" in parts
    ]
    claims = []
    for budget in sorted({row["budget, s"] for row in rows}):
        over = [row["over"] for row in rows if row["budget, s"] == budget]
        claims.append(
            Claim(
                what=f"budget of {budget} s: the largest (seconds of fit - {_SECONDS:g}) / budget, {len(over)} shapes",
                goal=f"at most {_FACTOR}",
                measured=max(over),
                holds=max(over) <= _FACTOR,
            )
        )
    parts.forget()
    return Result(rows=rows, claims=claims)


def _first_fit(shape: tuple[int, int, int], budget: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {
            "NUMBA_CACHE_DIR": cache,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        answer = subprocess.run(
            [sys.executable, "-c", _CHILD, *map(str, shape), str(budget)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    fit = json.loads(answer.stdout.splitlines()[-1])
    return {
        "people x rows x features": " x ".join(map(str, shape)),
        "budget, s": budget,
        "fit, s": fit["seconds"],
        "over": (fit["seconds"] - _SECONDS) / budget,
        "winner": fit["winner"],
        "candidates judged": fit["candidates"],
    }


def report_fit() -> None:
    """Print what one fit took; people, rows, features and the budget are the program's arguments."""
    people, each, features, budget = map(int, sys.argv[1:])
    from pairmark.models import SimilarityAuto

    clock: Any = SimpleNamespace(monotonic=time.process_time, process_time=time.process_time)
    for module in ("pairmark.models.auto.race", "pairmark.models.core.compiled"):
        vars(sys.modules[module])["time"] = clock
    rng = np.random.default_rng(people + each + features)
    centres = rng.standard_normal((people, features))
    X = centres.repeat(each, axis=0) + 1.5 * rng.standard_normal((people * each, features))
    began = time.process_time()
    model = SimilarityAuto(budget_seconds=budget, n_jobs=1).fit(
        X.astype(np.float32), np.arange(people).repeat(each)
    )
    seconds = time.process_time() - began
    print(
        json.dumps(
            {
                "seconds": seconds,
                "winner": model.winner_,
                "candidates": sum(line["folds"] > 0 for line in model.leaderboard_),
            }
        )
    )
