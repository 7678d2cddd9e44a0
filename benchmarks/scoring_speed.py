"""Scoring batches of pairs with a forest of a million nodes: against a plain numba traversal, and compiled LightGBM.

The plain traversal is what one writes first: arrays of nodes, pair by pair, tree by tree, stepping down by comparing
floats. It walks the very same trees and has to give the very same sums. LightGBM learns from as many written-out pairs;
for each of our other forests it gets the fewest trees that reach the forest's AUC on pairs of validation identities, or
all its trees where they do not. Those are: on raw coordinates, a million nodes; on raw coordinates, each tree one cut
by a boosted sum of stumps, as in `forest_speed`; and with `discriminant` features, which Gaussian identities suit. Each
tree of the first learns from as many pairs as LightGBM; those of the other two share them.

tl2cgen turns LightGBM's trees into C, compiled with -O3 by the machine's C compiler; they are left out, and said so,
where there is none. Writing out pair features is part of its scoring, since they are what it takes. AUCs shown are of
test identities.

One thread each, batches of 100,000 pairs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.common import Claim, Preset, Result, interleaved, ratio
from benchmarks.forest_speed import BOOSTED as OF_BOOSTED
from benchmarks.forest_speed import FORESTS, PEOPLE, world
from pairmark.models import SimilarityForest
from pairmark.models.pairs.sampling import pair_features, sample_pairs
from pairmark.models.similarity.node_splits import AxisSplits

N_TREES, N_PAIRS, BATCH = 44, 260_000, 100_000
OURS, PLAIN, LEARNED = "pairmark forest, raw", "plain numba traversal", "pairmark forest, discriminant"
BOOSTED = "pairmark forest, raw, boosted cells"
MOST_TREES = 300


@numba.njit(cache=True)
def plain(feature, threshold, low, high, value, starts, left, right, out):
    """Sum over trees; ``low`` and ``high`` are nodes (>= 0) or leaves, written as -1 - leaf."""
    d = left.shape[1]
    for p in range(left.shape[0]):
        total = 0.0
        for t in range(starts.shape[0] - 1):
            at = starts[t]
            while at >= 0:
                f = feature[at]
                if f < d:
                    v = abs(left[p, f] - right[p, f])
                else:
                    v = left[p, f - d] + right[p, f - d]
                at = low[at] if v <= threshold[at] else high[at]
            total += value[-1 - at]
        out[p] = total


def plain_arrays(forest: SimilarityForest) -> tuple[np.ndarray, ...]:
    """The forest's trees for `plain`, all in one table."""
    parts: list[list[np.ndarray]] = [[], [], [], [], []]
    starts, n_nodes, n_leaves = [0], 0, 0
    for tree in forest.trees_:
        leaves, splits = tree.leaves, tree.splits
        assert isinstance(splits, AxisSplits)
        goal = tree.cells[:, 2] + n_nodes
        goal[leaves] = -1 - (n_leaves + np.arange(leaves.size))
        children = [
            np.where(child >= 0, child + n_nodes, goal[np.where(child < 0, -1 - child, 0)])
            for child in (tree.node_low.astype(np.int64), tree.node_high.astype(np.int64))
        ]
        for part, array in zip(
            parts,
            (splits.features, splits.thresholds, *children, tree.leaf_log_odds()),
            strict=True,
        ):
            part.append(array)
        n_nodes, n_leaves = n_nodes + len(splits), n_leaves + leaves.size
        starts.append(n_nodes)
    return (*(np.concatenate(part) for part in parts), np.array(starts))


def run(preset: Preset) -> Result:
    """Three rounds, or seven for the full preset."""
    X, y = world(0)
    train, valid, test = y < PEOPLE // 2, (y >= PEOPLE // 2) & (y < 3 * PEOPLE // 4), y >= 3 * PEOPLE // 4
    forest = SimilarityForest(
        n_estimators=N_TREES, n_pairs=N_PAIRS, max_depth=14, leaf_depth=5, random_state=0
    ).fit(X[train], y[train])
    learned = SimilarityForest(
        n_estimators=N_TREES, n_pairs=N_PAIRS // N_TREES, pair_features="discriminant", random_state=0
    ).fit(X[train], y[train])
    boosted = SimilarityForest(
        n_estimators=N_TREES, n_pairs=N_PAIRS // N_TREES, random_state=0, **FORESTS[OF_BOOSTED]
    ).fit(X[train], y[train])
    arrays = plain_arrays(forest)
    left, right, same = _pairs(X[test], y[test])
    out = np.empty(BATCH)
    calls: dict[str, Any] = {
        OURS: lambda: forest.pair_score(left, right),
        PLAIN: lambda: plain(*arrays, left, right, out),  # type: ignore[call-arg]
        BOOSTED: lambda: boosted.pair_score(left, right),
        LEARNED: lambda: learned.pair_score(left, right),
    }
    plain(*arrays, left, right, out)  # type: ignore[call-arg]
    if not np.array_equal((out / N_TREES).astype(np.float32), forest.pair_score(left, right)):
        raise AssertionError("the plain traversal scores other than the forest: one of them is wrong")
    facts: dict[str, Any] = {"nodes": int(arrays[0].size), "trees": N_TREES, "pairs": N_PAIRS, "batch": BATCH}
    held_out = _pairs(X[valid], y[valid])
    goals = {
        name: float(roc_auc_score(held_out[2], model.pair_score(*held_out[:2])))
        for name, model in ((OURS, forest), (BOOSTED, boosted), (LEARNED, learned))
    }
    facts["AUC on validation pairs"] = dict(goals)
    facts["stumps of boosted cells"] = int(boosted.to_state()[0]["stump_features"].size)
    peers: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, n_trees, call in _compiled(
            X[train], y[train], held_out, goals, left, right, Path(folder), facts
        ):
            peers[name] = f"LightGBM by tl2cgen, {n_trees} trees"
            calls[peers[name]] = call
        scores = {name: out if name == PLAIN else np.asarray(call()) for name, call in calls.items()}
        timings = interleaved(calls, rounds=3 if preset == "quick" else 7)
    rows = [
        {
            "contestant": name,
            "pairs a CPU second": BATCH / timing.median_cpu,
            "AUC": float(roc_auc_score(same, scores[name])),
        }
        for name, timing in timings.items()
    ]
    times = ratio(timings[PLAIN].cpu, timings[OURS].cpu)
    claims = [
        Claim(what="the raw forest against its plain traversal", goal="at least 4 times", measured=times,
              holds=times >= 4)
    ]  # fmt: skip
    for name, peer in peers.items():
        times = ratio(timings[peer].cpu, timings[name].cpu)
        claims.append(
            Claim(what=f"{name}, against {peer}", goal="at least 1 times", measured=times, holds=times >= 1)
        )
    return Result(rows=rows, claims=claims, facts=facts)


def _pairs(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A batch of pairs, in an order that nothing profits from."""
    pairs = sample_pairs(y, BATCH, random_state=1)
    order = np.random.default_rng(2).permutation(BATCH)
    return X[pairs.left[order]], X[pairs.right[order]], pairs.same[order]


def _compiled(
    X: np.ndarray, y: np.ndarray, held_out: tuple[np.ndarray, ...], goals: dict[str, float],
    left: np.ndarray, right: np.ndarray, folder: Path, facts: dict[str, Any],
) -> Iterator[tuple[str, int, Any]]:  # fmt: skip
    """For each goal: its name, LightGBM's number of trees, and a call that scores; nothing where nothing compiles C."""
    compiler = next((name for name in ("gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        facts["LightGBM"] = "left out: no gcc or clang on this machine"
        return
    import lightgbm
    import tl2cgen
    import treelite

    pairs = sample_pairs(y, N_PAIRS, random_state=0)
    booster = lightgbm.train(
        {"objective": "binary", "num_leaves": 63, "verbose": -1, "num_threads": 1, "learning_rate": 0.2},
        lightgbm.Dataset(pair_features(X[pairs.left], X[pairs.right]), pairs.same),
        num_boost_round=MOST_TREES,
    )
    features = pair_features(*held_out[:2])
    reached = []
    raw = np.zeros(BATCH)
    for k in range(MOST_TREES):
        raw += booster.predict(features, start_iteration=k, num_iteration=1, raw_score=True)
        # Not every count is looked at closely: an AUC takes longer than a tree.
        reached.append(float(roc_auc_score(held_out[2], raw)) if k % 2 else -1.0)
    for at, (name, goal) in enumerate(goals.items()):
        n_trees = next((k + 1 for k, auc in enumerate(reached) if auc >= goal), MOST_TREES)
        facts[f"LightGBM's AUC on validation pairs, {n_trees} trees"] = reached[n_trees - 1]
        path, library = folder / f"model{at}.txt", folder / f"model{at}.so"
        booster.save_model(path, num_iteration=n_trees)
        tl2cgen.export_lib(
            treelite.frontend.load_lightgbm_model(path),
            toolchain=compiler,
            libpath=str(library),
            params={"parallel_comp": os.cpu_count() or 1},
        )
        predictor = tl2cgen.Predictor(str(library), nthread=1)

        def call(predictor: Any = predictor) -> Any:
            return np.ravel(predictor.predict(tl2cgen.DMatrix(pair_features(left, right), dtype="float32")))

        yield name, n_trees, call
