"""Feature values as byte codes, from which the bins of a pair's features are computed on the fly.

Codes only propose thresholds. Pairs are then parted by the stored float32 threshold on their float32 features, as at
scoring time, so the cells that were counted in training are the cells that score.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.similarity.kernels import coding as kernels

N_CODES = 256
_EXACT_TOLERANCE = 1e-6
_TAIL = 0.005
_REACH = 8.0
_ROWS_LOOKED_AT = 20_000


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Byte codes of a matrix: value ~ low + code * step, feature by feature.

    Attributes
    ----------
    n_features : d, all features.
    features : (u,) int64, those that are not constant; the arrays below hold only them.
    codes : (n, u) uint8.
    columns : (u, n) float32, the values themselves.
    n_codes : (u,) int64, codes in use.
    low, step : (u,) float64.
    exact : (u,) bool, whether every value lies on the grid.
    """

    n_features: int
    features: Int64
    codes: NDArray[np.uint8]
    columns: Float32
    n_codes: Int64
    low: Float64
    step: Float64
    exact: Bool


def quantise(X: Float32) -> Grid:
    """Lay a grid of at most 256 even steps over every feature of ``X``, (n, d).

    A feature whose values lie on such a grid (counts, pixels, flags) is coded exactly. Any other is coded to the
    nearest step between its 0.5 % and 99.5 % quantiles, and no further than 8 interquartile ranges from its median,
    so that outliers and long tails do not cost the rest its resolution.
    The steps must be even: only then is the code of |x - x'| the difference of codes. Of many rows, some
    settle the grid; whether it is exact is checked on all.
    """
    n, d = X.shape
    features = np.flatnonzero(X.min(axis=0) < X.max(axis=0))
    columns = np.ascontiguousarray(X.T[features])
    # Drawn, not evenly spaced: rows in a repeating order would show only some of their values.
    looked_at = (
        np.random.default_rng(0).integers(0, n, _ROWS_LOOKED_AT) if n > _ROWS_LOOKED_AT else slice(None)
    )
    codes = np.empty((n, features.size), dtype=np.uint8)
    n_codes = np.ones(features.size, dtype=np.int64)
    low, step = np.zeros(features.size), np.ones(features.size)
    exact = np.ones(features.size, dtype=np.bool_)
    for k in range(features.size):
        column = columns[k]
        sample = np.append(column[looked_at], (column.min(), column.max())).astype(np.float64)
        grid = _exact_grid(sample)
        if grid is not None:
            exact[k] = kernels.furthest_off(column, grid[0], grid[1]) <= _EXACT_TOLERANCE * grid[2]
        if grid is None or not exact[k]:
            exact[k], grid = False, _even_grid(sample)
        low[k], step[k], n_codes[k] = grid
    kernels.code_columns(columns, low, step, n_codes, codes)
    return Grid(
        n_features=d,
        features=features,
        codes=codes,
        columns=columns,
        n_codes=n_codes,
        low=low,
        step=step,
        exact=exact,
    )


def _exact_grid(sample: Float64) -> tuple[float, float, int] | None:
    """Low, step and number of codes of a grid that the values may lie on, if there is one."""
    # Most columns have too many values among a few rows already.
    if np.unique(sample[: 4 * N_CODES]).size > N_CODES:
        return None
    values = np.unique(sample)
    if values.size > N_CODES:
        return None
    step = float(np.diff(values).min())
    steps = (float(values[-1]) - float(values[0])) / step
    return (float(values[0]), step, round(steps) + 1) if steps < N_CODES - 0.5 else None


def _even_grid(sample: Float64) -> tuple[float, float, int]:
    """Low, step and number of codes over the bulk of the values, of which there are at least two."""
    low, q1, median, q3, high = (
        float(value) for value in np.quantile(sample, (_TAIL, 0.25, 0.5, 0.75, 1.0 - _TAIL))
    )
    if q3 > q1:
        low, high = max(low, median - _REACH * (q3 - q1)), min(high, median + _REACH * (q3 - q1))
    if not high > low:
        low, high = float(sample.min()), float(sample.max())
    return low, (high - low) / (N_CODES - 1), N_CODES
