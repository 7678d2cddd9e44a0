"""Training the networks of section 3.2: mini-batches, back-propagation, sparse first layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from pairmark.models.core.arrays import Bool, Float64, Int64

MOST_PAIRS = 2_048
"""Pairs of a batch of rows that a step looks at."""
RATES = (0.03, 0.1, 0.3, 1.0, 3.0)
"""Learning rates tried on folds."""
_BATCH = 64
SEARCH_ROWS, _SEARCH_PASSES = 2_000, 8
"""Rows, or pairs, that the search for a rate looks at, and how often."""
_WORSE = 1.1


class Diverged(ArithmeticError):
    """Gradient descent made the loss worse: the learning rate is too large for this network and these rows."""


@dataclass(kw_only=True)
class Network:
    """Layers of tanh units: ``weights[0]`` reads rows, or with ``both`` reads the left row and ``second`` the right."""

    weights: list[Float64]
    biases: list[Float64]
    second: Float64 | None

    @classmethod
    def random(cls, rows: csr_array, hidden: Sequence[int], psd: bool, rng: np.random.Generator) -> Network:
        """Weights at random, scaled so that units start out neither flat nor saturated."""
        sizes = [int(rows.shape[1]), *hidden] + ([] if psd else [1])
        squares = float(rows.multiply(rows).sum()) / max(1, rows.shape[0])
        mean = np.asarray(rows.mean(axis=0)).ravel()
        weights = [rng.normal(size=(a, b)) / np.sqrt(a) for a, b in pairwise(sizes)]
        weights[0] *= np.sqrt(sizes[0] / max(squares, 1e-12))
        second = None
        if not psd:
            second = rng.normal(size=weights[0].shape) / np.sqrt(max(squares, 1e-12))
        biases = [np.zeros(size) for size in sizes[1:]]
        # Rows often have no negative numbers; units start out centred on the mean row.
        biases[0] -= mean @ weights[0] if second is None else mean @ (weights[0] + second)
        return cls(weights=weights, biases=biases, second=second)

    @property
    def finite(self) -> bool:
        """Whether no weight overflowed."""
        return all(np.isfinite(part).all() for part in (*self.weights, *self.biases))


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows, and which pairs of them are to be learned: targets 1 or -1, and weights that sum to one."""

    rows: csr_array
    left: Int64
    right: Int64
    target: Float64
    weight: Float64


Batches = Callable[[np.random.Generator], Iterator[Batch]]


def batch_of_rows(rows: csr_array, codes: Int64, balanced: bool, rng: np.random.Generator) -> Batch:
    """All ordered pairs of some rows, or as many as a step looks at; a row with itself is a pair, as in equation 5."""
    n = codes.size
    if n * n <= MOST_PAIRS:
        left, right = np.repeat(np.arange(n), n), np.tile(np.arange(n), n)
    else:
        left, right = rng.integers(0, n, (2, MOST_PAIRS))
    return _batch(rows, left, right, codes[left] == codes[right], np.ones(left.size), balanced)


def batch_size(n: int) -> int:
    """Rows or pairs a step: fewer than usual where that would leave a pass few steps."""
    return min(_BATCH, max(8, n // 16))


def batch_of_pairs(rows: csr_array, same: Bool, weight: Float64) -> Batch:
    """Listed pairs: the first half of the rows with the second."""
    n = same.size
    return _batch(rows, np.arange(n), n + np.arange(n), same, weight, False)


def _batch(rows: csr_array, left: Int64, right: Int64, same: Any, weight: Float64, balanced: bool) -> Batch:
    if balanced:
        # With many classes nearly all pairs differ; each kind then weighs one half.
        n_same = max(1, int(same.sum()))
        weight = np.where(same, 1.0 / n_same, 1.0 / max(1, same.size - n_same))
    total = float(weight.sum())
    return Batch(
        rows=rows,
        left=left,
        right=right,
        target=np.where(same, 1.0, -1.0),
        weight=weight / (total if total > 0 else 1.0),
    )


def loss_of(K: Float64, batch: Batch, loss: Literal["squared", "alignment"]) -> tuple[float, Float64]:
    """The loss of kernel values, and its gradient in them.

    ``squared`` is equation 10; ``alignment`` is one minus equation 5, normalisation and all.
    """
    t, w = batch.target, batch.weight
    if loss == "squared":
        return float(w @ (K - t) ** 2), 2.0 * w * (K - t)
    kt, kk, tt = float(w @ (K * t)), float(w @ (K * K)), float(w.sum())
    size = np.sqrt(max(kk * tt, 1e-24))
    return 1.0 - kt / size, -w * (t / size - kt * K / (max(kk, 1e-12) * size))


def values_of(network: Network, batch: Batch) -> tuple[Float64, Any]:
    """Kernel values of a batch's pairs, and what the gradient needs."""
    before = batch.rows @ network.weights[0]
    if network.second is not None:
        before = before[batch.left] + (batch.rows @ network.second)[batch.right]
    states = [np.tanh(before + network.biases[0])]
    for weight, bias in zip(network.weights[1:], network.biases[1:], strict=True):
        states.append(np.tanh(states[-1] @ weight + bias))
    phi = states[-1]
    if network.second is not None:
        return phi[:, 0], states
    return np.einsum("ij,ij->i", phi[batch.left], phi[batch.right]) / phi.shape[1], states


def step(network: Network, batch: Batch, loss: Literal["squared", "alignment"], rate: float) -> float:
    """One step of gradient descent; returns the loss before it."""
    K, states = values_of(network, batch)
    objective, slope = loss_of(K, batch, loss)
    n = batch.rows.shape[0]
    if network.second is None:
        phi = states[-1]
        # A pair's K is phi_i . phi_j / S: each side receives the slope times the other side's phi. A row may
        # be in many pairs, whose slopes add up.
        pairs = np.zeros((n, n))
        np.add.at(pairs, (batch.left, batch.right), slope / phi.shape[1])
        back = (pairs + pairs.T) @ phi
    else:
        back = slope[:, None]
    for layer in range(len(states) - 1, 0, -1):
        # The derivative of tanh by its value. What goes to the layer below is taken by the weights before their step.
        back = back * (1.0 - states[layer] ** 2)
        before = back @ network.weights[layer].T
        network.weights[layer] -= rate * (states[layer - 1].T @ back)
        network.biases[layer] -= rate * back.sum(axis=0)
        back = before
    back = back * (1.0 - states[0] ** 2)
    network.biases[0] -= rate * back.sum(axis=0)
    if network.second is None:
        _descend(network.weights[0], batch.rows, back, rate)
    else:
        # One state a pair, made of a left and a right row: each row collects what its pairs send back.
        _descend(network.weights[0], batch.rows, _sum_by_row(batch.left, back, n), rate)
        _descend(network.second, batch.rows, _sum_by_row(batch.right, back, n), rate)
    return objective


def _sum_by_row(places: Int64, back: Float64, n: int) -> Float64:
    """Sums of the pairs' gradients over the rows that they came from."""
    indicators = csr_array((np.ones(places.size), (places, np.arange(places.size))), shape=(n, places.size))
    return np.asarray(indicators @ back)


def _descend(weights: Float64, rows: csr_array, back: Float64, rate: float) -> None:
    """Change the weights of the columns that a batch holds, and no others."""
    columns, places = np.unique(rows.indices, return_inverse=True)
    narrow = csr_array((rows.data, places, rows.indptr), shape=(rows.shape[0], columns.size))
    weights[columns] -= rate * (narrow.T @ back)


def train(
    network: Network,
    batches: Batches,
    watched: Batch,
    loss: Literal["squared", "alignment"],
    rate: float,
    n_iter: int,
    rng: np.random.Generator,
    on_progress: Callable[[float], None] | None = None,
) -> list[float]:
    """Passes of gradient descent; the mean loss of each.

    Raises
    ------
    Diverged
        When weights overflow, or the watched pairs end up worse than they began, and worse than a kernel that is the
        same for all pairs.
    """
    flat = np.full(watched.target.size, 0.0 if loss == "squared" else 1.0)
    start = max(loss_of(K, watched, loss)[0] for K in (values_of(network, watched)[0], flat))
    curve = []
    for number in range(n_iter):
        with np.errstate(over="ignore", invalid="ignore"):
            curve.append(float(np.mean([step(network, batch, loss, rate) for batch in batches(rng)])))
        if not np.isfinite(curve[-1]) or not network.finite:
            raise Diverged
        if on_progress is not None:
            on_progress((number + 1) / n_iter)
    if loss_of(values_of(network, watched)[0], watched, loss)[0] > _WORSE * start:
        raise Diverged
    return curve


def searched_rate(
    fold: Callable[[int], tuple[csr_array, Batches, Batch, Batch]],
    n_folds: int,
    hidden: Sequence[int],
    psd: bool,
    loss: Literal["squared", "alignment"],
    n_iter: int,
    seed: int,
) -> tuple[float, dict[float, float]]:
    """The learning rate with the least mean loss on folds held out (section 3.2), and every rate's loss.

    Parameters
    ----------
    fold : number -> rows that scale the weights, batches to train on, pairs to watch, pairs held out.

    Raises
    ------
    ValueError
        When every rate diverges.
    """
    losses_of_rates: dict[float, float] = {}
    for rate in RATES:
        losses = []
        for number in range(n_folds):
            rng = np.random.default_rng([seed, number])
            rows, batches, watched, held_out = fold(number)
            network = Network.random(rows, hidden, psd, rng)
            try:
                train(network, batches, watched, loss, rate, min(n_iter, _SEARCH_PASSES), rng)
            except Diverged:
                losses = [np.inf]
                break
            losses.append(loss_of(values_of(network, held_out)[0], held_out, loss)[0])
        losses_of_rates[rate] = float(np.mean(losses))
    best = min(losses_of_rates, key=lambda rate: losses_of_rates[rate])
    if not np.isfinite(losses_of_rates[best]):
        raise ValueError(
            f"training diverged at every learning rate tried ({', '.join(map(str, RATES))}): set learning_rate to a "
            "smaller one, or scale the features"
        )
    return best, losses_of_rates
