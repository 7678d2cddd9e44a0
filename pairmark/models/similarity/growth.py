"""Growing trees: pairs of rows with integer weights, feature values as byte codes, and trees of given seeds.

Codes only propose thresholds. Pairs are then parted by the stored float32 threshold on their float32 features, as at
scoring time, so the cells that were counted in training are the cells that score.
"""

import sys
import warnings
from collections.abc import Generator
from dataclasses import dataclass, fields

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike

from pairmark.models.core.arrays import Float32, Float64, Int32, Int64
from pairmark.models.core.inputs import checked_weight
from pairmark.models.pairs.sampling import PairMap, PairPopulation
from pairmark.models.similarity.kernels import growing as kernels
from pairmark.models.similarity.kernels.layout import (
    CELL_DEPTH,
    CELL_DIFFERENT,
    CELL_FIELDS,
    CELL_POSITION,
    CELL_SAME,
    N_CELLS,
    N_NODES,
    N_TODO,
    RUN,
    TODO_FIELDS,
    Bins,
    CodedPoints,
    GrowthLimits,
    Heap,
    PairTable,
    Scratch,
    Window,
)
from pairmark.models.similarity.trees import PAIR_MAPS, Tree

WEIGHT_TOTAL = 2**30
"""Integer weights of a tree's pairs sum to at most this, so that sums fit an int32 and their products an int64."""
LEAST_GIVEN, EACH_GIVEN = 10_000, 4
"""Trees that resample given pairs draw at least so many, and each pair so often over all trees. Trees that resample all
of many pairs cost more and are hardly better."""


@dataclass(frozen=True, kw_only=True)
class PairSource:
    """Where a tree's pairs come from: drawn from a population, or listed.

    Attributes
    ----------
    bootstrap : whether each tree draws its own pairs. seed : of the pairs that all trees share where not.
    population : the pairs that are drawn from; None of listed pairs.
    n_pairs : how many are drawn; None: all.
    listed_pairs : the listed pairs.
    max_listed : most listed pairs that a tree resamples.
    """

    bootstrap: bool
    seed: int
    population: PairPopulation | None = None
    n_pairs: int | None = None
    listed_pairs: PairTable | None = None
    max_listed: int | None = None

    def draw(self, seed: int) -> PairTable:
        """Pairs for the tree of that seed, in arrays of its own."""
        rng = np.random.default_rng(seed if self.bootstrap else self.seed)
        if self.population is not None:
            rows, n_same = self.population.table(self.n_pairs, random_state=rng)
            return PairTable(rows, np.ones(rows.shape[1], dtype=np.int32), n_same)
        assert self.listed_pairs is not None
        if self.bootstrap:
            return _resample(self.listed_pairs, rng, self.max_listed)
        rows, weight, n_same = self.listed_pairs
        return PairTable(rows.copy(), weight.copy(), n_same)


def integer_weights(sample_weight: ArrayLike | None, n: int) -> Int32:
    """Weights >= 0 as integers: themselves where they are small integers, else scaled to nearly use the range.

    Positive ones stay positive; the sum is at most a quarter of `WEIGHT_TOTAL`, or, where n is above an eighth of it,
    an eighth and n.
    """
    if sample_weight is None:
        return np.ones(n, dtype=np.int32)
    weight = checked_weight(sample_weight, n)
    # Numbers of any size: their sum must not overflow.
    largest = float(weight.max())
    weight = weight if largest < WEIGHT_TOTAL else weight / largest
    rounded = np.rint(weight)
    if weight.sum() < WEIGHT_TOTAL // 4 and np.allclose(weight, rounded, rtol=1e-9, atol=0.0):
        return np.asarray(rounded, dtype=np.int32)
    scale = (WEIGHT_TOTAL // 4 - n if n < WEIGHT_TOTAL // 8 else WEIGHT_TOTAL // 8) / weight.sum()
    return np.where(weight > 0, np.maximum(np.rint(weight * scale), 1), 0).astype(np.int32)


def _resample(pairs: PairTable, rng: np.random.Generator, limit: int | None) -> PairTable:
    """Pairs of each kind drawn with replacement, written as how often each was drawn.

    As many are drawn as there are, or ``limit`` of both kinds together in their shares.
    """
    n = pairs.weight.size
    share = 1.0 if limit is None or n <= limit else limit / n
    times = np.concatenate(
        [
            np.bincount(rng.integers(0, max(size, 1), min(size, max(1, round(share * size)))), minlength=size)
            for size in (pairs.n_same, n - pairs.n_same)
        ]
    )
    numbers = np.flatnonzero(times)
    weight = pairs.weight[numbers].astype(np.int64) * times[numbers]
    # Rounded up, so that no pair drops out.
    while weight.sum() > WEIGHT_TOTAL:
        weight = (weight + 1) // 2
    n_same = int(np.searchsorted(numbers, pairs.n_same))
    return PairTable(np.ascontiguousarray(pairs.rows[:, numbers]), weight.astype(np.int32), n_same)


# Codes that a byte has; how far values may be from an exact grid, for each of its codes; the share of the values in
# either tail, and the interquartile ranges from the median, beyond which an even grid does not reach; and rows that
# settle a grid.
N_CODES = 256
_EXACT_TOLERANCE = 1e-6
_TAIL = 0.005
_REACH = 8.0
_ROWS_LOOKED_AT = 20_000


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A matrix in byte codes: value ~ low + code * step, feature by feature.

    Attributes
    ----------
    n_features : d, all features.
    features : (u,) int64, those that are not constant; ``points`` holds only them.
    """

    n_features: int
    features: Int64
    points: CodedPoints


def quantise(X: Float32, pair_map: PairMap) -> Grid:
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
        column = columns[k].astype(np.float64)
        # With the extremes of all rows, so that an exact grid is long enough.
        sample = np.append(column[looked_at], (column.min(), column.max()))
        grid = _exact_grid(sample)
        if grid is not None:
            places = (column - grid[0]) / grid[1]
            exact[k] = np.abs(places - np.rint(places)).max() <= _EXACT_TOLERANCE * grid[2]
        if grid is None or not exact[k]:
            exact[k], grid = False, _even_grid(sample)
        low[k], step[k], n_codes[k] = grid
        codes[:, k] = np.clip(np.rint((column - low[k]) / step[k]), 0, n_codes[k] - 1)
    points = CodedPoints(codes, columns, low, step, n_codes, exact, PAIR_MAPS[pair_map])
    return Grid(n_features=d, features=features, points=points)


def _exact_grid(sample: Float64) -> tuple[float, float, int] | None:
    """Low, step and number of codes of a grid that the values may lie on, if there is one."""
    # Most columns have too many values among a few rows already.
    if np.unique(sample[: 4 * N_CODES]).size > N_CODES:
        return None
    values = np.unique(sample)
    if values.size > N_CODES:
        return None
    # The smallest gap is taken for the step. Whether all values lie on such steps is for the caller to check.
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


def grow_tree(grid: Grid, pairs: PairTable, limits: GrowthLimits, seed: int) -> Tree:
    """Grow a tree; ``pairs`` are reordered, and weights along with them."""
    n_used, n_pairs, levels = grid.features.size, pairs.weight.size, limits.leaf_depth
    n_tried, n_heap = min(limits.n_tried, n_used), 2 << levels
    bins = Bins(
        features=np.arange(n_used, dtype=np.uint64),
        shift=np.zeros(n_tried, dtype=np.uint32),
        sizes=np.zeros((2, n_tried), dtype=np.int64),
        starts=np.zeros((2, n_tried), dtype=np.uint32),
        places=np.empty((2, n_tried), dtype=np.uint32),
    )
    heap = Heap(
        side=np.zeros(n_heap, dtype=np.int64),
        segments=np.zeros((n_heap, 4), dtype=np.int64),
        sums=np.zeros((n_heap, 2), dtype=np.int64),
        features=np.zeros((n_heap, 2), dtype=np.int64),
        thresholds=np.zeros(n_heap, dtype=np.float32),
    )
    # Bins of both halves of one feature: differences and sums, or maxima and minima.
    widest = 3 * int(grid.points.n_codes.max(initial=0))
    n_moved = max(pairs.n_same, n_pairs - pairs.n_same)
    memory = np.empty(max(3 * n_moved, 2 * n_pairs), dtype=np.int32)
    window = Window(
        values=memory[:n_pairs].view(np.float32),
        owners=memory[n_pairs : 2 * n_pairs],
        below=np.empty(2),
        run=np.empty(RUN, dtype=np.float32),
    )
    gains = np.empty(widest)
    scratch = Scratch(
        histograms=np.empty((levels, 2, n_tried * widest), dtype=np.int32),
        low_sums=np.empty((2, widest), dtype=np.int32),
        gains=gains,
        gain_bits=gains.view(np.int64),
        costs=np.empty((2, 2)),
        stack=np.empty((2 * levels + 2, 3), dtype=np.int64),
        # Depth first: of each level one cell waits at most, and of the lowest one two.
        todo=np.empty((limits.max_depth + 2, TODO_FIELDS), dtype=np.int64),
        numbered=np.zeros(n_heap, dtype=np.int32),
        borders=np.empty(2, dtype=np.int64),
        left=np.empty(2, dtype=np.int64),
        spare=memory[: 3 * n_moved].reshape(3, n_moved),
        window=window,
    )
    same, different = (
        int(part.sum(dtype=np.int64)) for part in (pairs.weight[: pairs.n_same], pairs.weight[pairs.n_same :])
    )
    cells = np.full((64, CELL_FIELDS), -1, dtype=np.int64)
    cells[0, [CELL_DEPTH, CELL_POSITION, CELL_SAME, CELL_DIFFERENT]] = 0, 0, same, different
    nodes, counts, state = np.empty((64 + n_heap, 4)), np.array([1, 1, 0]), np.array([seed], dtype=np.uint64)
    scratch.todo[0] = 0, 0, pairs.n_same, pairs.n_same, n_pairs
    while True:
        kernels.grow(
            grid.points, grid.features, grid.n_features, pairs, limits, bins, heap, scratch, cells, nodes, counts, state
        )  # fmt: skip
        if not counts[N_TODO]:
            break
        cells, nodes = (np.concatenate([table, np.empty_like(table)]) for table in (cells, nodes))
    nodes = nodes[: counts[N_NODES]]
    return Tree(
        cells=cells[: counts[N_CELLS]].copy(),
        features=nodes[:, 0].astype(np.int32),
        thresholds=nodes[:, 1].astype(np.float32),
        node_low=nodes[:, 2].astype(np.int32),
        node_high=nodes[:, 3].astype(np.int32),
    )


@dataclass(frozen=True, kw_only=True)
class Grower:
    """Everything that a tree depends on but its seed. Plain data, so that another process can hold it too.

    Attributes
    ----------
    grid : codes of the points. source : where pairs are drawn from.
    """

    grid: Grid
    source: PairSource
    limits: GrowthLimits

    def __sizeof__(self) -> int:
        # Dask sends what it takes for large to each of its workers once, instead of along with every task.
        parts = [getattr(self, field.name) for field in fields(self)] + list(vars(self.source).values())
        return object.__sizeof__(self) + sum(
            part.nbytes if isinstance(part, np.ndarray) else sys.getsizeof(part) for part in parts
        )

    def grow(self, seed: int) -> Tree:
        return grow_tree(self.grid, self.source.draw(seed), self.limits, seed)


def grow_each(grower: Grower, seeds: list[int], n_jobs: int | None) -> Generator[Tree, None, None]:
    """The trees of the seeds, in order, as they are done. Closing the iterator abandons the rest."""
    if len(seeds) <= 1 or effective_n_jobs(n_jobs) == 1:
        yield from map(grower.grow, seeds)
        return
    # Threads, or other processes of this machine or of a cluster where a backend of joblib's is active.
    # The grower as an argument, not bound: so joblib's Dask backend sees that it is large, and sends it once.
    growing = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(
        delayed(Grower.grow)(grower, seed) for seed in seeds
    )
    try:
        # Not `yield from`, which would close it when the rest is abandoned: that is left to us.
        for tree in growing:  # noqa: UP028
            yield tree
    finally:
        with warnings.catch_warnings():
            # That trees were made for nothing is what abandoning a fit means. What has not begun is taken back.
            warnings.simplefilter("ignore", UserWarning)
            growing.close()
