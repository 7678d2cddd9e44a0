"""Label ranking trees and forests: grown in parallel, and as scikit-learn estimators."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.progress import in_threads, report, spread_seeds
from pairmark.models.core.spec import (
    LearnerSpec,
    MaxFeatures,
    RandomState,
    Threads,
    document_parameters,
    keep_arguments,
    n_features_tried,
)
from pairmark.models.core.state import Array, StateRecord, StoredState, refuse, require, require_offsets
from pairmark.models.label_ranking import kernels
from pairmark.models.label_ranking.base import (
    RankerBase,
    TrainingRankings,
    aggregate_shares,
    completed_targets,
)

Split = Annotated[
    Literal["breiman", "level"],
    Field(description="the best split of each node, or one feature per level (Level-Splits)"),
]
MaxDepth = Annotated[
    Annotated[int, Field(ge=1, le=10_000)] | None, Field(description="maximum depth; null: fully grown")
]
NEVER = np.zeros((0, 0), dtype=np.bool_)
"""No tree is skipped."""

Nodes = tuple[NDArray[np.int32], Float32, NDArray[np.int32], NDArray[np.int32]]
"""Feature (-1: a leaf), threshold (values at most that go left) and children of each node."""

_COMPLETING_TREES = 50
FAINT = 0.05
"""Weight of a vote by completed targets beside one by an order that was seen."""


@dataclass(frozen=True, kw_only=True)
class GrowOptions:
    """How one tree is grown; names are those of `LabelRankingForest`.

    ``splitter``, ``min_samples_leaf`` : see scikit-learn's ``DecisionTreeRegressor``.
    """

    split: Literal["breiman", "level"] = "breiman"
    splitter: Literal["best", "random"] = "best"
    max_depth: int | None = None
    min_samples_leaf: int = 1
    max_features: MaxFeatures = None
    honest: bool = False
    max_samples: int | float | None = None
    bootstrap: bool = False


@dataclass(frozen=True, kw_only=True)
class Trees:
    """Grown trees end to end, and which training rows are in each leaf.

    Attributes
    ----------
    roots : (n_trees,) first node of each.
    feature, threshold, left, right : of each node; children are numbers of nodes here.
    member_start : (n_nodes + 1,) where the members of each leaf begin in ``members`` (training rows) and ``mass``
        (their share of the leaf).
    """

    roots: Annotated[Int64, Array(shape=("trees",), below="nodes")]
    feature: Annotated[NDArray[np.int32], Array(shape=("nodes",), low=-1, below="features")]
    threshold: Annotated[Float32, Array(shape=("nodes",))]
    left: Annotated[NDArray[np.int32], Array(shape=("nodes",), below="nodes")]
    right: Annotated[NDArray[np.int32], Array(shape=("nodes",), below="nodes")]
    member_start: Annotated[Int64, Array(shape=("nodes + 1",), low=0, order="never-falling")]
    members: Annotated[NDArray[np.int32], Array(shape=("members",), below="rows")]
    mass: Annotated[Float32, Array(shape=("members",), low=0)]

    def relate(self, prefix: str) -> None:
        """Refuse offsets that do not fit, and a node that does not come after its parent: no walk is endless."""
        require_offsets(f"{prefix}member_start", self.member_start, self.members.size, f"{prefix}members")
        number = np.arange(self.feature.size)
        for name, child in (("left", self.left), ("right", self.right)):
            require((self.feature < 0) | (child > number), prefix + name, child, "a node after its parent")

    def of(self, roots: Int64) -> tuple[Any, ...]:
        """Arguments of the reading kernels, for some of the trees."""
        return (
            np.ascontiguousarray(roots),
            self.feature,
            self.threshold,
            self.left,
            self.right,
            self.member_start,
            self.members,
            self.mass,
        )

    def means(self, X: Float32, targets: Float64, *, roots: Int64 | None = None) -> Float64:
        """Mean targets of the rows' leaves over the trees, (n, k)."""
        out = np.zeros((X.shape[0], targets.shape[1]))
        kernels.mean_targets(X, *self.of(self.roots if roots is None else roots), targets, out)
        return out

    def votes(
        self,
        X: Float32,
        positions: Float32,
        targets: Float64,
        *,
        skip: Bool = NEVER,
    ) -> Float64:
        """Pairwise shares, (n, k, k), see `kernels.pair_votes`."""
        k = positions.shape[1]
        out = np.zeros((X.shape[0], k, k))
        # A difference of as much as k labels can have is certain.
        reach = float(max(2, k) - 1)
        kernels.pair_votes(X, *self.of(self.roots), positions, targets, reach, FAINT, skip, out)
        return out


def grow_trees(
    X: Float32,
    targets: Float64,
    options: GrowOptions,
    seeds: list[int],
    *,
    n_jobs: int | None,
    stage: str,
    verbose: int = 0,
) -> tuple[Trees, Bool]:
    """Grow a tree for each seed.

    Parameters
    ----------
    targets : (n, k).
    stage : what progress is reported as.

    Returns
    -------
    the trees, and (n_seeds, n) which rows each seed's sample held.
    """

    def grow(seed: int) -> tuple[Trees, Bool]:
        rng = np.random.default_rng(seed)
        weight, estimate = _sample(X.shape[0], options, rng)
        return _grow_one(X, targets, weight, estimate, options, rng), (weight > 0) | (estimate > 0)

    results: list[tuple[Trees, Bool]] = []
    for result in in_threads(grow, seeds, n_jobs):
        results.append(result)
        told = f"{stage}: {len(results)} of {len(seeds)}"
        report(len(results) / len(seeds), told)
        if verbose:
            print(told)
    return end_to_end([tree for tree, _ in results]), np.stack([in_sample for _, in_sample in results])


def complete_rankings(X: Float32, rankings: TrainingRankings, seed: int, n_jobs: int | None) -> Float64:
    """Targets of rankings, incomplete ones filled row by row with what a forest of other rows expects.

    Random borders and small leaves: of all that was tried these lost least where half of the labels are missing.
    """
    positions = rankings.positions
    targets = completed_targets(positions, rankings.shares)
    if rankings.complete:
        return targets
    rough = GrowOptions(splitter="random", min_samples_leaf=2, bootstrap=True)
    seeds = np.random.default_rng(seed).integers(2**62, size=_COMPLETING_TREES).tolist()
    n, k = positions.shape
    size = max(1, 8_000_000 // (k * k))
    for _ in range(2):
        trees, in_sample = grow_trees(X, targets, rough, seeds, n_jobs=n_jobs, stage="completing rankings")
        filled = np.empty_like(targets)
        for start in range(0, n, size):
            rows = slice(start, start + size)
            before = trees.votes(X[rows], positions, targets, skip=in_sample[:, rows])
            filled[rows] = completed_targets(positions[rows], before)
        targets = filled
    return targets


def end_to_end(forests: Sequence[Trees], examples: Sequence[int] | None = None) -> Trees:
    """Several `Trees` as one: of the same training rows, or each of so many ``examples`` of its own, end to end."""
    nodes = np.cumsum([0, *(trees.feature.size for trees in forests)]).tolist()
    members = np.cumsum([0, *(trees.members.size for trees in forests)]).tolist()
    rows = [0] * len(forests) if examples is None else np.cumsum([0, *examples]).tolist()

    def joined(name: str, dtype: type, shifts: Sequence[int] | None = None) -> NDArray[Any]:
        by = shifts or [0] * len(forests)
        parts = [getattr(trees, name) + shift for trees, shift in zip(forests, by, strict=False)]
        return np.concatenate([np.empty(0, dtype), *parts], dtype=dtype)

    starts = [trees.member_start[:-1] + shift for trees, shift in zip(forests, members, strict=False)]
    return Trees(
        roots=joined("roots", np.int64, nodes),
        feature=joined("feature", np.int32),
        threshold=joined("threshold", np.float32),
        left=joined("left", np.int32, nodes),
        right=joined("right", np.int32, nodes),
        member_start=np.concatenate([*starts, members[-1:]]).astype(np.int64),
        members=joined("members", np.int32, rows),
        mass=joined("mass", np.float32),
    )


def _sample(n: int, options: GrowOptions, rng: np.random.Generator) -> tuple[Float64, Float64]:
    """Weights of the rows that splits are chosen on and of those that leaves are filled with."""
    share = options.max_samples
    size = n if share is None else max(1, round(share * n)) if isinstance(share, float) else min(share, n)
    if options.bootstrap:
        weight = np.bincount(rng.integers(0, n, size), minlength=n).astype(np.float64)
    elif size < n:
        weight = np.zeros(n)
        weight[rng.choice(n, size, replace=False)] = 1.0
    else:
        weight = np.ones(n)
    if not options.honest:
        return weight, weight
    rows = rng.permutation(np.flatnonzero(weight))
    if rows.size < 2:
        return weight, weight
    splitting, estimating = weight.copy(), weight.copy()
    splitting[rows[rows.size // 2 :]] = 0.0
    estimating[rows[: rows.size // 2]] = 0.0
    return splitting, estimating


def _grow_one(
    X: Float32, y: Float64, weight: Float64, estimate: Float64, options: GrowOptions, rng: np.random.Generator
) -> Trees:
    rows = np.flatnonzero(weight)
    grow = _by_level if options.split == "level" else _by_cell
    feature, threshold, left, right = grow(X[rows], y[rows], weight[rows], options, rng)
    filling = np.flatnonzero(estimate).astype(np.int32)
    leaf = np.empty(filling.size, dtype=np.int32)
    kernels.leaves_of(X[filling], feature, threshold, left, right, leaf)
    count, root = np.bincount(leaf, minlength=feature.size), 0
    if options.honest:
        # A leaf that no estimating row reaches has nothing to say: its parent's other side answers for it.
        bypass = _bypass(count, feature, left, right)
        left, right, root = bypass[left].astype(np.int32), bypass[right].astype(np.int32), bypass[0]
    by_leaf = np.argsort(leaf, kind="stable")
    sums = np.bincount(leaf, weights=estimate[filling], minlength=feature.size)
    return Trees(
        roots=np.array([root], dtype=np.int64),
        feature=feature,
        threshold=threshold,
        left=left,
        right=right,
        member_start=np.concatenate([[0], np.cumsum(count)]),
        members=filling[by_leaf],
        mass=(estimate[filling] / sums[leaf])[by_leaf].astype(np.float32),
    )


def _by_cell(
    X: Float32, y: Float64, weight: Float64, options: GrowOptions, rng: np.random.Generator
) -> Nodes:
    """Each cell by a feature of its own: Algorithm 10 (Breiman) of the paper's appendix D, by scikit-learn's trees."""
    from sklearn.tree import DecisionTreeRegressor

    grown = DecisionTreeRegressor(
        splitter=options.splitter,
        max_depth=options.max_depth,
        min_samples_leaf=options.min_samples_leaf,
        max_features=n_features_tried(options.max_features, X.shape[1]),
        random_state=int(rng.integers(2**32)),
    )
    nodes = grown.fit(X, y, sample_weight=weight, check_input=False).tree_
    # Rounded down: a float32 value is at most the float32 threshold where it is at most the float64 one.
    threshold = nodes.threshold.astype(np.float32)
    lower = np.nextafter(threshold, np.float32(-np.inf))
    is_leaf = nodes.feature < 0
    return (
        np.where(is_leaf, -1, nodes.feature).astype(np.int32),
        np.where(is_leaf, 0, np.where(threshold > nodes.threshold, lower, threshold)).astype(np.float32),
        np.where(is_leaf, 0, nodes.children_left).astype(np.int32),
        np.where(is_leaf, 0, nodes.children_right).astype(np.int32),
    )


def _by_level(
    X: Float32, y: Float64, weight: Float64, options: GrowOptions, rng: np.random.Generator
) -> Nodes:
    """All cells of a level by one feature: Algorithm 9 (Level-Splits) of the paper's appendix D."""
    d = X.shape[1]
    order = np.argsort(np.ascontiguousarray(X.T), axis=1, kind="stable")
    n_tried = n_features_tried(options.max_features, d)
    feature, threshold, children = [-1], [np.float32(0.0)], [0]
    node, cells = np.zeros(X.shape[0], dtype=np.int64), np.zeros(1, dtype=np.int64)
    level = 0
    while options.max_depth is None or level < options.max_depth:
        level += 1
        cell_of_node = np.full(len(feature), -1)
        cell_of_node[cells] = np.arange(cells.size)
        gains, thresholds = kernels.best_borders(X, order, cell_of_node[node], y, weight, cells.size)
        splits = gains >= 0
        tried = [f for f in rng.permutation(d) if splits[f].any()][:n_tried]
        if not tried:
            break
        best = max(tried, key=lambda f: gains[f, splits[f]].sum())
        # Cells that the level's feature cannot split wait for the next.
        waiting = cells[~splits[best] & splits.any(axis=0)]
        for cell in np.flatnonzero(splits[best]):
            feature[cells[cell]], threshold[cells[cell]] = best, thresholds[best, cell]
            children[cells[cell]] = len(feature)
            feature += [-1, -1]
            threshold += [np.float32(0.0)] * 2
            children += [0, 0]
        cells = np.append(waiting, np.arange(cell_of_node.size, len(feature)))
        is_split = np.asarray(feature)[node] >= 0
        goes_right = X[:, best] > np.asarray(threshold)[node]
        node = np.where(is_split, np.asarray(children)[node] + goes_right, node)
    left = np.asarray(children, dtype=np.int32)
    is_leaf = np.asarray(feature) < 0
    return (
        np.asarray(feature, dtype=np.int32),
        np.asarray(threshold),
        left,
        np.where(is_leaf, 0, left + 1).astype(np.int32),
    )


def _bypass(
    count: Int64, feature: NDArray[np.int32], left: NDArray[np.int32], right: NDArray[np.int32]
) -> Int64:
    """For each node the node that stands in for it: itself, or its one side that rows reach."""
    stand_in = np.arange(feature.size)
    total = count.copy()
    # Children have larger numbers than their parents.
    for node in range(feature.size - 1, -1, -1):
        if feature[node] >= 0:
            a, b = left[node], right[node]
            total[node] = total[a] + total[b]
            if total[a] == 0:
                stand_in[node] = stand_in[b]
            elif total[b] == 0:
                stand_in[node] = stand_in[a]
    return stand_in


def require_trees(trees: Trees, prefix: str) -> None:
    """Refuse a forest without a tree."""
    if not trees.roots.size:
        raise refuse(f"{prefix}roots", None, "has no rows", "one tree at least")


Honest = Annotated[
    bool, Field(description="choose splits on one half of the sample and fill the leaves with the other")
]
MaxSamples = Annotated[
    Annotated[int, Field(ge=1, le=10**9)] | Annotated[float, Field(gt=0.0, le=1.0)] | None,
    Field(description="rows drawn for each tree: a number, a share, or null for as many as there are"),
]
Aggregation = Annotated[
    Literal["mean", "borda", "copeland"],
    Field(description="rank by the mean position in the leaf, or aggregate its rows' pairwise majorities"),
]
TreeSeed = Annotated[RandomState, Field(description="seed; the same seed gives the same model")]
Verbose = Annotated[int, Field(ge=0, le=100, description="1: print a line when a tree finishes")]


class _TreesBase(RankerBase):
    """What tree and forest share."""

    trees_: Annotated[Trees, StateRecord()]
    positions_: Annotated[Float32, Array(shape=("rows", "n_labels"), nan=True)]
    targets_: Annotated[Float64, Array(shape=("rows", "n_labels"))]

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
        keep_arguments(self, locals())

    def _learn(self, X: Float32, rankings: TrainingRankings, random: np.random.RandomState) -> None:
        options = GrowOptions(
            split=self.split,
            max_depth=self.max_depth,
            max_features=self.max_features,
            honest=self.honest,
            max_samples=self.max_samples,
            bootstrap=self.bootstrap,
        )
        seeds = spread_seeds(random, self.n_estimators)
        targets = complete_rankings(X, rankings, spread_seeds(random, 1)[0], self.n_jobs)
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
        return aggregate_shares(self.trees_.votes(X, self.positions_, self.targets_), self.aggregation)

    def _relate(self, file: StoredState) -> None:
        super()._relate(file)
        require_trees(self.trees_, "")


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

    Each node tries a third of the features: as accurate as all of them, in half of the time.

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
        max_features: MaxFeatures = "third",
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
        keep_arguments(self, locals())


TREE = LearnerSpec(
    kind="label-ranking-tree",
    title="Label ranking tree: one regression tree on the labels' positions; fast, small",
    estimator=LabelRankingTree,
    retired={"outputs": "joint"},
    capabilities=frozenset({"rank-labels"}),
    needs="rankings",
)


FOREST = LearnerSpec(
    kind="label-ranking-forest",
    title="Label ranking forest: the mean of many label ranking trees; takes any rankings with little tuning",
    estimator=LabelRankingForest,
    retired={"outputs": "joint"},
    capabilities=frozenset({"rank-labels"}),
    needs="rankings",
)
