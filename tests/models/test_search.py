"""Choosing and merging the best rows of galleries, whatever the model."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmark.models import MetricSimilarity
from pairmark.models.core import search as search_forms
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.search import SearchLimits, merge_top_k
from pairmark.models.registry import save, spec_of
from tests.serving import ROOT

X = np.random.default_rng(2).standard_normal((40, 3)).astype(np.float32)
Y = np.repeat(np.arange(8), 5)


@given(st.data())
def test_merged_blocks_are_the_search_of_the_whole(data: st.DataObject) -> None:
    model = MetricSimilarity(metric="manhattan").fit(X, Y)  # with many ties
    gallery = np.array(
        data.draw(st.lists(st.tuples(*[st.integers(0, 1)] * 3), min_size=1, max_size=30)), np.float32
    )
    k, queries = data.draw(st.integers(1, 12)), gallery[:2]
    names = [f"{i:03}" for i in data.draw(st.permutations(range(len(gallery))))]
    order = np.argsort(names)
    whole = model.top_k(queries, gallery[order], k)
    block_of = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(gallery), max_size=len(gallery))))
    members = [order[block_of[order] == block] for block in np.unique(block_of)]
    parts = [model.top_k(queries, gallery[rows], k) for rows in members]
    merged = merge_top_k(parts, k, [[names[i] for i in rows] for rows in members])
    for query in range(len(queries)):
        found = [members[p][r] for p, r in zip(merged.part[query], merged.row[query], strict=True) if p >= 0]
        assert found == order[whole[0][query]].tolist()
        assert merged.score[query, : len(found)].tolist() == whole[1][query].tolist()
        assert (merged.score[query, len(found) :] == -np.inf).all()


def test_says_what_is_wrong_with_an_index_on_disk(tmp_path: Path) -> None:
    model = MetricSimilarity().fit(X, Y)
    with pytest.raises(ArtefactError, match=r"manifest\.json"):
        model.open_index(tmp_path)
    model.index(X).save(tmp_path / "index")
    manifest = tmp_path / "index" / "manifest.json"
    reported = json.loads(manifest.read_text())
    for change in ({"kind": "metric"}, {"meta": {}}, {"meta": {**reported["meta"], "rows": 3}}):
        manifest.write_text(json.dumps({**reported, **change}))
        with pytest.raises(ArtefactError, match=r"expected an index|not a complete index"):
            model.open_index(tmp_path / "index")
    manifest.write_text(json.dumps(reported))
    (tmp_path / "index" / "vectors.npy").write_bytes(b"short")
    with pytest.raises(ArtefactError, match="cannot be read"):
        model.open_index(tmp_path / "index")


def test_a_model_fitted_again_refuses_its_old_indexes() -> None:
    model = MetricSimilarity(whiten=True).fit(X, Y)
    index = model.index(X)
    model.top_k(X[:1], index, 1)
    model.fit(X[::2], Y[::2])
    with pytest.raises(ValueError, match="before it was fitted again"):
        model.top_k(X[:1], index, 1)
    model.set_params(shrinkage=0.5).fit(X, Y)
    with pytest.raises(ValueError, match="another model"):
        model.score_against(X[:1], index)


METRICS = ["cosine", "dot", "euclidean", "manhattan"]
ROWS = np.random.default_rng(4).standard_normal((60, 5)).astype(np.float32)
WHOSE = np.repeat(np.arange(12), 5)
MODELS = {
    (metric, whiten): MetricSimilarity(metric=metric, whiten=whiten).fit(ROWS, WHOSE)
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
    assert "prepared" not in index.arrays
    index.save(tmp_path / "index")
    opened = model.open_index(tmp_path / "index")
    grid = np.stack([model.pair_score(query[None], rows) for query in rows[:5]])
    assert model.score_against(rows[:5], opened).tobytes() == grid.tobytes()
    assert model.top_k(rows[:5], opened, 1)[1].tolist() == grid.max(axis=1, keepdims=True).tolist()


def test_the_vectors_that_a_search_of_codes_read_are_let_go_of(tmp_path: Path) -> None:
    """Mapped pages count as a process's memory: of many segments they would be all vectors."""
    rows = np.random.default_rng(7).standard_normal((20_000, 16)).astype(np.float32)
    model = MetricSimilarity().fit(rows[:4], [0, 0, 1, 1])
    model.index(rows).save(tmp_path / "index")
    opened = model.open_index(tmp_path / "index")
    assert model.top_k(rows[:3], opened, 2)[0][:, 0].tolist() == [0, 1, 2]
    maps = Path("/proc/self/smaps").read_text().split(str(tmp_path / "index" / "vectors.npy"))[1:]
    assert [one.split("Rss:")[1].split()[0] for one in maps] == ["0"]


def test_a_row_is_found_whose_codes_leave_out_all_that_the_query_asks_for() -> None:
    """The worst that 8 bits can do: what they leave out points where the query does."""
    rows = np.zeros((5_000, 101), dtype=np.float32)
    rows[:, 0], rows[:, 1:49] = 127.0, 1.0
    rows[4_500, 1:] = 0.49
    query = np.ones((1, 101), dtype=np.float32)
    query[0, 0] = 0.0
    model = MetricSimilarity(metric="dot").fit(rows[:4], [0, 0, 1, 1])
    assert model.top_k(query, rows, 1)[0].tolist() == [[4_500]]


def test_what_was_written_to_a_mapped_gallery_outlives_a_search(tmp_path: Path) -> None:
    """Numpy maps a file copy on write with mode `c`: what is written is in memory alone."""
    rows = np.random.default_rng(7).standard_normal((200, 16)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    gallery = np.load(tmp_path / "rows.npy", mmap_mode="c")
    gallery[0] = 7.0
    MetricSimilarity().fit(rows[:4], [0, 0, 1, 1]).top_k(rows[:3], gallery, 2)
    assert gallery[0].tolist() == [7.0] * 16


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
    model = MetricSimilarity("cosine" if k == 10 else "dot").fit(gallery[:4], [0, 0, 1, 1])
    queries = rng.standard_normal((3, 8)).astype(np.float32)
    # In 8 bits the large number leaves nothing of the others, to which the best inner product of a query is due.
    gallery[15_000], queries[0] = [500.0, *7 * [1.9]], [0.0, *7 * [1.0]]
    allowed = None if share is None else (rng.random(len(gallery)) < share) | (gallery[:, 0] == 500.0)
    ids, scores = model.top_k(queries, model.index(gallery), k, allowed=allowed)
    grid = model.score_against(queries, gallery)
    for at in range(len(queries)):
        ranked = np.where(True if allowed is None else allowed, grid[at], -np.inf)
        expected = np.lexsort((np.arange(len(gallery)), -ranked))[:k]
        assert ids[at].tolist() == expected.tolist()
        assert scores[at].tobytes() == grid[at, expected].tobytes()


def test_sums_of_codes_that_overflow_leave_nothing_out() -> None:
    """Of whole numbers up to 127 a partial sum of a large query is no float32, though the inner product is one."""
    gallery = np.zeros((40, 8), dtype=np.float32)
    gallery[0], gallery[1:, 1] = 1.0, 1e-3
    model = MetricSimilarity("dot").fit(gallery[:4], [0, 0, 1, 1])
    # The machine chooses the order of the sum.
    queries = np.full((8, 8), 0.5e36, dtype=np.float32)
    np.fill_diagonal(queries, -2.8e36)
    ids, scores = model.top_k(queries, model.index(gallery), 1, above=1e33)
    assert ids.tolist() == [[0]] * 8
    assert scores.tobytes() == model.score_against(queries, gallery)[:, :1].tobytes()


SEARCHERS = (
    "similarity-forest",
    *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("metric", "plda", "similarity-tree")),
)
USED = """
import gc, sys
import numpy as np
from numba.core.dispatcher import Dispatcher
import pairmark
from pairmark.models.registry import spec_of
from pairmark.models.warmup import warm_loaded

def compiled():
    own = [one for one in gc.get_objects() if isinstance(one, Dispatcher)]
    return {one.py_func.__qualname__: len(one.overloads) for one in own}

model = pairmark.load(sys.argv[1])
warm_loaded(model, spec_of(sys.argv[2]).capabilities)
before = compiled()
assert sum(before.values()), "nothing was compiled: the kernels moved"
X = np.random.default_rng(1).standard_normal((300, 8)).astype(np.float32)
model.pair_score(X[:1], X[1:2])
model.top_k(X[:1], model.index(X), 5, allowed=np.arange(300) % 2 == 0, above=np.float32(-1e9))
model.top_k(X[:3], model.index(np.tile(X, (40, 1))), 5)
model.top_k(X[:3], model.index(np.tile(X, (40, 1)) + np.random.default_rng(2).normal(size=(12_000, 8))), 5)
new = {name: n for name, n in compiled().items() if n > before.get(name, 0)}
assert not new, f"compiled in a request: {sorted(new)}"
"""


def test_a_search_of_all_rows_makes_no_mask_of_them() -> None:
    # A mask of so many would take a petabyte.
    assert SearchLimits.of(3, 10**15, None, 0.5) == (3, None, np.float32(0.5))


@pytest.mark.parametrize("kind", SEARCHERS)
def test_a_search_after_warming_compiles_nothing(kind: str, tmp_path) -> None:
    spec = spec_of(kind)
    few = {name: 20 for name in ("n_estimators", "depth") if name in spec.params.model_fields}
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), 4)
    X = (rng.standard_normal((20, 8))[y] + 0.3 * rng.standard_normal((80, 8))).astype(np.float32)
    save(spec.estimator(**{**spec.params().model_dump(), **few}).fit(X, y), tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-c", USED, str(tmp_path / "model"), kind],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
