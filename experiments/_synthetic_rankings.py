"""Synthetic label rankings with known truth: noise models, missing labels and ties.

The generative processes of Fotakis, Kalavasis and Psaroudaki, Label Ranking through Nonparametric Regression
(2022): complete rankings from a noisy score function (Definition 1.1), incomplete ones by survival probabilities
(Definition 2.4), partial ones by random partitions (Definition C.1), and Mallows noise on the rankings themselves
(appendix B). Rankings are (n, k) 0-based positions, 0 = best; NaN = absent, equal values = tied.

Every ``random_state`` is a seed or a `numpy.random.Generator`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from pairmark.models.evaluation.rankings import kendall_tau
from pairmark.service.datasets.writer import dense_positions

Float64 = NDArray[np.float64]
Seed = int | np.random.Generator | None
ScoreFunction = Callable[[NDArray[Any]], Float64]
NoiseSource = Callable[[tuple[int, int], np.random.Generator], Float64]

NOISE_BOUND = 0.25
"""Regression noise of the paper stays within this distance of the score."""


@dataclass(frozen=True, kw_only=True)
class RankingSample:
    """Points drawn from an oracle.

    Attributes
    ----------
    X : (n, d) float32 features.
    scores : (n, k) noiseless scores m(x); higher is better.
    truth : (n, k) positions by the noiseless scores.
    rankings : (n, k) positions as observed, with noise.
    """

    X: NDArray[np.float32]
    scores: Float64
    truth: Float64
    rankings: Float64


@dataclass(frozen=True, kw_only=True)
class LinearScores:
    """A sparse score function m: {0, 1}^d -> [1/4, 3/4]^k, linear in a few informative features.

    Attributes
    ----------
    features : (r,) the informative columns, the same for every label. weights : (r, k). intercept : (k,).
    """

    features: NDArray[np.intp]
    weights: Float64
    intercept: Float64

    def __call__(self, X: NDArray[Any]) -> Float64:
        """Scores (n, k) of binary rows (n, d)."""
        return np.asarray(X, dtype=np.float64)[:, self.features] @ self.weights + self.intercept


def linear_scores(
    n_features: int, n_labels: int, *, n_informative: int = 10, random_state: Seed = None
) -> LinearScores:
    """Draw a score function in which every label's scores span exactly [1/4, 3/4] over the binary cube.

    So are the scores of the paper's published SFN sets made, with five informative features (its text says ten).
    """
    rng = np.random.default_rng(random_state)
    features = rng.choice(n_features, n_informative, replace=False)
    weights = rng.normal(size=(n_informative, n_labels))
    weights *= 0.5 / np.abs(weights).sum(axis=0)
    return LinearScores(
        features=features, weights=weights, intercept=0.25 - np.minimum(weights, 0.0).sum(axis=0)
    )


def make_ranking_data(
    n_samples: int,
    n_features: int,
    score_function: ScoreFunction,
    *,
    noise: NoiseSource | None = None,
    random_state: Seed = None,
) -> RankingSample:
    """Draw from the oracle Ex(m, E) on uniform binary features.

    Parameters
    ----------
    score_function : m, (n, d) features -> (n, k) scores.
    noise : E, e.g. `truncated_gaussian`; None: noiseless.
    """
    rng = np.random.default_rng(random_state)
    X = rng.integers(0, 2, size=(n_samples, n_features)).astype(np.float32)
    scores = np.asarray(score_function(X), dtype=np.float64)
    truth = dense_positions(-scores)
    observed = truth if noise is None else dense_positions(-(scores + noise(scores.shape, rng)))
    return RankingSample(X=X, scores=scores, truth=truth, rankings=observed)


def make_family(
    n_samples: int, n_features: int, *, noise: NoiseSource | None = None, random_state: Seed = None
) -> RankingSample:
    """A family of the paper: k = 5 labels, r = 10 informative features."""
    rng = np.random.default_rng(random_state)
    m = linear_scores(n_features, 5, n_informative=10, random_state=rng)
    return make_ranking_data(n_samples, n_features, m, noise=noise, random_state=rng)


def truncated_gaussian(std: float, *, bound: float = NOISE_BOUND) -> NoiseSource:
    """Zero-mean Gaussian noise cut to [-bound, bound] (conditioned, not clipped)."""

    def draw(shape: tuple[int, int], rng: np.random.Generator) -> Float64:
        if std == 0:
            return np.zeros(shape)
        low = ndtr(-bound / std)
        drawn: Float64 = std * ndtri(low + (1.0 - 2.0 * low) * rng.random(shape))
        return np.clip(drawn, -bound, bound)

    return draw


def sample_mallows(centre: ArrayLike, theta: ArrayLike, *, random_state: Seed = None) -> Float64:
    """Draw from Mallows models around given rankings, exactly and for any k, by repeated insertion.

    P(ranking) is proportional to exp(-theta * D(ranking, centre)), D the number of discordant pairs.

    Parameters
    ----------
    centre : (n, k) positions, each row a permutation of 0 to k-1.
    theta : dispersion >= 0, one for all or (n,); 0 is uniform, large is certain.

    Returns
    -------
    (n, k) positions.
    """
    centres = np.asarray(centre, dtype=np.float64)
    n, k = centres.shape
    spread = np.broadcast_to(np.asarray(theta, dtype=np.float64), (n,))
    rng = np.random.default_rng(random_state)
    places = np.zeros((n, k), dtype=np.int64)
    for item in range(1, k):
        # The item that the centre puts at `item` enters `back` places before the end: back discordant pairs.
        place = item - _truncated_geometric(spread, item, rng)
        places[:, :item] += places[:, :item] >= place[:, None]
        places[:, item] = place
    return np.take_along_axis(places, centres.astype(np.int64), axis=1).astype(np.float64)


def _truncated_geometric(theta: Float64, largest: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """(n,) draws from 0 to ``largest`` with P(d) proportional to exp(-theta d), by inverting the distribution."""
    u = rng.random(theta.shape)
    uniform = theta < 1e-12
    rate = np.where(uniform, 1.0, theta)
    # 1 - exp(-rate (d+1)) over 1 - exp(-rate (largest+1)) is the distribution function.
    drawn = np.floor(-np.log1p(u * np.expm1(-rate * (largest + 1))) / rate)
    drawn = np.where(uniform, np.floor(u * (largest + 1)), drawn)
    return np.clip(drawn, 0, largest).astype(np.int64)


def mallows_mean_distance(n_labels: int, theta: float) -> float:
    """Expected number of discordant pairs under a Mallows model."""
    if theta < 1e-9:
        return n_labels * (n_labels - 1) / 4
    j = np.arange(1, n_labels + 1)
    return float(n_labels / np.expm1(theta) - (j / np.expm1(theta * j)).sum())


def with_missing(
    rankings: ArrayLike, survival: ArrayLike, *, at_least: int = 0, random_state: Seed = None
) -> Float64:
    """Strike labels out: each is kept with its survival probability; those kept move up to positions 0, 1, ...

    Parameters
    ----------
    survival : one probability, or (k,), or (n, k).
    at_least : labels kept in every row; where chance keeps fewer, the rest are drawn evenly from those struck out.
    """
    positions = np.asarray(rankings, dtype=np.float64)
    chances = np.broadcast_to(np.asarray(survival, dtype=np.float64), positions.shape)
    rng = np.random.default_rng(random_state)
    kept = rng.random(positions.shape) < chances
    if at_least:
        # Kept ones first, the others in random order: the first `at_least` of them stay.
        order = np.argsort(np.where(kept, -1.0, rng.random(positions.shape)), axis=1, kind="stable")
        np.put_along_axis(kept, order[:, :at_least], True, axis=1)
    return dense_positions(np.where(kept, positions, np.nan))


def with_ties(rankings: ArrayLike, boundary: float, *, random_state: Seed = None) -> Float64:
    """Tie neighbours: each boundary between two places is kept with probability ``boundary``, else both sides tie."""
    positions = dense_positions(np.asarray(rankings, dtype=np.float64))
    n, k = positions.shape
    rng = np.random.default_rng(random_state)
    blocks = np.cumsum(rng.random((n, k)) < boundary, axis=1)
    places = np.where(np.isnan(positions), 0, positions).astype(np.int64)
    tied = np.take_along_axis(blocks, places, axis=1).astype(np.float64)
    return dense_positions(np.where(np.isnan(positions), np.nan, tied))


def alpha_inconsistency(truth: ArrayLike, observed: ArrayLike) -> float:
    """Share of rows whose observed ranking is not the noiseless one (the paper's alpha-inconsistency)."""
    a, b = (dense_positions(np.asarray(one, dtype=np.float64)) for one in (truth, observed))
    return float((~((a == b) | (np.isnan(a) & np.isnan(b))).all(axis=1)).mean())


def beta_gap(truth: ArrayLike, observed: ArrayLike) -> float:
    """Mean Kendall tau between noiseless and observed rankings; 1 = no noise (the paper's beta-k-tau gap)."""
    return float(np.nanmean(kendall_tau(truth, observed)))
