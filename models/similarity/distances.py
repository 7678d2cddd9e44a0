"""Pair features without learning: distances of rows with scaled features.

Also what every learned feature rests on: scalings, forms of coordinates, and pairs that judge.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.base import Float32
from pairmark.models.core.kernels import rows as row_kernels
from pairmark.models.evaluation.pairs import roc_curve_pairs
from pairmark.models.pairs.sampling import TrainingPairs, sample_pairs
from pairmark.models.similarity.learned import LearnedFeatures, OutOfFold, RowMap, pair_values

FIT_ROWS = 100_000
"""Most rows that a covariance is worked out from; quantiles, from four times as many."""
TRIED_ROWS = 4_000
"""Rows that ways of learning are tried on."""
_TRIED_PAIRS = 10_000
_JUDGED_AT = (0.01, 0.1)


class Scaling(NamedTuple):
    """How features become comparable; ``curved`` by an asinh as well."""

    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    curved: bool

    def scaled(self, X: Float32) -> Float32:
        """(n, d)."""
        out = np.empty(X.shape, dtype=np.float32)
        row_kernels.squash(np.ascontiguousarray(X), self.centre, self.scale, self.curved, out)
        return out


class Forms(NamedTuple):
    """Pair features of coordinates, see `pairmark.models.similarity.learned`: (m, q) each."""

    forms: NDArray[np.float64]
    norms: NDArray[np.float64]
    offsets: NDArray[np.float64]

    def columns(self, coordinates: Float32) -> Float32:
        """Coordinates (n, q), then factors and offsets of rows."""
        m, q = self.forms.shape
        columns = np.empty((coordinates.shape[0], q + 2 * m), dtype=np.float32)
        columns[:, :q] = coordinates
        row_kernels.bounded(columns)
        row_kernels.complete(columns, q, self.norms, self.offsets)
        return columns

    def reached(self, coordinates: Float32, pairs: TrainingPairs) -> float:
        """What the first feature finds of the same pairs at low false positive rates: its mean TPR at `_JUDGED_AT`."""
        columns = self.columns(coordinates)
        values = pair_values(columns, columns, pairs.left, pairs.right, self.forms.astype(np.float32))
        if values[:, 0].min() == values[:, 0].max():
            return 0.0
        fpr, tpr, _ = roc_curve_pairs(values[:, 0], pairs.same)
        return float(np.mean([tpr[fpr <= rate].max(initial=0.0) for rate in _JUDGED_AT]))


def scalings(X: Float32) -> tuple[Scaling, ...]:
    """Scalings to try: features may share one unit (pixels, principal components), in which those that vary most may
    matter most, or each may have its own unit."""
    mean, deviation = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    found = []
    for power in (0.0, 0.5, 1.0):
        weight = deviation**power
        unit = max(float(np.sqrt(((weight * deviation) ** 2).mean())), 1e-30)
        found.append(Scaling(mean, weight / unit, False))
    return *found, Scaling(*normal_scale(X), True)


def normal_scale(X: Float32) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Medians, and one over the normal-consistent interquartile range (else the deviation)."""
    low, middle, high = np.percentile(X[: 4 * FIT_ROWS], (25, 50, 75), axis=0).astype(np.float64)
    width = (high - low) / 1.349
    deviation = X.std(axis=0, dtype=np.float64)
    width = np.where(width > 0, width, np.where(deviation > 0, deviation, 1.0))
    return middle, 1.0 / np.maximum(width, 1e-30)


def judging_pairs(codes: NDArray[np.int64], random: np.random.RandomState) -> TrainingPairs | None:
    """Pairs that tell good features from bad ones; None where there are not both kinds."""
    seed = int(random.randint(2**31))
    if np.unique(codes).size < 2 or np.bincount(codes).max() < 2:
        return None
    return sample_pairs(codes, _TRIED_PAIRS, random_state=seed)


def learn_distances(
    X: Float32, codes: NDArray[np.int64], random: np.random.RandomState
) -> tuple[LearnedFeatures, OutOfFold]:
    """``distances`` features: cosine and distance under the scaling whose cosine separates pairs best.

    One of four scalings is all that is learned, so training pairs' values flatter no more than others'.
    """
    d = X.shape[1]
    ones, nothing = np.ones(d), np.zeros(d)
    forms = Forms(np.array([ones, 2 * ones]), np.array([ones, nothing]), np.array([nothing, ones]))
    tried = np.sort(random.permutation(X.shape[0])[:TRIED_ROWS])
    pairs = judging_pairs(codes[tried], random)
    ways = scalings(X)
    best = ways[-1]
    if pairs is not None:
        best = max(ways, key=lambda way: forms.reached(way.scaled(X[tried]), pairs))
    fitted = RowMap(
        *best,
        layers=(),
        waved=False,
        n_posteriors=0,
        forms=forms.forms.astype(np.float32),
        norms=forms.norms,
        offsets=forms.offsets,
    )
    folds = np.zeros(X.shape[0], dtype=np.int64)
    return LearnedFeatures(kind="distances", map=fitted), OutOfFold(
        folds, {(0, 0): (fitted.columns(X), fitted.forms)}
    )
