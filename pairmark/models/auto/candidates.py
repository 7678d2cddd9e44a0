"""The candidates that `similarity-auto` compares, simplest first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.logistic import spec as logistic
from pairmark.models.metric import spec as metric
from pairmark.models.plda import spec as plda
from pairmark.models.similarity import spec as similarity

CandidateName = Literal[
    "cosine",
    "plda",
    "discriminant cosine",
    "logistic",
    "residual forest",
    "raw forest",
    "similarity forest",
]
RACING: Final[dict[str, LearnerSpec]] = {
    spec.kind: spec
    for spec in (
        metric.METRIC,
        plda.PLDA,
        logistic.LOGISTIC,
        similarity.FOREST,
    )
}
"""Learners by kind."""
_TREES_WIDTH = 2_048
_LOGISTIC_WIDTH = 1_024
FEW_NUMBERS, _MANY_TREES = 10_000, 200
"""Rows times features of a small data set, and trees of its forests."""
DENSE_CELLS = 50_000_000
"""Sparse rows that fill at most so many numbers are taken as dense ones."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """What decides who takes part.

    Attributes
    ----------
    n, d : rows and features. raced : rows that candidates are compared on, of listed pairs the
        distinct ones. cells : numbers other than zero, of sparse rows. closed : whether classes are shared.
        pairs : whether explicit pairs are learned from.
    """

    n: int
    d: int
    raced: int
    cells: int
    n_classes: int
    closed: bool
    sparse: bool
    pairs: bool


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One that races.

    Attributes
    ----------
    cost : reference seconds of its race of eight folds: CPU seconds on one core of 2020, roughly, by a formula of the
        data alone, the same on every machine. The budget is spent in them.
    params : from the data, of the learner.
    grid : parameters that are tried on the first folds, those of the learner's defaults first; see `Race`.
    takes : whether it takes the data.
    """

    name: CandidateName
    kind: str
    params: Callable[[Data], dict[str, Any]] = field(repr=False, default=lambda data: {})
    cost: Callable[[Data], float] = field(repr=False, default=lambda data: 0.0)
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


def _grows_trees(data: Data) -> bool:
    return not data.sparse and data.d <= _TREES_WIDTH and data.n >= 20


def judging_cost(raced: int, width: float) -> float:
    """CPU seconds in which eight folds' rows, each a quarter of those raced, meet each other by cosines.

    ``width`` : numbers other than zero in a row.
    """
    return 2e-9 * (raced / 4) ** 2 * width


def _plda_cost(data: Data) -> float:
    """Of one of the two that share what they find out of settings."""
    coordinates, judged = min(data.d, data.raced, 256), min(data.raced / 4, 800)
    small = 4e-7 * coordinates**3 + 1.5e-5 * judged**2
    return 0.1 + 0.5 * (small + data.raced * (8e-10 * min(data.d, 2_048) ** 2 + 6e-9 * coordinates**2))


def _logistic_cost(data: Data) -> float:
    width = data.cells / data.n
    # Three settings on half of the folds, one on the others, and twice the work a pair.
    return 0.6 + (0.05 if data.sparse else 0.004) * width + 4 * judging_cost(data.raced, width)


def _trees_cost(data: Data, n_trees: int, n_pairs: int) -> float:
    pairs = min(n_pairs, data.n if data.pairs else 0.28 * data.raced**2)
    return float(5e-6 * n_trees * pairs * (1 + data.d**0.5 / 30))


def _n_trees(data: Data, otherwise: int) -> int:
    """Of little data, a forest of few trees is a lottery: between seeds, the mean TPR differs by .02."""
    return _MANY_TREES if data.n * data.d <= FEW_NUMBERS else otherwise


def _features_cost(data: Data) -> float:
    return 2e-8 * data.d**3


def _forest(data: Data) -> dict[str, Any]:
    return {"n_estimators": _n_trees(data, 25), "n_pairs": 20_000, "pair_features": "discriminant"}


CANDIDATES: Final[tuple[Candidate, ...]] = (
    Candidate(name="cosine", kind="metric"),
    Candidate(
        name="plda",
        kind="plda",
        cost=_plda_cost,
        takes=_dense,
    ),
    Candidate(
        name="discriminant cosine",
        kind="plda",
        params=lambda data: {"scoring": "cosine"},
        cost=_plda_cost,
        takes=_dense,
    ),
    Candidate(
        name="logistic",
        kind="similarity-logistic",
        cost=_logistic_cost,
        grid=({"C": 30.0}, {"C": 1.0}, {"C": 300.0}),
        takes=lambda data: data.sparse or data.d <= _LOGISTIC_WIDTH,
    ),
    Candidate(
        name="residual forest",
        kind="plda",
        params=lambda data: {"residual_rounds": "auto"},
        cost=lambda data: _plda_cost(data) + 1.0 + 0.02 * min(data.d, data.raced, 256),
        takes=_dense,
    ),
    Candidate(
        name="raw forest",
        kind="similarity-forest",
        params=lambda data: {"n_estimators": _n_trees(data, 50)},
        cost=lambda data: _trees_cost(data, _n_trees(data, 50), 100_000),
        takes=_grows_trees,
    ),
    Candidate(
        name="similarity forest",
        kind="similarity-forest",
        params=_forest,
        cost=lambda data: _trees_cost(data, _n_trees(data, 25), 20_000) + _features_cost(data),
        takes=_grows_trees,
    ),
)
