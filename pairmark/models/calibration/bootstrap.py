"""The asymptotic bound on the false positive rate: resampled units, recentred and studentised.

For thresholds t on a grid, F(t) is the share of pairs above t (edges of units weigh equally) and V(t) its
dyadic-robust variance. A replicate draws the m units with replacement; a pair of distinct units (i, j) drawn
c_i and c_j times weighs c_i c_j, and copies of one unit are never paired with each other, since a pair of a
unit with itself is no pair. That gives F*(t) and V*(t), and with R replicates

    T*(t) = (F*(t) - mean F*(t)) / sqrt(V*(t)),     U(t) = F(t) - q(t) sqrt(V(t)) + 2 max_i r_i(t) / B,

q(t) being the floor((R + 1)(1 - confidence))-th smallest T*(t), r_i(t) the weight of pairs above t that unit i is
in and B the weight of all. Recentring at the replicates' mean takes out the bias that leaving out self-pairs
brings (Conti & Clemencon 2024). Studentising is there because the plain percentile is off at low rates in both
directions: the resampled products c_i c_j vary three times as much as the pairs' own noise, and counts of rare
events are skewed; both cancel in the ratio, whose error is of second order (Hall 1992, chapter 3). The last term
counts the most matched unit twice more: resampling cannot show units that are rarer than those seen, and without
it the bound failed up to 22 % of the time at 95 % where few units make most of the false positives, with it once up
to 9 %, twice 6 % (Student-t effects with 3 degrees of freedom).

The bound is asymptotic, and admitted at t only with enough to resample: see `ENOUGH_PAIRS`, `ENOUGH_UNITS`.
"""

from dataclasses import dataclass, field

import numpy as np

from pairmark.models.calibration.kernels import dyadic_replicates
from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.pairs.samples import PairSample

CONFIDENCES = (0.90, 0.95, 0.99)
"""The confidences that tables are kept for."""
ENOUGH_PAIRS = 30
"""The rule of 30 (Doddington et al. 2000): at least as many distinct pairs of units above the threshold."""
ENOUGH_UNITS = 60
"""Those pairs must come from a population of at least thirty disjoint pairs' worth of units: m / phi, where phi =
E h^2 / (E h)^2 >= 1 says how unevenly units are matched (h, a unit's own false positive rate, estimated from pairs
of pairs that share a unit). It is 1 when all units are alike, and about 1 / (2 FPR) when a few match with everybody."""
N_REPLICATES = 2_000
TWICE_MORE = 2.0
"""How often the most matched unit is added; see above."""
# Steps of the grid in rate; the largest share of pairs above a threshold that is tabled; replicates that the kernel
# takes side by side.
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

    thresholds: Float32 = field(repr=False)
    upper: Float64 = field(repr=False)
    admitted: Bool = field(repr=False)

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
        # Bounds do not fall along the grid, so thresholds that keep the rate are a prefix.
        candidates = np.flatnonzero(self.admitted[: np.searchsorted(self.upper[row], fpr, side="right")])
        if not candidates.size:
            return None
        return np.float32(self.thresholds[candidates[-1]]), float(self.upper[row, candidates[-1]])


def confidence_row(confidence: float) -> int | None:
    """Row of a confidence in the tables, None when there is none."""
    return next((row for row, value in enumerate(CONFIDENCES) if abs(confidence - value) < 1e-9), None)


def bootstrap_table(sample: PairSample, *, n_replicates: int = N_REPLICATES, seed: int = 0) -> BootstrapTable:
    """Upper bounds of the false positive rate on a grid of thresholds, 2 % apart in rate."""
    thresholds, stops = _grid(sample)
    if not stops.size or sample.n_units < ENOUGH_UNITS:
        return empty_table()
    rate, variance, effective, largest_share = _measure_sample(sample, stops)
    # A pair of units is above a threshold from its best row on.
    best_rows = np.sort(np.unique(sample.different.edge, return_index=True)[1])
    admitted = (np.searchsorted(best_rows, stops) >= ENOUGH_PAIRS) & (effective >= ENOUGH_UNITS)
    if not admitted.any():
        return empty_table()
    # Bounds from fewer pairs than that say nothing and must not enter the running maximum below.
    start = int(np.argmax(admitted))
    thresholds, stops, admitted = thresholds[start:], stops[start:], admitted[start:]
    rate, variance, largest_share = rate[start:], variance[start:], largest_share[start:]
    stars, star_variances = _replicate(sample, stops, n_replicates, seed)
    centre = stars.mean(axis=1, keepdims=True)
    # A replicate without a single false positive has no spread of its own: it counts as infinitely far below.
    infinities = np.where(stars < centre, -np.inf, np.inf)
    scaled = np.divide(stars - centre, np.sqrt(star_variances), out=infinities, where=star_variances > 0)
    # A small T* says that the replicate's rate was low for its spread, so that the true rate may be as far above ours:
    # the bound goes up by its lower quantile.
    scaled.sort(axis=1)
    upper, deviation = np.empty((len(CONFIDENCES), stops.size)), np.sqrt(variance)
    for row, confidence in enumerate(CONFIDENCES):
        # round: 1 - 0.9 is a hair below 0.1, which must not cost a whole order statistic.
        rank = max(0, int(np.floor(round((n_replicates + 1) * (1 - confidence), 6))) - 1)
        upper[row] = np.clip(rate - scaled[:, rank] * deviation + TWICE_MORE * largest_share, rate, 1.0)
    # The rate rises as the threshold falls and the bound as the confidence rises, so neither may come out lower.
    upper = np.maximum.accumulate(np.maximum.accumulate(upper, axis=1), axis=0)
    return BootstrapTable(thresholds=thresholds, upper=upper, admitted=admitted)


def empty_table() -> BootstrapTable:
    """That of a sample that the bootstrap does not answer for."""
    return BootstrapTable(
        thresholds=np.empty(0, dtype=np.float32),
        upper=np.empty((len(CONFIDENCES), 0)),
        admitted=np.empty(0, np.bool_),
    )


def _grid(sample: PairSample) -> tuple[Float32, Int64]:
    """Thresholds from 30 rows up, 2 % apart in rate, and the number of rows above each."""
    values, mass = sample.different.steps()
    rows = np.searchsorted(-sample.different.scores, -values).astype(np.int64)
    candidates = np.flatnonzero((rows >= ENOUGH_PAIRS) & (mass <= _GRID_TOP * sample.different.total()))
    if not candidates.size:
        return values[:0], rows[:0]
    first, last = mass[candidates[0]], mass[candidates[-1]]
    # Even steps of the logarithm of the rate; thresholds that several targets share are taken once.
    targets = first * _GRID_RATIO ** np.arange(np.ceil(np.log(last / first) / np.log(_GRID_RATIO)) + 1)
    picks = np.unique(candidates[np.minimum(np.searchsorted(mass[candidates], targets), candidates.size - 1)])
    return values[picks], rows[picks]


class _Dyads:
    """The different pairs as the kernel takes them; see `dyadic_replicates`."""

    def __init__(self, sample: PairSample) -> None:
        edge, weight = sample.different.edge, sample.different.weight
        self.m, self.units = sample.n_units, _compact_units(sample)
        self.edge_weight: Float64 = np.bincount(edge, weight, self.units.shape[0]).astype(np.float64)
        self.row_edge, self.row_weight = edge, weight
        self.row_square = weight * (2 * _weight_before(edge, weight) + weight)
        self.row_cross = weight * self.edge_weight[edge]

    def run(self, stops: Int64, count: Float64) -> tuple[Float64, Float64]:
        rate, variance = np.empty((2, stops.size, count.shape[1]))
        left, right = (np.ascontiguousarray(self.units[:, side]) for side in (0, 1))
        rows = self.row_edge, self.row_weight, self.row_square, self.row_cross
        dyadic_replicates(count, left, right, self.edge_weight, *rows, stops, rate, variance)
        return rate, variance

    def concentration(self, stops: Int64) -> tuple[Float64, Float64]:
        """Effective units m / phi, and the most matched unit's share of all weight, at each stop."""
        total = self.edge_weight.sum()
        degree = np.zeros(self.m)
        np.add.at(degree, self.units.ravel(), np.repeat(self.edge_weight, 2))
        # Weights of pairs of different pairs that share a unit: squares at the units, less each pair with
        # itself at both of its ends.
        couples = (degree**2).sum() - 2 * (self.edge_weight**2).sum()
        weight, square = np.cumsum(self.row_weight), np.cumsum(self.row_square)
        at_unit = np.zeros(self.m)
        effective, largest_share = np.empty(stops.size), np.empty(stops.size)
        for g, stop in enumerate(stops):
            new = slice(stops[g - 1] if g else 0, stop)
            np.add.at(at_unit, self.units[self.row_edge[new]].ravel(), np.repeat(self.row_weight[new], 2))
            row = int(stop)
            rate = weight[row - 1] / total
            # phi = E h^2 / (E h)^2: the share of such couples with both above, over the squared rate.
            uneven = ((at_unit**2).sum() - 2 * square[row - 1]) / couples / rate**2 if couples > 0 else np.inf
            effective[g] = self.m / max(1.0, uneven)
            largest_share[g] = at_unit.max() / total
        return effective, largest_share


def _measure_sample(sample: PairSample, stops: Int64) -> tuple[Float64, Float64, Float64, Float64]:
    """Of the sample itself, at each stop: rate, its variance, effective units and the most matched unit's share."""
    if sample.rows_independent:
        n = len(sample.different)
        rate = stops / n
        # Rows bring two units each, all alike.
        return rate, rate * (1 - rate) / n, 2 * stops.astype(np.float64), np.full(stops.size, 1 / n)
    dyads = _Dyads(sample)
    rates, variances = dyads.run(stops, np.ones((dyads.m, 1)))
    return rates[:, 0], variances[:, 0], *dyads.concentration(stops)


def _replicate(sample: PairSample, stops: Int64, n_replicates: int, seed: int) -> tuple[Float64, Float64]:
    if sample.rows_independent:
        # How many draws fall between stops is all there is to a replicate.
        n = len(sample.different)
        between = np.diff(np.concatenate([[0], stops, [n]])) / n
        counts = np.random.default_rng(seed).multinomial(n, between, size=n_replicates)
        rate = np.cumsum(counts[:, :-1], axis=1).T / n
        return rate, rate * (1 - rate) / n
    starts = range(0, n_replicates, _BLOCK)
    # A stream of draws for each block, so that its replicates do not depend on the other blocks.
    seeds = np.random.SeedSequence(seed).spawn(len(starts))
    dyads, blocks = _Dyads(sample), []
    for start, block_seed in zip(starts, seeds, strict=True):
        evenly, width = np.full(dyads.m, 1 / dyads.m), min(_BLOCK, n_replicates - start)
        counts = np.random.default_rng(block_seed).multinomial(dyads.m, evenly, size=width)
        blocks.append(dyads.run(stops, np.ascontiguousarray(counts.T, dtype=np.float64)))
    rates, variances = (np.concatenate(parts, axis=1) for parts in zip(*blocks, strict=True))
    return rates, variances


def _compact_units(sample: PairSample) -> Int64:
    """Units of the different edges as 0..m-1. In closed-set use every sample takes part in the draw."""
    sides = (sample.different,) if sample.protocol == "open-set" else (sample.different, sample.same)
    units = np.unique(np.concatenate([side.edge_units for side in sides]))
    return np.searchsorted(units, sample.different.edge_units).astype(np.int64)


def _weight_before(edge: Int64, weight: Float64) -> Float64:
    """Weight of the same edge in earlier rows."""
    # Stable: rows of an edge stay in the order of their scores.
    order = np.argsort(edge, kind="stable")
    # A running sum over all edges, less what it was where the edge's own rows begin.
    sums_before = np.cumsum(weight[order]) - weight[order]
    starts = np.diff(edge[order], prepend=-1) > 0
    before = np.empty_like(weight)
    before[order] = np.maximum(sums_before - sums_before[starts][np.cumsum(starts) - 1], 0.0)
    return before


def n_above(descending: Float32, threshold: np.float32) -> int:
    """How many entries are strictly above a threshold, without reading (a mapped file) from end to end."""
    return int(descending.size - np.searchsorted(descending[::-1], threshold, side="right"))
