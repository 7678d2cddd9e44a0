"""One similarity tree against the same tree built from scikit-learn on written-out pair features.

The peer is TreeRank as one would write it with scikit-learn: the features of all pairs in a matrix, and for each cell
a `DecisionTreeClassifier` of LeafRank's depth under weights that balance both kinds of pair, its leaves kept where
their weighted gain is not negative. CPU seconds count everything from (X, y) to the fitted tree, the drawing of
pairs included. Accuracy is judged on held-out pairs, after learning from the very same pairs (another draw of pairs
alone moves the AUC by .005).
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeClassifier

from benchmarks.common import Claim, Preset, Result, interleaved, ratio
from models import SimilarityTree
from models.pairs import pair_features, sample_pairs

MAX_DEPTH, LEAF_DEPTH, N_PAIRS = 8, 3, 100_000


class PeerTree:
    """TreeRank over scikit-learn's trees."""

    def fit(self, X: np.ndarray, y: np.ndarray, seed: int) -> PeerTree:
        """Draw pairs, write out their features, split cells."""
        pairs = sample_pairs(y, N_PAIRS, random_state=seed)
        features = pair_features(X[pairs.left], X[pairs.right])
        self.splits: dict[tuple[int, int], tuple[DecisionTreeClassifier, np.ndarray]] = {}
        self._split(features, pairs.same, np.arange(len(pairs)), 0, 0)
        return self

    def _split(self, f: np.ndarray, same: np.ndarray, rows: np.ndarray, depth: int, place: int) -> None:
        here = same[rows]
        if depth == MAX_DEPTH or here.all() or not here.any():
            return
        cost = np.where(here, 1.0 / here.sum(), 1.0 / (~here).sum())
        tree = DecisionTreeClassifier(max_depth=LEAF_DEPTH, random_state=0)
        tree.fit(f[rows], here, sample_weight=cost)
        leaf = tree.apply(f[rows])
        gain = np.bincount(leaf, np.where(here, cost, -cost), minlength=tree.tree_.node_count)
        left = gain[leaf] >= 0
        if left.all() or not left.any():
            return
        self.splits[depth, place] = tree, gain
        self._split(f, same, rows[left], depth + 1, 2 * place)
        self._split(f, same, rows[~left], depth + 1, 2 * place + 1)

    def pair_score(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The oriented tree's score."""
        f = pair_features(left, right)
        scores = np.empty(len(f))
        todo = [(0, 0, np.arange(len(f)))]
        while todo:
            depth, place, rows = todo.pop()
            if (depth, place) in self.splits and rows.size:
                tree, gain = self.splits[depth, place]
                kept = gain[tree.apply(f[rows])] >= 0
                todo += [(depth + 1, 2 * place, rows[kept]), (depth + 1, 2 * place + 1, rows[~kept])]
            else:
                scores[rows] = 2.0**MAX_DEPTH * (1 - place / 2.0**depth)
        return scores


def run(preset: Preset) -> Result:
    """Digits as they are (17 values a feature) and rotated by PCA (continuous values)."""
    X, y = load_digits(return_X_y=True)
    rows, claims = [], []
    for name, points, rounds in (
        ("digits", X, 3 if preset == "quick" else 7),
        ("digits, PCA", PCA(random_state=0).fit_transform(X), 1 if preset == "quick" else 7),
    ):
        found = _compare(name, points.astype(np.float32), y, rounds)
        rows += found[0]
        times, difference = found[1:]
        claims += [
            Claim(what=f"{name}: CPU against scikit-learn", goal="at least 40 times less", measured=times,
                  holds=times >= 40),
            Claim(what=f"{name}: AUC less scikit-learn's", goal="at least -0.005", measured=difference,
                  holds=difference >= -0.005),
        ]  # fmt: skip
    facts = {"n_pairs": N_PAIRS, "max_depth": MAX_DEPTH, "leaf_depth": LEAF_DEPTH}
    return Result(rows=rows, claims=claims, facts=facts)


def _compare(
    name: str, X: np.ndarray, y: np.ndarray, rounds: int
) -> tuple[list[dict[str, Any]], float, float]:
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:1200], order[1200:]
    held_out = sample_pairs(y[test], None, random_state=0)
    left, right = X[test][held_out.left], X[test][held_out.right]
    peers: list[PeerTree] = []

    def ours() -> None:
        SimilarityTree(max_depth=MAX_DEPTH, leaf_depth=LEAF_DEPTH, n_pairs=N_PAIRS, random_state=0).fit(
            X[train], y[train]
        )

    def peer() -> None:
        peers.append(PeerTree().fit(X[train], y[train], len(peers)))

    ours()
    timings = interleaved({"pairmark": ours, "scikit-learn": peer}, rounds=rounds, warmups=0)
    scores: dict[str, list[float]] = {"pairmark": [], "scikit-learn": []}
    for seed, fitted in enumerate(peers):
        pairs = sample_pairs(y[train], N_PAIRS, random_state=seed)
        twin = SimilarityTree(max_depth=MAX_DEPTH, leaf_depth=LEAF_DEPTH)
        twin.fit_pairs(X[train][pairs.left], X[train][pairs.right], pairs.same)
        for key, model in (("pairmark", twin), ("scikit-learn", fitted)):
            scores[key].append(float(roc_auc_score(held_out.same, model.pair_score(left, right))))
    auc = {key: statistics.fmean(values) for key, values in scores.items()}
    times = ratio(timings["scikit-learn"].cpu, timings["pairmark"].cpu)
    rows = [
        {
            "data": name,
            "tree": key,
            "CPU s (median)": timing.median_cpu,
            "times less CPU": times if key == "pairmark" else None,
            "held-out AUC (mean)": auc[key],
            "rounds": rounds,
        }
        for key, timing in timings.items()
    ]
    return rows, times, auc["pairmark"] - auc["scikit-learn"]
