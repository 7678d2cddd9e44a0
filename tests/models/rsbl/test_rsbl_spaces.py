"""Distances in a growing space, linear machines, and classes from pairs, by brute force."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from pairmark.models import RSBL
from pairmark.models.rsbl.growth import Distances

SCIPY = {"euclidean": "euclidean", "manhattan": "cityblock", "cosine": "cosine"}


@pytest.mark.parametrize("metric", SCIPY)
def test_features_kept_as_one_measure_as_if_they_were_several(metric: str) -> None:
    rng = np.random.default_rng(0)
    rows, refs = rng.integers(0, 3, (9, 5)).astype(float), rng.integers(0, 3, (140, 5)).astype(float)
    more, ref_more = rng.choice([0.25, 0.5, 1.0], (9, 4)), rng.choice([0.25, 0.5, 1.0], (140, 4))
    counts = np.array([1.0, 4.0, 2.0, 7.0])
    grown = Distances(metric, 9, 140)
    grown.extend(rows.astype(np.float32), np.ascontiguousarray(refs.T, dtype=np.float32), np.ones(5))
    expected = cdist(rows, refs, SCIPY[metric]) ** 2
    # A row of zeros has no direction: it is as far from every other as if they were not related.
    expected = np.nan_to_num(expected, nan=1.0)
    np.testing.assert_allclose(grown.squared(), expected, atol=1e-5)
    before = deepcopy(grown)
    root = np.sqrt(counts)
    grown.extend(
        (more * root).astype(np.float32), np.ascontiguousarray((ref_more * root).T, dtype=np.float32), counts
    )
    whole, whole_refs = (
        np.hstack([a, np.repeat(b, counts.astype(int), axis=1)]) for a, b in ((rows, more), (refs, ref_more))
    )
    np.testing.assert_allclose(grown.squared(), cdist(whole, whole_refs, SCIPY[metric]) ** 2, atol=1e-5)
    np.testing.assert_allclose(before.squared(), expected, atol=1e-5)


def test_scores_compare_in_the_space_that_grew() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 3)).astype(np.float32)
    model = RSBL(depth=2, k_max=2).fit(rows, rows[:, 0] * rows[:, 1] > 0)
    H = model.transform(rows).astype(np.float64)
    unit = H / np.linalg.norm(H, axis=1, keepdims=True)
    np.testing.assert_allclose(model.score_against(rows, rows), unit @ unit.T, atol=2e-3)
    ids, scores = model.top_k(rows, np.repeat(rows, 3, axis=0), 6)
    np.testing.assert_array_equal(ids[:, :3], np.arange(60)[:, None] * 3 + np.arange(3))
    np.testing.assert_allclose(scores[:, 0], 1.0, atol=1e-6)
