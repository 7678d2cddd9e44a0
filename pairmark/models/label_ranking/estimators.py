"""Label ranking trees and forests as scikit-learn estimators."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from pairmark.models.core.arrays import Float32, Float64
from pairmark.models.core.spec import RandomState, Threads, document_parameters
from pairmark.models.label_ranking.base import aggregated, spread_seeds
from pairmark.models.label_ranking.rankings_data import TrainingRankings
from pairmark.models.label_ranking.state import TreesState
from pairmark.models.label_ranking.trees import GrowOptions, completed, grow_trees

Split = Annotated[
    Literal["breiman", "level"],
    Field(description="the best split of each node, or one feature per level (Level-Splits)"),
]
MaxDepth = Annotated[
    Annotated[int, Field(ge=1, le=10_000)] | None, Field(description="maximum depth; null: fully grown")
]
MaxFeatures = Annotated[
    Literal["sqrt", "log2", "third"]
    | Annotated[int, Field(ge=1, le=1_000_000)]
    | Annotated[float, Field(gt=0.0, le=1.0)]
    | None,
    Field(
        description="features tried in each node: a number, a share, 'sqrt', 'log2', 'third', or null for all"
    ),
]
Honest = Annotated[
    bool, Field(description="choose splits on one half of the sample and fill the leaves with the other")
]
MaxSamples = Annotated[
    Annotated[int, Field(ge=1, le=10**9)] | Annotated[float, Field(gt=0.0, le=1.0)] | None,
    Field(description="rows drawn for each tree: a number, a share, or null for as many as there are"),
]
Aggregation = Annotated[
    Literal["mean", "borda", "copeland", "kemeny"],
    Field(description="rank by the mean position in the leaf, or aggregate its rows' pairwise majorities"),
]
TreeSeed = Annotated[RandomState, Field(description="seed; the same seed gives the same model")]
Verbose = Annotated[int, Field(ge=0, le=100, description="1: print a line when a tree finishes")]


class _TreesBase(TreesState):
    """What tree and forest share."""

    n_estimators: int = 1
    bootstrap: bool = False

    def __init__(
        self,
        *,
        split: Split = "breiman",
        max_depth: MaxDepth = None,
        max_features: MaxFeatures = None,
        honest: Honest = False,
        max_samples: MaxSamples = None,
        aggregation: Aggregation = "mean",
        random_state: TreeSeed = 0,
        n_jobs: Threads = None,
        verbose: Verbose = 0,
    ) -> None:
        self.split = split
        self.max_depth = max_depth
        self.max_features = max_features
        self.honest = honest
        self.max_samples = max_samples
        self.aggregation = aggregation
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _options(self) -> GrowOptions:
        return GrowOptions(
            split=self.split,
            max_depth=self.max_depth,
            max_features=self.max_features,
            honest=self.honest,
            max_samples=self.max_samples,
            bootstrap=self.bootstrap,
        )

    def _learn(self, X: Float32, rankings: TrainingRankings, random: np.random.RandomState) -> None:
        options, seeds = self._options(), spread_seeds(random, self.n_estimators)
        targets = completed(X, rankings, spread_seeds(random, 1)[0], self.n_jobs)
        self.positions_, self.targets_ = rankings.positions, targets
        self.trees_, _ = grow_trees(
            X,
            targets,
            options,
            seeds,
            n_jobs=self.n_jobs,
            stage="growing trees",
            verbose=self.verbose,
        )

    def _scores(self, X: Float32) -> Float64:
        if self.aggregation == "mean":
            return -self.trees_.means(X, self.targets_) / 2.0
        return aggregated(self.trees_.votes(X, self.positions_, self.targets_), self.aggregation)


@document_parameters
class LabelRankingTree(_TreesBase):
    """A label ranking tree by regression on positions (Fotakis et al. 2022, Algorithms 1, 3-5, 9 and 10).

    The target of a row is the canonical representation of its ranking, every label's position; cells are split to
    lower its mean squared error, and a leaf ranks by its rows. Incomplete rankings are completed by the expectation
    under a forest grown before (rows out of bag), so that what is absent does not pull labels to the middle.

    A node's split is its own best (Algorithm 10, by scikit-learn's multi-output trees), or one feature serves a whole
    level, chosen by the total empirical error, with a border for each cell (Algorithm 9). The paper's shallow trees
    have 5 levels. Rows of a leaf become a ranking by their mean positions, or by the shares of rows that put one label
    before another (`pairmark.models.evaluation.rankings`).

    Attributes
    ----------
    order_ : (k,) canonical order of the labels, by which equal scores are ordered.
    n_labels_ : k.
    trees_ : the grown `Trees`.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import LabelRankingTree
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> Y = np.column_stack([X[:, 0] > 0, X[:, 0] <= 0, np.full(60, 2)])  # of 3 labels, 0 is the best
    >>> model = LabelRankingTree(max_depth=2).fit(X, Y)
    >>> model.predict([[2.0, 0.0], [-2.0, 0.0]])
    array([[1., 0., 2.],
           [0., 1., 2.]])
    """


@document_parameters
class LabelRankingForest(_TreesBase):
    """A forest of `LabelRankingTree`: Fotakis et al. 2022, appendix A.2 with Algorithms 9 and 10.

    Attributes
    ----------
    order_, n_labels_, trees_ : as in `LabelRankingTree`.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import LabelRankingForest
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> Y = np.column_stack([X[:, 0] > 0, X[:, 0] <= 0, np.full(60, 2)])  # of 3 labels, 0 is the best
    >>> model = LabelRankingForest(n_estimators=20).fit(X, Y)
    >>> model.predict([[2.0, 0.0], [-2.0, 0.0]])
    array([[1., 0., 2.],
           [0., 1., 2.]])
    """

    def __init__(
        self,
        *,
        n_estimators: Annotated[int, Field(ge=1, le=10_000, description="trees")] = 100,
        split: Split = "breiman",
        max_depth: MaxDepth = None,
        max_features: MaxFeatures = None,
        honest: Honest = False,
        max_samples: MaxSamples = None,
        bootstrap: Annotated[
            bool,
            Field(
                description="each tree draws its rows with replacement; otherwise without (all rows if max_samples "
                "is null)"
            ),
        ] = True,
        aggregation: Aggregation = "mean",
        random_state: TreeSeed = 0,
        n_jobs: Threads = None,
        verbose: Verbose = 0,
    ) -> None:
        super().__init__(
            split=split, max_depth=max_depth, max_features=max_features, honest=honest,
            max_samples=max_samples, aggregation=aggregation, random_state=random_state, n_jobs=n_jobs,
            verbose=verbose,
        )  # fmt: skip
        self.n_estimators = n_estimators
        self.bootstrap = bootstrap
