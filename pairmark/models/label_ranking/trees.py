"""Grows label ranking trees in parallel, and predicts with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.progress import report
from pairmark.models.core.state import Array, StoredState, refuse, require, require_offsets
from pairmark.models.label_ranking.kernels import levels, reading
from pairmark.models.label_ranking.rankings_data import TrainingRankings, completed_targets

MaxFeatures = int | float | str | None
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

    @classmethod
    def relate(cls, file: StoredState, prefix: str) -> None:
        """Refuse offsets that do not fit, and a node that does not come after its parent: no walk is endless."""
        starts = f"{prefix}member_start"
        require_offsets(starts, file.arrays[starts], file.sizes[f"{prefix}members"], f"{prefix}members")
        feature, left, right = (file.arrays[prefix + name] for name in ("feature", "left", "right"))
        number = np.arange(feature.size)
        for name, child in (("left", left), ("right", right)):
            require((feature < 0) | (child > number), prefix + name, child, "a node after its parent")

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
        reading.mean_targets(X, *self.of(self.roots if roots is None else roots), targets, out)
        return out

    def votes(
        self,
        X: Float32,
        positions: Float32,
        targets: Float64,
        *,
        skip: Bool = NEVER,
    ) -> Float64:
        """Pairwise shares, (n, k, k), see `reading.pair_votes`."""
        k = positions.shape[1]
        out = np.zeros((X.shape[0], k, k))
        nodes = self.of(self.roots)
        reading.pair_votes(X, *nodes, positions, targets, reach_of(k), FAINT, skip, out)
        return out


def grow_trees(
    X: Float32,
    targets: Float64,
    options: GrowOptions,
    seeds: list[int],
    *,
    n_jobs: int | None,
    stage: str,
    span: tuple[float, float] = (0.0, 1.0),
    verbose: int = 0,
    sample_weight: Float64 | None = None,
) -> tuple[Trees, Bool]:
    """Grow a tree for each seed.

    Parameters
    ----------
    targets : (n, k).
    sample_weight : (n,) by which the drawn rows are weighted.
    stage, span : what progress is reported as, and the part of the fit that this is.

    Returns
    -------
    the trees, and (n_seeds, n) which rows each seed's sample held.
    """

    def grow(seed: int) -> tuple[Trees, Bool]:
        rng = np.random.default_rng(seed)
        weight, estimate = _sample(X.shape[0], options, rng)
        if sample_weight is not None:
            weight, estimate = weight * sample_weight, estimate * sample_weight
        return _grow_one(X, targets, weight, estimate, options, rng), (weight > 0) | (estimate > 0)

    results: list[tuple[Trees, Bool]] = []
    for result in in_threads(grow, seeds, n_jobs):
        results.append(result)
        told = f"{stage}: {len(results)} of {len(seeds)}"
        report(span[0] + (span[1] - span[0]) * len(results) / len(seeds), told)
        if verbose:
            print(told)
    return end_to_end([tree for tree, _ in results]), np.stack([in_sample for _, in_sample in results])


def completed(X: Float32, rankings: TrainingRankings, seed: int, n_jobs: int | None) -> Float64:
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


def in_threads(work: Callable[[Any], Any], jobs: Sequence[Any], n_jobs: int | None) -> Iterator[Any]:
    """What ``work`` makes of each job, in order, as soon as it is there."""
    if len(jobs) <= 1 or effective_n_jobs(n_jobs) == 1:
        return map(work, jobs)
    results: Iterator[Any] = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(
        delayed(work)(job) for job in jobs
    )
    return results


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


def reach_of(k: int) -> float:
    """Difference of two of k labels' targets that counts as certain."""
    return float(max(2, k) - 1)


def resolved_features(max_features: MaxFeatures, n_features: int) -> int:
    """How many features a cell tries."""
    if max_features is None:
        return n_features
    if isinstance(max_features, str):
        shares = {
            "sqrt": math.isqrt(n_features),
            "log2": int(math.log2(n_features)),
            "third": -(-n_features // 3),
        }
        return max(1, shares[max_features])
    if isinstance(max_features, float):
        return max(1, round(max_features * n_features))
    return min(int(max_features), n_features)


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
    reading.leaves_of(X[filling], feature, threshold, left, right, leaf)
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
        max_features=resolved_features(options.max_features, X.shape[1]),
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
    n_tried = resolved_features(options.max_features, d)
    feature, threshold, children = [-1], [np.float32(0.0)], [0]
    node, cells = np.zeros(X.shape[0], dtype=np.int64), np.zeros(1, dtype=np.int64)
    level = 0
    while options.max_depth is None or level < options.max_depth:
        level += 1
        cell_of_node = np.full(len(feature), -1)
        cell_of_node[cells] = np.arange(cells.size)
        gains, thresholds = levels.best_borders(X, order, cell_of_node[node], y, weight, cells.size)
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


def require_trees(file: StoredState, prefix: str) -> None:
    """Refuse a forest without a tree."""
    if not file.sizes[f"{prefix}trees"]:
        raise refuse(f"{prefix}roots", None, "has no rows", "one tree at least")
