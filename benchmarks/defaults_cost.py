"""What defaults cost: CPU of `similarity-auto` and `similarity-forest` as they come, beside XGBoost on pairs.

First, rows and identities as in `forest_speed`: XGBoost (100 trees, hist) learns from 1,000,000 written-out pairs, the
race from the rows, with the budget it has by default and with 10 seconds; all end fitted. Second, 100,000 listed pairs
of fresh rows of 64 Gaussian features, half of them same, whose identities nobody meets twice: PLDA and the forest as
they come (which learns pair features from listed pairs), and the forest with other settings. CPU seconds are of all
threads, after a small fit that compiles and imports.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._verification import Score, in_blocks, rates
from benchmarks.common import Claim, Parts, Preset, Result
from benchmarks.forest_speed import PEOPLE, world
from pairmark.models import Plda, SimilarityAuto, SimilarityForest
from pairmark.models.pairs.sampling import pair_features, sample_pairs

D, LISTED, TESTED = 64, 100_000, 100_000
PEER = "XGBoost, 100 trees"
AUTO, AUTO_SHORT = "similarity-auto", "similarity-auto, budget_seconds 10"
FOREST, PLDA = "similarity-forest", "plda"
OTHERS: dict[str, dict[str, Any]] = {
    "similarity-forest, raw": {"pair_features": "raw"},
    "similarity-forest, raw, 16 trees of boosted cells": {
        "pair_features": "raw", "leaf_rank": "boosting", "leaf_rounds": 50, "max_depth": 3, "max_features": 0.25,
        "n_estimators": 16,
    },
}  # fmt: skip
Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]


def listed(n: int, seed: int) -> Pairs:
    """Pairs of fresh rows; centres spread by 1 in 16 features and by .35 in the others, rows by 1."""
    rng = np.random.default_rng(seed)
    spread = np.where(np.arange(D) < 16, 1.0, 0.35)
    same = rng.random(n) < 0.5
    centres = rng.normal(size=(2, n, D)) * spread
    centres[1, same] = centres[0, same]
    left, right = (centres + 1.2 * rng.normal(size=centres.shape)).astype(np.float32)
    return left, right, same


def _boosted(left: np.ndarray, right: np.ndarray, same: np.ndarray) -> Score:
    from xgboost import XGBClassifier

    model = XGBClassifier(n_estimators=100, tree_method="hist", n_jobs=1, base_score=0.5)
    model.fit(pair_features(left, right), same)
    return lambda a, b: model.predict(pair_features(a, b), output_margin=True)


def run(preset: Preset) -> Result:
    """Quick and full are the same: some four minutes of one core."""
    parts = Parts("defaults_cost", "one")
    rows: list[dict[str, Any]] = []
    for what, contestants in (
        ("1,000,000 pairs of identities", (PEER, AUTO, AUTO_SHORT)),
        ("100,000 listed pairs", (PEER, PLDA, FOREST, *OTHERS)),
    ):
        found = {
            name: parts.get(f"{what}, {name}", lambda w=what, n=name: _measured(w, n)) for name in contestants
        }
        rows += [
            {
                "pairs": what,
                "contestant": name,
                "CPU s": got["cpu"],
                "of XGBoost's": got["cpu"] / found[PEER]["cpu"],
                "AUC": got["auc"],
                "AUC less XGBoost's": got["auc"] - found[PEER]["auc"],
                "TPR at FPR 1e-2": got["tpr"],
            }
            for name, got in found.items()
        ]
    by = {(row["pairs"][:3], row["contestant"]): row for row in rows}
    claims = [
        Claim(what=f"{name}: CPU over XGBoost's on {pairs}", goal="at most 1/3", measured=row["of XGBoost's"],
              holds=row["of XGBoost's"] <= 1 / 3)
        for name, pairs, row in (
            (AUTO, "1,000,000 pairs", by["1,0", AUTO]),
            (AUTO_SHORT, "1,000,000 pairs", by["1,0", AUTO_SHORT]),
            (FOREST, "100,000 listed pairs", by["100", FOREST]),
        )
    ]  # fmt: skip
    apart = by["100", FOREST]["AUC less XGBoost's"]
    claims.append(
        Claim(what=f"{FOREST}: AUC less XGBoost's on 100,000 listed pairs", goal="at least -0.003", measured=apart,
              holds=apart >= -0.003)
    )  # fmt: skip
    parts.forget()
    return Result(rows=rows, claims=claims)


def _measured(what: str, name: str) -> dict[str, float]:
    if what.startswith("1,000,000"):
        X, y = world(0)
        train = y < PEOPLE // 2
        test = sample_pairs(y[~train], TESTED, random_state=1)
        left, right, same = X[~train][test.left], X[~train][test.right], test.same
        fit: Callable[[slice], Score] = lambda some: _of_identities(name, X[train][some], y[train][some])  # noqa: E731
        small = slice(0, 2_000)
    else:
        given = listed(LISTED, 0)
        left, right, same = listed(TESTED, 1)
        fit = lambda some: _of_pairs(name, *(part[some] for part in given))  # noqa: E731
        small = slice(0, 2_000)
    fit(small)
    begun = time.process_time()
    score = fit(slice(None))
    cpu = time.process_time() - begun
    both, pairs = np.concatenate([left, right]), np.arange(len(left))
    got = rates(in_blocks(score, both, pairs, pairs + len(left)), same, (1e-2,))
    return {"cpu": cpu, "auc": got.auc, "tpr": got.tpr[0]}


def _of_identities(name: str, X: np.ndarray, y: np.ndarray) -> Score:
    if name == PEER:
        pairs = sample_pairs(y, 1_000_000 if len(y) > 2_000 else 2_000, random_state=0)
        return _boosted(X[pairs.left], X[pairs.right], pairs.same)
    auto = (
        SimilarityAuto(random_state=0) if name == AUTO else SimilarityAuto(random_state=0, budget_seconds=10)
    )
    return auto.fit(X, y).pair_score


def _of_pairs(name: str, left: np.ndarray, right: np.ndarray, same: np.ndarray) -> Score:
    if name == PEER:
        return _boosted(left, right, same)
    if name == PLDA:
        return Plda(random_state=0).fit_pairs(left, right, same).pair_score
    return SimilarityForest(random_state=0, **OTHERS.get(name, {})).fit_pairs(left, right, same).pair_score
