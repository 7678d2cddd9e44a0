"""Who races, on which data, and what that costs.

Work is counted beforehand, in reference seconds: CPU seconds on one core of 2020, roughly, by a formula of the data
alone. So the same data, budget and seed have the same winner on any machine under any load.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

from pairmark.models.classes.estimator import CLASSES, MOST_VECTORS
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.logistic.estimator import LOGISTIC
from pairmark.models.metric.estimator import METRIC
from pairmark.models.plda.estimator import PLDA
from pairmark.models.similarity.estimators import FOREST

CandidateName = Literal[
    "cosine",
    "plda",
    "discriminant cosine",
    "logistic",
    "classes",
    "class trees",
    "residual forest",
    "similarity forest",
]
RACING: Final[dict[str, LearnerSpec]] = {
    spec.kind: spec for spec in (METRIC, PLDA, LOGISTIC, FOREST, CLASSES)
}
"""Learners by kind."""
FEW_NUMBERS, _MANY_TREES, _TREES = 10_000, 200, 50
"""Rows times features of a small data set; trees of the forest that it is given, and of those that race."""
_CLASS_TREES, _VECTORS_SHARE = 500, 1 / 6
"""Trees of a winner for shared classes: seeds differ half as much as with 100. Of the work, what support vectors may
take in a race."""
_FEW_DEALT = 1_000
"""Rows up to which a winner for shared classes is calibrated on two deals: there one decides by luck."""
_TREES_WIDTH, _MOST_CLASSES, _MOST_ROWS = 2_048, 50, 100_000
"""Features of which a forest, classes and rows of which classifiers are tried at most."""
_FEW_CLASSES = f"{_MOST_ROWS:,} dense rows or fewer, of {_MOST_CLASSES} shared classes or fewer"
DENSE_CELLS = 50_000_000
"""Sparse rows that fill at most so many numbers are taken as dense ones."""
_WORK_SHARE, _LEAST_WORK = 0.75, 3.0
"""Of the budget, and in reference seconds at least, what candidates may take together; the rest is the winner's fit."""
_SIMPLEST_SHARE, _FEWEST_ROWS = 0.25, 1_000
"""The simplest candidate may take this of the work; a race on fewer rows than these shows too little."""
_FEW_IDENTITIES, _FEW_ROWS = 40, 2_000
"""People, and rows of shared classes, of which the mean of several candidates may be the winner."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """What decides who takes part.

    Attributes
    ----------
    n, d : rows and features. raced : rows that candidates are compared on, of listed pairs the
        distinct ones. cells : numbers other than zero. closed : whether classes are shared.
        pairs : whether explicit pairs are learned from. work : reference seconds that candidates may take together.
    """

    n: int
    d: int
    raced: int
    cells: int
    n_classes: int
    closed: bool
    sparse: bool
    pairs: bool
    work: float

    @property
    def reach(self) -> float | None:
        """Mean TPR within which candidates count as level beside two standard errors; None where the best is taken."""
        if self.sparse or self.pairs:
            return None
        if self.closed:
            return self.raced**-0.5 if self.n <= _FEW_ROWS else None
        return 0.0 if self.n_classes < _FEW_IDENTITIES else None


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One that races.

    Attributes
    ----------
    cost : reference seconds of its race of eight folds. The budget is spent in them.
    params : of the learner. grown : those that the winner's fit has beside.
    grid : parameters that are tried on the first folds, those of the learner's defaults first; see `Race`.
    takes : whether it takes the data. needs : what it takes, in words.
    """

    name: str
    kind: str
    params: dict[str, Any] = field(default_factory=dict)
    grown: Callable[[Data], dict[str, Any]] = field(repr=False, default=lambda data: {})
    cost: Callable[[Data], float] = field(repr=False, default=lambda data: 0.0)
    grid: tuple[dict[str, Any], ...] = ()
    takes: Callable[[Data], bool] = field(repr=False, default=lambda data: True)
    needs: str = ""

    def build(self, params: dict[str, Any], shared: dict[str, Any]) -> Any:
        """The estimator, unfitted; of ``shared`` parameters it gets those it knows."""
        spec = RACING[self.kind]
        known = {name: value for name, value in shared.items() if name in spec.params.model_fields}
        return spec.estimator(**{**spec.params().model_dump(), **known, **self.params, **params})


def work_within(budget_seconds: float) -> float:
    """Reference seconds that candidates may take together."""
    return max(_LEAST_WORK, _WORK_SHARE * budget_seconds)


def raced_rows(n: int, width: float, budget_seconds: float) -> int:
    """How many of n rows to race on: so many that the simplest candidate takes a small share of the work."""
    seconds = _SIMPLEST_SHARE * work_within(budget_seconds)
    return min(n, max(_FEWEST_ROWS, int(n * (seconds / max(judging_cost(n, width), seconds)) ** 0.5)))


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


def _forest_cost(data: Data) -> float:
    pairs = min(100_000, data.n if data.pairs else 0.28 * data.raced**2)
    return float(5e-6 * _TREES * pairs * (1 + data.d**0.5 / 30))


def _vectors_cost(data: Data) -> float:
    return 4e-8 * float(data.raced) ** 2 * (data.d + 30 * data.n_classes)


def _few_vectors(data: Data) -> bool:
    return data.n <= MOST_VECTORS and _vectors_cost(data) <= _VECTORS_SHARE * data.work


def _class_trees_cost(data: Data) -> float:
    return float(0.2 + 2e-6 * data.raced * data.d**0.5 * (4 + data.n_classes))


def _classes_cost(data: Data) -> float:
    return 0.4 + 1e-6 * data.raced * data.d * data.n_classes + _class_trees_cost(data)


def _classes_fit(data: Data) -> bool:
    is_small = data.n_classes <= _MOST_CLASSES and data.n <= _MOST_ROWS
    return data.closed and is_small and not (data.sparse or data.pairs)


_of_classes = partial(
    Candidate,
    kind=CLASSES.kind,
    grown=lambda data: {"n_estimators": _CLASS_TREES, "deals": 2 if data.n <= _FEW_DEALT else 1},
    needs=_FEW_CLASSES,
)
_of_dense_rows = partial(
    Candidate, kind="plda", cost=_plda_cost, takes=lambda data: not data.sparse, needs="dense rows"
)
CANDIDATES: Final[tuple[Candidate, ...]] = (
    Candidate(name="cosine", kind="metric"),
    _of_classes(
        name="class trees",
        params={"classifier": "extra-trees"},
        cost=_class_trees_cost,
        takes=_classes_fit,
    ),
    # One of these two races.
    _of_classes(
        name="classes",
        params={"classifier": "pool"},
        cost=lambda data: _classes_cost(data) + _vectors_cost(data),
        takes=lambda data: _classes_fit(data) and _few_vectors(data),
    ),
    _of_classes(
        name="classes",
        params={"classifier": "quick-pool"},
        cost=_classes_cost,
        takes=lambda data: _classes_fit(data) and not _few_vectors(data),
    ),
    _of_dense_rows(name="plda"),
    _of_dense_rows(name="discriminant cosine", params={"scoring": "cosine"}),
    Candidate(
        name="logistic",
        kind="similarity-logistic",
        # Three settings on half of the folds, one on the others, and twice the work a pair.
        cost=lambda data: (
            0.6 + 0.05 * (data.cells / data.n) + 4 * judging_cost(data.raced, data.cells / data.n)
        ),
        grid=({"C": 30.0}, {"C": 1.0}, {"C": 300.0}),
        # It is weak where most features are other than zero, and matter together.
        takes=lambda data: 2 * data.cells <= data.n * data.d,
        needs="rows of which half or more is zero",
    ),
    Candidate(
        name="residual forest",
        kind="plda",
        params={"residual_rounds": 50},
        grown=lambda data: {"residual_rounds": 100},
        cost=lambda data: _plda_cost(data) + 0.6 + 0.012 * min(data.d, data.raced, 256),
        takes=lambda data: not (data.sparse or data.closed),
        needs="dense rows of identities that are new (open-set)",
    ),
    Candidate(
        name="similarity forest",
        kind="similarity-forest",
        # Of little data, a forest of few trees is a lottery: between seeds, the mean TPR differs by .02. The race is
        # judged on many folds, each of which has a forest of its own: few trees do there.
        grown=lambda data: {"n_estimators": _MANY_TREES} if data.n * data.d <= FEW_NUMBERS else {},
        cost=_forest_cost,
        takes=lambda data: not data.sparse and data.d <= _TREES_WIDTH and data.n >= 20,
        needs=f"20 dense rows or more, of {_TREES_WIDTH:,} features or fewer",
    ),
)
