"""Directions beside the features of points, along which people differ most for how much their samples do.

A tree tests one feature of a pair at a time, and so cuts correlated features slowly. Of listed pairs, the discriminant
axes of positive pairs within and of all points in all (Fisher 1936) stand beside the features, as further ones.
"""

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from pairmark.models.core import kernels
from pairmark.models.core.arrays import Bool, Float32, Float64
from pairmark.models.core.inputs import one_of_equals
from pairmark.models.core.state import Array

_MOST_AXES, _MOST_FEATURES, _LEAST_PAIRS = 8, 512, 100
_LIMIT, _SHRINKAGE = 3.0, 0.5
"""Deviations that features are clipped at; how far the covariance within people is shrunk to its diagonal."""
_LOOKED_AT = 10_000
"""Pairs that features are scaled by, evenly spaced."""


class Axes(NamedTuple):
    """Features to axes: ``clip((x - centre) * scale) @ weights``."""

    centre: Annotated[Float32, Array(shape=("features",))]
    scale: Annotated[Float32, Array(shape=("features",))]
    weights: Annotated[Float32, Array(shape=("features", "axes"))]

    def beside(self, X: Float32) -> Float32:
        """The features and the axes of rows (n, d), each as if alone."""
        rows = one_of_equals(X)
        with np.errstate(over="ignore"):
            points = np.clip((rows - self.centre) * self.scale, -_LIMIT, _LIMIT)
        out = np.empty((rows.shape[0], self.weights.shape[1]), dtype=np.float32)
        kernels.affine(points, np.array(self.weights), np.zeros(out.shape[1], dtype=np.float32), out)
        return np.broadcast_to(np.hstack([rows, out]), (X.shape[0], X.shape[1] + out.shape[1]))


def axes_of(left: Float32, right: Float32, same: Bool) -> Axes | None:
    """From listed pairs (n, d); None where there are few positive ones, or too many features."""
    d = left.shape[1]
    if not 2 <= d <= _MOST_FEATURES or np.count_nonzero(same) < max(_LEAST_PAIRS, d):
        return None
    step = -(-same.size // _LOOKED_AT)
    rows = np.concatenate([left[::step], right[::step]]).astype(np.float64)
    low, centre, high = np.quantile(rows, (0.16, 0.5, 0.84), axis=0)
    # A feature that is one value for most is not blown up: its deviation counts there.
    spread = np.maximum((high - low) / 2, np.maximum(0.1 * rows.std(axis=0), 1e-30))

    def scaled(points: NDArray[np.floating]) -> Float64:
        return np.asarray(np.clip((points - centre) / spread, -_LIMIT, _LIMIT), dtype=np.float64)

    differences, whole = scaled(left[same]) - scaled(right[same]), np.cov(scaled(rows).T)
    within = differences.T @ differences / (2 * len(differences))
    floor = 1e-6 * np.trace(whole) / d * np.eye(d)
    within = (1 - _SHRINKAGE) * within + _SHRINKAGE * np.diag(np.diag(within)) + floor
    weights = eigh(whole, within + 1e-12 * np.eye(d))[1][:, ::-1][:, :_MOST_AXES]
    weights *= np.where(weights.sum(axis=0) < 0, -1.0, 1.0)
    return Axes(*(np.ascontiguousarray(part, dtype=np.float32) for part in (centre, 1 / spread, weights)))
