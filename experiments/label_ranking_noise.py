"""How noise in the training rankings is borne: Figures 1 and 2 of Fotakis et al. 2022, on data made anew.

SFN (100 features) and LFN (1,000): scores linear in ten informative binary features, five labels. Gaussian noise with
deviation 0.25 i/500 enters the scores (truncated to +-0.25), Mallows noise of dispersion theta the rankings. Rankers
learn from noisy rankings and are tested on noiseless ones, by cross-validation. Alpha is the share of rows whose
ranking the noise changed, beta the mean tau between noisy and noiseless. Quick takes 1,000 rows, three levels and two
of the folds; full 10,000 rows, every level and 5 x 10 folds.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.model_selection import KFold

from benchmarks.common import Claim, Preset, Result
from benchmarks.label_ranking import SEED
from experiments._synthetic_rankings import (
    RankingSample,
    alpha_inconsistency,
    beta_gap,
    make_family,
    sample_mallows,
    truncated_gaussian,
)
from pairmark.models import LabelRankingForest, LabelRankingTree
from pairmark.models.evaluation.rankings import kendall_tau

FAMILIES = {"SFN": 100, "LFN": 1_000}
"""The paper's families of few and of many features: how many."""
RANKERS = ("forest", "tree", "shallow tree")


@dataclass(frozen=True, kw_only=True)
class Level:
    """One noisy twin of a family: its noise and the rankings it gives."""

    family: str
    noise: str
    strength: float


def run(preset: Preset) -> Result:
    """Every family, noise and level."""
    quick = preset == "quick"
    n = 1_000 if quick else 10_000
    stds = [0.25 * i / 500 for i in ((5, 20, 50) if quick else range(1, 51))]
    thetas = [3.0, 1.6, 0.8] if quick else [round(0.6 + 0.2 * step, 1) for step in range(20)]
    levels = [Level(family=family, noise="none", strength=0.0) for family in FAMILIES]
    levels += [Level(family=f, noise="gaussian", strength=std) for f in FAMILIES for std in stds]
    levels += [Level(family=f, noise="mallows", strength=theta) for f in FAMILIES for theta in thetas]
    repeats, folds = (1, 2) if quick else (5, 10)
    rows: list[dict[str, Any]] = Parallel(n_jobs=2, batch_size=1)(
        delayed(_measured)(level, n, repeats, folds) for level in reversed(levels)
    )[::-1]
    return Result(rows=rows, claims=_claims(rows), facts={"rows": n, "folds": repeats * folds})


def _sample(level: Level, n: int) -> RankingSample:
    n_features = FAMILIES[level.family]
    if level.noise == "gaussian":
        noise = truncated_gaussian(level.strength)
        return make_family(n, n_features, noise=noise, random_state=SEED)
    sample = make_family(n, n_features, random_state=SEED)
    if level.noise == "none":
        return sample
    noisy = sample_mallows(sample.truth, level.strength, random_state=SEED)
    return RankingSample(X=sample.X, scores=sample.scores, truth=sample.truth, rankings=noisy)


def _measured(level: Level, n: int, repeats: int, folds: int) -> dict[str, Any]:
    sample = _sample(level, n)
    taus: dict[str, list[float]] = {name: [] for name in RANKERS}
    for repeat in range(repeats):
        splits = list(KFold(10, shuffle=True, random_state=SEED + repeat).split(sample.X))[:folds]
        for number, (train, test) in enumerate(splits):
            for name in RANKERS:
                ranker = _ranker(name, 100 * repeat + number).fit(sample.X[train], sample.rankings[train])
                taus[name].append(
                    float(kendall_tau(ranker.predict(sample.X[test]), sample.truth[test]).mean())
                )
    return {
        "family": level.family,
        "noise": level.noise,
        "strength": level.strength,
        "alpha": alpha_inconsistency(sample.truth, sample.rankings),
        "beta": beta_gap(sample.truth, sample.rankings),
        **{name: float(np.mean(values)) for name, values in taus.items()},
    }


def _ranker(name: str, seed: int) -> Any:
    if name == "forest":
        # The paper's noise-tolerant one: fully grown, honest.
        return LabelRankingForest(n_estimators=50, honest=True, random_state=seed, n_jobs=1)
    return LabelRankingTree(max_depth=5 if name == "shallow tree" else None, random_state=seed)


def _claims(rows: list[dict[str, Any]]) -> list[Claim]:
    """What the paper concludes from its figures."""
    noisy = [row for row in rows if row["noise"] == "gaussian" and row["alpha"] > 0.2]
    mallows = [row for row in rows if row["noise"] == "mallows" and row["alpha"] > 0.2]
    follow = max(abs(row["tree"] - row["beta"]) for row in noisy)
    lead = min(row["forest"] - row["tree"] for row in noisy + mallows)
    return [
        Claim(
            what="fully grown trees fit the noise: largest distance of their tau from beta (Gaussian, alpha > 0.2)",
            goal="at most 0.1",
            measured=follow,
            holds=follow <= 0.1,
        ),
        Claim(
            what="forests bear noise better than trees: smallest lead (alpha > 0.2)",
            goal="above 0",
            measured=lead,
            holds=lead > 0,
        ),
    ]
