"""`label-ranking-auto` beside what it blends, where 30 or 60 % of the labels are missing from what is learned from.

Labels go missing as in `label_ranking_missing`; whole rankings test. Two made surveys (see `ranking_defaults`), one
with next to nothing and one with something to learn of a taste, and shared sets. A third of the rows, at most 500,
test, at most 400 others are learned from. Quick: two repetitions, full: five; a run that was cut goes on where it
stood. The interval is that of the mean difference over test rows of all repetitions.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks._rankings import RankingSet, read_sets
from benchmarks._synthetic_rankings import with_missing
from benchmarks.common import Claim, Parts, Preset, Result
from benchmarks.ranking_defaults import AUTO, CONSTANT, paired_difference, survey, taus_of
from pairmark.models import LabelRankingAuto, LabelRankingForest, PairwiseLabelRanker
from pairmark.models.evaluation.baselines import ranking_baselines

SHARED = ("glass", "vehicle", "wine")
SHARES = (0.3, 0.6)
LEARNED_FROM, TESTED_ON = 400, 500
_AS_GOOD = 0.01
"""Tau that `label-ranking-auto` may be behind, where the interval is narrower."""


def run(preset: Preset) -> Result:
    """A contestant a row, by set and share."""
    made = {"survey, little to learn": survey(0.05), "survey, something to learn": survey(0.2)}
    sets = [RankingSet(name=name, X=X, Y=Y) for name, (X, Y) in made.items()] + read_sets(SHARED)
    seeds = range(2 if preset == "quick" else 5)
    parts = Parts("label_ranking_auto", str(seeds))
    rows, claims = [], []
    for data in sets:
        for share in SHARES:
            runs = [
                parts.get(
                    f"{data.name}, {share}, {seed}",
                    lambda data=data, share=share, seed=seed: _measured(data, share, seed),
                )
                for seed in seeds
            ]
            taus = {name: np.concatenate([one[name] for one in runs]) for name in runs[0] if name != "CPU s"}
            rows += [
                {
                    "data": data.name,
                    "labels missing": share,
                    "contestant": name,
                    "tau": float(tau.mean()),
                    **dict(zip(("auto ahead", "+-"), paired_difference(taus[AUTO], tau), strict=True)),
                    "training CPU s": float(np.mean([one["CPU s"].get(name, 0.0) for one in runs])),
                }
                for name, tau in taus.items()
            ]
            best = max((name for name in taus if name != AUTO), key=lambda name: float(taus[name].mean()))
            apart, reach = paired_difference(taus[AUTO], taus[best])
            room = max(reach, _AS_GOOD)
            claims.append(
                Claim(
                    what=f"{data.name}, {share:.0%} missing: tau of {AUTO} less that of the best other, {best}",
                    goal=f"at least -{room:.3f}",
                    measured=apart,
                    holds=apart >= -room,
                )
            )
    parts.forget()
    return Result(rows=rows, claims=claims, facts={"repetitions": len(seeds)})


def _measured(data: RankingSet, share: float, seed: int) -> dict[str, Any]:
    order = np.random.default_rng(seed).permutation(len(data.X))
    n_test = min(TESTED_ON, len(order) // 3)
    test, train = order[:n_test], order[n_test : n_test + LEARNED_FROM]
    truth = data.Y[test].astype(np.float64)
    learned = with_missing(data.Y[train], 1.0 - share, at_least=2, random_state=seed)
    rankers: dict[str, Any] = {
        AUTO: LabelRankingAuto(random_state=seed, n_jobs=1),
        "label-ranking-forest": LabelRankingForest(random_state=seed, n_jobs=1),
        "label-ranking-pairwise": PairwiseLabelRanker(random_state=seed, n_jobs=1),
    }
    measured: dict[str, Any] = {"CPU s": {}}
    for name, ranker in rankers.items():
        begun = time.process_time()
        ranker.fit(data.X[train], learned)
        measured["CPU s"][name] = time.process_time() - begun
        measured[name] = taus_of(truth, ranker.predict(data.X[test]))
    constant = next(iter(ranking_baselines(data.X[train], learned, data.X[test], seed).values()))
    return measured | {CONSTANT: taus_of(truth, constant)}
