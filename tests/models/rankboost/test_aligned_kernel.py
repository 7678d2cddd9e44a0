"""Aligned kernels against their definitions: losses, gradients, networks written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_iris
from sklearn.metrics import roc_auc_score

from pairmark.models import AlignedKernel
from pairmark.models.rankboost import aligned as network

X, y = load_iris(return_X_y=True)
X = X.astype(np.float32)
QUICK = {"hidden": (6, 4), "n_iter": 3, "learning_rate": 0.1, "random_state": 0}


def kernel_alignment(K1: np.ndarray, K2: np.ndarray, weight: float | np.ndarray = 1.0) -> float:
    """The cosine between two kernel matrices (equation 5)."""
    return float((weight * K1 * K2).sum() / np.sqrt((weight * K1**2).sum() * (weight * K2**2).sum()))


def fitted(**how: Any) -> AlignedKernel:
    return AlignedKernel(**{**QUICK, **how}).fit(X, y)


def small_batch(balanced: bool = False) -> network.Batch:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(7, 5)) * (rng.random((7, 5)) < 0.6)
    return network.batch_of_rows(csr_array(rows), rng.integers(0, 2, 7), balanced, rng)


@pytest.mark.parametrize("balanced", [False, True])
def test_losses_are_the_papers(balanced: bool) -> None:
    batch = small_batch(balanced)
    K = np.random.default_rng(1).normal(size=batch.left.size)
    assert batch.weight.sum() == pytest.approx(1)
    squared, _ = network.loss_of(K, batch, "squared")
    assert squared == pytest.approx((batch.weight * (K - batch.target) ** 2).sum())
    alignment, _ = network.loss_of(K, batch, "alignment")
    if not balanced:
        perfect = batch.target.reshape(7, 7)
        assert alignment == pytest.approx(1 - kernel_alignment(K.reshape(7, 7), perfect))
    else:
        assert batch.weight[batch.target > 0].sum() == pytest.approx(0.5)


@pytest.mark.parametrize("loss", ["squared", "alignment"])
@pytest.mark.parametrize("psd", [True, False])
def test_gradients_are_slopes_of_the_loss(loss: Any, psd: bool) -> None:
    batch = small_batch()
    made = network.Network.random(batch.rows, (4, 3), psd, np.random.default_rng(2))

    def value() -> float:
        return network.loss_of(network.values_of(made, batch)[0], batch, loss)[0]

    slopes = []
    for part in made.parts:
        slope = np.zeros_like(part)
        for at in np.ndindex(part.shape):
            kept = part[at]
            part[at] = kept + 1e-6
            above = value()
            part[at] = kept - 1e-6
            slope[at] = (above - value()) / 2e-6
            part[at] = kept
        slopes.append(slope)
    objective, found = network.gradients(made, batch, loss)
    assert objective == pytest.approx(value())
    for expected, slope in zip(slopes, found, strict=True):
        np.testing.assert_allclose(slope, expected, atol=1e-7)


@pytest.mark.parametrize("loss", ["squared", "alignment"])
@pytest.mark.parametrize("psd", [True, False])
def test_scores_are_what_the_network_says(loss: str, psd: bool) -> None:
    model = fitted(loss=loss, psd=psd)
    narrow = X[:, model.columns_].astype(float)

    def layers(state: np.ndarray) -> np.ndarray:
        for weight, bias in zip(model.weights_[1:], model.biases_[1:], strict=True):
            state = np.tanh(state @ weight + bias)
        return state

    if psd:
        phi = layers(np.tanh(narrow @ model.weights_[0] + model.biases_[0]))
        expected = phi @ phi.T / 4
        assert np.linalg.eigvalsh(model.score_against(X, X).astype(float)).min() > -1e-4
        np.testing.assert_allclose(model.transform(X) @ model.transform(X).T, expected, atol=1e-5)
    else:
        first, second = narrow @ model.weights_[0], narrow @ model.second_
        K = layers(np.tanh(first[:, None] + second[None, :] + model.biases_[0]))[:, :, 0]
        expected = (K + K.T) / 2
        assert np.abs(K - K.T).max() > 1e-4
    np.testing.assert_allclose(model.score_against(X, X), expected, atol=1e-5)


@pytest.mark.parametrize("psd", [True, False])
def test_sparse_and_dense_rows_score_alike_to_the_last_bit(psd: bool) -> None:
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(80, 30)) * (rng.random((80, 30)) < 0.2)).astype(np.float32)
    labels = rng.integers(0, 2, 80)
    dense = AlignedKernel(**QUICK, psd=psd).fit(rows, labels)
    sparse = AlignedKernel(**QUICK, psd=psd).fit(csr_array(rows), labels)
    assert sparse.score_against(csr_array(rows), rows).tobytes() == dense.score_against(rows, rows).tobytes()
    if psd:
        assert sparse.transform(csr_array(rows)).tobytes() == dense.transform(rows).tobytes()
    wide = csr_array(np.hstack([rows[:2], np.ones((2, 1))]).astype(np.float32))
    with pytest.warns(UserWarning, match="2 values"):
        scores = sparse.pair_score(wide, wide)
    assert scores.tobytes() == dense.pair_score(rows[:2], rows[:2]).tobytes()


def test_a_kernel_that_is_no_inner_product_says_so() -> None:
    model = fitted(psd=False)
    assert model.unavailable_ == {"embed"}
    with pytest.raises(ValueError, match="psd=True"):
        model.transform(X)


def test_training_raises_the_alignment_with_the_perfect_kernel() -> None:
    same = y[:, None] == y[None, :]
    perfect, weight = np.where(same, 1.0, -1.0), np.where(same, 1.0 / same.sum(), 1.0 / (~same).sum())
    for how in ({"psd": True}, {"psd": False}, {"psd": True, "loss": "squared"}):
        few = AlignedKernel(hidden=(5,), n_iter=1, random_state=0, **how).fit(X, y)
        many = AlignedKernel(hidden=(5,), n_iter=100, random_state=0, **how).fit(X, y)
        before, after = (
            kernel_alignment(model.score_against(X, X), perfect, weight) for model in (few, many)
        )
        assert after > (0.6 if "loss" in how else max(before, 0.6))
        assert many.loss_curve_[-1] < many.loss_curve_[0]


def test_new_sparse_rows_are_told_apart() -> None:
    """Many rare columns: a network that learns each by heart knows nothing of rows to come."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 600)
    leaning = np.where(rng.random(1_000) < 0.1, 0.8 * rng.normal(size=1_000), 0.0)
    chance = np.clip(0.03 * np.exp(np.outer(2 * labels - 1, leaning)), 0.0, 0.5)
    rows = csr_array((rng.random(chance.shape) < chance).astype(np.float32))
    model = AlignedKernel(n_iter=100, random_state=0).fit(rows[:300], labels[:300])
    scores = model.score_against(rows[300:], rows[300:])
    same = labels[300:, None] == labels[None, 300:]
    upper = np.triu_indices(300, 1)
    assert roc_auc_score(same[upper], scores[upper]) > 0.7


def test_rows_of_zeros_teach_nothing() -> None:
    with pytest.raises(ValueError, match="zero everywhere"):
        AlignedKernel().fit(np.zeros((6, 3)), [0, 0, 0, 1, 1, 1])
