"""The rankers that `LabelRankingAuto` chooses among: each learns from canonical rankings and answers pairwise shares.

A candidate is data: `fit` makes it, `shares` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.state import Array, StateRecord, StoredState, refuse
from pairmark.models.evaluation.rankings import pairwise_shares
from pairmark.models.label_ranking.pair_models import LogisticPairs, problems_of, square
from pairmark.models.label_ranking.trees import GrowOptions, Trees, grow_trees, require_trees

_TREES = 50
"""Of each forest; twice as many cost twice as much, and the blend is no better."""


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
        seeds = [int(s) for s in np.random.default_rng(seed).integers(0, 2**62, _TREES)]
        trees, _ = grow_trees(data.X, data.targets, options, seeds, n_jobs=n_jobs, stage="")
        return cls(trees=trees, positions=data.positions, targets=data.targets)


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


Candidate = ConstantCandidate | ForestCandidate | LogisticCandidate
"""Its ``shares``: how surely the first label comes before the second, (n, k, k), the diagonal 0."""
CandidateName = Literal["constant", "extra-trees", "forest", "logistic"]
CANDIDATE_CLASSES: dict[str, Any] = {
    "constant": ConstantCandidate,
    "extra-trees": ForestCandidate,
    "forest": ForestCandidate,
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
