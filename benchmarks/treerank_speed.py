"""One similarity tree against the same tree built from scikit-learn on written-out pair features.

The peer is TreeRank as one would write it with scikit-learn: the features of all pairs in a matrix, and for each cell
a `DecisionTreeClassifier` of LeafRank's depth under weights that balance both kinds of pair, its leaves kept where
their weighted gain is not negative. CPU seconds count everything from (X, y) to the fitted tree, the drawing of
pairs included. Accuracy is judged on held-out pairs, after learning from the very same pairs (another draw of pairs
alone moves the AUC by .005).

At 1,000,000 pairs (rows of Gaussian identities, 64 continuous features) the quick preset times scikit-learn's first
cell alone and scales it by that cell's share of the whole at 100,000 pairs of the same rows; the full preset grows the
whole tree. Extra memory is what the fit adds to the process's peak, in a process of its own that has fitted a small
tree before; the matrix that is not written is float32.

Last, the best first split of all 1.8e9 pairs of MNIST's training images (154 principal components), from histograms:
the milliseconds from codes of the rows to the split, and whether its counts equal enumeration on a subset.
"""

from __future__ import annotations

import ctypes
import gc
import gzip
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeClassifier

from benchmarks.common import Claim, Preset, Result, Skip, interleaved, needed_data, ratio
from benchmarks.forest_speed import PEOPLE, world
from pairmark.models import SimilarityTree
from pairmark.models.pairs.sampling import pair_features, sample_pairs
from pairmark.models.similarity.all_pairs import pair_counts
from pairmark.models.similarity.binning import quantise

MAX_DEPTH, LEAF_DEPTH, N_PAIRS, MANY_PAIRS = 8, 3, 100_000, 1_000_000


class PeerTree:
    """TreeRank over scikit-learn's trees."""

    def fit(
        self, X: np.ndarray, y: np.ndarray, seed: int, n_pairs: int = N_PAIRS, max_depth: int = MAX_DEPTH
    ) -> PeerTree:
        """Draw pairs, write out their features, split cells; ``first``: CPU seconds of the first cell's tree."""
        self.max_depth = max_depth
        pairs = sample_pairs(y, n_pairs, random_state=seed)
        features = pair_features(X[pairs.left], X[pairs.right])
        self.splits: dict[tuple[int, int], tuple[DecisionTreeClassifier, np.ndarray]] = {}
        self._split(features, pairs.same, np.arange(len(pairs)), 0, 0)
        return self

    def _split(self, f: np.ndarray, same: np.ndarray, rows: np.ndarray, depth: int, place: int) -> None:
        here = same[rows]
        if depth == self.max_depth or here.all() or not here.any():
            return
        cost = np.where(here, 1.0 / here.sum(), 1.0 / (~here).sum())
        tree = DecisionTreeClassifier(max_depth=LEAF_DEPTH, random_state=0)
        started = time.process_time()
        tree.fit(f[rows], here, sample_weight=cost)
        if depth == 0:
            self.first = time.process_time() - started
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
        least = 150 if "PCA" in name else 40
        claims += [
            Claim(what=f"{name}: CPU against scikit-learn", goal=f"at least {least} times less", measured=times,
                  holds=times >= least),
            Claim(what=f"{name}: AUC less scikit-learn's", goal="at least -0.005", measured=difference,
                  holds=difference >= -0.005),
        ]  # fmt: skip
    many, more = _many(preset)
    rows += many
    claims += more
    facts: dict[str, Any] = {"n_pairs": N_PAIRS, "max_depth": MAX_DEPTH, "leaf_depth": LEAF_DEPTH}
    for name, n_pairs in (("digits, PCA", N_PAIRS), ("Gaussian identities", MANY_PAIRS)):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.treerank_speed", name, str(n_pairs)],
            check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        found = json.loads(done.stdout.splitlines()[-1])
        facts[f"extra memory, {name}, {n_pairs} pairs"] = found
        claims.append(
            Claim(what=f"{name}, {n_pairs} pairs: extra memory, share of the matrix", goal="at most 0.05",
                  measured=found["share"], holds=found["share"] <= 0.05)
        )  # fmt: skip
    try:
        root = _first_split()
    except Skip as error:
        facts["first split of all pairs of MNIST"] = f"left out: {error}"
    else:
        facts["first split of all pairs of MNIST"] = root
        claims.append(
            Claim(what="first split of all 1.8e9 pairs of MNIST, ms", goal="at most 20, equal to enumeration",
                  measured=root["ms"], holds=root["ms"] <= 20 and root["equals enumeration"])
        )  # fmt: skip
    return Result(rows=rows, claims=claims, facts=facts)


def _many(preset: Preset) -> tuple[list[dict[str, Any]], list[Claim]]:
    """A million pairs of Gaussian identities."""
    X, y = world(0)
    train = y < PEOPLE // 2
    held_out = sample_pairs(y[~train], N_PAIRS, random_state=1)
    left, right = X[~train][held_out.left], X[~train][held_out.right]
    X, y = X[train], y[train]

    def ours(n_pairs: int) -> float:
        cpu = []
        for _ in range(5):
            started = time.process_time()
            SimilarityTree(max_depth=MAX_DEPTH, leaf_depth=LEAF_DEPTH, n_pairs=n_pairs, random_state=0).fit(
                X, y
            )
            cpu.append(time.process_time() - started)
        return statistics.median(cpu)

    whole = preset == "full"
    rows, claims, shares = [], [], []
    for n_pairs in (N_PAIRS, MANY_PAIRS):
        own = ours(n_pairs)
        started = time.process_time()
        depth = MAX_DEPTH if whole or n_pairs == N_PAIRS else 1
        peer = PeerTree().fit(X, y, 0, n_pairs, depth)
        cpu = time.process_time() - started
        if depth == MAX_DEPTH:
            shares.append(peer.first / cpu)
        else:
            cpu = peer.first / shares[0]
        pairs = sample_pairs(y, n_pairs, random_state=0)
        twin = SimilarityTree(max_depth=MAX_DEPTH, leaf_depth=LEAF_DEPTH)
        twin.fit_pairs(X[pairs.left], X[pairs.right], pairs.same)
        auc = [float(roc_auc_score(held_out.same, twin.pair_score(left, right))), None]
        if depth == MAX_DEPTH:
            auc[1] = float(roc_auc_score(held_out.same, peer.pair_score(left, right)))
            claims.append(
                Claim(what=f"Gaussian identities, {n_pairs} pairs: AUC less scikit-learn's", goal="at least -0.005",
                      measured=auc[0] - auc[1], holds=auc[0] - auc[1] >= -0.005)
            )  # fmt: skip
        name = f"Gaussian identities, {n_pairs} pairs"
        reported = (
            "scikit-learn"
            if depth == MAX_DEPTH
            else f"scikit-learn, from its first cell's {peer.first:.1f} s"
        )
        rows += [
            {"data": name, "tree": "pairmark", "CPU s (median)": own, "times less CPU": cpu / own,
             "held-out AUC (mean)": auc[0], "rounds": 5},
            {"data": name, "tree": reported, "CPU s (median)": cpu, "times less CPU": None,
             "held-out AUC (mean)": auc[1], "rounds": 1},
        ]  # fmt: skip
        least = 150 if n_pairs == N_PAIRS else 400
        claims.append(
            Claim(what=f"{name}: CPU against scikit-learn", goal=f"at least {least} times less", measured=cpu / own,
                  holds=cpu / own >= least)
        )  # fmt: skip
    return rows, claims


def memory(name: str, n_pairs: int) -> dict[str, float]:
    """MiB that a fit adds to this process's peak, and its share of the matrix that it does not write."""
    if name == "digits, PCA":
        X, y = load_digits(return_X_y=True)
        X, y = PCA(random_state=0).fit_transform(X).astype(np.float32)[:1200], y[:1200]
    else:
        X, y = world(0)
        X, y = X[y < PEOPLE // 2], y[y < PEOPLE // 2]
    SimilarityTree(max_depth=MAX_DEPTH, leaf_depth=LEAF_DEPTH, n_pairs=2_000, random_state=0).fit(X, y)
    before = _peak(forget=True)
    SimilarityTree(max_depth=MAX_DEPTH, leaf_depth=LEAF_DEPTH, n_pairs=n_pairs, random_state=0).fit(X, y)
    grown = _peak() - before
    return {"MiB": grown, "share": grown / (n_pairs * 2 * X.shape[1] * 4 / 2**20)}


def _peak(*, forget: bool = False) -> float:
    """Most MiB that this process has held; on Linux from now on, where earlier ones are to be forgotten."""
    status, forgetting = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not (status.exists() and forgetting.exists()):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if forget:
        # Memory that was given back inside the process would be taken again unseen.
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        forgetting.write_text("5")
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if "VmHWM" in line) / 1024


def _first_split() -> dict[str, Any]:
    """The best first split of all pairs of MNIST's training images."""
    with gzip.open(needed_data("mnist", "train-images-idx3-ubyte.gz")) as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784).astype(np.float32)
    with gzip.open(needed_data("mnist", "train-labels-idx1-ubyte.gz")) as file:
        y = np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)
    grid = quantise(PCA(n_components=154, random_state=0).fit_transform(images).astype(np.float32))

    def once() -> float:
        started = time.process_time()
        _best_border(pair_counts(grid.codes, y))
        return time.process_time() - started

    once()
    times = [once() for _ in range(9)]
    some = np.random.default_rng(0).choice(len(y), 1_500, replace=False)
    codes, classes = grid.codes[some], y[some]
    counts = pair_counts(codes, classes)
    left, right = np.triu_indices(1_500, 1)
    same = classes[left] == classes[right]
    equal = True
    for k in range(0, codes.shape[1], 20):
        a, b = codes[left, k].astype(np.int64), codes[right, k].astype(np.int64)
        for half, bins in enumerate((np.abs(a - b), a + b)):
            for kind, chosen in enumerate((same, ~same)):
                equal &= np.array_equal(np.bincount(bins[chosen], minlength=511), counts[kind, half, k])
    counts = pair_counts(grid.codes, y)
    half, feature, code, impurity = _best_border(counts)
    return {
        "ms": 1e3 * statistics.median(times),
        "pairs": int(counts[:, 0, 0].sum()),
        "features": codes.shape[1],
        "equals enumeration": bool(equal),
        "split": {"half": half, "feature": feature, "code": code, "impurity": impurity},
    }


def _best_border(counts: np.ndarray) -> tuple[int, int, int, float]:
    """Half of the pair map, feature and code below which the Gini impurity is least, under balanced costs."""
    a, c = counts.cumsum(axis=3) / counts.sum(axis=3, keepdims=True)
    under = (a + c) * (2.0 - a - c)
    gain = (a - c) ** 2 / np.where(under > 0.0, under, 1.0)
    half, feature, code = np.unravel_index(gain.argmax(), gain.shape)
    return int(half), int(feature), int(code), float(1.0 - gain.max()) / 2.0


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


if __name__ == "__main__":
    print(json.dumps(memory(sys.argv[1], int(sys.argv[2]))))
