"""LeafRank by any weighted classifier: each cell of a tree is split by what the classifier says of f.

The classifier meets the pairs of one cell only, under weights that balance both kinds within the cell (Clemencon &
Vogel, "Symmetric LeafRank"). Where a cell's features would take more than `FIT_VALUES` numbers, it learns from as many
of its pairs as fit, drawn evenly from both kinds; all of them are then parted, in blocks.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from models.base import Float32
from models.pairs import PairMap, pair_features
from models.similarity import kernels, scoring_kernels
from models.similarity.trees import Tree, WeightedPairs

FIT_VALUES = 2**24
"""Most numbers of f that are written out at a time: 64 MiB."""


def checked_leaf_rank(leaf_rank: Any) -> None:
    """Whether a LeafRank given as an object can split cells.

    Raises
    ------
    ValueError
        When it is neither ``cart`` nor ``linear`` nor a classifier whose ``fit`` takes ``sample_weight``.
    """
    if leaf_rank in ("cart", "linear"):
        return
    if not (hasattr(leaf_rank, "fit") and hasattr(leaf_rank, "predict") and hasattr(leaf_rank, "get_params")):
        raise ValueError(
            f"leaf_rank is {leaf_rank!r}; expected 'cart', 'linear' or a scikit-learn classifier that is not fitted"
        )
    if not has_fit_parameter(leaf_rank, "sample_weight"):
        raise ValueError(
            f"leaf_rank is a {type(leaf_rank).__name__}, whose fit takes no sample_weight; expected one that does, "
            "for both kinds of pair must weigh alike in a cell"
        )


def grow_by_classifier(
    X: Float32,
    pairs: WeightedPairs,
    leaf_rank: Any,
    *,
    pair_map: PairMap,
    max_depth: int,
    n_tried: int,
    seed: int,
) -> Tree:
    """Grow a tree whose cells are split by ``linear`` or by clones of a classifier.

    ``n_tried`` : features drawn for each cell; each brings its two pair features. Learned ones always enter.
    """
    rng = np.random.default_rng(seed)
    d = X.shape[1]
    features = _Features(X, pairs, pair_map)
    weight = pairs.pairs[2].astype(np.int64)
    n = weight.size
    cells: list[list[int]] = [
        [0, 0, -1, int(weight[: pairs.n_same].sum()), int(weight[pairs.n_same :].sum()), -1, -1]
    ]
    planes: list[Float32] = []
    offsets: list[float] = []
    rules: list[tuple[NDArray[np.int64], Any]] = []
    nodes: list[tuple[int, float, int, int]] = []
    todo = [(0, np.arange(n))]
    while todo:
        cell, members = todo.pop()
        depth, position, _, n_same, n_different = cells[cell][:5]
        if depth >= max_depth or not n_same or not n_different:
            continue
        columns = np.sort(rng.choice(d, n_tried, replace=False)) if n_tried < d else np.arange(d)
        columns = np.concatenate([columns, d + columns, 2 * d + np.arange(features.n_learned)])
        fitted = _fitted(leaf_rank, features, members, columns, n_same, n_different, rng)
        if fitted is None:
            continue
        left = np.empty(members.size, dtype=np.bool_)
        block = max(1, FIT_VALUES // features.width)
        for start in range(0, members.size, block):
            f = features.of(members[start : start + block])
            left[start : start + block] = decide(f, *fitted)
        same = members < pairs.n_same
        left_same, left_different = (
            int(weight[members[left & same]].sum()),
            int(weight[members[left & ~same]].sum()),
        )
        if left_same * n_different <= left_different * n_same:
            continue
        number = len(cells)
        cells[cell][2], cells[cell][5], cells[cell][6] = len(nodes), number, number + 1
        cells.append([depth + 1, 2 * position, -1, left_same, left_different, -1, -1])
        cells.append(
            [depth + 1, 2 * position + 1, -1, n_same - left_same, n_different - left_different, -1, -1]
        )
        split = len(nodes)
        if fitted[0].dtype == np.float32:
            planes.append(fitted[0])
            offsets.append(float(fitted[1]))
            # Above the plane's threshold lies the left child: the more similar side.
            nodes.append((-1 - split, offsets[-1], -1 - (number + 1), -1 - number))
        else:
            rules.append(fitted)
            nodes.append((-1 - split, 0.5, -1 - (number + 1), -1 - number))
        todo += [(number + 1, members[~left]), (number, members[left])]
    table = np.array(nodes, dtype=np.float64).reshape(-1, 4)
    return Tree(
        cells=np.array(cells, dtype=np.int64),
        node_feature=table[:, 0].astype(np.int32),
        node_threshold=table[:, 1].astype(np.float32),
        node_low=table[:, 2].astype(np.int32),
        node_high=table[:, 3].astype(np.int32),
        planes=np.array(planes, dtype=np.float32).reshape(-1, features.width),
        rules=tuple(rules),
    )


def decide(f: Float32, first: Any, second: Any) -> NDArray[np.bool_]:
    """Whether pairs of features f go left: above a plane (weights, threshold), or by a classifier (columns, it)."""
    if first.dtype == np.float32:
        values = np.empty(f.shape[0], dtype=np.float32)
        scoring_kernels.plane_values(f, first, values)
        return np.asarray(values > np.float32(second), dtype=np.bool_)
    columns, classifier = first, second
    return np.asarray(classifier.predict(f[:, columns]), dtype=np.bool_)


class _Features:
    """f of some of the pairs, written out on demand."""

    def __init__(self, X: Float32, pairs: WeightedPairs, pair_map: PairMap) -> None:
        self._X, self._pairs, self._map = X, pairs, pair_map
        self.n_same = pairs.n_same
        self.n_learned = 0 if pairs.learned is None else pairs.learned.shape[1]
        self.width = 2 * X.shape[1] + self.n_learned

    def of(self, members: NDArray[np.int64]) -> Float32:
        """(n, width) float32."""
        table = self._pairs.pairs
        f = pair_features(self._X[table[0, members]], self._X[table[1, members]], self._map)
        if self._pairs.learned is None:
            return f
        return np.hstack([f, self._pairs.learned[table[3, members]]])

    def weights(self, members: NDArray[np.int64]) -> NDArray[np.float64]:
        """Weights of pairs, as given."""
        return np.asarray(self._pairs.pairs[2, members], dtype=np.float64)


def _fitted(
    leaf_rank: Any,
    features: _Features,
    members: NDArray[np.int64],
    columns: NDArray[np.int64],
    n_same: int,
    n_different: int,
    rng: np.random.Generator,
) -> tuple[Any, Any] | None:
    """A plane (weights over all of f, threshold) or (columns, classifier); None where there is nothing to learn."""
    most = max(16, FIT_VALUES // features.width)
    if members.size > most:
        kinds = members[members < features.n_same], members[members >= features.n_same]
        smaller = min(kinds[0].size, kinds[1].size, most // 2)
        takes = [smaller if kind.size == smaller else min(kind.size, most - smaller) for kind in kinds]
        members = np.concatenate(
            [np.sort(rng.choice(kind, take, replace=False)) for kind, take in zip(kinds, takes, strict=True)]
        )
    same = members < features.n_same
    f = features.of(members)[:, columns]
    cost = features.weights(members)
    cost = np.where(same, cost / cost[same].sum(), cost / cost[~same].sum()) * members.size / 2
    if leaf_rank != "linear":
        classifier = clone(leaf_rank)
        if "random_state" in classifier.get_params():
            classifier.set_params(random_state=int(rng.integers(2**31)))
        return columns, classifier.fit(f, same, sample_weight=cost)
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    f = f.astype(np.float64)
    mean, deviation = f.mean(axis=0), f.std(axis=0)
    moving = deviation > 1e-9 * (1.0 + np.abs(mean))
    if not moving.any():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        plane = LogisticRegression(C=1.0, max_iter=100).fit(
            (f[:, moving] - mean[moving]) / deviation[moving], same, sample_weight=cost
        )
    weights = np.zeros(features.width)
    weights[columns[moving]] = plane.coef_[0] / deviation[moving]
    threshold = float((plane.coef_[0] * mean[moving] / deviation[moving]).sum() - plane.intercept_[0])
    # Comparisons are made in float32; a common factor keeps weights and sums well inside its range.
    factor = 1.0 / max(float(np.abs(weights).max()), 1e-300)
    return (weights * factor).astype(np.float32), threshold * factor


def sums_by_rule(
    trees: list[Tree],
    values: list[NDArray[np.float64]],
    left: Float32,
    right: Float32,
    pair_map: PairMap,
    learned: Float32 | None,
) -> NDArray[np.float64]:
    """Sum of leaf values over trees that classifiers split, cell by cell."""
    n = left.shape[0]
    total = np.zeros(n)
    width = 2 * left.shape[1] + (0 if learned is None else learned.shape[1])
    block = max(1, FIT_VALUES // width)
    for start in range(0, n, block):
        stop = min(start + block, n)
        f = pair_features(left[start:stop], right[start:stop], pair_map)
        if learned is not None:
            f = np.hstack([f, learned[start:stop]])
        for tree, value in zip(trees, values, strict=True):
            of_cell = dict(zip(tree.leaves.tolist(), value.tolist(), strict=True))
            todo = [(0, np.arange(stop - start))]
            while todo:
                cell, members = todo.pop()
                node = int(tree.cells[cell, kernels.CELL_NODE])
                if node < 0 or not members.size:
                    total[start + members] += of_cell.get(cell, 0.0)
                    continue
                goes = decide(f[members], *tree.rules[node])
                todo.append((int(tree.cells[cell, kernels.CELL_LEFT]), members[goes]))
                todo.append((int(tree.cells[cell, kernels.CELL_RIGHT]), members[~goes]))
    return total
