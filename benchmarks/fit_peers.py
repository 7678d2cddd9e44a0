"""Fits beside the usual peers: CPU of both in turns, on one thread, and how well each tells what it never saw.

- A forest of 44 trees and XGBoost (100 trees) on 100,000 listed pairs of correlated features; pairs of others test.
- A similarity tree, and the same as one would write it with scikit-learn: pairs of digits drawn, their features
  written out, and a `DecisionTreeClassifier` of LeafRank's depth in each cell.
- Forests of 50 trees on rankings of six labels, 3,000 rows of 60 features; scikit-learn's is of all positions at once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from benchmarks.common import Claim, Preset, Result, in_turns, people, ratio
from pairmark.models import LabelRankingForest, SimilarityForest, SimilarityTree
from pairmark.models.evaluation.rankings import kendall_tau, positions_of
from pairmark.models.pairs.sampling import pair_features, sample_pairs

N_PAIRS = 100_000
Fit = Callable[[], Callable[[], float]]
"""Learns, and returns what says how well it did."""


def listed_pairs() -> dict[str, Fit]:
    """AUC on pairs of people who were never met."""
    X, y, _ = people(1_000, 8, 32)
    X, train = X @ np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32), y < 500
    (a, b, same), (left, right, truth) = (
        (rows[pairs.left], rows[pairs.right], pairs.same)
        for rows, who in ((X[train], y[train]), (X[~train], y[~train]))
        for pairs in (sample_pairs(who, N_PAIRS, random_state=0),)
    )

    def ours() -> Callable[[], float]:
        model = SimilarityForest(n_estimators=44, random_state=0, n_jobs=1).fit_pairs(a, b, same)
        return lambda: roc_auc_score(truth, model.pair_score(left, right))

    def peer() -> Callable[[], float]:
        model = XGBClassifier(n_estimators=100, tree_method="hist", n_jobs=1).fit(pair_features(a, b), same)
        return lambda: roc_auc_score(truth, model.predict(pair_features(left, right), output_margin=True))

    return {"pairmark": ours, "XGBoost": peer}


def one_tree() -> dict[str, Fit]:
    """No accuracy: both grow the same."""
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32)

    def ours() -> Callable[[], float]:
        SimilarityTree(max_depth=8, leaf_depth=3, n_pairs=N_PAIRS, n_jobs=1).fit(X, y)
        return lambda: np.nan

    def peer() -> Callable[[], float]:
        pairs = sample_pairs(y, N_PAIRS, random_state=0)
        split(pair_features(X[pairs.left], X[pairs.right]), pairs.same, 8)
        return lambda: np.nan

    return {"pairmark": ours, "scikit-learn": peer}


def split(features: Any, same: Any, depth: int) -> None:
    """Cut a cell and its parts, so deep: leaves of a tree on balanced pairs go left where more are the same."""
    if not depth or same.all() or not same.any():
        return
    cost = np.where(same, 1 / same.sum(), 1 / (~same).sum())
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(features, same, sample_weight=cost)
    leaf = tree.apply(features)
    is_left = np.bincount(leaf, np.where(same, cost, -cost))[leaf] >= 0
    if not is_left.all():
        split(features[is_left], same[is_left], depth - 1)
        split(features[~is_left], same[~is_left], depth - 1)


def rankings() -> dict[str, Fit]:
    """Mean Kendall tau."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4_000, 60)).astype(np.float32)
    Y = positions_of(X @ rng.normal(size=(60, 6)) + 0.5 * rng.normal(size=(4_000, 6)))
    given: dict[str, Any] = {"n_estimators": 50, "random_state": 0, "n_jobs": 1}

    def ours() -> Callable[[], float]:
        model = LabelRankingForest(**given).fit(X[:3_000], Y[:3_000])
        return lambda: kendall_tau(model.predict(X[3_000:]), Y[3_000:]).mean()

    def peer() -> Callable[[], float]:
        model = RandomForestRegressor(**given).fit(X[:3_000], Y[:3_000])
        return lambda: kendall_tau(positions_of(-model.predict(X[3_000:])), Y[3_000:]).mean()

    return {"pairmark": ours, "scikit-learn": peer}


MOST = {
    "44 trees on 100,000 listed pairs": (listed_pairs, 0.4, "AUC"),
    "a similarity tree": (one_tree, 1 / 30, None),
    "50 trees of rankings, 3,000 x 60": (rankings, 0.6, "tau"),
}
"""Our CPU over the peer's, at most, and the measure by which we may not be behind."""


def run(preset: Preset) -> Result:
    """Quick: two rounds; full: nine."""
    rows, claims = [], []
    for what, (make, most, measure) in MOST.items():
        fits = make()
        fits["pairmark"]()
        turns = {name: lambda _, fit=fit: fit() for name, fit in fits.items()}
        seconds, judges = in_turns(turns, 2 if preset == "quick" else 9)
        ours, peer = fits
        found = {name: judge[0]() if measure else None for name, judge in judges.items()}
        share = ratio(seconds[ours], seconds[peer])
        rows += [
            {"fit": what, "by": name, "CPU s": float(np.median(spent)),
             "over the peer's": share if name == ours else 1.0, "measure": measure, "measured": found[name]}
            for name, spent in seconds.items()
        ]  # fmt: skip
        claims.append(Claim.at_most(f"{what}: CPU over that of {peer}", most, share))
        if measure is not None:
            behind = found[ours] - found[peer]
            claims.append(Claim.at_least(f"{what}: {measure} less that of {peer}", 0, behind))
    return Result(rows=rows, claims=claims)
