"""What a calibration takes: wall seconds and peak memory from scored pairs to a stored state.

5,000 people with two samples each, 1,000,000 pairs, 2,000 bootstrap replicates, as jobs make it. The peak is of a
process that does nothing else. ``quick`` takes the median of three calibrations, ``full`` of nine.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from benchmarks.common import Claim, Preset, Result
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.pairs.splits import held_out_pairs

SHAPES = ((200, 19_900), (1_000, 100_000), (5_000, 1_000_000))
REPLICATES = 2_000


def run(preset: Preset) -> Result:
    """Each shape in a process of its own."""
    rounds = 3 if preset == "quick" else 9
    rows = []
    for people, pairs in SHAPES:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            rows.append(pool.submit(_measure, people, pairs, rounds).result())
    largest = rows[-1]
    rate = _new_rate(rounds)
    return Result(
        rows=rows,
        claims=[
            Claim(
                what="1,000,000 pairs of 5,000 people, 2,000 replicates: seconds on two cores",
                goal="at most 8",
                measured=largest["seconds"],
                holds=largest["seconds"] <= 8,
            ),
            Claim(
                what="the same: peak memory of the process, GB",
                goal="under 1",
                measured=largest["peak GB"],
                holds=largest["peak GB"] < 1,
            ),
            Claim(
                what="a new rate of 1 % at 6,000 people and 1,000,000 pairs: seconds",
                goal="at most .5",
                measured=rate["seconds"],
                holds=rate["seconds"] <= 0.5,
            ),
        ],
    )


def _new_rate(rounds: int) -> dict[str, float]:
    """What the first question at a rate takes, once kernels are compiled; the service then keeps the answer."""
    people = 6_000
    held_out = held_out_pairs(np.arange(people), protocol="open-set", n_pairs=1_000_000, random_state=0)
    rng = np.random.default_rng(0)
    effects = 0.7 * rng.standard_normal(people)
    scores = effects[held_out.units].sum(axis=1) + rng.standard_normal(len(held_out))
    made = Calibration.fit(scores, held_out.same, held_out.units, random_state=0)
    made.operating_point(0.02)
    spent, wall = [], []
    for _ in range(rounds):
        started, began = time.process_time(), time.perf_counter()
        made.operating_point(0.01)
        spent.append(time.process_time() - started)
        wall.append(time.perf_counter() - began)
    return {"CPU s": statistics.median(spent), "seconds": statistics.median(wall)}


def _measure(people: int, pairs: int, rounds: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    held_out = held_out_pairs(np.arange(people).repeat(2), protocol="open-set", n_pairs=pairs, random_state=0)
    effects = 0.5 * rng.standard_normal(people)
    scores = effects[held_out.units].sum(axis=1) + rng.standard_normal(len(held_out)) + 3 * held_out.same
    few = slice(None, None, len(held_out) // 2_000)
    _calibrate(scores[few], held_out.same[few], held_out.units[few])  # kernels compile
    wall, cpu = [], []
    for _ in range(rounds):
        started, worked = time.perf_counter(), time.process_time()
        calibration = _calibrate(scores, held_out.same, held_out.units)
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - worked)
    return {
        "people": people,
        "pairs": len(held_out),
        "seconds": statistics.median(wall),
        "CPU s": statistics.median(cpu),
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "smallest FPR promised": calibration.smallest_fpr()["finite-sample"],
    }


def _calibrate(scores: np.ndarray, same: np.ndarray, units: np.ndarray) -> Calibration:
    made = Calibration.fit(
        scores, same, units, random_state=0, n_replicates=REPLICATES, n_jobs=min(2, os.cpu_count() or 1)
    )
    made.to_state()
    return made
