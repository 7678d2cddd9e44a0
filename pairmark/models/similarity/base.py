"""What similarity trees and forests share: checks, pairs, growing, scoring."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Any, Literal

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.base import GalleryIndex, Matrix, PairScorerMixin
from pairmark.models.core.checkpoints import Checkpoints, checkpoints_of, kept_seed
from pairmark.models.core.inputs import checked_same, feature_names_of
from pairmark.models.core.progress import report
from pairmark.models.core.row_pairs import PairsOfRows
from pairmark.models.core.search.index import Rows, SearchLimits, TopK
from pairmark.models.pairs.sampling import MAX_PAIRS, PairMap, PairPopulation
from pairmark.models.pairs.splits import distinct_rows, joined_identities
from pairmark.models.similarity import search
from pairmark.models.similarity.binning import quantise
from pairmark.models.similarity.explain import PairWords
from pairmark.models.similarity.packing import PackedTrees, RowPairs
from pairmark.models.similarity.pair_features.gaussian import default_of_listed, learn
from pairmark.models.similarity.pair_features.maps import OutOfFold
from pairmark.models.similarity.parallel import Grower, grow_each
from pairmark.models.similarity.search_arrays import CODES, column_arrays
from pairmark.models.similarity.state import SimilarityState
from pairmark.models.similarity.training_pairs import (
    EACH_DESCRIBED,
    EACH_GIVEN,
    LEAST_DESCRIBED,
    LEAST_GIVEN,
    PairSource,
    describe,
    integer_weights,
    weighted,
)
from pairmark.models.similarity.trees import GrowthSettings, Tree, joined_arrays, parted_trees

TREES_VERSION = 9
"""Raised when a tree of the same seed would come out otherwise, so that no fit goes on from trees of another kind."""


MaxFeatures = (
    Literal["sqrt", "log2"]
    | Annotated[int, Field(ge=1, le=1_000_000)]
    | Annotated[float, Field(gt=0.0, le=1.0)]
    | None
)


class SimilarityBase(SimilarityState, PairScorerMixin, BaseEstimator):
    """A learner made of trees on pairs.

    Where all explicit pairs of positive weight are of one kind, there is nothing to learn and every pair scores alike.
    Explicit pairs are all used, `n_pairs` plays no part; their weights
    with a relative precision of one in 2^30 of their sum. Each tree of a forest with ``bootstrap`` resamples them: as
    many as there are up to 10,000, and of more at least 10,000 and so many that a pair is drawn four times over all
    trees; with learned features half as many. Where ``pair_features`` are learned, points that same pairs join, at one
    or more removes, are one identity.
    """

    _missing = "below"

    _packed: PackedTrees
    max_depth: int
    leaf_depth: int
    pair_map: PairMap
    n_pairs: int | None
    max_features: MaxFeatures
    random_state: int | np.random.RandomState | None
    n_jobs: int | None
    verbose: int
    n_estimators = 1
    bootstrap = False
    _breaks_ties = False
    """Whether learned features part pairs that fall into the same leaves."""

    def __init__(self, **params: Any) -> None:
        for name, value in params.items():
            setattr(self, name, value)

    def _learn_identities(self, rows: Float32, codes: Int64, identities: NDArray[Any]) -> None:
        random = self._begin()
        if rows.shape[0] < 2:
            raise ValueError("X has 1 sample; expected at least two, which make a pair")
        seed, population = _seeds(random, 1)[0], PairPopulation(codes)
        learned = self._learn(rows, codes, population, random)
        source = PairSource(
            bootstrap=self.bootstrap, seed=seed, population=population, codes=codes, n_pairs=self.n_pairs,
            learned=learned,
        )  # fmt: skip
        self._grow(rows, source, random)

    def _checked_labels(self, n: int, same: ArrayLike, sample_weight: ArrayLike | None) -> tuple[Bool, Any]:
        if n > MAX_PAIRS:
            raise ValueError(f"{n} pairs given; expected at most {MAX_PAIRS}")
        return checked_same(same, n), integer_weights(sample_weight, n)

    def _learn_pairs(self, left: Float32, right: Float32, same: Bool, weight: Any) -> None:
        random, n = self._begin(), same.size
        numbers = np.flatnonzero(weight > 0).astype(np.int32)
        numbers = np.concatenate([numbers[same[numbers]], numbers[~same[numbers]]])
        n_same = int(np.count_nonzero(same[numbers]))
        seed = _seeds(random, 1)[0]
        learned: OutOfFold | None = None
        learned_rows: Int64 | None = None
        points = np.concatenate([left, right])
        if self.pair_features != "raw" and 0 < n_same < numbers.size:
            # A row of many pairs is one row, or its identity would seem to vary less than it does.
            first, learned_rows = distinct_rows(points)
            codes = joined_identities(first.size, learned_rows, same)
            learned = self._learn(points[first], codes, None, random)
        else:
            self.learned_, self.pair_features_ = None, "raw"
        floor, per_pair = (LEAST_GIVEN, EACH_GIVEN) if learned is None else (LEAST_DESCRIBED, EACH_DESCRIBED)
        pairs = weighted(numbers, numbers + np.int32(n), weight[numbers], n_same)
        source = PairSource(
            bootstrap=self.bootstrap,
            seed=seed,
            listed_pairs=describe(pairs, learned, learned_rows),
            max_listed=max(floor, per_pair * n // self.n_estimators),
            half_learned=self.pair_features is None and self.n_estimators > 1,
        )
        self._grow(points, source, random)

    def explain(
        self, left: ArrayLike, right: ArrayLike, feature_names: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Why one pair scores as it does; see `pairmark.models.similarity.explain`.

        Parameters
        ----------
        left, right : (d,) or (1, d), one pair.
        feature_names : (d,) names to use; those of training when None.

        Returns
        -------
        JSON-able: ``score`` and, for a tree, ``path`` and ``cell``; for a forest, ``trees`` and ``features``.
        """
        a, b = self._one_pair(left, right)
        words = self._words(feature_names)
        return self._explain(a[0], b[0], float(self._pair_score(a, b)[0]), words)

    def _words(self, feature_names: Sequence[str] | None) -> PairWords:
        return PairWords(
            names=feature_names_of(self, feature_names), pair_map=self.pair_map, learned=self.learned_
        )

    @abstractmethod
    def _explain(self, left: Float32, right: Float32, score: float, words: PairWords) -> dict[str, Any]: ...

    def _learn(
        self,
        X: Float32,
        codes: Int64,
        population: PairPopulation | None,
        random: np.random.RandomState,
    ) -> OutOfFold | None:
        """Learn pair features, where some are asked for and there is something to learn from; returns their values out
        of fold. ``population`` None: of listed pairs."""
        self.learned_ = None
        if population is not None and not (population.n_same and population.n_different):
            self.pair_features_ = "raw"
        elif self.pair_features is None:
            self.pair_features_ = "raw" if population is not None else default_of_listed(X, codes)
        else:
            self.pair_features_ = self.pair_features
        out_of_fold: OutOfFold | None = None
        if self.pair_features_ != "raw":
            report(0.0, f"learning pair features: {self.pair_features_}")
            self.learned_, out_of_fold = learn(X, codes, random)
        return out_of_fold

    def _begin(self) -> np.random.RandomState:
        """The source of draws."""
        # A fit that goes on after it was killed must draw what it drew before.
        random: np.random.RandomState = check_random_state(
            kept_seed() if self.random_state is None else self.random_state
        )
        return random

    def _leaf_values(self, tree: Tree) -> Float64:
        return tree.leaf_scores(self.max_depth)

    def _grow(self, X: Float32, source: PairSource, random: np.random.RandomState) -> None:
        n_trees = self.n_estimators
        # Drawn before any parallel work: the model depends on the seed, not on who grows which tree.
        seeds = _seeds(random, n_trees)
        report(0.0, "coding features")
        settings = GrowthSettings(
            leaf_depth=self.leaf_depth,
            pair_map=self.pair_map,
            max_depth=self.max_depth,
            n_tried=resolved_max_features(self.max_features, X.shape[1]),
        )
        grower = Grower(grid=quantise(X), source=source, settings=settings)
        checkpoints = self._checkpoints(X, source)
        saved_arrays = (
            {seed: checkpoints.load(f"tree-{seed}") for seed in seeds} if checkpoints is not None else {}
        )
        saved_trees = {
            seed: parted_trees(arrays)[0] for seed, arrays in saved_arrays.items() if arrays is not None
        }
        growing = grow_each(grower, [seed for seed in seeds if seed not in saved_trees], self.n_jobs)
        trees: list[Tree] = []
        with closing(growing):
            for seed in seeds:
                tree = saved_trees.get(seed)
                if tree is None:
                    tree = next(growing)
                    if checkpoints is not None:
                        checkpoints.store(f"tree-{seed}", joined_arrays([tree]))
                trees.append(tree)
                report(len(trees) / n_trees, f"growing trees: {len(trees)} of {n_trees}")
                if self.verbose:
                    print(f"{type(self).__name__}: tree {len(trees)} of {n_trees}, AUC {tree.auc():.4f}")
        self.trees_ = trees
        self._finish()

    def _checkpoints(self, X: Float32, source: PairSource) -> Checkpoints | None:
        """Where finished trees are kept, by everything that a tree of a given seed depends on."""
        settings = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in ("n_jobs", "verbose", "random_state", "n_estimators", "aggregation")
        }
        settings |= {"learner": type(self).__name__, "source": source.seed, "trees": TREES_VERSION}
        pairs = source.listed_pairs
        if pairs is None:
            return checkpoints_of(settings, X, source.codes, None, None)
        weight = pairs.weight[:1] if pairs.is_even else pairs.weight
        return checkpoints_of(settings, X, source.codes, pairs.pairs, weight, pairs.learned)

    def _finish(self) -> None:
        """Build what scoring needs from ``trees_``."""
        self._packed = PackedTrees(
            self.trees_, [self._leaf_values(tree) for tree in self.trees_], pair_map=self.pair_map
        )

    def _restored(self) -> None:
        super()._restored()
        self._finish()

    def _pair_score(self, left: Float32, right: Float32) -> Float32:
        columns = (
            None if self.learned_ is None else (self.learned_.columns(left), self.learned_.columns(right))
        )
        return self._forest_scores(left, right, columns)

    def _pairs_of(self, rows: Matrix) -> PairsOfRows:
        columns = None if self.learned_ is None else self.learned_.columns(rows)
        return lambda left, right: self._forest_scores(
            rows[left], rows[right], None if columns is None else (columns[left], columns[right])
        )

    def _forest_scores(
        self, left: Float32, right: Float32, columns: tuple[Float32, Float32] | None
    ) -> Float32:
        n_threads = 1 if self.n_jobs is None else effective_n_jobs(self.n_jobs)
        forms = None if self.learned_ is None else self.learned_.forms
        scores = self._packed.sums(RowPairs(left, right, columns, forms), n_threads) / len(self.trees_)
        if self._breaks_ties and self.learned_ is not None and columns is not None:
            scores += self.learned_.tie_breaks(*columns)
        return scores.astype(np.float32)

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        """The gallery's learned columns, or the byte columns that trees are searched by, worked out once."""
        if self.learned_ is not None:
            return {"columns": self.learned_.columns(vectors)}
        if vectors.shape[0] < search.SMALLEST or self._packed.search_trees(self.n_features_in_) is None:
            return {}
        return column_arrays(vectors)

    def _passing_index(self, vectors: Matrix) -> GalleryIndex:
        # Byte columns cost about as much as a query that scores everything.
        if self.learned_ is None:
            return GalleryIndex(vectors=vectors)
        return super()._passing_index(vectors)

    def _top_k(self, queries: Matrix, index: GalleryIndex, limits: SearchLimits) -> TopK:
        n = len(index) if limits.allowed is None else int(np.count_nonzero(limits.allowed))
        trees = self._packed.search_trees(self.n_features_in_) if CODES in index.arrays else None
        # Few rows, or much of them wanted: bounds would not spare anything.
        if trees is None or n < search.SMALLEST + search.FEW_WALKS // trees.roots.size or 64 * limits.k > n:
            return super()._top_k(queries, index, limits)
        return search.forest_top_k(trees, self, queries, index, limits)

    def warm_search(self, query: Float32, index: GalleryIndex) -> None:
        """Compile what searches of galleries use that are many times as large, where the index has byte columns."""
        trees = self._packed.search_trees(self.n_features_in_) if CODES in index.arrays else None
        if trees is not None:
            search.ForestSearch(trees, self, query, index, SearchLimits(1)).every_way()

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        if self.learned_ is None:
            return super()._score_rows(queries, index, rows)
        block, block_columns = index.vectors[rows], index.arrays["columns"][rows]
        columns = self.learned_.columns(queries)
        scores = np.empty((queries.shape[0], block.shape[0]), dtype=np.float32)
        for at in range(queries.shape[0]):
            query, query_forms = (
                np.broadcast_to(line[at], (block.shape[0], line.shape[1])) for line in (queries, columns)
            )
            scores[at] = self._forest_scores(query, block, (query_forms, block_columns))
        return scores

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_packed")


def resolved_max_features(max_features: MaxFeatures, n_features: int) -> int:
    """How many features a cell tries."""
    if max_features is None:
        return n_features
    if max_features == "sqrt":
        return max(1, math.isqrt(n_features))
    if max_features == "log2":
        return max(1, int(math.log2(n_features)))
    if isinstance(max_features, float):
        return max(1, round(max_features * n_features))
    return min(int(max_features), n_features)


def _seeds(random: np.random.RandomState, n: int) -> list[int]:
    return [int(seed) for seed in random.randint(0, np.iinfo(np.int64).max, size=n, dtype=np.int64)]
