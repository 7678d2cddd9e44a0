"""Rankers that learn from rankings with labels struck out or tied, tested on the whole rankings.

Labels go missing at random, at least two are left in each row, and those left close up (their places are not
known). The baseline is what is commonly done: one regression forest for each label's position, with absent labels at
the mean position that the label has where it is seen. Quick runs five folds of five sets.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from benchmarks._rankings import Fold, RankingSet, cross_validated, read_sets, summary
from benchmarks._synthetic_rankings import with_missing, with_ties
from benchmarks.common import Claim, Preset, Result
from pairmark.models import LabelRankingForest, PairwiseLabelRanker

SHARED = ("glass", "stock", "vehicle", "vowel", "housing")
"""Sets with enough labels to lose some, and few enough rows to run in minutes."""
CLAIMED = "forest"
BASELINE = "labelwise, mean imputed"


class MeanImputed(BaseEstimator):
    """The baseline: positions completed by the label's mean, then one forest a label."""

    def __init__(self, random_state: int | None = None) -> None:
        self.random_state = random_state

    def fit(self, X: ArrayLike, Y: ArrayLike) -> Self:
        """Complete, then learn."""
        positions = np.asarray(Y, dtype=np.float64)
        completed = np.where(np.isnan(positions), np.nanmean(positions, axis=0), positions)
        self.forest_ = LabelRankingForest(
            outputs="per-label", n_estimators=50, n_jobs=1, random_state=self.random_state
        ).fit(X, completed)
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Positions."""
        return self.forest_.predict(X)


def _forest() -> Any:
    return LabelRankingForest(n_estimators=50, n_jobs=1)


def _pairwise() -> Any:
    return PairwiseLabelRanker(calibrate=False, n_jobs=1)


RANKERS = {BASELINE: MeanImputed, "forest": _forest, "pairwise logistic": _pairwise}


def _missing(share: float, Y: np.ndarray, seed: int) -> np.ndarray:
    return with_missing(Y, 1.0 - share, at_least=2, random_state=seed)


def _tied(share: float, Y: np.ndarray, seed: int) -> np.ndarray:
    return with_ties(Y, 1.0 - share, random_state=seed)


def run(preset: Preset) -> Result:
    """Every share on every set."""
    quick = preset == "quick"
    sets = read_sets(SHARED) if quick else [data for data in read_sets() if data.Y.shape[1] > 3]
    shares = (0.0, 0.3, 0.5, 0.7) if quick else (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    ties = (0.3, 0.6) if quick else (0.2, 0.4, 0.6, 0.8)
    spoils = [("missing", share, partial(_missing, share)) for share in shares]
    spoils += [("tied", share, partial(_tied, share)) for share in ties]
    rows: list[dict[str, Any]] = []
    at: dict[tuple[str, float], list[Fold]] = {}
    for kind, share, spoil in spoils:
        done = cross_validated(
            sets, RANKERS, repeats=lambda _: 1, folds=lambda _: 5 if quick else 10, spoil=spoil
        )
        at[kind, share] = done
        for data in sets:
            row: dict[str, Any] = {"data": data.name, "spoiled": kind, "share": share}
            rows.append(row | {name: _tau(done, data, name) for name in RANKERS})
    lost = {
        name: statistics.fmean(
            _tau(at["missing", 0.0], data, name) - _tau(at["missing", 0.5], data, name) for data in sets
        )
        for name in RANKERS
    }
    tau_then = {
        name: statistics.fmean(_tau(at["missing", 0.5], data, name) for data in sets) for name in RANKERS
    }
    share = lost[CLAIMED] / lost[BASELINE] if lost[BASELINE] > 0 else 0.0
    claim = Claim(
        what=f"{CLAIMED}: mean tau lost at 50 % missing, as a share of what {BASELINE} loses",
        goal="at most 1/3",
        measured=share,
        holds=share <= 1 / 3,
    )
    return Result(rows=rows, claims=[claim], facts={"lost_at_half": lost, "mean_tau_at_half": tau_then})


def _tau(done: list[Fold], data: RankingSet, name: str) -> float:
    reported = summary(done, data.name, name)
    assert reported is not None
    return reported[0]
