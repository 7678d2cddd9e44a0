"""Scans with estimates give what scoring everything gives: rows, scores to the bit, ties."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmark.models import MetricSimilarity
from pairmark.models.core import search as search_forms

METRICS = ["cosine", "dot", "euclidean", "manhattan"]
X = np.random.default_rng(4).standard_normal((60, 5)).astype(np.float32)
Y = np.repeat(np.arange(12), 5)
MODELS = {
    (metric, whiten): MetricSimilarity(metric=metric, whiten=whiten).fit(X, Y)
    for metric in METRICS
    for whiten in (False, True)
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_forms, "BLOCK", 16)
    monkeypatch.setattr(search_forms, "_SURE", 3)
    monkeypatch.setattr(search_forms, "_QUERIES", 2)


@given(st.data())
def test_every_metric_searches_as_it_scores(data: st.DataObject) -> None:
    model = MODELS[data.draw(st.sampled_from(METRICS)), data.draw(st.booleans())]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, k = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 12))
    kind = data.draw(st.sampled_from(["normal", "few values", "offset", "huge", "tiny", "mixed sizes"]))
    rows = rng.standard_normal((n + 3, 5))
    if kind == "few values":
        rows = np.round(rows)
    elif kind == "offset":
        rows = 1_000.0 + 1e-3 * rows
    elif kind != "normal":
        size = {"huge": 1e18, "tiny": 1e-30}.get(kind, 1.0)
        rows *= size if kind != "mixed sizes" else 10.0 ** rng.integers(-15, 15, (n + 3, 1))
    gallery, queries = rows[:n].astype(np.float32), rows[n:].astype(np.float32)
    queries[0] = gallery[0]
    grid = np.stack([model.pair_score(query[None], gallery) for query in queries])
    mask = rng.random(n) < 0.6 if data.draw(st.booleans()) else np.ones(n, dtype=bool)
    above = data.draw(st.sampled_from([None, float(np.median(grid)), float(grid.max())]))
    ids, scores = model.top_k(queries, gallery, k, allowed=mask, above=above)
    for at in range(3):
        good = [i for i in np.flatnonzero(mask) if above is None or grid[at, i] > above]
        expected = sorted(good, key=lambda i, at=at: (-grid[at, i], i))[:k]
        assert ids[at][ids[at] >= 0].tolist() == expected
        assert scores[at, : len(expected)].tobytes() == grid[at, expected].tobytes()


@pytest.mark.parametrize("metric", ["dot", "euclidean", "manhattan", "cosine"])
def test_rows_that_need_no_preparing_are_kept_once(metric: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(6).standard_normal((90, 16)).astype(np.float32)
    model = MetricSimilarity(metric=metric).fit(rows, np.arange(90) // 3)
    index = model.index(rows)
    assert ("prepared" in index.arrays) == (metric == "cosine")
    index.save(tmp_path / "index")
    opened = model.open_index(tmp_path / "index")
    grid = np.stack([model.pair_score(query[None], rows) for query in rows[:5]])
    assert model.score_against(rows[:5], opened).tobytes() == grid.tobytes()
    assert model.top_k(rows[:5], opened, 1)[1].tolist() == grid.max(axis=1, keepdims=True).tolist()


@pytest.mark.parametrize("share", [None, 0.6, 0.2])
@pytest.mark.parametrize("k", [10, 3_000])
def test_rows_far_down_a_gallery_are_found(
    k: int, share: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first few thousand rows are looked at before the others; the best may stand anywhere, and be many."""
    monkeypatch.setattr(search_forms, "BLOCK", 65_536)
    # Of few allowed rows, those alone are scanned, side by side and some at a time.
    monkeypatch.setattr(search_forms, "_COPIED_ROWS", 1_500)
    rng = np.random.default_rng(0)
    gallery = rng.standard_normal((20_000, 8)).astype(np.float32)
    model = MetricSimilarity().fit(gallery[:4], [0, 0, 1, 1])
    queries = rng.standard_normal((3, 8)).astype(np.float32)
    allowed = None if share is None else rng.random(len(gallery)) < share
    ids, scores = model.top_k(queries, model.index(gallery), k, allowed=allowed)
    grid = model.score_against(queries, gallery)
    for at in range(len(queries)):
        ranked = np.where(True if allowed is None else allowed, grid[at], -np.inf)
        expected = np.lexsort((np.arange(len(gallery)), -ranked))[:k]
        assert ids[at].tolist() == expected.tolist()
        assert scores[at].tobytes() == grid[at, expected].tobytes()
