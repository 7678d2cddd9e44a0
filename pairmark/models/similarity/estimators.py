"""Similarity trees and forests as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.arrays import Float32, Float64
from pairmark.models.core.spec import RandomState, Threads, document_parameters
from pairmark.models.core.state import Fact
from pairmark.models.pairs.sampling import PairMap
from pairmark.models.similarity import explain
from pairmark.models.similarity.base import MaxFeatures, SimilarityBase
from pairmark.models.similarity.explain import PairWords
from pairmark.models.similarity.pair_features.maps import PairFeatures
from pairmark.models.similarity.trees import RocKnots, Tree

_FEATURES = (
    "features of a pair beside the raw ones: 'discriminant', a two-covariance model's log-likelihood ratio, cosine and "
    "nearness"
)
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
_MaxFeatures = Annotated[
    MaxFeatures,
    Field(description="features tried in each cell: a number, a share, 'sqrt', 'log2', or null for all"),
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

    ``pair_features`` are learned out of fold and
    enter every split beside the raw ones, see `pairmark.models.similarity.pair_features.maps`.

    Attributes
    ----------
    roc_ : `RocKnots`, the broken line through the leaves' cumulated rates on the training pairs.
    auc_ : its area, ``1/2 + 1/2`` of the sum of Lambda over all split cells.
    trees_ : the one `Tree`.
    pair_features_ : the pair features in use.

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
        pair_features: Annotated[PairFeatures, Field(description=_FEATURES)] = "raw",
        n_pairs: _NPairs = 100_000,
        max_features: _MaxFeatures = None,
        random_state: _Seed = 0,
        n_jobs: Threads = None,
        verbose: _Verbose = 0,
    ) -> None:
        super().__init__(
            max_depth=max_depth, leaf_depth=leaf_depth, leaf_rank=leaf_rank, pair_map=pair_map,
            pair_features=pair_features, n_pairs=n_pairs, max_features=max_features,
            random_state=random_state, n_jobs=n_jobs, verbose=verbose,
        )  # fmt: skip

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

    def _explain(self, left: Float32, right: Float32, score: float, words: PairWords) -> dict[str, Any]:
        return {"score": score, **explain.path(self.trees_[0], left, right, words)}


@document_parameters
class SimilarityForest(SimilarityBase):
    """A ranking forest of similarity trees (Clemencon & Vogel, section 3.1 and appendix 6.5).

    Each tree learns from pairs of its own and, in each cell, from features drawn at random. A pair's score is the
    mean over the trees of what its leaf says: ``log-odds``, ``log(F+ / F-)`` of its training pairs, or the paper's
    ``rank``, minus the cell's rank, shifted by ``2^max_depth`` (the score of `SimilarityTree`). Of learned pair
    features the first adds thousandths to the mean log-odds, which order pairs that share all leaves. ``n_pairs`` is
    for each tree; where an identity holds far more pairs than others, same pairs are drawn evenly over identities. By
    default `fit_pairs` learns ``discriminant`` pair features for about half of the trees, where there are at most 512
    features and same pairs leave at least twelve identities apart.

    Attributes
    ----------
    trees_ : the `Tree` objects.
    tree_aucs_ : (n_estimators,) each tree's AUC on the pairs it was grown from.
    aggregation_, pair_features_ : the aggregation and the pair features in use.
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
    _breaks_ties: Annotated[bool, Fact(default=False)] = False

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
        pair_features: Annotated[
            PairFeatures | None,
            Field(
                description=f"{_FEATURES}; null: 'raw' from identities; from listed pairs of at most 512 features "
                "'discriminant', in half of the trees"
            ),
        ] = None,
        aggregation: Annotated[
            Literal["rank", "log-odds"],
            Field(description="a forest's score: mean log-odds of the leaves, or mean rank of the cells"),
        ] = "log-odds",
        n_pairs: _NPairs = 100_000,
        max_features: _MaxFeatures = "sqrt",
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
        super().__init__(
            max_depth=max_depth, leaf_depth=leaf_depth, leaf_rank=leaf_rank, pair_map=pair_map,
            pair_features=pair_features, n_pairs=n_pairs, max_features=max_features,
            random_state=random_state, n_jobs=n_jobs, verbose=verbose,
        )  # fmt: skip
        self.n_estimators = n_estimators
        self.aggregation = aggregation
        self.bootstrap = bootstrap

    @property
    def tree_aucs_(self) -> Float64:
        """Each tree's AUC on the pairs it was grown from."""
        check_is_fitted(self)
        return np.array([tree.auc() for tree in self.trees_])

    @property
    def pair_feature_importances_(self) -> Float64:
        """(2 d + learned,) each pair feature's share of the trees' AUC gain.

        A cell's gain, half its Lambda, is shared evenly by the nodes that split it.
        """
        check_is_fitted(self)
        n_learned = 0 if self.learned_ is None else len(self.learned_.forms)
        return importances(self.trees_, 2 * self.n_features_in_ + n_learned)

    @property
    def feature_importances_(self) -> Float64:
        """(d,) the shares of both pair features of each feature; learned ones have the rest."""
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

    def _begin(self) -> np.random.RandomState:
        random = super()._begin()
        self.aggregation_ = self.aggregation
        self._breaks_ties = self.aggregation == "log-odds"
        return random

    def _leaf_values(self, tree: Tree) -> Float64:
        return tree.leaf_log_odds() if self.aggregation_ == "log-odds" else tree.leaf_scores(self.max_depth)

    def _explain(self, left: Float32, right: Float32, score: float, words: PairWords) -> dict[str, Any]:
        return {"score": score, **explain.forest(self.trees_, left, right, words)}


def importances(trees: Sequence[Tree], n: int) -> Float64:
    """Shares of the AUC gained by the cells that each of ``n`` pair features split; all 0 where nothing was split."""
    total = np.zeros(n)
    for tree in trees:
        owner = tree.cell_of_node
        share = (tree.gains() / np.maximum(np.bincount(owner, minlength=len(tree.cells)), 1))[owner]
        np.add.at(total, tree.features, share)
    return np.asarray(total / total.sum()) if total.sum() > 0 else total
