"""Scoring batches of pairs with a grown forest: against a plain numba traversal, and LightGBM compiled by tl2cgen.

The plain traversal is what one writes first: arrays of nodes, pair by pair, tree by tree, stepping down by comparing
floats. It walks the very same trees and has to give the very same sums. LightGBM learns from as many written-out pairs,
with as many trees as bring it to the AUC of our forest with `discriminant` features, at most four times ours (Gaussian
identities suit those features). tl2cgen turns it into C, compiled with -O3 by the machine's C compiler; it is left out,
and said so, where there is none. Writing out pair features is part of its scoring, since they are what it takes.

One thread each, batches of 100,000 pairs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numba
import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.common import Claim, Preset, Result, interleaved, ratio
from benchmarks.forest_speed import PEOPLE, world
from models import SimilarityForest
from models.pairs import pair_features, sample_pairs

N_TREES, BATCH = 44, 100_000
OURS, PLAIN = "pairmark forest, raw", "plain numba traversal"
LEARNED, PEER = "pairmark forest, discriminant", "LightGBM by tl2cgen"
MOST_TREES = 4 * N_TREES


@numba.njit(cache=True)
def plain(feature, threshold, low, high, value, starts, left, right, out):  # type: ignore[no-untyped-def]
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
        leaves = tree.leaves
        goal = tree.cells[:, 2] + n_nodes
        goal[leaves] = -1 - (n_leaves + np.arange(leaves.size))
        children = [
            np.where(child >= 0, child + n_nodes, goal[np.where(child < 0, -1 - child, 0)])
            for child in (tree.node_low.astype(np.int64), tree.node_high.astype(np.int64))
        ]
        for part, array in zip(
            parts, (tree.node_feature, tree.node_threshold, *children, tree.leaf_log_odds()), strict=True
        ):
            part.append(array)
        n_nodes, n_leaves = n_nodes + tree.node_feature.size, n_leaves + leaves.size
        starts.append(n_nodes)
    return (*(np.concatenate(part) for part in parts), np.array(starts))


def run(preset: Preset) -> Result:
    """Quick: some 200,000 nodes and 3 rounds. Full: about a million nodes, 7 rounds."""
    quick = preset == "quick"
    X, y = world(0)
    train = y < PEOPLE // 2
    n_pairs = 60_000 if quick else 400_000
    forest = SimilarityForest(
        n_estimators=N_TREES, n_pairs=n_pairs, max_depth=14, leaf_depth=5, random_state=0
    )
    forest.fit(X[train], y[train])
    arrays = plain_arrays(forest)
    batch = sample_pairs(y[~train], BATCH, random_state=1)
    left, right = X[~train][batch.left], X[~train][batch.right]
    out = np.empty(BATCH)
    learned = SimilarityForest(
        n_estimators=N_TREES, n_pairs=n_pairs // N_TREES, pair_features="discriminant", random_state=0
    )
    learned.fit(X[train], y[train])
    calls: dict[str, Any] = {
        OURS: lambda: forest.pair_score(left, right),
        PLAIN: lambda: plain(*arrays, left, right, out),
        LEARNED: lambda: learned.pair_score(left, right),
    }
    plain(*arrays, left, right, out)
    if not np.array_equal((out / N_TREES).astype(np.float32), forest.pair_score(left, right)):
        raise AssertionError("the plain traversal scores other than the forest: one of them is wrong")
    scores = {OURS: forest.pair_score(left, right), PLAIN: out, LEARNED: learned.pair_score(left, right)}
    facts: dict[str, Any] = {"nodes": int(arrays[0].size), "trees": N_TREES, "batch": BATCH}
    with tempfile.TemporaryDirectory() as folder:
        goal = float(roc_auc_score(batch.same, scores[LEARNED]))
        peer = _compiled(X[train], y[train], n_pairs, left, right, batch.same, goal, Path(folder), facts)
        if peer is not None:
            calls[PEER], scores[PEER] = peer, peer()
        timings = interleaved(calls, rounds=3 if quick else 7)
    rows = [
        {
            "contestant": name,
            "pairs a CPU second": BATCH / timing.median_cpu,
            "AUC": float(roc_auc_score(batch.same, scores[name])),
        }
        for name, timing in timings.items()
    ]
    times = ratio(timings[PLAIN].cpu, timings[OURS].cpu)
    claims = [
        Claim(what="the raw forest against its plain traversal", goal="at least 4 times", measured=times,
              holds=times >= 4)
    ]  # fmt: skip
    if PEER in timings:
        times = ratio(timings[PEER].cpu, timings[LEARNED].cpu)
        claims.append(
            Claim(what=f"{LEARNED} against {PEER}, its AUC as near as it comes", goal="at least 1 times",
                  measured=times, holds=times >= 1)
        )  # fmt: skip
    return Result(rows=rows, claims=claims, facts=facts)


def _compiled(
    X: np.ndarray, y: np.ndarray, n_pairs: int, left: np.ndarray, right: np.ndarray, same: np.ndarray,
    goal: float, folder: Path, facts: dict[str, Any],
) -> Any:  # fmt: skip
    """LightGBM with the fewest trees that reach the AUC ``goal``, as a C library; None where nothing compiles C."""
    compiler = next((name for name in ("gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        facts[PEER] = "left out: no gcc or clang on this machine"
        return None
    import lightgbm
    import tl2cgen
    import treelite

    pairs = sample_pairs(y, n_pairs, random_state=0)
    features = pair_features(X[pairs.left], X[pairs.right])
    booster = lightgbm.train(
        {"objective": "binary", "num_leaves": 63, "verbose": -1, "num_threads": 1, "learning_rate": 0.2},
        lightgbm.Dataset(features, pairs.same),
        num_boost_round=MOST_TREES,
    )
    test = pair_features(left, right)
    kept = MOST_TREES
    for n_trees in range(16, MOST_TREES, 16):
        if roc_auc_score(same, booster.predict(test, num_iteration=n_trees, raw_score=True)) >= goal:
            kept = n_trees
            break
    facts["LightGBM's trees"] = kept
    path = folder / "model.txt"
    booster.save_model(path, num_iteration=kept)
    library = folder / "model.so"
    tl2cgen.export_lib(
        treelite.frontend.load_lightgbm_model(path),
        toolchain=compiler,
        libpath=str(library),
        params={"parallel_comp": os.cpu_count() or 1},
    )
    predictor = tl2cgen.Predictor(str(library), nthread=1)
    return lambda: np.ravel(predictor.predict(tl2cgen.DMatrix(pair_features(left, right), dtype="float32")))
