"""Giving rows up early finds what scoring everything finds: rows, scores to the bit, ties by row."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmark.models import SimilarityForest, SimilarityTree
from pairmark.models.similarity.trees import PackedTrees

D = 5


def world(rng: np.random.Generator, n: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(n) % 9
    X = rng.standard_normal((9, D))[y] + 0.7 * rng.standard_normal((n, D))
    if kind == "few values":
        X = np.round(X)
    elif kind == "signs of zero":
        X = np.round(X) * rng.choice([-0.0, 0.0, 1.0], (n, D))
    elif kind == "scales":
        X *= 10.0 ** np.arange(-10, 10, 4)
    return X.astype(np.float32), y


_models: dict[Any, Any] = {}


def fitted(kind: str, **params: Any) -> Any:
    key = (kind, *sorted(params.items()))
    if key not in _models:
        X, y = world(np.random.default_rng(0), 180, kind)
        params = {"n_pairs": 4_000, "random_state": 0, **params}
        learner = SimilarityTree if params.pop("tree", False) else SimilarityForest
        _models[key] = learner(**params).fit(X, y)
    return _models[key]


OPTIONS: list[dict[str, Any]] = [
    {"n_estimators": 7, "aggregation": "rank", "max_depth": 6},
    {"n_estimators": 17, "aggregation": "rank", "max_depth": 6},
    {"n_estimators": 17, "aggregation": "log-odds", "max_depth": 6},
    {"n_estimators": 20, "aggregation": "rank", "max_depth": 6, "n_jobs": 2},
    {"n_estimators": 40, "aggregation": "log-odds", "max_depth": 2, "leaf_depth": 1},
    {"n_estimators": 300, "aggregation": "rank", "max_depth": 2, "n_pairs": 300},
    {"n_estimators": 16, "aggregation": "rank", "pair_map": "max-min", "max_depth": 5},
    {"n_estimators": 16, "aggregation": "log-odds", "pair_map": "max-min", "max_depth": 5},
    {"tree": True, "max_depth": 6},
]


@given(st.data())
def test_forests_search_as_they_score(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["plain", "few values", "signs of zero", "scales"]))
    model = fitted(kind, **data.draw(st.sampled_from(OPTIONS)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, k = data.draw(st.sampled_from([1, 7, 300, 2_048, 2_500])), data.draw(st.sampled_from([1, 2, 5, 30]))
    gallery = world(rng, n, kind)[0]
    if data.draw(st.booleans()):
        gallery[n // 2 :] = gallery[: n - n // 2]  # ties
    queries = np.vstack([gallery[:1], world(rng, 1, kind)[0], 3e38 * np.ones((1, D), dtype=np.float32)])
    index = model.index(gallery)
    grid = model.score_against(queries, gallery)
    mask = rng.random(n) < data.draw(st.sampled_from([1.1, 0.5, 0.01]))
    above = data.draw(st.sampled_from([None, float(np.quantile(grid[0], 0.99)), float(grid.max())]))
    ids, scores = model.top_k(queries, index, k, allowed=mask, above=above)
    for at in range(3):
        good = [i for i in np.flatnonzero(mask) if above is None or grid[at, i] > above]
        expected = sorted(good, key=lambda i, at=at: (-grid[at, i], i))[:k]
        assert ids[at][ids[at] >= 0].tolist() == expected
        assert scores[at, : len(expected)].tobytes() == grid[at, expected].tobytes()


@pytest.mark.parametrize("aggregation", ["rank", "log-odds"])
def test_most_rows_are_given_up_before_the_last_tree(
    aggregation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(400), 10)
    X = (rng.standard_normal((400, 16))[y] + 0.3 * rng.standard_normal((4_000, 16))).astype(np.float32)
    model = SimilarityForest(n_estimators=20, aggregation=aggregation, n_pairs=5_000, random_state=0).fit(
        X, y
    )
    sums: list[np.ndarray] = []
    real = PackedTrees.sums

    def keeping(*given: Any, **named: Any) -> Any:
        sums.append(real(*given, **named))
        return sums[-1]

    monkeypatch.setattr(PackedTrees, "sums", keeping)
    model.top_k(X[:1], X, 5)
    few_trees, *by_all_trees = sums
    assert few_trees.size == 4_000
    assert sum(int(np.isfinite(part).sum()) for part in by_all_trees) < 400


@pytest.mark.parametrize(("aggregation", "k"), [("rank", 400), ("log-odds", 1)])
def test_copies_are_found_in_their_order(aggregation: str, k: int) -> None:
    model = fitted("plain", n_estimators=30, aggregation=aggregation, max_depth=6)
    own, _ = world(np.random.default_rng(6), 1, "plain")
    gallery = np.repeat(own, 30_000, axis=0)
    query = own + np.float32(0.1)
    rows, scores = model.top_k(query, model.index(gallery), k)
    assert rows[0].tolist() == list(range(k))
    assert scores[0].tobytes() == model.score_against(query, gallery)[0, :k].tobytes()
