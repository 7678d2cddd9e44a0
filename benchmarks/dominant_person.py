"""What one person with half of all rows does to a forest and to `similarity-auto`.

Half of the people of the keystroke data train with eight samples each, and one person of the others with as many
samples as all of these: theirs, with noise of a third of their spread. Everybody else's pairs test, with and without
that person among those who train. Quick: two repetitions, full: five. `similarity-auto` has half a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._people import keystroke
from benchmarks._verification import rates
from benchmarks.common import Claim, Preset, Result
from pairmark.models import SimilarityAuto, SimilarityForest
from pairmark.models.pairs.sampling import sample_pairs

FPR = (0.1, 0.01, 0.001)
EACH, NOISE, TEST_PAIRS = 8, 1 / 3, 100_000
_GOAL = 0.9


def run(preset: Preset) -> Result:
    """A learner a row."""
    learners: dict[str, Callable[[], Any]] = {
        "similarity-forest": lambda: SimilarityForest(n_jobs=1),
        "similarity-auto": lambda: SimilarityAuto(budget_seconds=0.5, protocol="open-set", n_jobs=1),
    }
    repetitions = range(2 if preset == "quick" else 5)
    rows, claims = [], []
    for name, make in learners.items():
        tpr, seconds = np.mean([_measured(make, number) for number in repetitions], axis=0).T
        share = float(tpr[1] / tpr[0])
        rows.append(
            {
                "learner": name,
                "mean TPR without": float(tpr[0]),
                "mean TPR with": float(tpr[1]),
                "share": share,
                "CPU s without": float(seconds[0]),
                "CPU s with": float(seconds[1]),
            }
        )
        claims.append(
            Claim(
                what=f"{name}: mean TPR with one person of half of all rows, over that without",
                goal=f"at least {_GOAL}",
                measured=share,
                holds=share >= _GOAL,
            )
        )
    return Result(rows=rows, claims=claims, facts={"repetitions": len(repetitions)})


def _measured(make: Callable[[], Any], number: int) -> list[tuple[float, float]]:
    """Mean TPR and CPU seconds of the fit, without the person and with."""
    X, y = keystroke()
    rng = np.random.default_rng([number, 30])
    people = rng.permutation(int(y.max()) + 1)
    half = people.size // 2
    train = np.concatenate([rng.permutation(np.flatnonzero(y == one))[:EACH] for one in people[:half]])
    own = X[y == people[half]]
    many = own[rng.integers(0, len(own), train.size)]
    many += NOISE * own.std(axis=0) * rng.standard_normal(many.shape)
    test = np.isin(y, people[half + 1 :])
    pairs = sample_pairs(y[test], TEST_PAIRS, scheme="proportional", random_state=number)
    results = []
    for extra in (0, train.size):
        rows = np.vstack([X[train], many[:extra]]).astype(np.float32)
        codes = np.append(y[train], np.full(extra, people[half]))
        begun = time.process_time()
        model = make().fit(rows, codes)
        seconds = time.process_time() - begun
        scores = model.score_pairs(X[test].astype(np.float32), pairs.left, pairs.right)
        results.append((float(np.mean(rates(scores, pairs.same, FPR).tpr)), seconds))
    return results
