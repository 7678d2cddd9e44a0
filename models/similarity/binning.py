"""Feature values as byte codes, from which the bins of a pair's features are computed on the fly.

Codes only propose thresholds. Pairs are then parted by the stored float32 threshold on their float32 features, as at
scoring time, so the cells that were counted in training are the cells that score.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_CODES = 256
_EXACT_TOLERANCE = 1e-6
_TAIL = 0.005
_REACH = 8.0


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Byte codes of a matrix: value ~ low + code * step, feature by feature.

    Attributes
    ----------
    codes : (n, d) uint8.
    n_codes : (d,) int64, codes in use; 1 for a constant feature.
    low, step : (d,) float64.
    """

    codes: NDArray[np.uint8]
    n_codes: NDArray[np.int64]
    low: NDArray[np.float64]
    step: NDArray[np.float64]


def quantise(X: NDArray[np.float32]) -> Grid:
    """Lay a grid of at most 256 even steps over every feature of ``X``, (n, d).

    A feature whose values lie on such a grid (counts, pixels, flags) is coded exactly. Any other is coded to the
    nearest step between its 0.5 % and 99.5 % quantiles, and no further than 8 interquartile ranges from its median,
    so that outliers and long tails do not cost the rest its resolution.
    The steps must be even: only then is the code of |x - x'| the difference of codes.
    """
    n, d = X.shape
    codes = np.empty((n, d), dtype=np.uint8)
    n_codes = np.ones(d, dtype=np.int64)
    low, step = np.zeros(d), np.ones(d)
    for feature in range(d):
        column = X[:, feature].astype(np.float64)
        low[feature], step[feature], n_codes[feature] = _grid_of(column)
        code = np.rint((column - low[feature]) / step[feature])
        codes[:, feature] = np.clip(code, 0, n_codes[feature] - 1)
    return Grid(codes=codes, n_codes=n_codes, low=low, step=step)


def _grid_of(column: NDArray[np.float64]) -> tuple[float, float, int]:
    values = np.unique(column)
    if values.size == 1:
        return float(values[0]), 1.0, 1
    low, high = float(values[0]), float(values[-1])
    if values.size <= N_CODES:
        step = float(np.diff(values).min())
        places = (values - low) / step
        if (
            places[-1] < N_CODES - 0.5
            and np.abs(places - np.rint(places)).max() < _EXACT_TOLERANCE * places[-1]
        ):
            return low, step, int(np.rint(places[-1])) + 1
    inner_low, q1, median, q3, inner_high = (
        float(value) for value in np.quantile(column, (_TAIL, 0.25, 0.5, 0.75, 1.0 - _TAIL))
    )
    if q3 > q1:
        inner_low = max(inner_low, median - _REACH * (q3 - q1))
        inner_high = min(inner_high, median + _REACH * (q3 - q1))
    if inner_high > inner_low:
        low, high = inner_low, inner_high
    return low, (high - low) / (N_CODES - 1), N_CODES
