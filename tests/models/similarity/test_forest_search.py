"""Searching by bounds finds what scoring everything finds: rows, scores to the bit, ties by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pairmark
from pairmark.models import SimilarityForest, SimilarityTree
from pairmark.models.similarity import search
from pairmark.models.similarity.kernels import search as kernels

D = 5


@pytest.fixture(autouse=True)
def however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SMALLEST", 1)
    monkeypatch.setattr(search, "FEW_WALKS", 0)
    monkeypatch.setattr(search, "_FIRST", 4)


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many items each walk began with."""
    sizes: list[int] = []
    real = kernels.walk

    def counting(*parts: Any) -> Any:
        sizes.append(parts[8].size)
        return real(*parts)

    monkeypatch.setattr(kernels, "walk", counting)
    return sizes


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
    {"n_estimators": 7, "aggregation": "log-odds", "max_depth": 6},
    {"n_estimators": 40, "aggregation": "log-odds", "max_depth": 2, "leaf_depth": 1},
    {"n_estimators": 300, "aggregation": "rank", "max_depth": 2, "n_pairs": 300},
    {"n_estimators": 5, "aggregation": "rank", "pair_map": "max-min", "max_depth": 5},
    {"n_estimators": 6, "aggregation": "log-odds", "pair_map": "max-min", "max_depth": 5},
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
def test_every_way_through_the_search_is_exact(
    monkeypatch: pytest.MonkeyPatch, aggregation: str, walked: list[int]
) -> None:
    """Programs of every size, long walks and none, whatever they cost."""
    model = fitted("plain", n_estimators=9, aggregation=aggregation, max_depth=6)
    gallery, _ = world(np.random.default_rng(4), 6_000, "plain")
    index, queries = model.index(gallery), gallery[:3] + np.float32(0.1)
    grid = model.score_against(queries, gallery)
    n_walked = []
    for full_walk in (0.0, 2.0):
        walked.clear()
        for least_gain in (10.0, 0.05, 0.004, 0.0):
            monkeypatch.setattr(search, "_LEAST_GAIN", least_gain)
            monkeypatch.setattr(search, "_FULL_WALK", full_walk)
            rows, scores = model.top_k(queries, index, 10)
            for at in range(3):
                expected = sorted(range(6_000), key=lambda i, at=at: (-grid[at, i], i))[:10]
                assert rows[at].tolist() == expected
                assert scores[at].tolist() == grid[at, expected].tolist()
        n_walked.append(sum(walked))
    # What is not walked is scored outright.
    assert 0 < n_walked[0] < n_walked[1]


def test_most_of_an_easy_gallery_is_never_scored(walked: list[int]) -> None:
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((400, 16))
    y = np.repeat(np.arange(400), 10)
    X = (centres[y] + 0.3 * rng.standard_normal((4_000, 16))).astype(np.float32)
    model = SimilarityForest(n_estimators=20, aggregation="rank", n_pairs=5_000, random_state=0).fit(X, y)
    gallery = np.vstack([X] * 5)
    rows = model.top_k(X[:1], model.index(gallery), 5)[0][0]
    assert rows.tolist() == model.top_k(X[:1], gallery, 5)[0][0].tolist()
    assert sum(walked) < 2_000


@pytest.mark.parametrize(("aggregation", "k"), [("rank", 400), ("log-odds", 1)])
def test_galleries_whose_bounds_rule_out_nothing_are_mostly_scored_outright(
    aggregation: str, k: int, walked: list[int]
) -> None:
    model = fitted("plain", n_estimators=30, aggregation=aggregation, max_depth=6)
    own, _ = world(np.random.default_rng(6), 1, "plain")
    gallery = np.repeat(own, 30_000, axis=0)
    query = own + np.float32(0.1)
    rows, scores = model.top_k(query, model.index(gallery), k)
    assert rows[0].tolist() == list(range(k))
    assert scores[0].tobytes() == model.score_against(query, gallery)[0, :k].tobytes()
    assert sum(walked) < 3_000


def test_byte_columns_are_saved_and_mapped(tmp_path: Path) -> None:
    model = fitted("plain", n_estimators=7, aggregation="rank", max_depth=6)
    gallery, _ = world(np.random.default_rng(5), 3_000, "plain")
    index = model.index(gallery)
    assert index.arrays["codes"].dtype == np.uint8
    index.save(tmp_path / "index")
    pairmark.save(model, tmp_path / "model")
    again = pairmark.load(tmp_path / "model")
    for mine, theirs in zip(
        model.top_k(gallery[:4], index, 7),
        again.top_k(gallery[:4], again.open_index(tmp_path / "index"), 7),
        strict=True,
    ):
        assert mine.tobytes() == theirs.tobytes()
