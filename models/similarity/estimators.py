"""Similarity trees and forests as scikit-learn estimators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, NamedTuple, Self

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from models.base import (
    SCORE_BLOCK,
    Float32,
    GalleryIndex,
    Matrix,
    PairScorerMixin,
    checked_identities,
    checked_matrix,
    checked_same,
)
from models.pairs import MAX_PAIRS, PairMap, PairPopulation
from models.progress import report
from models.similarity import explain
from models.similarity.binning import quantise
from models.similarity.explain import PairWords
from models.similarity.learned import LearnedFeatures, OutOfFold, PairFeatures, identities_of_pairs, learn
from models.similarity.params import MaxFeatures, SimilarityForestParams, SimilarityTreeParams
from models.similarity.trees import Aggregation, PackedTrees, Tree, WeightedPairs, grow_tree
from models.spec import check_params

_WEIGHT_TOTAL = 2**30
"""Integer weights of a tree's pairs sum to at most this, so that sums fit an int32 and their products an int64."""


@dataclass(frozen=True, kw_only=True)
class LearnedIndex(GalleryIndex):
    """A gallery with its rows' learned columns, None where nothing is learned."""

    columns: Float32 | None


class RocKnots(NamedTuple):
    """A broken-line ROC: false and true positive rates at its knots."""

    fpr: NDArray[np.float64]
    tpr: NDArray[np.float64]


class _PairSource:
    """Where a tree's pairs come from: drawn from identities, or given."""

    def __init__(self, n_pairs: int | None, bootstrap: bool, seed: int) -> None:
        self.n_pairs, self.bootstrap, self.seed = n_pairs, bootstrap, seed
        self.population: PairPopulation | None = None
        self.given: WeightedPairs | None = None
        self.learned: OutOfFold | None = None

    def draw(self, seed: int) -> WeightedPairs:
        """Pairs for the tree of that seed, in arrays of its own."""
        rng = np.random.default_rng(seed if self.bootstrap else self.seed)
        if self.population is not None:
            pairs = self.population.sample(self.n_pairs, random_state=rng)
            n_same = int(np.count_nonzero(pairs.same))
            ones = np.ones(len(pairs), dtype=np.int32)
            return self.described(_weighted(pairs.left, pairs.right, ones, n_same))
        assert self.given is not None
        if self.bootstrap:
            return _resampled(self.given, rng)
        return replace(self.given, pairs=self.given.pairs.copy())

    def described(self, drawn: WeightedPairs) -> WeightedPairs:
        """The pairs with their learned features, if any are learned."""
        if self.learned is None:
            return drawn
        numbers = np.arange(drawn.pairs.shape[1], dtype=np.int32)
        return WeightedPairs(
            pairs=np.vstack([drawn.pairs, numbers]),
            n_same=drawn.n_same,
            learned=self.learned.values(drawn.pairs[0], drawn.pairs[1]),
        )


class _SimilarityBase(PairScorerMixin, BaseEstimator):
    """What tree and forest share: checks, pairs, growing, scoring."""

    max_depth: int
    leaf_depth: int
    pair_map: PairMap
    pair_features: PairFeatures
    n_pairs: int | None
    max_features: MaxFeatures
    random_state: int | np.random.RandomState | None
    n_jobs: int | None
    verbose: int
    trees_: list[Tree]
    learned_: LearnedFeatures | None
    _packed: PackedTrees
    _bootstrap = False

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from points and identities, by pairs drawn from them.

        Parameters
        ----------
        X : (n, d) finite numbers.
        y : (n,) identities or classes; at least two, one of them with at least two rows.

        Raises
        ------
        ValueError
            On anything else, and on parameters out of bounds.
        """
        random = self._begin()
        X = checked_matrix(self, X, "X", reset=True)
        _, codes = checked_identities(y, X.shape[0])
        source = _PairSource(self.n_pairs, self._bootstrap, _seeds(random, 1)[0])
        source.population = PairPopulation(codes)
        self._learn(X, codes, source, random)
        return self._grow(X, source, random)

    def fit_pairs(
        self, left: ArrayLike, right: ArrayLike, same: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from explicit pairs; all of them are used, `n_pairs` plays no part.

        Where ``pair_features`` are learned, points that same pairs join, at one or more removes, are one identity.

        Parameters
        ----------
        left, right : (n, d) finite numbers.
        same : (n,) 0 or 1; both must occur.
        sample_weight : (n,) numbers >= 0, used with a relative precision of one in 2^30 of their sum.

        Raises
        ------
        ValueError
            On anything else, and on parameters out of bounds.
        """
        random = self._begin()
        a, b = checked_matrix(self, left, "left", reset=True), checked_matrix(self, right, "right")
        if a.shape[0] != b.shape[0]:
            raise ValueError(
                f"left has {a.shape[0]} rows and right {b.shape[0]}: expected one of each a pair"
            )
        n = a.shape[0]
        if n > MAX_PAIRS:
            raise ValueError(f"{n} pairs given; expected at most {MAX_PAIRS}")
        flags, weight = checked_same(same, n), _integer_weights(sample_weight, n)
        used = np.flatnonzero(weight > 0).astype(np.int32)
        used = np.concatenate([used[flags[used]], used[~flags[used]]])
        n_same = int(np.count_nonzero(flags[used]))
        if n_same in (0, used.size):
            kind = "different" if n_same else "same"
            raise ValueError(f"pairs of positive weight hold no {kind} pair: expected some of each")
        source = _PairSource(self.n_pairs, self._bootstrap, _seeds(random, 1)[0])
        points = np.concatenate([a, b])
        if self.pair_features != "raw":
            self._learn(points, identities_of_pairs(points, n, flags), source, random)
        else:
            self.learned_ = None
        source.given = source.described(_weighted(used, used + np.int32(n), weight[used], n_same))
        return self._grow(points, source, random)

    def explain(
        self, left: ArrayLike, right: ArrayLike, feature_names: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Why one pair scores as it does; see `models.similarity.explain`.

        Parameters
        ----------
        left, right : (d,) or (1, d), one pair.
        feature_names : (d,) names to tell it in; those learned with when None.

        Returns
        -------
        JSON-able: ``score`` and, for a tree, ``path`` and ``cell``; for a forest, ``trees`` and ``features``.
        """
        check_is_fitted(self)
        a, b = (
            self._validated(np.atleast_2d(np.asarray(side)), name)
            for side, name in ((left, "left"), (right, "right"))
        )
        if a.shape[0] != 1 or b.shape[0] != 1:
            raise ValueError(f"explain takes one pair; left has {a.shape[0]} rows and right {b.shape[0]}")
        words = self._words(feature_names)
        return self._explain(a[0], b[0], float(self._pair_score(a, b)[0]), words)

    def _words(self, feature_names: Sequence[str] | None) -> PairWords:
        return PairWords(
            names=explain.names_of(self, feature_names), pair_map=self.pair_map, learned=self.learned_
        )

    def _explain(self, left: Float32, right: Float32, score: float, words: PairWords) -> dict[str, Any]:
        raise NotImplementedError

    def _learn(
        self, X: Float32, codes: NDArray[np.int64], source: _PairSource, random: np.random.RandomState
    ) -> None:
        """Learn pair features, where some are asked for."""
        self.learned_ = None
        if self.pair_features != "raw":
            report(0.0, f"learning pair features: {self.pair_features}")
            self.learned_, source.learned = learn(self.pair_features, X, codes, random)

    def _begin(self) -> np.random.RandomState:
        raise NotImplementedError

    def _n_trees(self) -> int:
        return 1

    def _leaf_values(self, tree: Tree) -> NDArray[np.float64]:
        return tree.leaf_scores(self.max_depth)

    def _grow(self, X: Float32, source: _PairSource, random: np.random.RandomState) -> Self:
        n_trees = self._n_trees()
        # Drawn before any parallel work: the model depends on the seed, not on who grows which tree.
        seeds = _seeds(random, n_trees)
        report(0.0, "coding features")
        grid = quantise(X)
        n_tried = resolved_max_features(self.max_features, X.shape[1])
        stop = Event()

        def grow(seed: int) -> Tree | None:
            if stop.is_set():
                return None
            return grow_tree(
                grid,
                source.draw(seed),
                pair_map=self.pair_map,
                max_depth=self.max_depth,
                leaf_depth=self.leaf_depth,
                n_tried=n_tried,
                seed=seed,
            )

        trees: list[Tree] = []
        growing = self._each(grow, seeds)
        try:
            for tree in growing:
                assert tree is not None
                trees.append(tree)
                report(len(trees) / n_trees, f"growing trees: {len(trees)} of {n_trees}")
                if self.verbose:
                    print(f"{type(self).__name__}: tree {len(trees)} of {n_trees}, AUC {tree.auc():.4f}")
        except BaseException:
            # Abandoned: let the threads run out of work before going on, instead of behind the caller's back.
            stop.set()
            for _ in growing:
                pass
            raise
        self.trees_ = trees
        self._finish()
        return self

    def _each(self, grow: Callable[[int], Tree | None], seeds: list[int]) -> Iterator[Tree | None]:
        """The trees of the seeds, in order, as they are done."""
        if len(seeds) == 1 or effective_n_jobs(self.n_jobs) == 1:
            return map(grow, seeds)
        grown: Iterator[Tree | None] = Parallel(n_jobs=self.n_jobs, prefer="threads", return_as="generator")(
            delayed(grow)(seed) for seed in seeds
        )
        return grown

    def _finish(self) -> None:
        """Build what scoring needs from ``trees_``; also after loading."""
        self._packed = PackedTrees(
            self.trees_, [self._leaf_values(tree) for tree in self.trees_], pair_map=self.pair_map
        )

    def _pair_score(self, left: Float32, right: Float32) -> Float32:
        columns = (
            None if self.learned_ is None else (self.learned_.columns(left), self.learned_.columns(right))
        )
        return self._scored(left, right, columns)

    def _scored(self, left: Float32, right: Float32, columns: tuple[Float32, Float32] | None) -> Float32:
        n_threads = 1 if self.n_jobs is None else effective_n_jobs(self.n_jobs)
        forms = None if self.learned_ is None else self.learned_.forms
        sums = self._packed.sums(left, right, n_threads, learned=columns, forms=forms)
        return (sums / len(self.trees_)).astype(np.float32)

    def index(self, gallery: ArrayLike) -> GalleryIndex:
        """Prepare a gallery, (n, d), for repeated searches: its learned columns are worked out once."""
        check_is_fitted(self)
        vectors = self._validated(gallery, "gallery")
        return LearnedIndex(
            vectors=vectors, columns=None if self.learned_ is None else self.learned_.columns(vectors)
        )

    def _score_against(self, queries: Matrix, index: GalleryIndex) -> Float32:
        if self.learned_ is None or not isinstance(index, LearnedIndex) or index.columns is None:
            return super()._score_against(queries, index)
        scores = np.empty((queries.shape[0], len(index)), dtype=np.float32)
        columns = self.learned_.columns(queries)
        for row in range(queries.shape[0]):
            for start in range(0, len(index), SCORE_BLOCK):
                block = index.vectors[start : start + SCORE_BLOCK]
                known = index.columns[start : start + SCORE_BLOCK]
                query, its = (
                    np.broadcast_to(line[row], (block.shape[0], line.shape[1])) for line in (queries, columns)
                )
                scores[row, start : start + SCORE_BLOCK] = self._scored(query, block, (its, known))
        return scores

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_packed")


class SimilarityTree(_SimilarityBase):
    """A similarity tree: TreeRank with a symmetric LeafRank (Clemencon & Vogel, sections 2.2 and 3.1).

    The space of pairs is cut into cells, ordered from most to least similar so that the ROC curve of the training
    pairs rises as steeply as possible; a pair scores ``2^J (1 - k / 2^j)`` in the leaf at depth j and place k. Each
    cell is split by a greedy tree (Gini impurity, costs that balance both kinds of pair within the cell) on the
    symmetric features of the pair; its leaves go left where their gain ``alpha-range F+ - beta-range F-`` is >= 0.

    Parameters
    ----------
    max_depth : depth J of the tree.
    leaf_depth : depth of the tree that splits each cell.
    leaf_rank : ``cart``.
    pair_map : ``diff-sum`` for (|x - x'|, x + x'), ``max-min`` for (max, min).
    pair_features : ``raw``, or features learned out of fold that enter every split beside the raw ones:
        ``posteriors`` (closed-set use: the classes to come are those learned from), ``discriminant`` or ``whitened``
        (open-set use: new identities); see `models.similarity.learned`.
    n_pairs : pairs drawn by `fit`, half of them same; ``None`` for all.
    max_features : features tried in each cell; each brings both its pair features.
    random_state : seed of pairs and features.
    n_jobs : threads that score large batches.
    verbose : 1 prints a line when the tree is grown.

    Attributes
    ----------
    roc_ : `RocKnots`, the broken line through the leaves' cumulated rates on the training pairs.
    auc_ : its area, ``1/2 + 1/2`` of the sum of Lambda over all split cells.
    trees_ : the one `Tree`.
    """

    def __init__(
        self,
        *,
        max_depth: int = 8,
        leaf_depth: int = 3,
        leaf_rank: str = "cart",
        pair_map: PairMap = "diff-sum",
        pair_features: PairFeatures = "raw",
        n_pairs: int | None = 100_000,
        max_features: MaxFeatures = None,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.max_depth = max_depth
        self.leaf_depth = leaf_depth
        self.leaf_rank = leaf_rank
        self.pair_map = pair_map
        self.pair_features = pair_features
        self.n_pairs = n_pairs
        self.max_features = max_features
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def roc_(self) -> RocKnots:
        """Knots of the training ROC."""
        check_is_fitted(self)
        return RocKnots(*self.trees_[0].roc())

    @property
    def auc_(self) -> float:
        """Area under `roc_`."""
        check_is_fitted(self)
        return self.trees_[0].auc()

    def tree_data(self, feature_names: list[str] | None = None) -> dict[str, Any]:
        """The tree as JSON-able data: cells with counts and rates, and the splits between them."""
        check_is_fitted(self)
        return explain.tree_data(self.trees_[0], self._words(feature_names), depth=self.max_depth)

    def _begin(self) -> np.random.RandomState:
        check_params(self, SimilarityTreeParams)
        return _random(self.random_state)

    def _explain(self, left: Float32, right: Float32, score: float, words: PairWords) -> dict[str, Any]:
        return {"score": score, **explain.path(self.trees_[0], left, right, words)}


class SimilarityForest(_SimilarityBase):
    """A ranking forest of similarity trees (Clemencon & Vogel, section 3.1 and appendix 6.5).

    Each tree learns from pairs of its own and, in each cell, from features drawn at random. A pair's score is the
    mean over the trees of what its leaf says.

    Parameters
    ----------
    n_estimators : trees.
    max_depth, leaf_depth, leaf_rank, pair_map, pair_features, n_pairs, max_features, random_state, verbose : as in
        `SimilarityTree`; ``n_pairs`` is for each tree.
    aggregation : what a leaf says. ``log-odds``: ``log(F+ / F-)`` of its training pairs. ``rank`` is the paper's:
        minus the cell's rank, shifted by ``2^max_depth`` (the score of `SimilarityTree`).
    bootstrap : whether each tree draws pairs of its own (in `fit`), or resamples the given ones (in `fit_pairs`).
    n_jobs : threads that grow trees and score large batches.

    Attributes
    ----------
    trees_ : the `Tree` objects.
    tree_aucs_ : (n_estimators,) each tree's AUC on the pairs it was grown from.
    """

    def __init__(
        self,
        *,
        n_estimators: int = 50,
        max_depth: int = 12,
        leaf_depth: int = 4,
        leaf_rank: str = "cart",
        pair_map: PairMap = "diff-sum",
        pair_features: PairFeatures = "raw",
        aggregation: Aggregation = "log-odds",
        n_pairs: int | None = 100_000,
        max_features: MaxFeatures = "sqrt",
        bootstrap: bool = True,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.leaf_depth = leaf_depth
        self.leaf_rank = leaf_rank
        self.pair_map = pair_map
        self.pair_features = pair_features
        self.aggregation = aggregation
        self.n_pairs = n_pairs
        self.max_features = max_features
        self.bootstrap = bootstrap
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def tree_aucs_(self) -> NDArray[np.float64]:
        """Each tree's AUC on the pairs it was grown from."""
        check_is_fitted(self)
        return np.array([tree.auc() for tree in self.trees_])

    def tree_data(self, feature_names: list[str] | None = None, *, tree: int = 0) -> dict[str, Any]:
        """One of the trees as JSON-able data; see `SimilarityTree.tree_data`."""
        check_is_fitted(self)
        if not 0 <= tree < len(self.trees_):
            raise ValueError(f"tree is {tree}; expected 0 to {len(self.trees_) - 1}")
        words = self._words(feature_names)
        return {
            "n_trees": len(self.trees_),
            "tree": tree,
            **explain.tree_data(self.trees_[tree], words, depth=self.max_depth),
        }

    def _begin(self) -> np.random.RandomState:
        check_params(self, SimilarityForestParams)
        self._bootstrap = self.bootstrap
        return _random(self.random_state)

    def _n_trees(self) -> int:
        return self.n_estimators

    def _leaf_values(self, tree: Tree) -> NDArray[np.float64]:
        return tree.leaf_log_odds() if self.aggregation == "log-odds" else tree.leaf_scores(self.max_depth)

    def _explain(self, left: Float32, right: Float32, score: float, words: PairWords) -> dict[str, Any]:
        return {"score": score, **explain.forest(self.trees_, left, right, words)}


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


def _random(random_state: int | np.random.RandomState | None) -> np.random.RandomState:
    random: np.random.RandomState = check_random_state(random_state)
    return random


def _seeds(random: np.random.RandomState, n: int) -> list[int]:
    return [int(seed) for seed in random.randint(0, np.iinfo(np.int64).max, size=n, dtype=np.int64)]


def _integer_weights(sample_weight: ArrayLike | None, n: int) -> NDArray[np.int32]:
    """Weights as integers: themselves where they are small integers, else scaled so that they nearly use the range."""
    if sample_weight is None:
        return np.ones(n, dtype=np.int32)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,):
        raise ValueError(f"sample_weight has shape {weight.shape}; expected ({n},), one number a pair")
    if not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise ValueError("sample_weight: expected finite numbers >= 0, some of them positive")
    weight = weight / weight.max()
    total = weight.sum()
    given = np.asarray(sample_weight, dtype=np.float64)
    if given.sum() < _WEIGHT_TOTAL // 4 and (given == np.rint(given)).all():
        return given.astype(np.int32)
    scale = (_WEIGHT_TOTAL // 4 - n if n < _WEIGHT_TOTAL // 8 else _WEIGHT_TOTAL // 8) / total
    return np.where(weight > 0, np.maximum(np.rint(weight * scale), 1), 0).astype(np.int32)


def _weighted(
    left: NDArray[np.int32], right: NDArray[np.int32], weight: NDArray[np.int32], n_same: int
) -> WeightedPairs:
    return WeightedPairs(pairs=np.stack([left, right, weight]), n_same=n_same)


def _resampled(given: WeightedPairs, rng: np.random.Generator) -> WeightedPairs:
    """As many pairs of each kind drawn with replacement, written as how often each was drawn."""
    times = np.concatenate(
        [
            np.bincount(rng.integers(0, size, size), minlength=size)
            for size in (given.n_same, given.pairs.shape[1] - given.n_same)
        ]
    )
    drawn = np.flatnonzero(times)
    pairs = given.pairs[:, drawn]
    weight = pairs[2].astype(np.int64) * times[drawn]
    while weight.sum() > _WEIGHT_TOTAL:
        weight = (weight + 1) // 2
    pairs[2] = weight
    return replace(given, pairs=pairs, n_same=int(np.searchsorted(drawn, given.n_same)))
