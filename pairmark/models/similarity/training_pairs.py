"""Pairs of rows with integer weights, as trees learn from them, and where each tree's come from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.core.arrays import Float32, Int32, Int64
from pairmark.models.core.inputs import checked_weight
from pairmark.models.pairs.sampling import PairPopulation
from pairmark.models.similarity.pair_features.maps import OutOfFold

WEIGHT_TOTAL = 2**30
"""Integer weights of a tree's pairs sum to at most this, so that sums fit an int32 and their products an int64."""
LEAST_GIVEN, EACH_GIVEN = 10_000, 4
"""Trees that resample given pairs draw at least so many, and each pair so often over all trees. Trees that resample all
of many pairs cost more and are hardly better: a tenth of 100,000 pairs each loses .001 of AUC (`defaults_cost`)."""
LEAST_DESCRIBED, EACH_DESCRIBED = 5_000, 2
"""The same with learned features, which tell most by themselves: half as many pairs lose less than .001 there."""


@dataclass(frozen=True, kw_only=True)
class WeightedPairs:
    """Pairs of rows with integer weights.

    Attributes
    ----------
    pairs : (2, n) int32: left row, right row; pairs of one identity first. With learned features, a third line: the
        pair's row of ``learned``.
    weight : (n,) int32; where all weigh the same, one number seen n times (see `evenly`).
    n_same : how many are of one identity.
    learned : (n, m) float32, learned features of pairs, or None.
    """

    pairs: Int32
    weight: Int32
    n_same: int
    learned: Float32 | None = None

    @property
    def is_even(self) -> bool:
        """Whether one number is the weight of all."""
        return self.weight.strides == (0,)

    def copy(self) -> WeightedPairs:
        """The same pairs, in arrays that may be reordered."""
        return replace(
            self, pairs=self.pairs.copy(), weight=self.weight if self.is_even else self.weight.copy()
        )

    @property
    def n_different(self) -> int:
        """How many are of different identities."""
        return int(self.pairs.shape[1]) - self.n_same


def evenly(n: int, weight: int = 1) -> Int32:
    """The weights of ``n`` pairs that all weigh the same, in the memory of one."""
    return np.broadcast_to(np.int32(weight), n)


@dataclass(frozen=True, kw_only=True)
class PairSource:
    """Where a tree's pairs come from: drawn from a population, or listed.

    Attributes
    ----------
    bootstrap : whether each tree draws its own pairs. seed : of the pairs that all trees share where not.
    population, codes : the pairs that are drawn from, and the identity of each row; None of listed pairs.
    n_pairs : how many are drawn; None: all.
    learned : out-of-fold values of learned features of drawn pairs, if any are learned.
    listed_pairs : the listed pairs, with their learned features.
    max_listed : most listed pairs that a tree resamples.
    half_learned : whether trees of odd seeds, about half, grow from listed pairs without their learned features.
    """

    bootstrap: bool
    seed: int
    population: PairPopulation | None = None
    codes: Int64 | None = None
    n_pairs: int | None = None
    learned: OutOfFold | None = None
    listed_pairs: WeightedPairs | None = None
    max_listed: int | None = None
    half_learned: bool = False

    def draw(self, seed: int) -> WeightedPairs:
        """Pairs for the tree of that seed, in arrays of its own."""
        rng = np.random.default_rng(seed if self.bootstrap else self.seed)
        if self.population is not None:
            table, n_same = self.population.table(self.n_pairs, random_state=rng)
            pairs = WeightedPairs(pairs=table, weight=evenly(table.shape[1]), n_same=n_same)
            return describe(pairs, self.learned)
        assert self.listed_pairs is not None
        pairs = self.listed_pairs
        if self.half_learned and seed % 2:
            pairs = replace(pairs, pairs=pairs.pairs[:2], learned=None)
        return _resample(pairs, rng, self.max_listed) if self.bootstrap else pairs.copy()


def describe(
    pairs: WeightedPairs,
    learned: OutOfFold | None,
    learned_rows: Int64 | None = None,
) -> WeightedPairs:
    """The pairs with their learned features, if any are learned.

    ``learned_rows`` : where rows are equal, which of the rows that were learned from each is.
    """
    if learned is None:
        return pairs
    rows = pairs.pairs if learned_rows is None else learned_rows[pairs.pairs]
    numbers = np.arange(pairs.pairs.shape[1], dtype=np.int32)
    return replace(pairs, pairs=np.vstack([pairs.pairs, numbers]), learned=learned.values(*rows))


def integer_weights(sample_weight: ArrayLike | None, n: int) -> Int32:
    """Weights >= 0 as integers: themselves where they are small integers, else scaled to nearly use the range.

    Positive ones stay positive; the sum is at most an eighth of `WEIGHT_TOTAL`, or n beyond.
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


def weighted(left: Int32, right: Int32, weight: Int32, n_same: int) -> WeightedPairs:
    """Pairs as `cart.grow_tree` takes them."""
    if weight.size and weight.strides != (0,) and (weight == weight[0]).all():
        weight = evenly(weight.size, int(weight[0]))
    return WeightedPairs(pairs=np.stack([left, right]), weight=weight, n_same=n_same)


def part(pairs: WeightedPairs, numbers: Int64) -> WeightedPairs:
    """Some of the pairs, in order."""
    return replace(
        pairs,
        pairs=pairs.pairs[:, numbers],
        weight=pairs.weight[: numbers.size] if pairs.is_even else pairs.weight[numbers],
        n_same=int(np.searchsorted(numbers, pairs.n_same)),
    )


def _resample(pairs: WeightedPairs, rng: np.random.Generator, limit: int | None) -> WeightedPairs:
    """Pairs of each kind drawn with replacement, written as how often each was drawn.

    As many are drawn as there are, or ``limit`` of both kinds together in their shares.
    """
    n = pairs.pairs.shape[1]
    share = 1.0 if limit is None or n <= limit else limit / n
    times = np.concatenate(
        [
            np.bincount(rng.integers(0, max(size, 1), min(size, max(1, round(share * size)))), minlength=size)
            for size in (pairs.n_same, n - pairs.n_same)
        ]
    )
    numbers = np.flatnonzero(times)
    weight = pairs.weight[numbers].astype(np.int64) * times[numbers]
    while weight.sum() > WEIGHT_TOTAL:
        weight = (weight + 1) // 2
    return replace(part(pairs, numbers), weight=weight.astype(np.int32))
