"""The comparison of candidates, on as many of them as the budget's work allows.

Rates of two candidates on one fold move together, so candidates are compared fold by fold. The simplest one whose mean
is within one standard error of the best's, of the mean difference over folds, and within `NEGLIGIBLE`, wins: a
difference that small is no reason for a model that costs more.

Who races follows from the data and the budget alone: work is counted beforehand, at a fixed reference speed, and no
clock is read. So the same data, budget and seed have the same winner on any machine under any load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray

from pairmark.models.classes.estimator import CLASSES, MOST_VECTORS
from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.core.progress import as_part, note
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.evaluation.validation import (
    Fold,
    GroupedRows,
    PairFold,
    PairScores,
    fold_means,
    pooled_rates,
)
from pairmark.models.logistic.estimator import LOGISTIC
from pairmark.models.metric.estimator import METRIC
from pairmark.models.plda.choosing import SettingRates
from pairmark.models.plda.estimator import PLDA
from pairmark.models.similarity.estimators import FOREST

CandidateName = Literal[
    "cosine",
    "plda",
    "discriminant cosine",
    "logistic",
    "class logistic",
    "class support vectors",
    "class trees",
    "residual forest",
    "similarity forest",
]
RACING: Final[dict[str, LearnerSpec]] = {
    spec.kind: spec
    for spec in (
        METRIC,
        PLDA,
        LOGISTIC,
        FOREST,
        CLASSES,
    )
}
"""Learners by kind."""
_TREES_WIDTH = 2_048
FEW_NUMBERS, _MANY_TREES, _TREES = 10_000, 200, 50
"""Rows times features of a small data set; trees of the forest that it is given, and of those that race."""
_MOST_CLASSES, _MOST_ROWS = 50, 100_000
"""Classes, and rows, of which classifiers are tried at most."""
DENSE_CELLS = 50_000_000
"""Sparse rows that fill at most so many numbers are taken as dense ones."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """What decides who takes part.

    Attributes
    ----------
    n, d : rows and features. raced : rows that candidates are compared on, of listed pairs the
        distinct ones. cells : numbers other than zero. closed : whether classes are shared.
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
    params : from the data, of the learner. grown : those that the winner's fit has beside.
    grid : parameters that are tried on the first folds, those of the learner's defaults first; see `Race`.
    takes : whether it takes the data.
    """

    name: str
    kind: str
    params: Callable[[Data], dict[str, Any]] = field(repr=False, default=lambda data: {})
    grown: Callable[[Data], dict[str, Any]] = field(repr=False, default=lambda data: {})
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
    return 0.6 + 0.05 * width + 4 * judging_cost(data.raced, width)


def _grown_forest(data: Data) -> dict[str, Any]:
    """Of little data, a forest of few trees is a lottery: between seeds, the mean TPR differs by .02.

    The race is judged on many folds, each of which has a forest of its own: few trees do there.
    """
    return {"n_estimators": _MANY_TREES} if data.n * data.d <= FEW_NUMBERS else {}


def _forest_cost(data: Data) -> float:
    pairs = min(100_000, data.n if data.pairs else 0.28 * data.raced**2)
    return float(5e-6 * _TREES * pairs * (1 + data.d**0.5 / 30))


def _has_classes(data: Data) -> bool:
    return data.closed and not (data.sparse or data.pairs) and data.n_classes <= _MOST_CLASSES


def _classes_candidate(
    name: CandidateName, classifier: str, cost: Callable[[Data], float], most: int
) -> Candidate:
    return Candidate(
        name=name,
        kind="similarity-classes",
        params=lambda data: {"classifier": classifier},
        cost=cost,
        takes=lambda data: _has_classes(data) and data.n <= most,
    )


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
        # It is weak where most features are other than zero, and matter together.
        takes=lambda data: 2 * data.cells <= data.n * data.d,
    ),
    _classes_candidate(
        "class logistic",
        "logistic",
        lambda data: 0.3 + 1e-6 * data.raced * data.d * data.n_classes,
        _MOST_ROWS,
    ),
    _classes_candidate(
        "class support vectors",
        "svc",
        lambda data: 0.4 + 4e-8 * data.raced**2 * (data.d + 30 * data.n_classes),
        MOST_VECTORS,
    ),
    _classes_candidate(
        "class trees",
        "extra-trees",
        lambda data: 1.6 + 1e-5 * data.raced * data.d**0.5 * (4 + data.n_classes),
        _MOST_ROWS,
    ),
    Candidate(
        name="residual forest",
        kind="plda",
        params=lambda data: {"residual_rounds": 50},
        grown=lambda data: {"residual_rounds": 100},
        cost=lambda data: _plda_cost(data) + 0.6 + 0.012 * min(data.d, data.raced, 256),
        takes=lambda data: not (data.sparse or data.closed),
    ),
    Candidate(
        name="similarity forest",
        kind="similarity-forest",
        grown=_grown_forest,
        cost=_forest_cost,
        takes=_grows_trees,
    ),
)


NEGLIGIBLE = 0.01
"""Mean TPR that a simpler candidate may be behind: of few folds, a standard error is many times as much."""
_COSTED_FOLDS = 8
NOTHING = 0.002
_WORK_SHARE, _LEAST_WORK = 0.75, 3.0
"""Of the budget, and in reference seconds at least, what candidates may take together; the rest is the winner's fit."""
_SIMPLEST_SHARE, _FEWEST_ROWS = 0.25, 1_000
"""The simplest candidate may take this of the work; a race on fewer rows than these shows too little."""
_FAR_AHEAD = 0.1
"""Mean TPR by which a candidate that is not simpler must be ahead halfway for another to leave."""
_WORTH_LEAVING = 1.0
"""Reference seconds of a candidate's folds, from which on it may leave: less is no burden."""
RACE_SHARE = 0.75
"""Of the way of a fit, what the race takes."""
_LEAST_COST = 0.3
"""Seconds that any candidate takes, when progress is told."""
_SKIPPED = "skipped (budget)"
_FEW_IDENTITIES, _FEW_ROWS = 40, 2_000
"""People, and rows of shared classes, of which the mean of several candidates may be the winner."""


def raced_rows(n: int, width: float, budget_seconds: float) -> int:
    """How many of n rows to race on: so many that the simplest candidate takes a small share of the work."""
    seconds = _SIMPLEST_SHARE * _work(budget_seconds)
    return min(n, max(_FEWEST_ROWS, int(n * (seconds / max(judging_cost(n, width), seconds)) ** 0.5)))


def _work(budget_seconds: float) -> float:
    return max(_LEAST_WORK, _WORK_SHARE * budget_seconds)


class RaceTask(Protocol):
    """What is learned from and judged on."""

    @property
    def data(self) -> Data:
        """What decides who takes part."""

    @property
    def folds(self) -> Sequence[Any]:
        """Folds to judge on."""

    def scores(self, estimator: Any, fold: Any) -> PairScores:
        """On a fold, of an estimator fitted to its training part."""

    def tuned(self, candidate: Candidate, estimator: Any) -> dict[str, Any] | None:
        """Parameters that learners chose which choose for themselves."""


def fitted(estimator: Any, X: Any, y: Any, groups: Int64 | None) -> Any:
    """The estimator, fitted; with groups where it divides rows by itself."""
    return estimator.fit(X, y, groups) if isinstance(estimator, GroupedRows) else estimator.fit(X, y)


@dataclass(frozen=True, kw_only=True)
class IdentityTask:
    """Rows with identities 0, 1, ..."""

    X: Any = field(repr=False)
    codes: Int64 = field(repr=False)
    folds: Sequence[Fold] = field(repr=False)
    data: Data
    groups: Int64 | None = field(repr=False, default=None)
    _setting_rates: SettingRates = field(repr=False, default_factory=dict)

    def scores(self, estimator: Any, fold: Fold) -> PairScores:
        """See `RaceTask`."""
        groups = None if self.groups is None else self.groups[fold.train]
        fitted(estimator, self.X[fold.train], self.codes[fold.train], groups)
        rows = self.X[fold.test]
        return fold.of_pairs(estimator.score_against(rows, rows))

    def tuned(self, candidate: Candidate, estimator: Any) -> dict[str, Any] | None:
        """See `RaceTask`. Candidates of one kind share what they found of settings."""
        if candidate.kind != "plda":
            return None
        choice = estimator.choose(self.X, self.codes, self.folds, self._setting_rates)
        params: dict[str, Any] = choice.setting.as_params()
        return params


@dataclass(frozen=True, kw_only=True)
class PairTask:
    """Listed pairs."""

    left: Any = field(repr=False)
    right: Any = field(repr=False)
    same: NDArray[np.bool_] = field(repr=False)
    weight: Float64 = field(repr=False)
    folds: Sequence[PairFold] = field(repr=False)
    data: Data

    def scores(self, estimator: Any, fold: PairFold) -> PairScores:
        """See `RaceTask`."""
        train, test = fold.train, fold.test
        estimator.fit_pairs(
            self.left[train], self.right[train], self.same[train], sample_weight=self.weight[train]
        )
        scores, same = estimator.pair_score(self.left[test], self.right[test]), self.same[test]
        return scores[same], scores[~same]

    def tuned(self, candidate: Candidate, estimator: Any) -> dict[str, Any] | None:
        """See `RaceTask`. Settings are chosen once, on identities that all pairs tell of, then judged by fold."""
        if candidate.kind != "plda":
            return None
        estimator.fit_pairs(self.left, self.right, self.same, sample_weight=self.weight)
        return dict(estimator.settings_)


@dataclass(kw_only=True)
class Entry:
    """One candidate's part of the race.

    Attributes
    ----------
    scores : of each fold judged. rates : (n_folds judged, n_rates), see `pooled_rates`. work : reference seconds of all
        its folds, counted beforehand. margin : mean TPR by which another must be ahead. status : ``raced``, or why it
        did not race to the end. nested_rates, model : of a mean of candidates, its rates where each fold has no say in
        who is averaged, and the estimator, unfitted.
    """

    candidate: Candidate
    params: dict[str, Any]
    rates: Float64 = field(repr=False)
    scores: list[PairScores] = field(repr=False, default_factory=list)
    work: float = 0.0
    margin: float = 0.0
    status: str = "raced"
    nested_rates: Float64 | None = field(repr=False, default=None)
    model: Any = field(repr=False, default=None)

    @property
    def means(self) -> Float64:
        """(n_folds,) what is judged: each fold's mean over the rates that it resolves."""
        return fold_means(self.rates)

    @property
    def is_complete(self) -> bool:
        """Whether it was judged on every fold."""
        return self.status == "raced"


class Race:
    """One race over a task.

    Parameters
    ----------
    shared : parameters that every candidate gets which knows them.
    budget_seconds : reference seconds for the race and the fit of its winner; see `Candidate.cost`.
    """

    def __init__(
        self,
        task: RaceTask,
        *,
        at: tuple[float, ...],
        shared: dict[str, Any],
        budget_seconds: float,
        verbose: int = 0,
    ) -> None:
        self._task, self._at, self._shared = task, at, shared
        within = reach(task.data)
        self._level = within or -NOTHING
        self._budget, self._verbose = budget_seconds, verbose

    def run(self, candidates: Sequence[Candidate]) -> list[Entry]:
        """Everybody's entry, in the order given. The cheapest race first, as many as the work allows."""
        entries = [
            Entry(
                candidate=candidate,
                params={},
                rates=np.empty((0, len(self._at))),
                work=candidate.cost(self._task.data) * len(self._task.folds) / _COSTED_FOLDS,
                margin=_margin(candidate, self._task.data),
            )
            for candidate in candidates
        ]
        self._order = list(candidates)
        racing: list[Entry] = []
        work = _work(self._budget)
        for entry in sorted(entries, key=lambda entry: entry.work):
            if not racing or entry.work <= work:
                work -= entry.work
                racing.append(entry)
            else:
                entry.status = _SKIPPED
        racing.sort(key=lambda entry: entry.candidate.name == "similarity forest")
        self._racing = racing
        # Where on the way of a fit each candidate ends, by its work.
        ends = np.cumsum([_LEAST_COST + entry.work for entry in racing])
        ends *= RACE_SHARE / ends[-1]
        for entry, low, high in zip(racing, (0.0, *ends), ends, strict=False):
            if entry.candidate.name == "similarity forest" and self._trees_gain_nothing():
                entry.status = "skipped (trees over the ratio gain nothing)"
                continue
            with as_part(float(low), float(high), f"racing {entry.candidate.name}"), self._surviving(entry):
                self._run_one(entry)
        return entries

    def _trees_gain_nothing(self) -> bool:
        """Whether trees over PLDA's ratio are not ahead of it for identities never met: forests are then far behind."""
        judged = {entry.candidate.name: entry for entry in self._racing if entry.rates.size}
        trees, ratio = judged.get("residual forest"), judged.get("plda")
        return not self._task.data.closed and bool(
            trees and ratio and self._deficit(trees, ratio) >= -NOTHING
        )

    def _deficit(self, entry: Entry, rival: Entry) -> float:
        """By how much a candidate is behind one that was judged on as many folds or more."""
        rates = pooled_rates(rival.scores[: len(entry.scores)], self._at)
        return float((fold_means(rates) - entry.means).mean())

    def _run_one(self, entry: Entry) -> None:
        with as_part(0.0, 0.5, ""):
            tuned = self._task.tuned(entry.candidate, self._build(entry))
        if tuned is not None:
            entry.params = tuned
        elif entry.candidate.grid:
            self._tune(entry)
        self._judge_while_close(entry)
        self._tell(entry)

    def _tune(self, entry: Entry) -> None:
        """Parameters of a grid, by the first half of the folds: its first ones unless others are ahead.

        Ahead is by more than a standard error of the mean difference, fold by fold. Folds hold fewer rows or pairs
        than the winner learns from, so the best setting on them may differ from the best one later; the learner's
        default, first in the grid, is not left for a difference that small.
        """
        first = -(-len(self._task.folds) // 2)
        settings = [replace(entry, params=params, scores=[]) for params in entry.candidate.grid]
        for setting in settings:
            self._judge(setting, first)
        best = max(settings, key=lambda setting: float(setting.means.mean()))
        lead = best.means - settings[0].means
        chosen = best if lead.mean() > standard_error(lead) else settings[0]
        entry.params, entry.scores = chosen.params, chosen.scores

    @contextmanager
    def _surviving(self, entry: Entry) -> Iterator[None]:
        """A candidate that finds nothing to learn in a fold leaves, and the others race on."""
        try:
            yield
        except ValueError as error:
            entry.status, entry.rates = f"refused a fold: {str(error)[:200]}", entry.rates[:0]

    def _tell(self, entry: Entry) -> None:
        """The candidate as it stands, for progress reports."""
        n_judged, n_folds = entry.rates.shape[0], len(self._task.folds)
        if not n_judged:
            return
        mean = float(entry.means.mean())
        if self._verbose:
            print(f"SimilarityAuto: {entry.candidate.name}, mean TPR {mean:.4f}")
        line = f"{entry.candidate.name}: mean TPR {mean:.3f} over {n_judged} of {n_folds} folds"
        note(line, candidate=entry.candidate.name, mean_tpr=mean, folds=n_judged, of_folds=n_folds)

    def _leaves(self, entry: Entry) -> bool:
        """Whether a candidate goes no further: not ahead of a simpler one halfway, or far behind another."""
        n_judged, n_folds = len(entry.scores), len(self._task.folds)
        place = self._order.index(entry.candidate)
        # What may be averaged stays while it is level; a forest costs more than it adds there.
        level = -NOTHING if entry.candidate.name == "similarity forest" else self._level
        for rival in self._racing:
            if rival.is_complete and len(rival.scores) > n_judged:
                margin = level if self._order.index(rival.candidate) < place else _FAR_AHEAD
                if self._deficit(entry, rival) > margin:
                    entry.status = f"left after {n_judged} of {n_folds} folds"
        return not entry.is_complete

    def _judge_while_close(self, entry: Entry) -> None:
        """On all folds, unless it would take a while and is seen to be behind halfway."""
        n_folds = len(self._task.folds)
        if entry.work >= _WORTH_LEAVING:
            self._judge(entry, n_folds // 2)
            if self._leaves(entry):
                return
        self._judge(entry, n_folds)

    def _judge(self, entry: Entry, n_folds: int) -> None:
        """As many folds at a time as joblib is configured with threads, or its cluster: a listener is heard between."""
        workers = effective_n_jobs(self._shared["n_jobs"])
        for first in range(len(entry.scores), n_folds, workers):
            place = first / len(self._task.folds)
            with as_part((1 + place) / 2, (1 + min(place + workers / len(self._task.folds), 1)) / 2, ""):
                entry.scores += Parallel(n_jobs=self._shared["n_jobs"], prefer="threads")(
                    delayed(self._task.scores)(self._build(entry), fold)
                    for fold in self._task.folds[first : min(first + workers, n_folds)]
                )
        entry.rates = pooled_rates(entry.scores, self._at)

    def _build(self, entry: Entry) -> Any:
        return entry.candidate.build(self._task.data, entry.params, self._shared)


def reach(data: Data) -> float | None:
    """Mean TPR within which candidates count as level beside two standard errors; None where the best one is taken."""
    if data.sparse or data.pairs:
        return None
    if data.closed:
        return data.raced**-0.5 if data.n <= _FEW_ROWS else None
    return 0.0 if data.n_classes < _FEW_IDENTITIES else None


def _margin(candidate: Candidate, data: Data) -> float:
    """Of a forest of shared classes: folds share rows, and a share of n rows deviates by up to half over their root.

    A standard error over folds lacks that. A few rows of few classes say little of how these vary, which PLDA models.
    """
    return 0.5 / data.raced**0.5 if data.closed and candidate.name == "similarity forest" else 0.0


def standard_error(values: Float64) -> float:
    """Of the mean of some values, 0 of a single one."""
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0
