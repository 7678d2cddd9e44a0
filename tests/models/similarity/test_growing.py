"""How forests and boosted trees grow: axes of listed pairs, options, ties, few people, in little memory."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

import pairmark
from pairmark import SimilarityForest, load
from pairmark.models import MetricSimilarity, Plda, SimilarityTree
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.pairs.sampling import PairPopulation
from pairmark.models.similarity.kernels import layout
from pairmark.models.trees.boosted import TreeSettings, fit_trees
from tests.serving import ROOT


def mixed(seed: int, n: int = 3_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of people of whom no single feature tells much."""
    rng, mix = np.random.default_rng(seed), np.random.default_rng(99).standard_normal((2, 12, 12))
    who = rng.standard_normal((2, n, 12)) * np.linspace(1.5, 0.1, 12)
    same = np.arange(n) % 2 == 0
    who[1, same] = who[0, same]
    left, right = (who @ mix[0] + 0.7 * rng.standard_normal(who.shape) @ mix[1]).astype(np.float32)
    return left, right, same


def test_axes_of_listed_pairs_tell_what_no_feature_tells_and_are_saved(tmp_path: Path) -> None:
    left, right, same = mixed(0)
    forest = SimilarityForest(n_estimators=10, random_state=0).fit_pairs(left, right, same)
    a, b, truth = mixed(1)
    scores = forest.pair_score(a, b)
    auc = (scores[truth][:, None] > scores[~truth][None, :]).mean()
    alone = SimilarityForest(n_estimators=10, random_state=0, bootstrap=False).fit_pairs(left, right, same)
    by_features = alone.pair_score(a, b)
    assert auc > (by_features[truth][:, None] > by_features[~truth][None, :]).mean() + 0.03
    assert scores.tobytes() == forest.pair_score(b, a).tobytes()
    assert scores[:1].tobytes() == forest.pair_score(a[:1], b[:1]).tobytes()
    ids, best = forest.top_k(a[:1], forest.index(b), 3)
    assert best[0].tobytes() == forest.pair_score(a[:1], b)[ids[0]].tobytes()
    assert forest.explain(a[0], b[0])["score"] == scores[0]
    assert forest.pair_feature_importances_.shape == (24,)
    assert forest.feature_importances_.sum() == pytest.approx(1)
    forest.save(tmp_path / "model")
    assert load(tmp_path / "model").pair_score(a, b).tobytes() == scores.tobytes()
    arrays, facts = forest.to_state()
    facts = {**facts, "n_features_in": 12}
    for name in ("axes_centre", "axes_weights"):
        damaged = {**arrays, name: arrays[name][:-1]}
        with pytest.raises(ArtefactError, match="axes_"):
            SimilarityForest(n_estimators=10).from_state(damaged, facts)
    assert "axes_weights" not in forest.fit(left[:60], np.arange(60) // 2).to_state()[0]


def test_people_are_told_apart_by_more_than_a_few_axes() -> None:
    """By 24 of 24 directions alike: eight axes reach .87."""
    rng = np.random.default_rng(0)
    mix, same = rng.standard_normal((24, 24)), np.arange(6_000) % 3 == 0
    who = rng.standard_normal((2, 6_000, 24))
    who[1, same] = who[0, same]
    left, right = (who + rng.standard_normal(who.shape)) @ mix
    forest = SimilarityForest(n_estimators=20, random_state=0).fit_pairs(
        left[:3_000], right[:3_000], same[:3_000]
    )
    scores, truth = forest.pair_score(left[3_000:], right[3_000:]), same[3_000:]
    assert (scores[truth][:, None] > scores[~truth][None, :]).mean() > 0.9


def test_odd_columns_do_not_break_axes() -> None:
    left, right, same = mixed(0, 400)
    for side in (left, right):
        side[:, 0], side[:, 1], side[:, 3] = 7.0, side[:, 2], side[:, 3] * 1e20
        side[:5, 4] = 1e30
    forest = SimilarityForest(n_estimators=3, random_state=0).fit_pairs(left, right, same)
    assert np.isfinite(forest.pair_score(left, right)).all()


X, y = load_iris(return_X_y=True)
X = X.astype(np.float32)
LEFT, RIGHT = np.triu_indices(len(y), 1)


@pytest.mark.parametrize(("leaf_rank", "message"), [("svm", "leaf_rank is 'svm'"), (3, "leaf_rank is 3")])
def test_ways_to_split_that_there_are_none_of_are_named(leaf_rank: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SimilarityTree(leaf_rank=leaf_rank).fit(X, y)


def test_importances_share_the_gain_by_feature() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 20)
    points = np.column_stack([rng.standard_normal((200, 2)), labels + 0.1 * rng.standard_normal(200)])
    forest = SimilarityForest(n_estimators=5, n_pairs=2000, max_features=None, random_state=0).fit(
        points, labels
    )
    assert forest.pair_feature_importances_.sum() == pytest.approx(1.0)
    assert forest.feature_importances_.argmax() == 2
    assert forest.feature_importances_[2] > 0.5


@pytest.mark.parametrize("weights", ["none", "alike", "whole"])
def test_trees_do_not_depend_on_the_order_of_pairs(weights: str) -> None:
    rng = np.random.default_rng(0)
    n = 9_000
    left, right = rng.standard_normal((2, n, 5)).astype(np.float32)
    same = np.abs(left - right)[:, 0] + 0.5 * rng.standard_normal(n) < 1.0
    weight = {"none": None, "alike": np.full(n, 3), "whole": rng.integers(1, 5, n)}[weights]

    def grown(order: np.ndarray) -> Any:
        params: dict[str, Any] = {"max_depth": 6, "leaf_depth": 3, "random_state": 0}
        its = None if weight is None else weight[order]
        model = SimilarityTree(**params).fit_pairs(left[order], right[order], same[order], its)
        # What a cell counted is what scores there.
        each = np.ones(n) if weight is None else weight
        tree, scores = model.trees_[0], model.pair_score(left, right)
        for score, cell in zip(tree.leaf_scores(6), tree.cells[tree.leaves], strict=True):
            inside = scores == np.float32(score)
            assert cell[layout.CELL_SAME] == each[inside & same].sum()
            assert cell[layout.CELL_DIFFERENT] == each[inside & ~same].sum()
        assert len(tree.cells) > 30
        return model.to_state()[0]

    one, other = grown(np.arange(n)), grown(rng.permutation(n))
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])


@pytest.mark.parametrize("n_pairs", [50, 400, 3_000])
def test_same_pairs_are_drawn_evenly_where_one_person_has_most_rows(n_pairs: int) -> None:
    codes = np.concatenate([np.repeat(np.arange(20), 8), np.full(160, 20)])
    table, n_same = PairPopulation(codes).table(n_pairs, random_state=0)
    left, right = table[:, :n_same]
    assert (codes[left] == codes[right]).all()
    assert (left != right).all()
    assert np.unique(np.sort(table[:, :n_same], axis=0), axis=1).shape[1] == n_same
    counts = np.bincount(codes[left], minlength=21)
    # A person of eight rows has 28 pairs.
    short = counts < np.r_[np.full(20, 28), 12_720]
    assert counts[short].max() - counts[short].min() <= 1


ANSWERS = """
import hashlib, sys
import numpy as np
import pytest
import pairmark

rows, queries = np.load(sys.argv[1]), np.load(sys.argv[2])
for path in sys.argv[3:]:
    model = pairmark.load(path)
    answers = [model.pair_score(queries[:300], rows[:300]), *model.top_k(queries[:3], model.index(rows), 10)]
    print(hashlib.sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in answers)).hexdigest())
"""
CPU = "nehalem" if platform.machine() == "x86_64" else "generic"


def answers(environment: dict[str, str], *arguments: str) -> list[str]:
    command = [sys.executable, "-c", ANSWERS, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.nightly
def test_scores_and_searches_are_the_same_to_the_bit_without_wide_vectors_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(40), 5)
    X = (rng.standard_normal((40, 12))[y] + 0.6 * rng.standard_normal((200, 12))).astype(np.float32)
    rows = (X[rng.integers(0, 200, 9_000)] + 0.3 * rng.standard_normal((9_000, 12))).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "queries.npy", rows[::30] + np.float32(0.1))
    models: dict[str, Any] = {
        "rank": SimilarityForest(n_estimators=30, aggregation="rank", n_pairs=4_000, random_state=0),
        "log-odds": SimilarityForest(n_estimators=30, n_pairs=4_000, random_state=0),
        "plda": Plda(),
        "metric": MetricSimilarity(whiten=True),
    }
    for name, model in models.items():
        pairmark.save(model.fit(X, y), tmp_path / name)
    arguments = [str(tmp_path / name) for name in ("rows.npy", "queries.npy", *models)]
    here = answers({}, *arguments)
    assert len(set(here)) == len(models)
    assert answers({"NUMBA_CPU_NAME": CPU, "NUMBA_CPU_FEATURES": ""}, *arguments) == here


FITS = """
import ctypes, gc, json, resource
from pathlib import Path
import numpy as np
from pairmark.models import SimilarityTree

def peak():
    lines = Path("/proc/self/status").read_text().splitlines() if FORGETTING.exists() else []
    kib = [int(line.split()[1]) for line in lines if "VmHWM" in line]
    return 1024 * (kib + [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss])[0]

FORGETTING = Path("/proc/self/clear_refs")
rng = np.random.default_rng(0)
y = np.repeat(np.arange(200), 25)
X = (rng.normal(size=(200, 64))[y] + 0.7 * rng.normal(size=(5_000, 64))).astype(np.float32)
shares = {}
for n_rows, n_pairs in ((1_250, 2_000), (1_250, 100_000), (5_000, 1_000_000)):
    gc.collect()
    if FORGETTING.exists():
        ctypes.CDLL(None).malloc_trim(0)
        FORGETTING.write_text("5")
    before = peak()
    SimilarityTree(n_pairs=n_pairs, random_state=0).fit(X[:n_rows], y[:n_rows])
    shares[n_pairs] = (peak() - before) / (n_pairs * 2 * 64 * 4)
print(json.dumps(shares))
"""


@pytest.mark.nightly
def test_a_fit_needs_a_sixteenth_of_the_memory_that_writing_out_pairs_would() -> None:
    done = subprocess.run([sys.executable, "-c", FITS], check=True, stdout=subprocess.PIPE, text=True)
    shares = json.loads(done.stdout)
    # 24 bytes a pair (its rows, its weight, room to move them), and some megabytes of tables whatever the pairs.
    assert shares["100000"] <= 0.1
    assert shares["1000000"] <= 1 / 16


def test_rows_that_all_lack_features_score_the_same_alone_and_together() -> None:
    """To the last bit; trees are cut back for many rows of which all lack something."""
    g = np.random.default_rng(5)
    X = g.normal(size=(3_000, 6)).astype(np.float32)
    same = X[:, 0] + X[:, 1] * (X[:, 2] > 0) + 0.3 * g.normal(size=3_000) > 0
    X[g.random(X.shape) < 0.2] = np.nan
    trees = fit_trees(X, same, np.ones(3_000), TreeSettings(40, 0.1, 5), np.random.default_rng(0))
    for lacked in ([], [0], [1, 4], [0, 1, 2, 3, 4], range(6)):
        rows = X.copy()
        rows[:, list(lacked)] = np.nan
        together = trees.score(rows)
        assert np.unique(together).size > 1 or len(lacked) == 6
        np.testing.assert_array_equal(
            together, np.concatenate([trees.score(part) for part in np.split(rows, 10)])
        )


def test_a_feature_with_a_direction_never_moves_a_score_against_it() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(800, 3)).astype(np.float32)
    X[random.random(X.shape) < 0.1] = np.nan
    # What they truly say turns around, so that trees which are not bound follow it.
    same = np.sin(2 * np.nan_to_num(X)).sum(axis=1) + 0.3 * random.normal(size=800) > 0
    rows = np.repeat(random.normal(size=(50, 3)).astype(np.float32), 40, axis=0)
    rows[::7, 1] = np.nan
    steps = np.tile(np.linspace(-3, 3, 40, dtype=np.float32), 50)

    def turns(feature: int, directions: np.ndarray | None) -> float:
        """The largest fall of a score while a feature rises."""
        trees = fit_trees(
            X,
            same,
            np.ones(800),
            TreeSettings(40, 0.1, 5),
            np.random.default_rng(1),
            directions=directions,
        )
        asked = rows.copy()
        asked[:, 2 - feature] = np.repeat(asked[::40, 2 - feature], 40)
        asked[:, 1] = np.repeat(asked[::40, 1], 40)
        asked[:, feature] = steps
        return float(-np.diff(trees.score(asked).reshape(50, 40), axis=1).min())

    directions = np.array([1.0, 0.0, -1.0])
    assert turns(0, None) > 0.05
    assert turns(0, directions) <= 0
    assert turns(2, -directions) <= 0
    assert turns(2, directions) > 0.05
