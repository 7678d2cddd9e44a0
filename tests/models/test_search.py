"""Choosing and merging the best rows of galleries, whatever the model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmark.models import MetricSimilarity
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.search import merge_top_k

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
