"""The candidates that `similarity-auto` compares, simplest first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.ghost import spec as ghost
from pairmark.models.logistic import spec as logistic
from pairmark.models.metric import spec as metric
from pairmark.models.plda import spec as plda
from pairmark.models.rankboost import spec as rankboost
from pairmark.models.similarity import spec as similarity

CandidateName = Literal[
    "cosine",
    "whitened cosine",
    "discriminant cosine",
    "plda",
    "logistic",
    "residual forest",
    "similarity forest",
    "boosted forest",
    "rankboost",
    "ghost",
]
RACING: Final[dict[str, LearnerSpec]] = {
    spec.kind: spec
    for spec in (
        metric.METRIC,
        plda.PLDA,
        logistic.LOGISTIC,
        similarity.FOREST,
        rankboost.KERNEL,
        ghost.GHOST,
    )
}
"""Learners by kind."""
_GHOST_ROWS = 1_000
_WHITENED_WIDTH = 2_048
_LOGISTIC_WIDTH = 1_024
_SMALL_CELLS = 500_000
DENSE_CELLS = 50_000_000
"""Sparse rows that fill at most so many numbers are taken as dense ones."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """What decides who takes part.

    Attributes
    ----------
    n, d : rows and features. closed : whether classes are shared. pairs : whether explicit pairs are learned from.
    """

    n: int
    d: int
    n_classes: int
    closed: bool
    sparse: bool
    pairs: bool


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One that races.

    Attributes
    ----------
    quick : whether it is raced whatever the budget.
    params : from the data, of the learner.
    grid : parameters that are tried on the first folds, those of the learner's defaults first; see `Race`.
    takes : whether it takes the data.
    """

    name: CandidateName
    kind: str
    params: Callable[[Data], dict[str, Any]] = field(repr=False)
    quick: Callable[[Data], bool] = field(repr=False, default=lambda data: True)
    grid: tuple[dict[str, Any], ...] = ()
    takes: Callable[[Data], bool] = field(repr=False, default=lambda data: True)

    def build(self, data: Data, params: dict[str, Any], shared: dict[str, Any]) -> Any:
        """The estimator, unfitted; of ``shared`` parameters it gets those it knows."""
        spec = RACING[self.kind]
        shared_params = {name: value for name, value in shared.items() if name in spec.params.model_fields}
        return spec.estimator(
            **{**spec.params().model_dump(), **shared_params, **self.params(data), **params}
        )


def _dense(data: Data) -> bool:
    return not data.sparse


def _never(data: Data) -> bool:
    return False


def _small_and_shared(data: Data) -> bool:
    """Trees over class posteriors take seconds there, and where no line parts classes nothing else comes near."""
    return data.closed and data.n * data.d <= _SMALL_CELLS


def _forest(data: Data) -> dict[str, Any]:
    features = "posteriors" if data.closed else "discriminant"
    return {"n_estimators": 25, "n_pairs": 20_000, "pair_features": features}


CANDIDATES: Final[tuple[Candidate, ...]] = (
    Candidate(name="cosine", kind="metric", params=lambda data: {}),
    Candidate(
        name="whitened cosine",
        kind="metric",
        params=lambda data: {"whiten": True},
        takes=lambda data: not data.sparse and data.d <= _WHITENED_WIDTH,
    ),
    Candidate(
        name="discriminant cosine",
        kind="plda",
        params=lambda data: {"scoring": "cosine"},
        takes=_dense,
    ),
    Candidate(name="plda", kind="plda", params=lambda data: {}, takes=_dense),
    Candidate(
        name="logistic",
        kind="similarity-logistic",
        params=lambda data: {},
        grid=({"C": 30.0}, {"C": 1.0}, {"C": 300.0}),
        takes=lambda data: data.sparse or data.d <= _LOGISTIC_WIDTH,
    ),
    Candidate(
        name="residual forest",
        kind="plda",
        params=lambda data: {"residual_rounds": "auto"},
        takes=_dense,
    ),
    Candidate(
        name="similarity forest",
        kind="similarity-forest",
        quick=_small_and_shared,
        params=_forest,
        takes=lambda data: not data.sparse and data.d <= _WHITENED_WIDTH and data.n >= 20,
    ),
    Candidate(
        name="boosted forest",
        kind="similarity-forest",
        quick=_never,
        params=lambda data: {**_forest(data), "leaf_rank": "boosting", "max_depth": 6},
        takes=lambda data: not data.sparse and data.d <= _WHITENED_WIDTH and data.n >= 20,
    ),
    Candidate(
        name="rankboost",
        kind="rankboost-kernel",
        quick=_never,
        params=lambda data: {"n_estimators": 100},
        takes=lambda data: data.sparse,
    ),
    Candidate(
        name="ghost",
        kind="ghost",
        quick=_never,
        params=lambda data: {},
        takes=lambda data: data.closed and not data.sparse and data.n <= _GHOST_ROWS and not data.pairs,
    ),
)
