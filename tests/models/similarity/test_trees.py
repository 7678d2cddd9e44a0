"""Similarity trees and forests against their definitions, by brute force."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from pairmark.models import SimilarityForest, SimilarityTree
from pairmark.models.core.progress import listening
from pairmark.models.pairs.sampling import pair_features
from pairmark.models.similarity.kernels import layout


def pairs_of(seed: int, n: int, d: int, values: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    if values == "whole":
        left, right = (rng.integers(0, 12, size=(n, d)).astype(np.float32) for _ in range(2))
    else:
        left, right = (rng.standard_normal((n, d)).astype(np.float32) for _ in range(2))
    near = np.abs(left - right)[:, 0] + 0.3 * rng.standard_normal(n) * (4 if values == "whole" else 1)
    same = near < np.median(near) * 0.8
    same[:2] = True, False
    return left, right, same


def impurity(low: np.ndarray, same: np.ndarray, weight: np.ndarray) -> float:
    """Gini impurity of a split under costs that balance both kinds of pair."""
    cost = weight / np.where(same, weight[same].sum(), weight[~same].sum())
    total = 0.0
    for part in (low, ~low):
        a, b = cost[part & same].sum(), cost[part & ~same].sum()
        total += a * b / (a + b) if a + b else 0.0
    return total


def least_impurity(f: np.ndarray, same: np.ndarray, weight: np.ndarray) -> float:
    """Of the splits at every value of every feature but its largest; each feature's best is found by running sums."""
    cost = weight / np.where(same, weight[same].sum(), weight[~same].sum())
    best = []
    for values in f.T:
        order = np.argsort(values)
        low = np.cumsum(np.where([same, ~same], cost, 0.0)[:, order], axis=1)
        high = low[:, -1:] - low
        ends = np.flatnonzero(np.diff(values[order]))
        if ends.size:
            parts = (low[:, ends].prod(0) / low[:, ends].sum(0)) + (
                high[:, ends].prod(0) / high[:, ends].sum(0)
            )
            best.append(impurity(values <= values[order][ends[parts.argmin()]], same, weight))
    return min(best)


@given(
    seed=st.integers(0, 10_000),
    pair_map=st.sampled_from(["diff-sum", "max-min"]),
    case=st.sampled_from([("whole", 30), ("real", 30), ("whole", 300), ("whole", 1000)]),
)
def test_a_split_equals_exhaustive_search(seed: int, pair_map: Any, case: tuple[str, int]) -> None:
    values, n = case
    left, right, same = pairs_of(seed, n, 3, values)
    weight = np.random.default_rng(seed).integers(1, 4, n)
    tree = SimilarityTree(max_depth=1, leaf_depth=1, pair_map=pair_map)
    tree.fit_pairs(left, right, same, sample_weight=weight)
    f = pair_features(left, right, pair_map)
    grown = tree.trees_[0]
    if grown.features.size == 0:
        # No split sends its two leaves different ways; a split that does would have lowered the impurity.
        assert least_impurity(f, same, weight) == pytest.approx(0.5, rel=1e-6)
        return
    low = f[:, grown.features[0]] <= grown.thresholds[0]
    assert impurity(low, same, weight) == pytest.approx(least_impurity(f, same, weight), rel=1e-9)


def cell_of(tree: Any, f: np.ndarray) -> int:
    """Walk the tree by its definition, in plain Python."""
    cell = 0
    while tree.cells[cell, layout.CELL_NODE] >= 0:
        at = int(tree.cells[cell, layout.CELL_NODE])
        while at >= 0:
            at = int((tree.node_high if f[tree.features[at]] > tree.thresholds[at] else tree.node_low)[at])
        cell = -1 - at
    return cell


CASES = [
    {"max_depth": 4, "leaf_depth": 2},
    {"max_depth": 7, "leaf_depth": 1},
    {"max_depth": 3, "leaf_depth": 5, "max_features": 2},
    {"max_depth": 5, "leaf_depth": 3, "pair_map": "max-min"},
    {"max_depth": 9, "leaf_depth": 2},
]


@pytest.mark.parametrize("params", CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_tree_is_what_its_definition_says(params: dict[str, Any], weighted: bool) -> None:
    left, right, same = pairs_of(3, 1500, 4, "real")
    weight = np.random.default_rng(0).integers(1, 5, len(same)) if weighted else np.ones(len(same), dtype=int)
    model = SimilarityTree(random_state=5, **params).fit_pairs(left, right, same, sample_weight=weight)
    tree = model.trees_[0]
    f = pair_features(left, right, model.pair_map)
    reached = np.array([cell_of(tree, row) for row in f])

    # The cells counted in training are the cells that score.
    for cell in tree.leaves:
        inside = reached == cell
        assert tree.cells[cell, layout.CELL_SAME] == weight[inside & same].sum()
        assert tree.cells[cell, layout.CELL_DIFFERENT] == weight[inside & ~same].sum()
    for row in tree.cells[tree.cells[:, layout.CELL_NODE] >= 0]:
        children = tree.cells[row[[layout.CELL_LEFT, layout.CELL_RIGHT]]]
        assert children[:, [3, 4]].sum(axis=0).tolist() == row[[3, 4]].tolist()
        assert children[:, layout.CELL_POSITION].tolist() == [2 * row[1], 2 * row[1] + 1]
        # Lambda > 0: the left child holds relatively more same pairs.
        assert children[0, 3] * row[4] > children[0, 4] * row[3]

    # s = 2^J (1 - k / 2^j), section 2.2; eq. (4) for full trees.
    depth, position = tree.cells[reached, layout.CELL_DEPTH], tree.cells[reached, layout.CELL_POSITION]
    expected = 2.0**model.max_depth * (1 - position / 2.0**depth)
    scores = model.pair_score(left, right)
    assert scores.tolist() == expected.tolist()

    # AUC-hat: the sum over all Lambda is the area of the broken line is the AUC of the training pairs.
    fpr, tpr = model.roc_
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == pytest.approx((0, 0, 1, 1))
    assert model.auc_ == pytest.approx(np.trapezoid(tpr, fpr), abs=1e-12)
    assert model.auc_ == pytest.approx(roc_auc_score(same, scores, sample_weight=weight), abs=1e-9)
    assert (np.diff(fpr) >= 0).all()
    assert (np.diff(tpr) >= 0).all()


def test_rates_of_all_pairs_are_those_of_enumeration() -> None:
    """Eq. (2): F- and F+ of a cell are shares of all n (n - 1) / 2 pairs of either kind, which nobody sampled."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 8, (60, 3)).astype(np.float32)
    y = rng.integers(0, 12, 60)
    for params in ({}, {"pair_map": "max-min"}):
        model = SimilarityTree(n_pairs=None, max_depth=3, random_state=0, **params).fit(X, y)
        scores: dict[bool, list[float]] = {True: [], False: []}
        for i in range(60):
            for j in range(i):
                scores[bool(y[i] == y[j])].append(float(model.pair_score(X[i][None], X[j][None])[0]))
        assert model.trees_[0].cells[model.trees_[0].leaves][:, layout.CELL_SAME].sum() == len(scores[True])
        fpr, tpr = model.roc_
        for rate, at, kind in ((fpr, 1, False), (tpr, 1, True)):
            values = np.array(scores[kind])
            for knot, leaf in enumerate(model.trees_[0].leaf_scores(3), start=at):
                assert rate[knot] == pytest.approx((values >= leaf).mean())


def leaf_means(model: SimilarityForest, f: np.ndarray) -> np.ndarray:
    totals = np.zeros(len(f))
    for tree in model.trees_:
        cells = tree.cells[[cell_of(tree, row) for row in f]]
        if model.aggregation == "rank":
            totals += 2.0**model.max_depth - 2.0**model.max_depth * cells[:, 1] / 2.0 ** cells[:, 0]
        else:
            n_same, n_different = tree.cells[0, 3], tree.cells[0, 4]
            totals += np.log((cells[:, 3] + 0.5) / (n_same + 1) / ((cells[:, 4] + 0.5) / (n_different + 1)))
    return totals / len(model.trees_)


@pytest.mark.parametrize("aggregation", ["rank", "log-odds"])
@pytest.mark.parametrize("params", [*CASES, {"bootstrap": False}])
def test_forest_is_the_mean_of_its_trees(aggregation: Any, params: dict[str, Any]) -> None:
    X, y = load_digits(n_class=4, return_X_y=True)
    model = SimilarityForest(
        **{
            "n_estimators": 5,
            "n_pairs": 2000,
            "aggregation": aggregation,
            "random_state": 2,
            "max_depth": 6,
            **params,
        }
    ).fit(X, y)
    left, right = X[:200].astype(np.float32), X[200:400].astype(np.float32)
    # Pairs on borders themselves and next to them, and numbers as large as there are.
    for p in range(90):
        tree = model.trees_[p % 5]
        node = p % tree.features.size
        f, threshold = int(tree.features[node]) % 64, tree.thresholds[node]
        right[p, f] = 0.0
        left[p, f] = np.nextafter(threshold, (np.float32(-np.inf), threshold, np.float32(np.inf))[p % 3])
    left[90:92], right[92:94, 2] = 3e38, -3e38
    expected = leaf_means(model, pair_features(left, right, model.pair_map))
    assert np.allclose(model.pair_score(left, right), expected, rtol=1e-6, atol=1e-6)
    assert len({tree.thresholds.tobytes() for tree in model.trees_}) == 5
    assert all(tree.auc() > 0.7 for tree in model.trees_)


def test_a_tree_that_outgrows_its_first_tables_is_the_smaller_one_grown_on() -> None:
    left, right, same = pairs_of(3, 4_000, 4, "real")

    def cells(max_depth: int) -> np.ndarray:
        return SimilarityTree(max_depth=max_depth, leaf_depth=2).fit_pairs(left, right, same).trees_[0].cells

    few, many = cells(4), cells(9)
    # Tables have space for 64 cells at first.
    assert len(few) < 64 < 256 < len(many)
    facts = [layout.CELL_DEPTH, layout.CELL_POSITION, layout.CELL_SAME, layout.CELL_DIFFERENT]
    top = many[many[:, layout.CELL_DEPTH] <= 4]
    assert sorted(few[:, facts].tolist()) == sorted(top[:, facts].tolist())


def test_training_pairs_and_their_swap_grow_one_tree() -> None:
    left, right, same = pairs_of(4, 800, 5, "real")
    flip = np.random.default_rng(0).random(800) < 0.5
    a, b = np.where(flip[:, None], right, left), np.where(flip[:, None], left, right)
    one = SimilarityTree(random_state=0).fit_pairs(left, right, same)
    two = SimilarityTree(random_state=0).fit_pairs(a, b, same)
    assert one.pair_score(left, right).tobytes() == two.pair_score(left, right).tobytes()


def test_explain_returns_the_path_that_scores() -> None:
    X, y = load_digits(return_X_y=True)
    model = SimilarityTree(n_pairs=5000, max_depth=5, random_state=0).fit(X, y)
    tree = model.trees_[0]
    for left, right in zip(X[:20], X[20:40], strict=True):
        reported = model.explain(left, right)
        assert json.loads(json.dumps(reported)) == reported
        assert reported["score"] == model.pair_score(left[None], right[None])[0]
        cell = tree.cells[
            cell_of(tree, pair_features(*(v[None].astype(np.float32) for v in (left, right)))[0])
        ]
        assert (reported["cell"]["depth"], reported["cell"]["position"]) == (cell[0], cell[1])
        for step in reported["path"]:
            number = int(step["feature"][1:])
            a, b = left[number], right[number]
            assert step["value"] == (abs(a - b) if step["map"] == "|x - x'|" else a + b)
            assert step["above"] == (step["value"] > step["threshold"])
    assert reported == model.explain(right, left)
    with pytest.raises(ValueError, match="explain takes one pair"):
        model.explain(X[:2], X[:2])


def test_forest_explains_by_features_and_leaves() -> None:
    X, y = load_digits(return_X_y=True)
    reported = SimilarityForest(n_estimators=6, n_pairs=5000, random_state=0).fit(X, y).explain(X[0], X[10])
    assert json.loads(json.dumps(reported)) == reported
    assert len(reported["trees"]) == 6
    effects = [abs(feature["effect"]) for feature in reported["features"]]
    assert effects == sorted(effects, reverse=True)
    # A pair's place in a tree is the sum of its turns: 1 - (k + 1/2) / 2^j = 1/2 + (the turns) / 2.
    places = [1 - (leaf["position"] + 0.5) / 2 ** leaf["depth"] for leaf in reported["trees"]]
    total = sum(feature["effect"] for feature in reported["features"])
    assert total / 2 + 0.5 == pytest.approx(np.mean(places))


def test_tree_data_is_the_whole_tree_by_name() -> None:
    X, y = load_digits(return_X_y=True)
    names = [f"pixel {i}" for i in range(64)]
    model = SimilarityTree(n_pairs=5000, max_depth=4, random_state=0).fit(X, y)
    data = model.tree_data(names)
    assert json.loads(json.dumps(data)) == data
    left, right = X[3].astype(np.float32), X[77].astype(np.float32)
    values = dict(zip([(n, m) for m in ("|x - x'|", "x + x'") for n in names],
                      pair_features(left[None], right[None])[0], strict=True))  # fmt: skip
    cell = data["cells"][0]
    while "split" in cell:
        target = {"node": cell["split"]}
        while "node" in target:
            node = data["nodes"][target["node"]]
            target = node["high" if values[node["feature"], node["map"]] > node["threshold"] else "low"]
        cell = data["cells"][target["cell"]]
    assert cell["score"] == model.pair_score(left[None], right[None])[0]
    assert data["auc"] == model.auc_
    with pytest.raises(ValueError, match="3 feature names for 64"):
        model.tree_data(["a", "b", "c"])
    forest = SimilarityForest(n_estimators=2, n_pairs=500, random_state=0).fit(X, y)
    assert forest.tree_data(tree=1)["n_trees"] == 2
    with pytest.raises(ValueError, match="expected 0 to 1"):
        forest.tree_data(tree=2)


class TestOddData:
    def test_constant_features_say_nothing_and_do_no_harm(self) -> None:
        X, y = load_digits(n_class=3, return_X_y=True)
        more = np.hstack([np.full((len(X), 5), 3.0), X, np.zeros((len(X), 4))])
        a = SimilarityTree(n_pairs=2000, random_state=0).fit(X, y)
        b = SimilarityTree(n_pairs=2000, random_state=0).fit(more, y)
        assert a.pair_score(X[:50], X[50:100]).tolist() == b.pair_score(more[:50], more[50:100]).tolist()

    @pytest.mark.parametrize("estimator", [SimilarityTree, SimilarityForest])
    def test_all_constant_gives_one_score(self, estimator: Any) -> None:
        X, y = np.full((20, 3), 2.0), np.arange(20) // 5
        model = estimator(random_state=0).fit(X, y)
        assert np.unique(model.pair_score(X, X[::-1])).size == 1
        if estimator is SimilarityTree:
            assert model.auc_ == 0.5
            assert model.tree_data()["nodes"] == []
            assert model.explain(X[0], X[1])["path"] == []

    @pytest.mark.parametrize("estimator", [SimilarityTree, SimilarityForest])
    @pytest.mark.parametrize("labels", [np.zeros(30), np.arange(30)], ids=["all same", "none same"])
    @pytest.mark.parametrize("params", [{}, {"n_pairs": None}], ids=str)
    def test_pairs_of_one_kind_give_one_score(
        self, estimator: Any, labels: Any, params: dict[str, Any]
    ) -> None:
        known = {name: value for name, value in params.items() if name in estimator().get_params()}
        X = np.random.default_rng(0).standard_normal((30, 3)).astype(np.float32)
        same = labels[:-1] == labels[1:]
        model = estimator(random_state=0, **known)
        model.fit_pairs(X[:-1], X[1:], same, sample_weight=np.arange(29))
        scores = model.pair_score(X, X[::-1])
        assert np.isfinite(scores).all()
        assert np.unique(scores).size == 1
        if estimator is SimilarityTree:
            assert model.auc_ == 0.5
            assert [axis.tolist() for axis in model.roc_] == [[0.0, 1.0], [0.0, 1.0]]
        else:
            assert not model.feature_importances_.any()

    def test_one_row_makes_no_pair(self) -> None:
        with pytest.raises(ValueError, match="a single identity"):
            SimilarityForest().fit([[1.0, 2.0]], [0])

    @pytest.mark.parametrize("pair_map", ["diff-sum", "max-min"])
    def test_odd_columns_under_every_map(self, pair_map: Any) -> None:
        """One column of use among constant, repeated, huge and tiny ones."""
        rng = np.random.default_rng(0)
        y = np.repeat(np.arange(12), 6)
        useful = y + 0.1 * rng.standard_normal(72)
        odd = [np.zeros(72), np.full(72, -7.0), useful, 1e18 * rng.standard_normal(72), 1e-30 * useful]
        X = np.column_stack([useful, *odd]).astype(np.float32)
        model = SimilarityForest(
            n_estimators=2,
            max_depth=3,
            pair_map=pair_map,
            max_features=None,
            random_state=0,
        ).fit(X, y)
        a, b = X[rng.permutation(72)], X[rng.permutation(72)]
        scores = model.pair_score(a, b)
        assert np.isfinite(scores).all()
        assert scores.tobytes() == model.pair_score(b, a).tobytes()
        assert SimilarityTree(pair_map=pair_map, n_pairs=None).fit(X[:, :1], y).auc_ > 0.9

    def test_one_same_pair_in_five_thousand(self) -> None:
        rng = np.random.default_rng(0)
        n = 20_000
        same = np.zeros(n, dtype=bool)
        same[rng.permutation(n)[: n // 5000]] = True
        left = rng.standard_normal((n, 5))
        right = np.where(
            same[:, None], left + 0.05 * rng.standard_normal((n, 5)), rng.standard_normal((n, 5))
        )
        model = SimilarityForest(n_estimators=20, random_state=0).fit_pairs(left, right, same)
        close = rng.standard_normal((500, 5))
        near = model.pair_score(close, close + 0.05 * rng.standard_normal((500, 5)))
        far = model.pair_score(close, rng.standard_normal((500, 5)))
        assert np.median(near) > np.quantile(far, 0.9)


def test_max_features_is_read_like_scikit_learn_does() -> None:
    X, y = load_digits(n_class=3, return_X_y=True)
    for value in (None, 1, 64, 500, 0.1, 1.0, "sqrt", "log2", np.int64(3)):
        SimilarityTree(n_pairs=200, max_features=value, random_state=0).fit(X, y)
    for value in (0, -1, 0.0, 1.5, "all"):
        with pytest.raises(ValueError, match="max_features"):
            SimilarityTree(n_pairs=200, max_features=value, random_state=0).fit(X, y)


def test_progress_is_reported_as_trees_finish_and_can_stop_the_fit() -> None:
    X, y = load_digits(n_class=3, return_X_y=True)
    for n_jobs in (None, 2):
        heard: list[float] = []
        with listening(lambda fraction, stage, heard=heard: heard.append(fraction)):
            SimilarityForest(n_estimators=4, n_pairs=500, random_state=0, n_jobs=n_jobs).fit(X, y)
        assert heard[-4:] == [0.25, 0.5, 0.75, 1.0]

        def stop(fraction: float, stage: str) -> None:
            if fraction >= 0.5:
                raise InterruptedError(stage)

        model = SimilarityForest(n_estimators=40, n_pairs=500, random_state=0, n_jobs=n_jobs)
        with listening(stop), pytest.raises(InterruptedError, match="20 of 40"):
            model.fit(X, y)
        with pytest.raises(ValueError, match="not fitted"):
            model.pair_score(X[:1], X[:1])


def test_few_pairs_are_split_by_their_values_where_much_of_them_lies_within_a_bin() -> None:
    rng = np.random.default_rng(0)
    crowded = rng.random(900) < 0.5
    x = np.where(crowded, 0.3 + 1e-4 * rng.random(900), rng.random(900)).astype(np.float32)
    same = np.where(crowded, x < np.median(x[crowded]), rng.random(900) < 0.5)
    tree = SimilarityTree(max_depth=1, leaf_depth=1, random_state=0)
    tree.fit_pairs(x[:, None], np.zeros((900, 1)), same)
    # |x - 0| and x + 0 are x: of all borders between two values, the one of least impurity.
    borders = np.unique(x)[:-1]
    low = x <= borders[:, None]
    a, c = (low & same).sum(axis=1) / same.sum(), (low & ~same).sum(axis=1) / (~same).sum()
    best = borders[np.argmin(a * c / (a + c) + (1 - a) * (1 - c) / (2 - a - c))]
    assert np.array_equal(x <= tree.trees_[0].thresholds[0], x <= best)
