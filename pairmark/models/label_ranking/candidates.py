"""The rankers that `LabelRankingAuto` chooses among: each learns from canonical rankings and answers pairwise shares.

A candidate is data: `fit` makes it, `shares` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.schema import Array, StoredState, refuse
from pairmark.models.core.state import StateRecord
from pairmark.models.evaluation.rankings import pairwise_shares
from pairmark.models.label_ranking.kernels.reading import neighbour_votes
from pairmark.models.label_ranking.pair_models import LogisticPairs, problems_of, square, standard
from pairmark.models.label_ranking.trees import FAINT, GrowOptions, Trees, grow_trees, reach_of, require_trees


@dataclass(frozen=True, kw_only=True)
class Examples:
    """What candidates learn from: positions (NaN = absent) and completed targets, in canonical label order."""

    X: Float32
    positions: Float32
    targets: Float64


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
        require_trees(file, prefix)

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
        trees, _ = grow_trees(data.X, data.targets, options, seeds, n_jobs=n_jobs, stage="")
        return cls(trees=trees, positions=data.positions, targets=data.targets)


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
            neighbours = _other_neighbors(
                NearestNeighbors(n_neighbors=highest + 1).fit(points), points, judge_rows
            )
            for number in cls.numbers:
                if number > highest:
                    break
                before = _votes(neighbours[:, :number], data.positions, data.targets)
                agreement = pair_agreement(before, data.positions[judge_rows])
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
        return square(self.models.shares(X), self.modelled, self.constant, int(self.k))

    @classmethod
    def fit(cls, data: Examples, seed: int, n_jobs: int | None) -> LogisticCandidate:
        problems = problems_of(data.positions, np.ones(len(data.X)))
        constant = np.array([problem.share() for problem in problems])
        modelled = np.flatnonzero([not problem.one_sided for problem in problems])
        models = LogisticPairs.fit(data.X, [problems[at] for at in modelled], n_jobs, "")
        return cls(models=models, modelled=modelled, constant=constant, k=np.array(data.positions.shape[1]))


Candidate = ConstantCandidate | ForestCandidate | NeighbourCandidate | LogisticCandidate
"""Its ``shares``: how surely the first label comes before the second, (n, k, k), the diagonal 0."""
CandidateName = Literal["constant", "extra-trees", "forest", "neighbours", "logistic"]
CANDIDATE_CLASSES: dict[str, Any] = {
    "constant": ConstantCandidate,
    "extra-trees": ForestCandidate,
    "forest": ForestCandidate,
    "neighbours": NeighbourCandidate,
    "logistic": LogisticCandidate,
}


def fit_candidate(name: str, data: Examples, seed: int, n_jobs: int | None) -> Candidate:
    options = {"random": True} if name == "extra-trees" else {}
    candidate: Candidate = CANDIDATE_CLASSES[name].fit(data, seed, n_jobs, **options)
    return candidate


def _require_k(file: StoredState, prefix: str) -> None:
    k = file.arrays[f"{prefix}k"]
    if k != file.facts.n_labels:
        raise refuse(f"{prefix}k", None, f"is {k}", f"{file.facts.n_labels}, the number of labels")


def pair_agreement(before: Float64, positions: Float32) -> float:
    """Mean share of shown, untied pairs that Borda on ``before`` orders right, of the rows of ``positions``."""
    scores = before.sum(axis=2)
    difference = positions[:, None, :] - positions[:, :, None]
    lead = scores[:, :, None] - scores[:, None, :]
    is_ordered = np.isfinite(difference) & (difference != 0)
    if not is_ordered.any():
        return 0.0
    return float(np.sign(lead[is_ordered] * difference[is_ordered]).mean())


def _votes(neighbors: NDArray[Any], positions: Float32, targets: Float64) -> Float64:
    k = positions.shape[1]
    out = np.zeros((neighbors.shape[0], k, k))
    neighbour_votes(
        np.ascontiguousarray(neighbors, dtype=np.int64), positions, targets, reach_of(k), FAINT, out
    )
    return out


def _other_neighbors(near: Any, points: Float64, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The neighbors of rows of ``points`` but themselves: a row is its own, unless as many twins hide it."""
    numbers = near.kneighbors(points[rows])[1]
    return np.array([row[row != own][: near.n_neighbors - 1] for row, own in zip(numbers, rows, strict=True)])
