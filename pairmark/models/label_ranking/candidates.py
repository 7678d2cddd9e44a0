"""The rankers that `LabelRankingAuto` chooses among: each learns from canonical rankings and answers pairwise shares.

A candidate is data: `fit` makes it, `shares` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.schema import Array, StoredState, refuse
from pairmark.models.core.state import StateRecord
from pairmark.models.evaluation.rankings import pairwise_shares
from pairmark.models.label_ranking.kernels.reading import neighbour_votes
from pairmark.models.label_ranking.pair_models import LogisticPairs, problems_of, square, standard
from pairmark.models.label_ranking.rankings_data import completed_targets
from pairmark.models.label_ranking.trees import FAINT, GrowOptions, Trees, end_to_end, grow_trees, reach_of

_MAX_SIGN_PAIRS = 600


@dataclass(frozen=True, kw_only=True)
class Examples:
    """What candidates learn from: positions (NaN = absent) and completed targets, in canonical label order."""

    X: Float32
    positions: Float32
    targets: Float64

    def part(self, rows: NDArray[np.intp]) -> Examples:
        return Examples(X=self.X[rows], positions=self.positions[rows], targets=self.targets[rows])


@dataclass(frozen=True, kw_only=True)
class ConstantCandidate:
    """What all rows have in common, whatever their features: nothing beats it where features tell next to nothing."""

    before: Annotated[Float64, Array(shape=("n_labels", "n_labels"), low=0, high=1)]

    def shares(self, X: Float32) -> Float64:
        return np.broadcast_to(self.before, (X.shape[0], *self.before.shape))

    @classmethod
    def fit(cls, data: Examples, seed: int, n_jobs: int | None) -> ConstantCandidate:
        # Two labels that no row shows together say nothing of each other: even.
        return cls(before=np.nan_to_num(pairwise_shares(data.positions), nan=0.5))


@dataclass(frozen=True, kw_only=True)
class ForestCandidate:
    """Forest of best or of random borders, read by its leaves' pairwise votes."""

    trees: Annotated[Trees, StateRecord()]
    positions: Annotated[Float32, Array(shape=("rows", "n_labels"), nan=True)]
    targets: Annotated[Float64, Array(shape=("rows", "n_labels"))]

    @classmethod
    def relate(cls, file: StoredState, prefix: str) -> None:
        """Refuse a forest without a tree."""
        _require_trees(file, prefix)

    def shares(self, X: Float32) -> Float64:
        return self.trees.votes(X, self.positions, self.targets)

    @classmethod
    def fit(cls, data: Examples, seed: int, n_jobs: int | None, *, random: bool = False) -> ForestCandidate:
        options = GrowOptions(
            splitter="random" if random else "best",
            max_features=None if random else "third",
            bootstrap=not random,
        )
        seeds = [int(s) for s in np.random.default_rng(seed).integers(0, 2**62, 100)]
        trees, _ = grow_trees(data.X, [data.targets], options, seeds, n_jobs=n_jobs, stage="")
        return cls(trees=trees, positions=data.positions, targets=data.targets)


@dataclass(frozen=True, kw_only=True)
class BoostedCandidate:
    """Gradient boosting of positions by shallow trees on all labels at once (Friedman 2001, squared error).

    Attributes
    ----------
    values : (n_leaves, k) steps of the leaves; each leaf has one member, which points here.
    """

    rounds: ClassVar[int] = 150
    rate: ClassVar[float] = 0.1

    trees: Annotated[Trees, StateRecord()]
    values: Annotated[Float64, Array(shape=("rows", "n_labels"))]
    base: Annotated[Float64, Array(shape=("n_labels",))]

    @classmethod
    def relate(cls, file: StoredState, prefix: str) -> None:
        """Refuse a forest without a tree."""
        _require_trees(file, prefix)

    def shares(self, X: Float32) -> Float64:
        return gap_shares(self.base + self.trees.means(X, self.values) * self.trees.roots.size)

    @classmethod
    def fit(cls, data: Examples, seed: int, n_jobs: int | None) -> BoostedCandidate:
        options = GrowOptions(
            max_depth=6,
            min_samples_leaf=3,
            max_features="third" if data.X.shape[1] > 8 else None,
            max_samples=0.7,
        )
        rng = np.random.default_rng(seed)
        base = data.targets.mean(axis=0)
        current = np.broadcast_to(base, data.targets.shape).copy()
        forests, values = [], []
        for _ in range(cls.rounds):
            residual = data.targets - current
            trees, _ = grow_trees(
                data.X, [residual], options, [int(rng.integers(0, 2**62))], n_jobs=1, stage=""
            )
            leaves = np.flatnonzero(np.diff(trees.member_start))
            owner = np.repeat(np.arange(leaves.size), np.diff(trees.member_start)[leaves])
            step = np.zeros((leaves.size, residual.shape[1]))
            np.add.at(step, owner, residual[trees.members] * trees.mass[:, None])
            step *= cls.rate
            forest = _single_members(trees, leaves)
            current += forest.means(data.X, step)
            forests.append(forest)
            values.append(step)
        return cls(
            trees=end_to_end(forests, [len(step) for step in values]),
            values=np.concatenate(values),
            base=base,
        )


@dataclass(frozen=True, kw_only=True)
class NeighbourCandidate:
    """The votes of the nearest rows in standardised features; how many is chosen leaving one out."""

    numbers: ClassVar[tuple[int, ...]] = (1, 3, 5, 10, 20, 40)

    points: Annotated[Float64, Array(shape=("rows", "features"))]
    mean: Annotated[Float64, Array(shape=("features",))]
    scale: Annotated[Float64, Array(shape=("features",), positive=True)]
    positions: Annotated[Float32, Array(shape=("rows", "n_labels"), nan=True)]
    targets: Annotated[Float64, Array(shape=("rows", "n_labels"))]
    n_neighbours: Annotated[Int64, Array(shape=(), low=1)]

    @classmethod
    def relate(cls, file: StoredState, prefix: str) -> None:
        """Refuse more neighbours than there are rows."""
        n, n_rows = file.arrays[f"{prefix}n_neighbours"], file.sizes[f"{prefix}rows"]
        if n > n_rows:
            raise refuse(f"{prefix}n_neighbours", None, f"is {n}", f"at most {n_rows}")

    def shares(self, X: Float32) -> Float64:
        from sklearn.neighbors import NearestNeighbors

        near = NearestNeighbors(n_neighbors=int(self.n_neighbours)).fit(self.points)
        _, neighbours = near.kneighbors((X - self.mean) / self.scale)
        return _votes(neighbours, self.positions, self.targets)

    @classmethod
    def fit(cls, data: Examples, seed: int, n_jobs: int | None) -> NeighbourCandidate:
        from sklearn.neighbors import NearestNeighbors

        mean, scale = standard(data.X)
        points = (data.X - mean) / scale
        n = len(points)
        highest = min(max(cls.numbers), n - 1)
        best, best_number = -np.inf, 1
        if highest >= 1:
            judge_rows = np.random.default_rng(seed).permutation(n)[:2_000]
            neighbours = _other_neighbours(
                NearestNeighbors(n_neighbors=highest + 1).fit(points), points, judge_rows
            )
            for number in cls.numbers:
                if number > highest:
                    break
                votes = _votes(neighbours[:, :number], data.positions, data.targets)
                agreement = pair_agreement(votes, data.positions[judge_rows])
                if agreement > best + 1e-12:
                    best, best_number = agreement, number
        return cls(
            points=points,
            mean=mean,
            scale=scale,
            positions=data.positions,
            targets=data.targets,
            n_neighbours=np.array(best_number),
        )


@dataclass(frozen=True, kw_only=True)
class KernelCandidate:
    """Kernel ridge regression of the pairs' signs (of positions where there are very many pairs).

    A Gaussian kernel on standardised features, through landmarks drawn from the rows (Nystroem); its width and the
    ridge are chosen by the exact leave-one-out predictions of the linear problem on landmarks.
    """

    landmarks: ClassVar[int] = 600
    widths: ClassVar[tuple[float, ...]] = (0.03, 0.1, 0.3, 1.0, 3.0)
    ridges: ClassVar[tuple[float, ...]] = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)

    centres: Annotated[Float64, Array(shape=("centres", "features"))]
    mean: Annotated[Float64, Array(shape=("features",))]
    scale: Annotated[Float64, Array(shape=("features",), positive=True)]
    gamma: Annotated[Float64, Array(shape=(), low=0)]
    coef: Annotated[Float64, Array(shape=("centres", "outputs"))]
    base: Annotated[Float64, Array(shape=("outputs",))]
    k: Annotated[Int64, Array(shape=())]

    @classmethod
    def relate(cls, file: StoredState, prefix: str) -> None:
        """Refuse outputs that are neither of labels nor of their pairs."""
        _require_k(file, prefix)
        n, sizes = file.sizes[f"{prefix}outputs"], (file.facts.n_labels, file.sizes["pairs"])
        if n not in sizes:
            raise refuse(f"{prefix}base", None, f"has {n} rows", f"{sizes[0]} or {sizes[1]}")

    def shares(self, X: Float32) -> Float64:
        from scipy.spatial.distance import cdist

        points = (X - self.mean) / self.scale
        kernel = np.exp(-float(self.gamma) * cdist(points, self.centres, "sqeuclidean"))
        return _shares_of_output(kernel @ self.coef + self.base, int(self.k))

    @classmethod
    def fit(cls, data: Examples, seed: int, n_jobs: int | None) -> KernelCandidate:
        from scipy.spatial.distance import cdist, pdist

        n, k = data.targets.shape
        rng = np.random.default_rng(seed)
        mean, scale = standard(data.X)
        points = (data.X - mean) / scale
        centres = points[np.sort(rng.permutation(n)[: cls.landmarks])]
        output = _kernel_output(data)
        base = output.mean(axis=0)
        centred = output - base
        sample = centres[: min(len(centres), 300)]
        typical = float(np.median(pdist(sample, "sqeuclidean"))) if len(sample) > 1 else 1.0
        distances = cdist(points, centres, "sqeuclidean")
        inner = cdist(centres, centres, "sqeuclidean")
        judge_rows = rng.permutation(n)[:2_000]
        best: tuple[float, float, Float64] | None = None
        for width in cls.widths:
            gamma = width / max(typical, 1e-12)
            values, vectors = np.linalg.eigh(np.exp(-gamma * inner))
            keep = values > 1e-8 * values[-1]
            root = vectors[:, keep] / np.sqrt(values[keep])
            phi = np.exp(-gamma * distances) @ root
            spectrum, rotation = np.linalg.eigh(phi.T @ phi)
            rotated = phi @ rotation
            projected = rotated.T @ centred
            for ridge in cls.ridges:
                shrink = 1.0 / (np.maximum(spectrum, 0.0) + ridge)
                part = rotated[judge_rows]
                estimates = part @ (shrink[:, None] * projected)
                leverage = np.minimum(np.einsum("ij,j,ij->i", part, shrink, part), 1.0 - 1e-9)
                left_out = centred[judge_rows] - (centred[judge_rows] - estimates) / (1.0 - leverage)[:, None]
                votes = _shares_of_output(left_out + base, k)
                agreement = pair_agreement(votes, data.positions[judge_rows])
                if best is None or agreement > best[0] + 1e-12:
                    best = (agreement, gamma, root @ (rotation @ (shrink[:, None] * projected)))
        assert best is not None
        return cls(
            centres=centres,
            mean=mean,
            scale=scale,
            gamma=np.array(best[1]),
            coef=best[2],
            base=base,
            k=np.array(k),
        )


@dataclass(frozen=True, kw_only=True)
class LogisticCandidate:
    """A logistic regression a pair."""

    models: Annotated[LogisticPairs, StateRecord()]
    modelled: Annotated[Int64, Array(shape=("models",), below="pairs", order="rising")]
    constant: Annotated[Float64, Array(shape=("pairs",), low=0, high=1)]
    k: Annotated[Int64, Array(shape=())]

    @classmethod
    def relate(cls, file: StoredState, prefix: str) -> None:
        """Refuse another number of labels."""
        _require_k(file, prefix)

    def shares(self, X: Float32) -> Float64:
        return square(self.models.shares(X, 1), self.modelled, self.constant, int(self.k))

    @classmethod
    def fit(cls, data: Examples, seed: int, n_jobs: int | None) -> LogisticCandidate:
        problems = problems_of(data.positions, np.ones(len(data.X)))
        constant = np.array([problem.share() for problem in problems])
        modelled = np.flatnonzero([not problem.one_sided for problem in problems])
        models = LogisticPairs.fit(data.X, [problems[at] for at in modelled], n_jobs, "")
        return cls(models=models, modelled=modelled, constant=constant, k=np.array(data.positions.shape[1]))


Candidate = (
    ConstantCandidate
    | ForestCandidate
    | BoostedCandidate
    | NeighbourCandidate
    | KernelCandidate
    | LogisticCandidate
)
"""Its ``shares``: how surely the first label comes before the second, (n, k, k), the diagonal 0."""
CandidateName = Literal["constant", "extra-trees", "forest", "neighbours", "kernel", "boosting", "logistic"]
CANDIDATE_CLASSES: dict[str, Any] = {
    "constant": ConstantCandidate,
    "extra-trees": ForestCandidate,
    "forest": ForestCandidate,
    "neighbours": NeighbourCandidate,
    "kernel": KernelCandidate,
    "boosting": BoostedCandidate,
    "logistic": LogisticCandidate,
}


def fit_candidate(name: str, data: Examples, seed: int, n_jobs: int | None) -> Candidate:
    options = {"random": True} if name == "extra-trees" else {}
    candidate: Candidate = CANDIDATE_CLASSES[name].fit(data, seed, n_jobs, **options)
    return candidate


def _require_trees(file: StoredState, prefix: str) -> None:
    if not file.sizes[f"{prefix}trees"]:
        raise refuse(f"{prefix}roots", None, "has no rows", "one tree at least")


def _require_k(file: StoredState, prefix: str) -> None:
    k = file.arrays[f"{prefix}k"]
    if k != file.facts.n_labels:
        raise refuse(f"{prefix}k", None, f"is {k}", f"{file.facts.n_labels}, the number of labels")


def completed_examples(X: Float32, positions: Float32, shares: Float64) -> Examples:
    """Examples whose absent labels are filled by their neighbours' votes, and by ``shares`` where those are silent."""
    targets = completed_targets(positions, shares)
    if np.isnan(positions).any() and len(X) > 2:
        from sklearn.neighbors import NearestNeighbors

        mean, scale = standard(X)
        points = (X - mean) / scale
        k = positions.shape[1]
        near = NearestNeighbors(n_neighbors=min(21, len(X))).fit(points)
        completed = np.empty_like(targets)
        block = max(1, 8_000_000 // (k * k))
        for start in range(0, len(X), block):
            rows = np.arange(start, min(len(X), start + block))
            votes = _votes(_other_neighbours(near, points, rows), positions, targets)
            completed[rows] = completed_targets(positions[rows], votes)
        targets = completed
    return Examples(X=X, positions=positions, targets=targets)


def _other_neighbours(near: Any, points: Float64, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The neighbours of rows of ``points`` but themselves: a row is its own, unless as many twins hide it."""
    numbers = near.kneighbors(points[rows])[1]
    return np.array([row[row != own][: near.n_neighbors - 1] for row, own in zip(numbers, rows, strict=True)])


def gap_shares(positions: Float64) -> Float64:
    """Shares by a logistic curve over the gap between expected (doubled, centred) positions."""
    k = positions.shape[1]
    before = 0.5 * (1.0 + np.tanh(0.5 * (positions[:, None, :] - positions[:, :, None])))
    before[:, np.arange(k), np.arange(k)] = 0.0
    return np.asarray(before)


def pair_agreement(before: Float64, positions: Float32) -> float:
    """Mean share of shown, untied pairs that Borda on ``before`` orders right, of the rows of ``positions``."""
    scores = before.sum(axis=2)
    difference = positions[:, None, :] - positions[:, :, None]
    lead = scores[:, :, None] - scores[:, None, :]
    is_ordered = np.isfinite(difference) & (difference != 0)
    if not is_ordered.any():
        return 0.0
    return float(np.sign(lead[is_ordered] * difference[is_ordered]).mean())


def _votes(neighbours: NDArray[Any], positions: Float32, targets: Float64) -> Float64:
    k = positions.shape[1]
    out = np.zeros((neighbours.shape[0], k, k))
    neighbour_votes(
        np.ascontiguousarray(neighbours, dtype=np.int64), positions, targets, reach_of(k), FAINT, out
    )
    return out


def _kernel_output(data: Examples) -> Float64:
    k = data.targets.shape[1]
    i, j = np.triu_indices(k, 1)
    if i.size > _MAX_SIGN_PAIRS:
        return data.targets
    sign = np.sign(data.positions[:, j] - data.positions[:, i]).astype(np.float64)
    guess = np.clip((data.targets[:, j] - data.targets[:, i]) / (k - 1 if k > 2 else 1), -1.0, 1.0)
    return np.where(np.isnan(sign), guess, sign)


def _shares_of_output(output: Float64, k: int) -> Float64:
    if output.shape[1] == k * (k - 1) // 2 and output.shape[1] <= _MAX_SIGN_PAIRS:
        pairs = np.arange(output.shape[1])
        return square(0.5 + 0.5 * output, pairs, np.zeros(pairs.size), k)
    return gap_shares(output)


def _single_members(trees: Trees, leaves: NDArray[np.intp]) -> Trees:
    """The same trees with one member a leaf: the leaf's place among ``leaves``."""
    count = np.zeros(trees.feature.size, dtype=np.int64)
    count[leaves] = 1
    return replace(
        trees,
        member_start=np.concatenate([[0], np.cumsum(count)]),
        members=np.arange(leaves.size, dtype=np.int32),
        mass=np.ones(leaves.size, dtype=np.float32),
    )
