"""Rankings without choosing: `label-ranking-auto` beside the constant ranking and Borda over neighbours.

Every shared set, and made rows like a survey of food: 2,000 people described by 11 coarse features who rank 10 dishes,
their tastes nearly the same for all and hardly told by the features, so the constant ranking is hard to beat. Rankings
drawn at random, which nothing predicts, stand beside. Five repetitions: 500 rows (of 150 to 1,000: a third) are tested
on, at most 2,000 others learned from. The interval is that of the mean difference over test rows of all repetitions.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks._rankings import RankingSet, read_sets
from benchmarks.common import Claim, Parts, Preset, Result
from pairmark.models import LabelRankingAuto, LabelRankingForest
from pairmark.models.evaluation.baselines import ranking_baselines
from pairmark.models.evaluation.rankings import kendall_tau

AUTO, CONSTANT = "label-ranking-auto", "constant ranking"
LEARNED_FROM, TESTED_ON = 2_000, 500


def survey(signal: float, seed: int = 0, n: int = 2_500) -> tuple[np.ndarray, np.ndarray]:
    """Coarse features and positions of ten dishes; ``signal`` is how much the features tell of a person's taste."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 5, (n, 11)).astype(np.float32)
    common = np.linspace(1.0, -1.0, 10) if signal else np.zeros(10)
    effect = signal * rng.normal(size=(11, 10)) * (rng.random((11, 10)) < 0.3)
    liked = common + (X - 2.0) @ effect + rng.normal(size=(n, 10))
    return X, np.argsort(np.argsort(-liked, axis=1), axis=1).astype(np.float32)


def run(preset: Preset) -> Result:
    """Quick: two repetitions; full: five."""
    made = {"survey, made": survey(0.05), "rankings at random, made": survey(0.0)}
    sets = [RankingSet(name=name, X=X, Y=Y) for name, (X, Y) in made.items()] + read_sets()
    repetitions = 2 if preset == "quick" else 5
    parts = Parts("ranking_defaults", str(repetitions))
    rows, claims = [], []
    for data in sets:
        runs = [
            parts.get(f"{data.name}, {seed}", lambda data=data, seed=seed: _measured(data, seed))
            for seed in range(repetitions)
        ]
        taus = {name: np.concatenate([one[name] for one in runs]) for name in runs[0] if name != "CPU s"}
        for name, tau in taus.items():
            apart, reach = paired_difference(taus[AUTO], tau)
            rows.append(
                {
                    "data": data.name,
                    "contestant": name,
                    "tau": float(tau.mean()),
                    "auto ahead": apart,
                    "+-": reach,
                    "training CPU s": float(np.mean([one["CPU s"][name] for one in runs])),
                }
            )
        apart, reach = paired_difference(taus[AUTO], taus[CONSTANT])
        claims.append(
            Claim(
                what=f"{data.name}: tau of {AUTO} less that of the constant ranking",
                goal=f"not below 0 by more than its interval, +-{reach:.3f}",
                measured=apart,
                holds=apart >= -reach,
            )
        )
    parts.forget()
    return Result(rows=rows, claims=claims, facts={"repetitions": repetitions})


def paired_difference(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Mean of the paired difference and half of its 95 % interval; rows of several repetitions may be the same."""
    apart = a - b
    return float(apart.mean()), 1.96 * float(apart.std(ddof=1)) / float(np.sqrt(apart.size))


def _measured(data: RankingSet, seed: int) -> dict[str, Any]:
    order = np.random.default_rng(seed).permutation(len(data.X))
    n_test = min(TESTED_ON, len(order) // 3)
    test, train = order[:n_test], order[n_test : n_test + LEARNED_FROM]
    truth = data.Y[test].astype(np.float64)
    found: dict[str, Any] = {"CPU s": {}}
    rankers: dict[str, Any] = {
        AUTO: LabelRankingAuto(random_state=seed, n_jobs=1),
        "label-ranking-forest": LabelRankingForest(random_state=seed, n_jobs=1),
    }
    for name, ranker in rankers.items():
        begun = time.process_time()
        ranker.fit(data.X[train], data.Y[train])
        found["CPU s"][name] = time.process_time() - begun
        found[name] = taus_of(truth, ranker.predict(data.X[test]))
    begun = time.process_time()
    baselines = ranking_baselines(data.X[train], data.Y[train], data.X[test], seed)
    for name, reported in zip((CONSTANT, "Borda over neighbours"), baselines.values(), strict=True):
        found["CPU s"][name] = time.process_time() - begun
        found[name] = taus_of(truth, reported)
    return found


def taus_of(truth: np.ndarray, reported: np.ndarray) -> list[float]:
    tau = kendall_tau(truth, reported)
    return np.where(np.isfinite(tau), tau, 0.0).tolist()
