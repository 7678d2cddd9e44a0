"""Where each tree's pairs come from, and which pairs are out of its bag."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.base import Float32
from pairmark.models.pairs.sampling import PairMap, PairPopulation, PairSampling, TrainingPairs
from pairmark.models.similarity.learned import OutOfFold
from pairmark.models.similarity.packing import packed_trees
from pairmark.models.similarity.trees import Tree
from pairmark.models.similarity.weighted import WeightedPairs, evenly

Bag = Literal["pairs", "identities"]

WEIGHT_TOTAL = 2**30
"""Integer weights of a tree's pairs sum to at most this, so that sums fit an int32 and their products an int64."""
OOB_PAIRS = 20_000
"""Most pairs that trees are judged on out of bag."""
_SCORED_AT_A_TIME = 16_384


@dataclass(frozen=True, kw_only=True)
class OutOfBag:
    """Pairs to judge trees on.

    Attributes
    ----------
    drawn : the pairs, same ones first. numbers : their numbers among the given pairs, where pairs were given.
    """

    drawn: WeightedPairs
    numbers: NDArray[np.int64] | None


class PairSource:
    """Where a tree's pairs come from: drawn from identities, or given."""

    def __init__(
        self,
        n_pairs: int | None,
        bootstrap: bool,
        seed: int,
        bag: Bag = "pairs",
        sampling: PairSampling = "without-replacement",
    ) -> None:
        self.n_pairs, self.bootstrap, self.seed, self.bag = n_pairs, bootstrap, seed, bag
        self.sampling: PairSampling = sampling
        self.population: PairPopulation | None = None
        self.codes: NDArray[np.int64] | None = None
        self.given: WeightedPairs | None = None
        self.learned: OutOfFold | None = None

    @property
    def takes_all(self) -> bool:
        """Whether every draw is all pairs of the rows, each weighing the same."""
        if self.population is None or self.sampling != "without-replacement":
            return False
        if self.bag == "identities" and self.bootstrap:
            return False
        return self.n_pairs is None or self.n_pairs >= self.population.n_same + self.population.n_different

    def draw(self, seed: int) -> WeightedPairs:
        """Pairs for the tree of that seed, in arrays of its own."""
        rng = np.random.default_rng(seed if self.bootstrap else self.seed)
        if self.population is not None:
            population, rows = self.population, None
            if self.sampling == "without-replacement" and not (self.bag == "identities" and self.bootstrap):
                table, n_same = population.table(self.n_pairs, random_state=rng)
                return self.described(
                    WeightedPairs(pairs=table, weight=evenly(table.shape[1]), n_same=n_same)
                )
            if self.bag == "identities" and self.bootstrap:
                rows = np.flatnonzero(self._bag_of(rng))
                assert self.codes is not None
                population = PairPopulation(self.codes[rows])
            pairs = self._sampled(population, rng)
            left, right = (
                side if rows is None else rows[side].astype(np.int32) for side in (pairs.left, pairs.right)
            )
            n_same = int(np.count_nonzero(pairs.same))
            return self.described(weighted(left, right, self._weights(pairs), n_same))
        assert self.given is not None
        if self.bootstrap:
            return _resampled(self.given, rng)[0]
        return self.given.copy()

    def described(self, drawn: WeightedPairs) -> WeightedPairs:
        """The pairs with their learned features, if any are learned."""
        if self.learned is None:
            return drawn
        numbers = np.arange(drawn.pairs.shape[1], dtype=np.int32)
        return replace(
            drawn,
            pairs=np.vstack([drawn.pairs, numbers]),
            learned=self.learned.values(drawn.pairs[0], drawn.pairs[1]),
        )

    def out_of_bag(self) -> OutOfBag:
        """Pairs to judge trees on; which tree saw which, `unseen` says."""
        rng = np.random.default_rng(self.seed)
        if self.population is not None:
            pairs = self.population.sample(OOB_PAIRS, random_state=rng)
            drawn = weighted(pairs.left, pairs.right, evenly(len(pairs)), int(np.count_nonzero(pairs.same)))
            return OutOfBag(drawn=self.described(drawn), numbers=None)
        assert self.given is not None
        n = self.given.pairs.shape[1]
        numbers = np.sort(rng.choice(n, min(n, OOB_PAIRS), replace=False)).astype(np.int64)
        return OutOfBag(drawn=part(self.given, numbers), numbers=numbers)

    def unseen(self, seed: int, pairs: OutOfBag) -> NDArray[np.bool_]:
        """Which of those pairs the tree of that seed did not learn from."""
        rng = np.random.default_rng(seed)
        left, right = pairs.drawn.pairs[:2].astype(np.int64)
        if self.population is not None:
            if self.bag == "identities":
                inside = self._bag_of(rng)
                return np.asarray(~(inside[left] | inside[right]), dtype=np.bool_)
            drawn = self._sampled(self.population, rng)
            seen = _keys(drawn.left.astype(np.int64), drawn.right.astype(np.int64))
            return ~np.isin(_keys(left, right), seen)
        assert self.given is not None
        assert pairs.numbers is not None
        return ~np.isin(pairs.numbers, _resampled(self.given, rng)[1])

    def folds(self, pairs: WeightedPairs, n_folds: int) -> Iterator[tuple[WeightedPairs, WeightedPairs]]:
        """Pairs with no row in a fold, and pairs with both rows in it, fold by fold."""
        rng = np.random.default_rng(self.seed)
        if self.codes is not None:
            n_identities = int(self.codes.max()) + 1
            if n_identities >= 3 * n_folds:
                of_row = rng.permutation(n_identities)[self.codes] % n_folds
            else:
                order = rng.permutation(self.codes.size)
                order = order[np.argsort(self.codes[order], kind="stable")]
                of_row = np.empty(order.size, dtype=np.int64)
                of_row[order] = np.arange(order.size) % n_folds
            left, right = of_row[pairs.pairs[0]], of_row[pairs.pairs[1]]
        else:
            # Both rows of an explicit pair are its own.
            n = int(pairs.pairs[:2].max()) + 1
            left = right = rng.integers(0, n_folds, n)[np.minimum(pairs.pairs[0], pairs.pairs[1])]
        for fold in range(n_folds):
            yield (
                part(pairs, np.flatnonzero((left != fold) & (right != fold))),
                part(pairs, np.flatnonzero((left == fold) & (right == fold))),
            )

    def _sampled(self, population: PairPopulation, rng: np.random.Generator) -> TrainingPairs:
        return population.sample(self.n_pairs, sampling=self.sampling, random_state=rng)

    def _weights(self, pairs: TrainingPairs) -> NDArray[np.int32]:
        """Integer weights in proportion within each kind, which is all that rates of a kind depend on."""
        if self.sampling == "without-replacement":
            return evenly(len(pairs))
        weight = np.empty(len(pairs), dtype=np.int32)
        for same in (True, False):
            own = pairs.weight[pairs.same == same]
            weight[pairs.same == same] = integer_weights(own / own.min(initial=np.inf))
        return weight

    def _bag_of(self, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Rows whose identities were drawn, with replacement, as many as there are; with pairs of both kinds."""
        assert self.codes is not None
        n = int(self.codes.max()) + 1
        sizes = np.bincount(self.codes, minlength=n)
        for _ in range(100):
            inside = np.zeros(n, dtype=np.bool_)
            inside[rng.integers(0, n, n)] = True
            if np.count_nonzero(inside) >= 2 and sizes[inside].max() >= 2:
                return np.asarray(inside[self.codes])
        return np.ones(self.codes.size, dtype=np.bool_)


def integer_weights(weight: NDArray[np.float64]) -> NDArray[np.int32]:
    """Weights >= 0 as integers: themselves where they are small integers, else scaled to nearly use the range.

    ``weight`` : (n,) finite. Positive ones stay positive; the sum is at most an eighth of `WEIGHT_TOTAL`, or n beyond.
    """
    whole = np.rint(weight)
    if weight.sum() < WEIGHT_TOTAL // 4 and np.allclose(weight, whole, rtol=1e-9, atol=0.0):
        return np.asarray(whole, dtype=np.int32)
    n = weight.size
    scale = (WEIGHT_TOTAL // 4 - n if n < WEIGHT_TOTAL // 8 else WEIGHT_TOTAL // 8) / weight.sum()
    return np.where(weight > 0, np.maximum(np.rint(weight * scale), 1), 0).astype(np.int32)


def weighted(
    left: NDArray[np.int32], right: NDArray[np.int32], weight: NDArray[np.int32], n_same: int
) -> WeightedPairs:
    """Pairs as `cart.grow_tree` takes them."""
    if weight.size and weight.strides != (0,) and (weight == weight[0]).all():
        weight = evenly(weight.size, int(weight[0]))
    return WeightedPairs(pairs=np.stack([left, right]), weight=weight, n_same=n_same)


def part(pairs: WeightedPairs, numbers: NDArray[np.int64]) -> WeightedPairs:
    """Some of the pairs, in order."""
    return replace(
        pairs,
        pairs=pairs.pairs[:, numbers],
        weight=pairs.weight[: numbers.size] if pairs.is_even else pairs.weight[numbers],
        n_same=int(np.searchsorted(numbers, pairs.n_same)),
    )


def leaf_numbers(tree: Tree, X: Float32, pairs: WeightedPairs, pair_map: PairMap) -> NDArray[np.int64]:
    """The leaf, counted from the left, that each pair of training rows reaches with its own learned features."""
    n = pairs.pairs.shape[1]
    packed = packed_trees([tree], [np.arange(tree.leaves.size, dtype=np.float64)], pair_map=pair_map)
    out = np.empty(n, dtype=np.int64)
    for start in range(0, n, _SCORED_AT_A_TIME):
        table = pairs.pairs[:, start : start + _SCORED_AT_A_TIME]
        columns = forms = None
        if pairs.learned is not None:
            values = pairs.learned[table[2]]
            m = values.shape[1]
            # Nothing but an offset, so that the form is the value itself.
            left = np.zeros((values.shape[0], 1 + 2 * m), dtype=np.float32)
            left[:, 1 + m :] = values
            columns, forms = (left, np.zeros_like(left)), np.zeros((m, 1), dtype=np.float32)
        reached = packed.sums(X[table[0]], X[table[1]], learned=columns, forms=forms)
        out[start : start + _SCORED_AT_A_TIME] = reached.astype(np.int64)
    return out


def _keys(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    return (np.minimum(left, right) << 32) | np.maximum(left, right)


def _resampled(given: WeightedPairs, rng: np.random.Generator) -> tuple[WeightedPairs, NDArray[np.int64]]:
    """As many pairs of each kind drawn with replacement, written as how often each was drawn; and which were."""
    times = np.concatenate(
        [
            np.bincount(rng.integers(0, max(size, 1), size), minlength=size)
            for size in (given.n_same, given.pairs.shape[1] - given.n_same)
        ]
    )
    drawn = np.flatnonzero(times)
    weight = given.weight[drawn].astype(np.int64) * times[drawn]
    while weight.sum() > WEIGHT_TOTAL:
        weight = (weight + 1) // 2
    return replace(part(given, drawn), weight=weight.astype(np.int32)), drawn
