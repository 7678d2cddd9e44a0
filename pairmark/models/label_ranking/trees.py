"""Grows label ranking trees in parallel, and predicts with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from threading import Event
from typing import Annotated, Any, Literal

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.progress import report
from pairmark.models.core.schema import Array, StoredState, refuse, require, require_offsets
from pairmark.models.label_ranking.kernels import growing, reading

MaxFeatures = int | float | str | None
NEVER = np.zeros((0, 0), dtype=np.bool_)
"""No tree is skipped."""

_ROWS_PER_THREAD = 2_048
_DEEPEST = 100_000
"""Levels that are walked to find out which nodes can be reached."""
FAINT = 0.05
"""Weight of a vote by completed targets beside one by an order that was seen."""


@dataclass(frozen=True, kw_only=True)
class GrowOptions:
    """How one tree is grown; names are those of `LabelRankingForest`.

    ``splitter`` : the best border of each feature, or one at random. ``min_samples_leaf`` : rows a leaf holds at least.
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
        feature, left, right, roots = (
            file.arrays[prefix + name] for name in ("feature", "left", "right", "roots")
        )
        number = np.arange(feature.size)
        bad = (feature >= 0) & ((left <= number) | (right <= number))
        if not bad.any():
            return
        # Nodes that nothing leads to are never read; earlier versions left some behind.
        bad &= _reached(feature, left, right, roots)
        for name, child in (("left", left), ("right", right)):
            require(~bad | (child > number), prefix + name, child, "a node after its parent")

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

    def means(
        self,
        X: Float32,
        targets: Float64,
        *,
        roots: Int64 | None = None,
        skip: Bool = NEVER,
        n_threads: int = 1,
    ) -> Float64:
        """Mean targets of the rows' leaves over the trees, (n, k)."""
        out = np.zeros((X.shape[0], targets.shape[1]))
        nodes = self.of(self.roots if roots is None else roots)

        def read(rows: slice) -> None:
            reading.mean_targets(X[rows], *nodes, targets, skip[:, rows], out[rows])

        _in_parts(read, X.shape[0], n_threads)
        return out

    def votes(
        self,
        X: Float32,
        positions: Float32,
        targets: Float64,
        *,
        skip: Bool = NEVER,
        n_threads: int = 1,
    ) -> Float64:
        """Pairwise shares, (n, k, k), see `reading.pair_votes`."""
        k = positions.shape[1]
        out = np.zeros((X.shape[0], k, k))
        nodes = self.of(self.roots)

        def read(rows: slice) -> None:
            reading.pair_votes(
                X[rows], *nodes, positions, targets, reach_of(k), FAINT, skip[:, rows], out[rows]
            )

        _in_parts(read, X.shape[0], n_threads)
        return out


def grow_trees(
    X: Float32,
    targets: list[Float64],
    options: GrowOptions,
    seeds: list[int],
    *,
    n_jobs: int | None,
    stage: str,
    span: tuple[float, float] = (0.0, 1.0),
    verbose: int = 0,
    sample_weight: Float64 | None = None,
) -> tuple[Trees, Bool]:
    """Grow a tree for each seed and each array of targets.

    Parameters
    ----------
    targets : one (n, k) array for joint trees, or one (n, 1) array a label; trees of one seed share their sample
        and stand next to each other.
    sample_weight : (n,) by which the drawn rows are weighted.
    stage, span : what progress is reported as, and the part of the fit that this is.

    Returns
    -------
    the trees, and (n_seeds, n) which rows each seed's sample held.
    """
    order = np.argsort(np.ascontiguousarray(X.T), axis=1, kind="stable").astype(np.int32)
    norms = [np.einsum("ij,ij->i", y, y) for y in targets]
    stop = Event()

    def grow(seed: int) -> tuple[list[Trees], Bool] | None:
        if stop.is_set():
            return None
        rng = np.random.default_rng(seed)
        weight, estimate = _sample(X.shape[0], options, rng)
        if sample_weight is not None:
            weight, estimate = weight * sample_weight, estimate * sample_weight
        trees = [
            _grow_one(X, order, y, norm, weight, estimate, options, int(rng.integers(0, 2**63 - 1)))
            for y, norm in zip(targets, norms, strict=True)
        ]
        return trees, (weight > 0) | (estimate > 0)

    results: list[tuple[list[Trees], Bool]] = []
    seeds_done = in_threads(grow, seeds, n_jobs)
    try:
        for result in seeds_done:
            results.append(result)
            report(
                span[0] + (span[1] - span[0]) * len(results) / len(seeds),
                f"{stage}: {len(results)} of {len(seeds)}",
            )
            if verbose:
                print(f"{stage}: {len(results)} of {len(seeds)}")
    except BaseException:
        # Abandoned: let the threads run out of work before going on, instead of behind the caller's back.
        stop.set()
        for _ in seeds_done:
            pass
        raise
    trees = end_to_end([tree for own, _ in results for tree in own])
    return trees, np.stack([in_sample for _, in_sample in results])


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


def n_threads_of(n_jobs: int | None, n_rows: int) -> int:
    # Asking joblib costs more than reading a row.
    return 1 if n_jobs is None or n_rows <= _ROWS_PER_THREAD else int(effective_n_jobs(n_jobs))


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
    X: Float32,
    order: NDArray[np.int32],
    y: Float64,
    norm: Float64,
    weight: Float64,
    estimate: Float64,
    options: GrowOptions,
    seed: int,
) -> Trees:
    own = np.empty((order.shape[0], np.count_nonzero(weight)), dtype=np.int32)
    growing.sampled_order(order, weight, own)
    depth = np.iinfo(np.int64).max if options.max_depth is None else options.max_depth
    n_features = resolved_features(options.max_features, X.shape[1])
    limits = (X, own, y, norm, weight, depth, options.min_samples_leaf, n_features)
    if options.split == "level":
        feature, threshold, left, right = growing.grow_by_level(*limits, np.uint64(seed))
    else:
        splitter = growing.RANDOM if options.splitter == "random" else growing.BEST
        feature, threshold, left, right = growing.grow_by_cell(*limits, splitter, np.uint64(seed))
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


def _reached(feature: NDArray[Any], left: NDArray[Any], right: NDArray[Any], roots: Int64) -> Bool:
    reached = np.zeros(feature.size, dtype=np.bool_)
    level = np.unique(roots)
    for _ in range(_DEEPEST):
        level = level[~reached[level]]
        if not level.size:
            return reached
        reached[level] = True
        level = level[feature[level] >= 0]
        level = np.unique(np.concatenate([left[level], right[level]]))
    raise refuse("left", None, f"leads down more than {_DEEPEST} levels", "fewer")


def _in_parts(read: Callable[[slice], None], n: int, n_threads: int) -> None:
    n_parts = min(n_threads, -(-n // _ROWS_PER_THREAD))
    if n_parts <= 1:
        read(slice(0, n))
        return
    edges = np.linspace(0, n, n_parts + 1).astype(int)
    Parallel(n_jobs=n_parts, prefer="threads")(delayed(read)(slice(a, b)) for a, b in pairwise(edges))
