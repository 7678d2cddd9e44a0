"""The asymptotic bound on the false positive rate: resampled units, recentred and studentised.

For thresholds t on a grid, F(t) is the share of pairs above t (edges of units weigh equally) and V(t) its
dyadic-robust variance. A replicate draws the m units with replacement; a pair of distinct units (i, j) drawn
c_i and c_j times weighs c_i c_j, and copies of one unit are never paired with each other, since a pair of a
unit with itself is no pair. That gives F*(t) and V*(t), and with R replicates

    T*(t) = (F*(t) - mean F*(t)) / sqrt(V*(t)),     U(t) = F(t) - q(t) sqrt(V(t)),

q(t) being the floor((R + 1)(1 - confidence))-th smallest T*(t). Recentring at the replicates' mean takes out
the bias that leaving out self-pairs brings (Conti & Clemencon 2024). Studentising is there because the plain
percentile is off at low rates in both directions: the resampled products c_i c_j vary three times as much as
the pairs' own noise, and counts of rare events are skewed; both cancel in the ratio, whose error is of second
order (Hall 1992, chapter 3).

The bound is admitted at t only with enough to resample: see `ENOUGH`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import joblib
import numpy as np
from numpy.typing import NDArray

from models.bootstrap_kernels import dyadic_replicates, row_replicates
from models.pair_samples import PairSample

Float64 = NDArray[np.float64]

CONFIDENCES = (0.90, 0.95, 0.99)
"""The confidences that tables are kept for."""
ENOUGH = 30
"""The rule of 30 (Doddington et al. 2000), three times: at least 30 units; at least 30 pairs of units above
the threshold; and those from at least 30 units' worth of units, (sum r_i)^2 / sum r_i^2 with r_i the pairs
above it that unit i is in (one person behind all false matches counts as about four)."""
N_REPLICATES = 2_000
_GRID_RATIO = 1.02
_GRID_TOP = 0.5
_BLOCK = 32


@dataclass(frozen=True, kw_only=True)
class BootstrapTable:
    """Upper bounds by threshold, from the highest admitted threshold down.

    Attributes
    ----------
    thresholds : (G,) float32, descending.
    upper : (len(CONFIDENCES), G) float64, not decreasing along the grid (the largest bound from the top on).
    admitted : (G,) bool.
    """

    thresholds: NDArray[np.float32] = field(repr=False)
    upper: Float64 = field(repr=False)
    admitted: NDArray[np.bool_] = field(repr=False)

    def smallest(self, confidence: float) -> float | None:
        """The smallest rate that is answered at this confidence; None where none is."""
        row = confidence_row(confidence)
        if row is None or not self.admitted.any():
            return None
        bound = float(self.upper[row, int(np.argmax(self.admitted))])
        return bound if bound < 1 else None

    def lookup(self, fpr: float, confidence: float) -> tuple[np.float32, float] | None:
        """The lowest admitted threshold whose bound is at most ``fpr``, and that bound."""
        row = confidence_row(confidence)
        if row is None:
            return None
        within = int(np.searchsorted(self.upper[row], fpr, side="right"))
        allowed = np.flatnonzero(self.admitted[:within])
        if not allowed.size:
            return None
        last = int(allowed[-1])
        return np.float32(self.thresholds[last]), float(self.upper[row, last])


def confidence_row(confidence: float) -> int | None:
    """Row of a confidence in the tables, None when there is none."""
    for row, known in enumerate(CONFIDENCES):
        if abs(confidence - known) < 1e-9:
            return row
    return None


def bootstrap_table(
    sample: PairSample, *, n_replicates: int = N_REPLICATES, seed: int = 0, n_jobs: int | None = None
) -> BootstrapTable:
    """Upper bounds of the false positive rate on a grid of thresholds, 2 % apart in rate.

    Results depend on ``seed``, not on ``n_jobs``.
    """
    thresholds, stops = _grid(sample)
    if not stops.size or sample.n_units < ENOUGH:
        return _empty()
    rate, variance, above = _observed(sample, stops)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.where(variance > 0, above, 0.0)
    admitted = (_pairs_above(sample, stops) >= ENOUGH) & (spread >= ENOUGH)
    if not admitted.any():
        return _empty()
    # Bounds from fewer pairs than that say nothing and must not enter the running maximum below.
    start = int(np.argmax(admitted))
    thresholds, stops, admitted = thresholds[start:], stops[start:], admitted[start:]
    rate, variance = rate[start:], variance[start:]
    stars, star_variances = _replicated(sample, stops, n_replicates, seed, n_jobs)
    centre = stars.mean(axis=1, keepdims=True)
    # A replicate without a single false positive has no spread of its own: it counts as infinitely far below.
    far = np.where(stars < centre, -np.inf, np.inf)
    scaled = np.divide(stars - centre, np.sqrt(star_variances), out=far, where=star_variances > 0)
    scaled.sort(axis=1)
    upper = np.empty((len(CONFIDENCES), stops.size))
    for row, confidence in enumerate(CONFIDENCES):
        # round: 1 - 0.9 is a hair below 0.1, which must not cost a whole order statistic.
        rank = max(0, int(np.floor(round((n_replicates + 1) * (1 - confidence), 6))) - 1)
        upper[row] = np.clip(rate - scaled[:, rank] * np.sqrt(variance), rate, 1.0)
    upper = np.maximum.accumulate(np.maximum.accumulate(upper, axis=1), axis=0)
    return BootstrapTable(thresholds=thresholds, upper=upper, admitted=admitted)


def _empty() -> BootstrapTable:
    return BootstrapTable(
        thresholds=np.empty(0, dtype=np.float32),
        upper=np.empty((len(CONFIDENCES), 0)),
        admitted=np.empty(0, np.bool_),
    )


def _grid(sample: PairSample) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Thresholds from 30 rows up, 2 % apart in rate, and the number of rows above each."""
    scores = sample.different.scores
    values, mass = sample.different.steps()
    rows = np.searchsorted(-scores, -values, side="left")
    total = sample.different.total()
    usable = np.flatnonzero((rows >= ENOUGH) & (mass <= _GRID_TOP * total))
    if not usable.size:
        return values[:0], rows[:0].astype(np.int64)
    first, last = mass[usable[0]], mass[usable[-1]]
    targets = first * _GRID_RATIO ** np.arange(np.ceil(np.log(last / first) / np.log(_GRID_RATIO)) + 1)
    chosen = np.unique(usable[np.minimum(np.searchsorted(mass[usable], targets), usable.size - 1)])
    return values[chosen], rows[chosen].astype(np.int64)


def _pairs_above(sample: PairSample, stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distinct pairs of units among the first rows."""
    first_row = np.unique(sample.different.edge, return_index=True)[1]
    return np.searchsorted(np.sort(first_row), stops, side="left")


def _observed(sample: PairSample, stops: NDArray[np.int64]) -> tuple[Float64, Float64, Float64]:
    """Rate, variance and units' worth of units above each stop, of the sample itself."""
    side = sample.different
    if sample.independent:
        mass = np.concatenate([[0.0], np.cumsum(side.weight)])
        square = np.concatenate([[0.0], np.cumsum(side.weight**2)])
        rate = mass[stops] / mass[-1]
        variance = (square[stops] * (1 - 2 * rate) + rate**2 * square[-1]) / mass[-1] ** 2
        return rate, variance, 2 * mass[stops] ** 2 / square[stops]
    units = _compact_units(sample)
    rate, variance = _run_dyadic(sample, units, stops, np.ones((int(units.max()) + 1, 1)))
    spread = np.empty(stops.size)
    at_unit = np.zeros(int(units.max()) + 1)
    row = 0
    for g, stop in enumerate(stops):
        new = slice(row, int(stop))
        ends = units[side.edge[new]]
        np.add.at(at_unit, ends.ravel(), np.repeat(side.weight[new], 2))
        spread[g] = at_unit.sum() ** 2 / (at_unit**2).sum()
        row = int(stop)
    return rate[:, 0], variance[:, 0], spread


def _replicated(
    sample: PairSample, stops: NDArray[np.int64], n_replicates: int, seed: int, n_jobs: int | None
) -> tuple[Float64, Float64]:
    starts = range(0, n_replicates, _BLOCK)
    seeds = np.random.SeedSequence(seed).spawn(len(starts))
    jobs = []
    units = None if sample.independent else _compact_units(sample)
    for start, block_seed in zip(starts, seeds, strict=True):
        width = min(_BLOCK, n_replicates - start)
        jobs.append(joblib.delayed(_block)(sample, units, stops, width, block_seed))
    done = joblib.Parallel(n_jobs=n_jobs, prefer="threads")(jobs)
    return np.concatenate([pair[0] for pair in done], axis=1), np.concatenate(
        [pair[1] for pair in done], axis=1
    )


def _block(
    sample: PairSample,
    units: NDArray[np.int64] | None,
    stops: NDArray[np.int64],
    width: int,
    seed: np.random.SeedSequence,
) -> tuple[Float64, Float64]:
    rng = np.random.default_rng(seed)
    if units is None:
        rate = np.empty((stops.size, width))
        variance = np.empty((stops.size, width))
        seeds = rng.integers(0, 2**63, width).astype(np.uint64)
        row_replicates(seeds, sample.different.weight, stops, _POISSON, rate, variance)
        return rate, variance
    m = int(units.max()) + 1
    count = np.ascontiguousarray(rng.multinomial(m, np.full(m, 1 / m), size=width).T.astype(np.float64))
    return _run_dyadic(sample, units, stops, count)


def _run_dyadic(
    sample: PairSample, units: NDArray[np.int64], stops: NDArray[np.int64], count: Float64
) -> tuple[Float64, Float64]:
    side = sample.different
    edge_weight = np.bincount(side.edge, weights=side.weight, minlength=units.shape[0])
    before = _weight_before(side.edge, side.weight)
    rate = np.empty((stops.size, count.shape[1]))
    variance = np.empty((stops.size, count.shape[1]))
    dyadic_replicates(
        count,
        np.ascontiguousarray(units[:, 0]),
        np.ascontiguousarray(units[:, 1]),
        edge_weight,
        side.edge,
        side.weight,
        side.weight * (2 * before + side.weight),
        side.weight * edge_weight[side.edge],
        stops,
        rate,
        variance,
    )
    return rate, variance


def _compact_units(sample: PairSample) -> NDArray[np.int64]:
    """Units of the different edges as 0..m-1. In closed-set use every sample takes part in the draw."""
    every = np.concatenate([sample.different.edge_units, sample.same.edge_units])
    if sample.protocol == "open-set":
        every = sample.different.edge_units
    known = np.unique(every)
    return np.searchsorted(known, sample.different.edge_units).astype(np.int64)


def _weight_before(edge: NDArray[np.int64], weight: Float64) -> Float64:
    """Weight of the same edge in earlier rows."""
    order = np.argsort(edge, kind="stable")
    running = np.cumsum(weight[order]) - weight[order]
    starts = np.concatenate([[True], np.diff(edge[order]) > 0])
    offset = running[starts][np.cumsum(starts) - 1]
    before = np.empty_like(weight)
    before[order] = np.maximum(running - offset, 0.0)
    return before


def _poisson_cumulative() -> Float64:
    probability = float(np.exp(-1.0))
    cumulative: list[float] = []
    for k in range(1, 20):
        cumulative.append((cumulative[-1] if cumulative else 0.0) + probability)
        probability /= k
    return np.array(cumulative)


_POISSON = _poisson_cumulative()
