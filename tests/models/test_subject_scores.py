"""Subjects of several samples: one score for each pair of people, by every learner that scores pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from pairmark import MetricSimilarity, Plda, SimilarityAuto, SimilarityTree

RANDOM = np.random.default_rng(0)
CENTRES = RANDOM.standard_normal((30, 6))
X = (CENTRES[np.repeat(np.arange(30), 6)] + 0.7 * RANDOM.standard_normal((180, 6))).astype(np.float32)
Y = np.repeat(np.arange(30), 6)
MODELS: dict[str, Any] = {
    "cosine": MetricSimilarity("cosine").fit(X, Y),
    "euclidean": MetricSimilarity("euclidean", whiten=True).fit(X, Y),
    "tree": SimilarityTree(random_state=0).fit(X, Y),
    "plda": Plda(marginals="raw", length_norm=False, shrink_within=0.1, shrink_between=0.1).fit(X, Y),
    "plda with trees": Plda(
        marginals="raw", length_norm=False, shrink_within=0.1, shrink_between=0.1, residual_rounds=25
    ).fit(X, Y),
    "plda cosine": Plda(
        marginals="raw", length_norm=False, shrink_within=0.1, shrink_between=0.1, scoring="cosine"
    ).fit(X, Y),
    "auto": SimilarityAuto(candidates=["plda"], random_state=0).fit(X, Y),
}
WAYS = {"mean": np.mean, "best": np.max, "median": np.median}
CASES = [(name, way) for name, model in MODELS.items() for way in model.aggregations]


def sides(seed: int, n: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    random = np.random.default_rng(seed)

    def side() -> list[np.ndarray]:
        return [X[random.permutation(180)[: random.integers(1, 6)]] for _ in range(n)]

    return side(), side()


@pytest.mark.parametrize("name", MODELS)
def test_scores_of_samples_become_one_score(name: str) -> None:
    model = MODELS[name]
    left, right = sides(1, 20)
    for way, of in WAYS.items():
        expected = [
            of(model.score_against(a, b).astype(np.float64)) for a, b in zip(left, right, strict=True)
        ]
        got = model.subject_score(left, right, aggregation=way)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "way"), CASES)
def test_sides_and_order_change_no_bit(name: str, way: str) -> None:
    model, random = MODELS[name], np.random.default_rng(2)
    left, right = sides(3, 40)
    got = model.subject_score(left, right, aggregation=way)
    shuffled = [random.permutation(samples) for samples in left]
    assert model.subject_score(right, shuffled, aggregation=way).tobytes() == got.tobytes()
    taken = [[side[at] for at in (3, 0, 17)] for side in (left, right)]
    assert model.subject_score(*taken, aggregation=way).tobytes() == got[[3, 0, 17]].tobytes()


@pytest.mark.parametrize(("name", "way"), CASES)
def test_one_sample_scores_as_the_vector_does(name: str, way: str) -> None:
    model = MODELS[name]
    a, b = X[:50], X[100:150]
    got = model.subject_score([row[None] for row in a], [row[None] for row in b], aggregation=way)
    assert got.tobytes() == model.pair_score(a, b).tobytes()
    many = model.subject_score([a[:1]], [row[None] for row in b], aggregation=way)
    assert many.tobytes() == model.pair_score(a[:1], b).tobytes()


def test_sparse_samples_are_taken() -> None:
    model = MODELS["cosine"]
    left, right = sides(5, 6)
    dense = model.subject_score(left, right)
    sparse = model.subject_score([csr_array(a) for a in left], [csr_array(b) for b in right])
    np.testing.assert_allclose(sparse, dense, rtol=1e-6)


def test_what_is_wrong_is_said() -> None:
    model = MODELS["cosine"]
    with pytest.raises(
        ValueError, match=r"'plda' needs a PLDA model .* MetricSimilarity has mean, best, median"
    ):
        model.subject_score([X[:2]], [X[2:3]], aggregation="plda")
    with pytest.raises(ValueError, match="aggregation is 'max'; expected one of auto, mean"):
        model.subject_score([X[:2]], [X[2:3]], aggregation="max")
    with pytest.raises(ValueError, match="subject 1 has samples of shape"):
        model.subject_score([X[:2], X[0]], [X[:1]])
    with pytest.raises(ValueError, match="samples names no subject"):
        model.subject_score([], [X[:1]])
    with pytest.raises(ValueError, match="different numbers of features"):
        model.subject_score([X[:2], X[:2, :3]], [X[:1]])
    with pytest.raises(ValueError, match="left has 2 subjects and right 3"):
        model.subject_score([X[:1]] * 2, [X[:1]] * 3)
