"""Metrics against scipy, sparse against dense, and whitening against plain algebra."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial import distance
from sklearn.covariance import ledoit_wolf

from pairmark.models import MetricSimilarity

METRICS = ["cosine", "dot", "euclidean", "manhattan"]
rng = np.random.default_rng(0)
IDENTITIES = np.repeat(np.arange(12), 6)
SPREAD = rng.standard_normal((21, 21))
CENTRES = rng.standard_normal((12, 21))[IDENTITIES]
X = (CENTRES + 0.3 * rng.standard_normal((72, 21)) @ SPREAD).astype(np.float32)
X[rng.random(X.shape) < 0.4] = 0.0
Y = IDENTITIES
LEFT, RIGHT = X[:36], X[36:]


def metric(name: str, **params: Any) -> MetricSimilarity:
    return MetricSimilarity(name, **params).fit(X, Y)


def by_scipy(name: str, a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    if name == "cosine":
        return 1 - distance.cosine(a, b)
    if name == "dot":
        return float(a @ b)
    return -getattr(distance, {"manhattan": "cityblock"}.get(name, name))(a, b)


@pytest.mark.parametrize("name", METRICS)
def test_scores_are_those_of_scipy(name: str) -> None:
    got = metric(name).pair_score(LEFT, RIGHT)
    np.testing.assert_allclose(
        got, [by_scipy(name, a, b) for a, b in zip(LEFT, RIGHT, strict=True)], rtol=2e-6, atol=2e-7
    )


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("name", METRICS)
def test_one_pair_has_one_score_however_it_is_asked_for(name: str, whiten: bool) -> None:
    model = metric(name, whiten=whiten)
    expected = model.pair_score(LEFT, RIGHT)
    a, b, rows = csr_array(LEFT), csr_array(RIGHT), np.arange(36)
    for got in (
        model.pair_score(RIGHT, LEFT),
        np.diag(model.score_against(LEFT, RIGHT)),
        np.diag(model.score_against(LEFT, model.index(RIGHT))),
        np.array(
            [model.pair_score(one[None], other[None])[0] for one, other in zip(LEFT, RIGHT, strict=True)]
        ),
        model.pair_score(a, b),
        model.pair_score(a, RIGHT),
        np.diag(model.score_against(a, b)),
        model.score_pairs(csr_array(X), rows, rows + 36),
    ):
        assert got.tobytes() == expected.tobytes()
    assert model.top_k(a, b, 5)[0].tolist() == model.top_k(LEFT, RIGHT, 5)[0].tolist()


@pytest.mark.parametrize("name", METRICS)
def test_equal_and_empty_vectors_have_defined_scores(name: str) -> None:
    model = metric(name)
    zeros = np.zeros((2, 21), dtype=np.float32)
    for rows in (zeros, csr_array(zeros)):
        assert model.pair_score(rows, rows).tolist() == [0.0, 0.0]
    itself = model.pair_score(LEFT, LEFT)
    if name == "cosine":
        np.testing.assert_allclose(itself, 1.0, rtol=1e-6)
    elif name != "dot":
        assert itself.tolist() == [0.0] * len(LEFT)
        assert not np.signbit(itself).any()
    assert np.isfinite(model.pair_score(np.full((1, 21), 3e18, dtype=np.float32), LEFT)).all()


def test_sparse_rows_in_any_order_and_with_doubles_are_taken() -> None:
    tangled = csr_array(
        (np.array([1, 2, 3, 4], dtype=np.float32), np.array([7, 3, 3, 0]), np.array([0, 4])), shape=(1, 21)
    )
    for name in METRICS:
        model = metric(name)
        expected = model.pair_score(tangled.toarray(), LEFT[:1])
        assert model.pair_score(tangled, csr_array(LEFT[:1])).tobytes() == expected.tobytes()


def within(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    own = np.stack([X[y == one].mean(axis=0) for one in np.unique(y)])[y]
    return (X - own).T @ (X - own) / (len(y) - len(np.unique(y)))


def test_whitening_is_the_mahalanobis_distance_within_identities() -> None:
    model = metric("euclidean", whiten=True, shrinkage=0.25)
    covariance = within(X.astype(np.float64), Y)
    shrunk = 0.75 * covariance + 0.25 * np.trace(covariance) / 21 * np.eye(21)
    apart = LEFT.astype(np.float64) - RIGHT
    expected = -np.einsum("ij,jk,ik->i", apart, np.linalg.inv(shrunk), apart)
    np.testing.assert_allclose(model.pair_score(LEFT, RIGHT), -np.sqrt(-expected), rtol=1e-5)
    np.testing.assert_allclose(within(model.transform(X).astype(np.float64), Y).trace(), 21, rtol=0.5)


def test_auto_shrinkage_is_ledoit_and_wolf_s() -> None:
    model = metric("euclidean", whiten=True)
    own = np.stack([X[one == Y].mean(axis=0, dtype=np.float64) for one in range(12)])[Y]
    covariance, share = ledoit_wolf(X - own, assume_centered=True)
    assert 0 < share < 1
    covariance *= len(X) / (len(X) - 12)
    np.testing.assert_allclose(
        np.linalg.inv(model.whitening_ @ model.whitening_), covariance, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("shrinkage", [0.0, "auto"])
def test_fewer_rows_than_features_and_constant_features_are_no_trouble(shrinkage: Any) -> None:
    random = np.random.default_rng(2)
    y = np.repeat(np.arange(4), 3)
    Z = random.standard_normal((12, 40)).astype(np.float32)
    Z[:, 5] = 3.0
    model = MetricSimilarity("euclidean", whiten=True, shrinkage=shrinkage).fit(Z, y)
    assert np.isfinite(model.pair_score(Z, Z[:1])).all()
    assert np.linalg.matrix_rank(model.whitening_) == 40


@pytest.mark.parametrize("name", ["cosine", "dot"])
def test_the_inner_product_of_embeddings_is_the_score(name: str) -> None:
    for whiten in (False, True):
        model = metric(name, whiten=whiten)
        a, b = model.transform(LEFT), model.transform(csr_array(RIGHT))
        assert (a.shape, a.dtype) == (LEFT.shape, np.float32)
        np.testing.assert_allclose((a * b).sum(axis=1), model.pair_score(LEFT, RIGHT), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", METRICS)
def test_contributions_add_up_to_the_score(name: str) -> None:
    for whiten in (False, True):
        model = metric(name, whiten=whiten)
        reported = model.explain(LEFT[3], RIGHT[5:6], [f"f{j}" for j in range(21)])
        total = sum(part["contribution"] for part in reported["features"]) + reported["rest"]
        assert total == pytest.approx(float(model.pair_score(LEFT[3:4], RIGHT[5:6])[0]), rel=1e-4)
        sizes = [abs(part["contribution"]) for part in reported["features"]]
        assert sizes == sorted(sizes, reverse=True)
        assert all(part["feature"].startswith("f") for part in reported["features"])
        assert model.explain(LEFT[3], LEFT[3])["rest"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"metric": "sine"}, "metric is 'sine'.*'cosine'"),
        ({"whiten": True, "shrinkage": 1.5}, "shrinkage is 1.5"),
    ],
)
def test_bad_parameters_are_named(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MetricSimilarity(**params).fit(X, Y)


def test_nothing_to_whiten_by_is_said() -> None:
    twins = np.repeat(X[::6], 6, axis=0)
    with pytest.raises(ValueError, match="no variation within identities"):
        MetricSimilarity(whiten=True).fit(twins, Y)
    with pytest.raises(ValueError, match="no variation within identities"):
        MetricSimilarity(whiten=True).fit_pairs(twins[:12], twins[1:13], Y[:12] == Y[1:13])
