"""What similarity trees and forests share: checks, pairs, growing, scoring."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy.linalg import eigh
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core import kernels
from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.artefact import OutdatedModel
from pairmark.models.core.base import SCORE_BLOCK, GalleryIndex, Matrix, PairScorerMixin
from pairmark.models.core.inputs import checked_same, feature_names_of, one_of_equals
from pairmark.models.core.progress import report, spread_seeds
from pairmark.models.core.search import SearchLimits, TopK, TopRows, number_rows, pad_results, select_rows
from pairmark.models.core.spec import (
    LearnerSpec,
    MaxFeatures,
    RandomState,
    Threads,
    document_parameters,
    keep_arguments,
    n_features_tried,
)
from pairmark.models.core.state import Array, Fact, StateRecord, StoredState
from pairmark.models.pairs.sampling import MAX_PAIRS, PairMap, PairPopulation
from pairmark.models.similarity import explain
from pairmark.models.similarity.explain import PairWords
from pairmark.models.similarity.growth import (
    EACH_GIVEN,
    LEAST_GIVEN,
    Grower,
    PairSource,
    grow_each,
    integer_weights,
    quantise,
)
from pairmark.models.similarity.kernels.layout import GrowthLimits, PairTable
from pairmark.models.similarity.trees import (
    ARRAYS,
    PackedTrees,
    Tree,
    joined_arrays,
    parted_trees,
    require_cells,
    require_nodes,
)

_ANY = np.float32(-np.inf)
_FIRST_SHARE, _PROMISING, _MORE_PROMISING = 16, 96, 8
"""One tree in so many tells which rows of a gallery are promising; of these, so many rows are scored first, or twice
``k`` where that is more, and so many times as many in each turn after."""
_TOP_DEPTH = 2
"""Of the tops of trees that bound ranks."""
_MOST_AXES, _MOST_FEATURES, _LEAST_PAIRS = 32, 512, 100
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
        out = np.zeros((rows.shape[0], self.weights.shape[1]), dtype=np.float32)
        kernels.add_products(points, np.array(self.weights), out)
        return np.broadcast_to(np.hstack([rows, out]), (X.shape[0], X.shape[1] + out.shape[1]))


def axes_of(left: Float32, right: Float32, same: Bool) -> Axes | None:
    """Discriminant axes (Fisher 1936) of listed pairs (n, d); None where few are positive, or features too many.

    A tree tests one feature of a pair at a time, and so cuts correlated features slowly: directions along which people
    differ most for how much their samples do stand beside the features, as further ones.
    """
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


class SimilarityBase(PairScorerMixin, BaseEstimator):
    """A learner made of trees on pairs.

    Where all explicit pairs of positive weight are of one kind, there is nothing to learn and every pair scores alike.
    Explicit pairs are all used, `n_pairs` plays no part; their weights
    with a relative precision of one in 2^30 of their sum. Each tree of a forest with ``bootstrap`` resamples them: as
    many as there are up to 10,000, and of more at least 10,000 and so many that a pair is drawn four times over all
    trees. It sees up to 32 discriminant axes of these pairs beside the features.
    """

    _missing = "below"
    _keeps_mapped = True

    trees_: list[Tree]
    _packed: PackedTrees
    _bounds: PackedTrees
    _axes: Annotated[Axes | None, StateRecord(prefix="axes_")] = None
    n_estimators = 1
    bootstrap = False

    def _learn_identities(self, rows: Float32, codes: Int64, identities: NDArray[Any]) -> None:
        random = check_random_state(self.random_state)
        if rows.shape[0] < 2:
            raise ValueError("X has 1 sample; expected at least two, which make a pair")
        source = PairSource(
            bootstrap=self.bootstrap,
            seed=spread_seeds(random, 1)[0],
            population=PairPopulation(codes),
            n_pairs=self.n_pairs,
        )
        self._axes = None
        self._grow(rows, source, random)

    def _checked_labels(self, n: int, same: ArrayLike, sample_weight: ArrayLike | None) -> tuple[Bool, Any]:
        if n > MAX_PAIRS:
            raise ValueError(f"{n} pairs given; expected at most {MAX_PAIRS}")
        return checked_same(same, n), integer_weights(sample_weight, n)

    def _learn_pairs(self, left: Float32, right: Float32, same: Bool, weight: Any) -> None:
        random, n = check_random_state(self.random_state), same.size
        numbers = np.flatnonzero(weight > 0).astype(np.int32)
        numbers = np.concatenate([numbers[same[numbers]], numbers[~same[numbers]]])
        n_same = int(np.count_nonzero(same[numbers]))
        source = PairSource(
            bootstrap=self.bootstrap,
            seed=spread_seeds(random, 1)[0],
            listed_pairs=PairTable(np.stack([numbers, numbers + np.int32(n)]), weight[numbers], n_same),
            max_listed=max(LEAST_GIVEN, EACH_GIVEN * n // self.n_estimators),
        )
        self._axes = axes_of(left, right, same) if self.bootstrap else None
        self._grow(self._beside(np.concatenate([left, right])), source, random)

    def _beside(self, rows: Float32) -> Float32:
        """What trees see of rows."""
        return rows if self._axes is None else self._axes.beside(rows)

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
        reasons = self._explain(self._beside(a)[0], self._beside(b)[0], self._words(feature_names))
        return {"score": float(self._pair_score(a, b)[0]), **reasons}

    def _words(self, feature_names: Sequence[str] | None) -> PairWords:
        names = feature_names_of(self, feature_names)
        names += [f"axis {number + 1}" for number in range(self._n_seen - len(names))]
        return PairWords(names=names, pair_map=self.pair_map)

    @property
    def _n_seen(self) -> int:
        """Features and axes that trees see."""
        return self.n_features_in_ + (0 if self._axes is None else self._axes.weights.shape[1])

    @abstractmethod
    def _explain(self, left: Float32, right: Float32, words: PairWords) -> dict[str, Any]: ...

    def _leaf_values(self, tree: Tree) -> Float64:
        return tree.leaf_scores(self.max_depth)

    def _grow(self, X: Float32, source: PairSource, random: np.random.RandomState) -> None:
        n_trees = self.n_estimators
        # Drawn before any parallel work: the model depends on the seed, not on who grows which tree.
        seeds = spread_seeds(random, n_trees)
        report(0.0, "coding features")
        limits = GrowthLimits(
            self.max_depth, self.leaf_depth, n_features_tried(self.max_features, X.shape[1])
        )
        grower = Grower(grid=quantise(X, self.pair_map), source=source, limits=limits)
        trees: list[Tree] = []
        with closing(grow_each(grower, seeds, self.n_jobs)) as growing:
            for tree in growing:
                trees.append(tree)
                report(len(trees) / n_trees, f"growing trees: {len(trees)} of {n_trees}")
                if self.verbose:
                    print(f"{type(self).__name__}: tree {len(trees)} of {n_trees}, AUC {tree.auc():.4f}")
        self.trees_ = trees
        self._finish()

    def _finish(self) -> None:
        """Build what scoring needs from ``trees_``."""
        self._packed = self._bounds = self._pack(self.trees_)

    def _pack(self, trees: Sequence[Tree]) -> PackedTrees:
        return PackedTrees(trees, [self._leaf_values(tree) for tree in trees], pair_map=self.pair_map)

    def _parts(self) -> Mapping[str, Any]:
        return joined_arrays(self.trees_)

    def _read_parts(self, file: StoredState) -> None:
        self._joined = {name: file.array(name, declared) for name, declared in ARRAYS.items()}

    def _sizes(self, file: StoredState) -> Mapping[str, int]:
        if "learned_forms" in file.arrays:
            raise OutdatedModel("pair_features is 'discriminant', which this version no longer has")
        n_axes = file.length("axes_weights", 1) if "axes_weights" in file.arrays else 0
        return {"pair features": 2 * (file.sizes["features"] + n_axes)}

    def _relate(self, file: StoredState) -> None:
        require_cells(file, self.get_params(deep=False))
        require_nodes(file)

    def _restored(self) -> None:
        self.trees_ = parted_trees(self._joined)
        del self._joined
        self._finish()

    def _pair_score(self, left: Float32, right: Float32) -> Float32:
        return self._scores(self._packed.sums(self._beside(left), self._beside(right), self._n_threads))

    def _scores(self, sums: Float64) -> Float32:
        return (sums / len(self.trees_)).astype(np.float32)

    @property
    def _n_threads(self) -> int:
        return 1 if self.n_jobs is None else effective_n_jobs(self.n_jobs)

    def _least_sum(self, score: np.float32) -> float:
        """Sums of leaves below this score less: it is that of the next lower float32, since scores are rounded."""
        return float(np.nextafter(score, _ANY)) * len(self.trees_)

    def _top_k(self, queries: Matrix, index: GalleryIndex, limits: SearchLimits) -> TopK:
        """The first trees say which rows are promising, and the scores of these what the others have to reach: a row is
        given up as soon as the trees still to come cannot make up for those before."""
        n_first, n = -(-len(self.trees_) // _FIRST_SHARE), len(index)
        if n == 0 or len(self.trees_) < _FIRST_SHARE:
            return super()._top_k(queries, index, limits)
        starts = range(0, n, SCORE_BLOCK)
        blocks = [select_rows(start, min(start + SCORE_BLOCK, n), limits.allowed) for start in starts]
        allowed = np.concatenate([number_rows(block) for block in blocks])
        bests = []
        for at in range(queries.shape[0]):
            query, best, rows = queries[at : at + 1], TopRows(limits.k, limits.above), allowed
            # 1. Every row by a few trees.
            sums = np.concatenate(
                [self._sums(self._bounds, query, index.vectors[block], n_first=n_first) for block in blocks]
            )
            # 2. The most promising by all trees; then, of those that may still reach the best, ever more.
            n_next = max(_PROMISING, 2 * limits.k)
            while rows.size:
                is_next = np.ones(rows.size, dtype=np.bool_)
                if n_next < rows.size:
                    is_next[np.argpartition(sums, -n_next)[:-n_next]] = False
                self._offer(best, query, index, rows[is_next])
                is_left = ~is_next & self._bounds.can_reach(sums, n_first, self._least_sum(best.floor))
                rows, sums = rows[is_left], sums[is_left]
                n_next *= _MORE_PROMISING
            bests.append(best)
        return pad_results(bests, limits.k)

    def _offer(self, best: TopRows, query: Float32, index: GalleryIndex, rows: NDArray[np.intp]) -> None:
        """Score rows, as far as they may be among the best."""
        for start in range(0, rows.size, SCORE_BLOCK):
            part, least = rows[start : start + SCORE_BLOCK], self._least_sum(best.floor)
            if self._bounds is not self._packed and least > _ANY:
                bounds = self._sums(self._bounds, query, index.vectors[part], least=least)
                part = part[bounds > _ANY]
            sums = self._sums(self._packed, query, index.vectors[part], least=least)
            best.offer(part, self._scores(sums))

    def _sums(self, trees: PackedTrees, query: Float32, vectors: Float32, **limits: Any) -> Float64:
        """`PackedTrees.sums` of one row (1, d) and each of some."""
        left = np.broadcast_to(query, vectors.shape)
        return trees.sums(self._beside(left), self._beside(vectors), self._n_threads, **limits)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_packed")


_LeafRank = Annotated[
    Literal["cart"],
    Field(description="how a cell is split: by a small greedy tree, as in the paper's experiments"),
]
_PairMap = Annotated[
    PairMap,
    Field(description="symmetric features of a pair: (|x-x'|, x+x') or (max, min)"),
]
_NPairs = Annotated[
    Annotated[int, Field(ge=2, le=200_000_000)] | None,
    Field(description="training pairs drawn from identities; null: all of them"),
]
_Seed = Annotated[RandomState, Field(description="seed; the same seed gives the same model")]
_Verbose = Annotated[int, Field(ge=0, le=100, description="1: print a line when a tree finishes")]


@document_parameters
class SimilarityTree(SimilarityBase):
    """A similarity tree: TreeRank with a symmetric LeafRank (Clemencon & Vogel, sections 2.2 and 3.1).

    The space of pairs is cut into cells, ordered from most to least similar so that the ROC curve of the training
    pairs rises as steeply as possible; a pair scores ``2^J (1 - k / 2^j)`` in the leaf at depth j and place k. Each
    cell is split by a greedy tree (Gini impurity, costs that balance both kinds of pair within the cell) on the
    symmetric features of the pair; its leaves go left where their gain ``alpha-range F+ - beta-range F-`` is >= 0.

    Attributes
    ----------
    roc_ : false and true positive rates at the knots of the broken line through the leaves, on the training pairs.
    auc_ : its area, ``1/2 + 1/2`` of the sum of Lambda over all split cells.
    trees_ : the one `Tree`.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import SimilarityTree
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(30), 4)  # 30 people, 4 samples each
    >>> X = rng.normal(size=(30, 6))[y] + 0.3 * rng.normal(size=(120, 6))
    >>> model = SimilarityTree(max_depth=4, n_pairs=2000).fit(X[:80], y[:80])
    >>> model.score(X[80:], y[80:]) > 0.9  # the AUC of pairs of people never seen
    True
    >>> 0.9 < model.auc_ <= 1  # of the training pairs
    True
    """

    def __init__(
        self,
        *,
        max_depth: Annotated[
            int, Field(ge=1, le=24, description="depth of the similarity tree: at most 2^depth scores")
        ] = 8,
        leaf_depth: Annotated[
            int, Field(ge=1, le=8, description="depth of the tree that splits each cell (LeafRank)")
        ] = 3,
        leaf_rank: _LeafRank = "cart",
        pair_map: _PairMap = "diff-sum",
        n_pairs: _NPairs = 100_000,
        max_features: MaxFeatures = None,
        random_state: _Seed = 0,
        n_jobs: Threads = None,
        verbose: _Verbose = 0,
    ) -> None:
        keep_arguments(self, locals())

    @property
    def roc_(self) -> tuple[Float64, Float64]:
        """Knots of the training ROC."""
        check_is_fitted(self)
        return self.trees_[0].roc()

    @property
    def auc_(self) -> float:
        """Area under `roc_`."""
        check_is_fitted(self)
        return self.trees_[0].auc()

    def tree_data(self, feature_names: list[str] | None = None) -> dict[str, Any]:
        """The tree as JSON-able data: cells with counts and rates, and the splits between them."""
        check_is_fitted(self)
        return explain.tree_data(self.trees_[0], self._words(feature_names), depth=self.max_depth)

    def _explain(self, left: Float32, right: Float32, words: PairWords) -> dict[str, Any]:
        return explain.path(self.trees_[0], left, right, words)


@document_parameters
class SimilarityForest(SimilarityBase):
    """A ranking forest of similarity trees (Clemencon & Vogel, section 3.1 and appendix 6.5).

    Each tree learns from pairs of its own and, in each cell, from features drawn at random. A pair's score is the
    mean over the trees of what its leaf says: ``log-odds``, ``log(F+ / F-)`` of its training pairs, or the paper's
    ``rank``, minus the cell's rank, shifted by ``2^max_depth`` (the score of `SimilarityTree`). ``n_pairs`` is
    for each tree; where an identity holds far more pairs than others, same pairs are drawn evenly over identities.

    Attributes
    ----------
    trees_ : the `Tree` objects.
    aggregation_ : the aggregation in use.
    feature_importances_, pair_feature_importances_ : shares of the trees' AUC gain.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import SimilarityForest
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(30), 4)  # 30 people, 4 samples each
    >>> X = rng.normal(size=(30, 6))[y] + 0.3 * rng.normal(size=(120, 6))
    >>> model = SimilarityForest(n_estimators=10, max_depth=6, n_pairs=2000).fit(X[:80], y[:80])
    >>> same, different = model.pair_score(X[[80, 80]], X[[81, 84]])
    >>> bool(same > different)
    True
    >>> model.score(X[80:], y[80:]) > 0.9  # the AUC of pairs of people never seen
    True
    """

    aggregation_: Annotated[Literal["rank", "log-odds"], Fact()]

    def __init__(
        self,
        *,
        n_estimators: Annotated[int, Field(ge=1, le=10_000, description="trees")] = 50,
        max_depth: Annotated[int, Field(ge=1, le=24, description="depth of each similarity tree")] = 12,
        leaf_depth: Annotated[
            int, Field(ge=1, le=8, description="depth of the tree that splits each cell (LeafRank)")
        ] = 4,
        leaf_rank: _LeafRank = "cart",
        pair_map: _PairMap = "diff-sum",
        aggregation: Annotated[
            Literal["rank", "log-odds"],
            Field(description="a forest's score: mean log-odds of the leaves, or mean rank of the cells"),
        ] = "log-odds",
        n_pairs: _NPairs = 100_000,
        max_features: MaxFeatures = "sqrt",
        bootstrap: Annotated[
            bool,
            Field(
                description="each tree draws its own pairs (or resamples explicit pairs); otherwise all use the "
                "same pairs"
            ),
        ] = True,
        random_state: _Seed = 0,
        n_jobs: Threads = None,
        verbose: _Verbose = 0,
    ) -> None:
        keep_arguments(self, locals())

    @property
    def pair_feature_importances_(self) -> Float64:
        """(2 d,) each pair feature's share of the trees' AUC gain, that of axes by their weights.

        A cell's gain, half its Lambda, is shared evenly by the nodes that split it. All 0 where nothing was split.
        """
        check_is_fitted(self)
        total = np.zeros(2 * self._n_seen)
        for tree in self.trees_:
            owner = tree.cell_of_node
            share = (tree.gains() / np.maximum(np.bincount(owner, minlength=len(tree.cells)), 1))[owner]
            np.add.at(total, tree.features, share)
        shares = (total / (total.sum() or 1.0)).reshape(2, -1)
        of_features, of_axes = np.hsplit(shares, [self.n_features_in_])
        if self._axes is not None:
            weights = np.abs(self._axes.weights)
            of_features = of_features + of_axes @ (weights / weights.sum(axis=0)).T
        return of_features.reshape(-1)

    @property
    def feature_importances_(self) -> Float64:
        """(d,) the shares of both pair features of each feature."""
        d = self.n_features_in_
        by_pair = self.pair_feature_importances_
        return np.asarray(by_pair[:d] + by_pair[d : 2 * d])

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

    def _grow(self, X: Float32, source: PairSource, random: np.random.RandomState) -> None:
        self.aggregation_ = self.aggregation
        super()._grow(X, source, random)

    def _finish(self) -> None:
        super()._finish()
        if self.aggregation_ == "rank":
            # A cell's rank is the best of any cell in it, so that the tops of trees bound what the trees say.
            self._bounds = self._pack([tree.top(_TOP_DEPTH) for tree in self.trees_])

    def _leaf_values(self, tree: Tree) -> Float64:
        return tree.leaf_log_odds() if self.aggregation_ == "log-odds" else tree.leaf_scores(self.max_depth)

    def _explain(self, left: Float32, right: Float32, words: PairWords) -> dict[str, Any]:
        return explain.forest(self.trees_, left, right, words)


TREE = LearnerSpec(
    kind="similarity-tree",
    title="Similarity tree: cells of pairs, ordered from most to least similar; small enough to read",
    estimator=SimilarityTree,
    capabilities=frozenset({"similarity", "match", "search"}),
    has_tree=True,
    retired={"prune": ..., "leaf_rounds": ..., "pair_features": ...},
    renamed={("leaf_rank", "exhaustive"): "cart"},
)


FOREST = LearnerSpec(
    kind="similarity-forest",
    title="Similarity forest: the mean of many similarity trees; accurate with little tuning",
    estimator=SimilarityForest,
    capabilities=frozenset({"similarity", "match", "search"}),
    has_tree=True,
    distributes=True,
    retired={"leaf_rounds": ..., "pair_features": ...},
    renamed={("leaf_rank", "exhaustive"): "cart"},
)
