"""The comparison of candidates, on as many of them as the budget's work allows.

Rates of two candidates on one fold move together, so candidates are compared fold by fold. The simplest one whose mean
is within one standard error of the best's, of the mean difference over folds, and within `NEGLIGIBLE`, wins: a
difference that small is no reason for a model that costs more.

Who races follows from the data and the budget alone: work is counted beforehand, at a fixed reference speed, and no
clock is read. So the same data, budget and seed have the same winner on any machine under any load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.core.progress import as_part, note
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.evaluation.validation import (
    Fold,
    PairFold,
    fold_means,
    other_folds,
    resolved_tpr,
    shown_rates,
)
from pairmark.models.logistic import spec as logistic
from pairmark.models.metric import spec as metric
from pairmark.models.plda import spec as plda
from pairmark.models.plda.choosing import SettingRates
from pairmark.models.similarity import spec as similarity

CandidateName = Literal[
    "cosine",
    "plda",
    "discriminant cosine",
    "logistic",
    "residual forest",
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
FEW_NUMBERS, _MANY_TREES, _TREES = 10_000, 200, 50
"""Rows times features of a small data set; trees of its forests, and of others."""
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
    return 0.6 + 0.05 * width + 4 * judging_cost(data.raced, width)


def _n_trees(data: Data) -> int:
    """Of little data, a forest of few trees is a lottery: between seeds, the mean TPR differs by .02."""
    return _MANY_TREES if data.n * data.d <= FEW_NUMBERS else _TREES


def _forest_cost(data: Data) -> float:
    pairs = min(100_000, data.n if data.pairs else 0.28 * data.raced**2)
    return float(5e-6 * _n_trees(data) * pairs * (1 + data.d**0.5 / 30))


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
    Candidate(
        name="residual forest",
        kind="plda",
        params=lambda data: {"residual_rounds": 100},
        cost=lambda data: _plda_cost(data) + 1.0 + 0.02 * min(data.d, data.raced, 256),
        takes=_dense,
    ),
    Candidate(
        name="similarity forest",
        kind="similarity-forest",
        params=lambda data: {"n_estimators": _n_trees(data)},
        cost=_forest_cost,
        takes=_grows_trees,
    ),
)


NEGLIGIBLE = 0.01
"""Mean TPR that a simpler candidate may be behind: of few folds, a standard error is many times as much."""
_COSTED_FOLDS = 8
_NOTHING = 0.002
_WORK_SHARE, _LEAST_WORK = 0.75, 3.0
"""Of the budget, and in reference seconds at least, what candidates may take together; the rest is the winner's fit."""
_SIMPLEST_SHARE, _FEWEST_ROWS = 0.25, 1_000
"""The simplest candidate may take this of the work; a race on fewer rows than these shows too little."""
_LOOKS = (2, 4, 8)
"""Folds after which a candidate that others are far ahead of leaves: by `_FAR` standard errors of the mean difference
and `_FAR_AHEAD` over the number of folds, of which two or four may all be odd."""
_FAR, _FAR_AHEAD = 3.0, 0.2
_WORTH_LEAVING = 5.0
"""Reference seconds of a candidate's folds, from which on it may leave: less is no burden."""
RACE_SHARE = 0.75
"""Of the way of a fit, what the race takes."""
_LEAST_COST = 0.3
"""Seconds that any candidate takes, when progress is told."""
_SKIPPED = "skipped (budget)"


def raced_rows(n: int, width: float, budget_seconds: float) -> int:
    """How many of n rows to race on: so many that the simplest candidate takes a small share of the work."""
    seconds = _SIMPLEST_SHARE * _work(budget_seconds)
    return min(n, max(_FEWEST_ROWS, int(n * (seconds / max(judging_cost(n, width), seconds)) ** 0.5)))


def _work(budget_seconds: float) -> float:
    return max(_LEAST_WORK, _WORK_SHARE * budget_seconds)


class TunedParams(NamedTuple):
    """Parameters that a learner chose, and its rates on all folds where it worked those out by the way."""

    params: dict[str, Any]
    rates: Float64 | None


class RaceTask(Protocol):
    """What is learned from and judged on."""

    @property
    def data(self) -> Data:
        """What decides who takes part."""

    @property
    def folds(self) -> Sequence[Any]:
        """Folds to judge on."""

    def rates(self, estimator: Any, fold: Any, at: tuple[float, ...]) -> Float64:
        """TPR at each FPR on a fold, of an estimator fitted to its training part."""

    def tuned(self, candidate: Candidate, estimator: Any) -> TunedParams | None:
        """What learners that choose for themselves chose."""


@dataclass(frozen=True, kw_only=True)
class IdentityTask:
    """Rows with identities 0, 1, ..."""

    X: Any = field(repr=False)
    codes: Int64 = field(repr=False)
    folds: Sequence[Fold] = field(repr=False)
    data: Data
    _setting_rates: SettingRates = field(repr=False, default_factory=dict)

    def rates(self, estimator: Any, fold: Fold, at: tuple[float, ...]) -> Float64:
        """See `RaceTask`."""
        estimator.fit(self.X[fold.train], self.codes[fold.train])
        rows = self.X[fold.test]
        return fold.rates(estimator.score_against(rows, rows), at)

    def tuned(self, candidate: Candidate, estimator: Any) -> TunedParams | None:
        """See `RaceTask`. Candidates of one kind share what they found of settings; trees are judged fold by fold."""
        if candidate.kind != "plda":
            return None
        choice = estimator.choose(self.X, self.codes, self.folds, self._setting_rates)
        assert choice.rates is not None
        return TunedParams(choice.setting.as_params(), None if estimator.residual_rounds else choice.rates)


@dataclass(frozen=True, kw_only=True)
class PairTask:
    """Listed pairs."""

    left: Any = field(repr=False)
    right: Any = field(repr=False)
    same: NDArray[np.bool_] = field(repr=False)
    weight: Float64 = field(repr=False)
    folds: Sequence[PairFold] = field(repr=False)
    data: Data

    def rates(self, estimator: Any, fold: PairFold, at: tuple[float, ...]) -> Float64:
        """See `RaceTask`."""
        train, test = fold.train, fold.test
        estimator.fit_pairs(
            self.left[train], self.right[train], self.same[train], sample_weight=self.weight[train]
        )
        scores, same = estimator.pair_score(self.left[test], self.right[test]), self.same[test]
        return resolved_tpr(scores[same], scores[~same], at)

    def tuned(self, candidate: Candidate, estimator: Any) -> TunedParams | None:
        """See `RaceTask`. Settings are chosen once, on identities that all pairs tell of, then judged by fold."""
        if candidate.kind != "plda":
            return None
        estimator.fit_pairs(self.left, self.right, self.same, sample_weight=self.weight)
        return TunedParams(dict(estimator.settings_), None)


@dataclass(kw_only=True)
class Entry:
    """One candidate's part of the race.

    Attributes
    ----------
    rates : (n_folds judged, n_rates), NaN where a fold does not resolve a rate. work : reference seconds of all its
        folds, counted beforehand. status : ``raced``, or why it did not race to the end.
    """

    candidate: Candidate
    params: dict[str, Any]
    rates: Float64 = field(repr=False)
    work: float = 0.0
    status: str = "raced"

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
        self._budget, self._verbose = budget_seconds, verbose

    def run(self, candidates: Sequence[Candidate]) -> list[Entry]:
        """Everybody's entry, in the order given. The cheapest race first, as many as the work allows."""
        entries = [
            Entry(
                candidate=candidate,
                params={},
                rates=np.empty((0, len(self._at))),
                work=candidate.cost(self._task.data) * len(self._task.folds) / _COSTED_FOLDS,
            )
            for candidate in candidates
        ]
        racing: list[Entry] = []
        work = _work(self._budget)
        for entry in sorted(entries, key=lambda entry: entry.work):
            if not racing or entry.work <= work:
                work -= entry.work
                racing.append(entry)
            else:
                entry.status = _SKIPPED
        self._racing = racing
        self._ways = self._shared_out(racing)
        for entry in racing:
            with self._surviving(entry):
                self._run_one(entry)
        return entries

    def _shared_out(self, racing: list[Entry]) -> dict[str, tuple[float, float]]:
        """Where on the way of a fit each candidate begins and ends, by its work."""
        ends = np.cumsum([_LEAST_COST + entry.work for entry in racing])
        ends *= RACE_SHARE / ends[-1]
        starts = np.append(0.0, ends)
        return {
            entry.candidate.name: (float(low), float(high))
            for entry, low, high in zip(racing, starts, ends, strict=False)
        }

    def _judging(self, entry: Entry, number: int) -> AbstractContextManager[None]:
        """Progress while a fold is judged."""
        low, high = self._ways[entry.candidate.name]
        starts = low + (high - low) * np.array([number, number + 1]) / len(self._task.folds)
        return as_part(float(starts[0]), float(starts[1]), f"racing {entry.candidate.name}")

    def _run_one(self, entry: Entry) -> None:
        with as_part(*self._ways[entry.candidate.name], f"racing {entry.candidate.name}"):
            tuned = self._task.tuned(entry.candidate, self._build(entry))
        if tuned is not None:
            entry.params = tuned.params
            entry.rates = entry.rates if tuned.rates is None else tuned.rates
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
        tuned: list[tuple[Float64, dict[str, Any]]] = []
        for params in entry.candidate.grid:
            entry.params, entry.rates = params, entry.rates[:0]
            self._judge(entry, first)
            tuned.append((entry.rates, params))
        best = max(tuned, key=lambda result: float(fold_means(result[0]).mean()))
        lead = fold_means(best[0]) - fold_means(tuned[0][0])
        entry.rates, entry.params = best if lead.mean() > _standard_error(lead) else tuned[0]

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

    def _looks(self, entry: Entry) -> tuple[int, ...]:
        """Folds after which a candidate that would take a while may leave."""
        return _LOOKS if entry.work >= _WORTH_LEAVING else ()

    def _leaves(self, entry: Entry) -> bool:
        """Whether a candidate goes no further, being far behind one that raced to the end: its status says so."""
        n_judged, n_folds = entry.rates.shape[0], len(self._task.folds)
        if n_judged not in self._looks(entry) or n_judged == n_folds:
            return False
        finished = [rival for rival in self._racing if rival.is_complete and rival.means.size > n_judged]
        leads = [rival.means[:n_judged] - entry.means for rival in finished]
        if any(lead.mean() > max(_FAR * _standard_error(lead), _FAR_AHEAD / n_judged) for lead in leads):
            entry.status = f"left after {n_judged} of {n_folds} folds"
        return not entry.is_complete

    def _judge_while_close(self, entry: Entry) -> None:
        """On all folds, unless it is seen to be far behind."""
        for n_folds in (*self._looks(entry), len(self._task.folds)):
            self._judge(entry, min(n_folds, len(self._task.folds)))
            if self._leaves(entry):
                return

    def _judge(self, entry: Entry, n_folds: int) -> None:
        """As many folds at a time as joblib is configured with threads, or its cluster: a listener is heard between."""
        workers = effective_n_jobs(self._shared["n_jobs"])
        for first in range(entry.rates.shape[0], n_folds, workers):
            with self._judging(entry, first):
                rates = Parallel(n_jobs=self._shared["n_jobs"], prefer="threads")(
                    delayed(self._task.rates)(self._build(entry), fold, self._at)
                    for fold in self._task.folds[first : min(first + workers, n_folds)]
                )
            entry.rates = np.vstack([entry.rates, *rates])

    def _build(self, entry: Entry) -> Any:
        return entry.candidate.build(self._task.data, entry.params, self._shared)


def winner(entries: Sequence[Entry]) -> Entry:
    """The simplest candidate within one standard error of the best, fold by fold, and within `NEGLIGIBLE` of it."""
    eligible = _eligible(entries)
    return eligible[_simplest(np.stack([entry.means for entry in eligible]))]


def _eligible(entries: Sequence[Entry]) -> list[Entry]:
    """Who raced to the end."""
    return [entry for entry in entries if entry.is_complete]


def _simplest(means: Float64) -> int:
    """Which candidate of (n_candidates, n_folds), simplest first, is as good as the best."""
    deficits = means[means.mean(axis=1).argmax()] - means
    return next(
        number
        for number, deficit in enumerate(deficits)
        if deficit.mean() <= max(min(_standard_error(deficit), NEGLIGIBLE), _NOTHING)
    )


def _validated(
    entries: Sequence[Entry], folds: Sequence[Any], at: tuple[float, ...]
) -> dict[str, float | None]:
    """TPR of racing: each fold's rates of the candidate that wins on the other folds of its repeat."""
    rates = np.stack([entry.rates for entry in _eligible(entries)])
    winners = [_simplest(fold_means(rates)[:, is_other]) for is_other in other_folds(folds)]
    nested = rates[winners, np.arange(len(folds))]
    return _by_rate(nested, folds, at)


def _by_rate(rates: Float64, folds: Sequence[Any], at: tuple[float, ...]) -> dict[str, float | None]:
    means = shown_rates(rates, folds, at)
    return {f"{rate:g}": means.get(rate) for rate in at}


def leaderboard(
    entries: Sequence[Entry], best: Entry, at: tuple[float, ...], folds: Sequence[Any]
) -> list[dict[str, Any]]:
    """The race for people, best first, JSON-able.

    Returns
    -------
    For each candidate ``name``, ``kind``, ``params``, ``status``, ``chosen``, ``folds``, ``mean_tpr`` (over folds and
    the rates that each resolves), ``tpr_at_fpr`` (None at rates that folds of so few identities cannot show),
    ``difference`` to the chosen one with its 95 % ``interval`` by Student's t over folds (which share training rows, so
    it is a guide and no test), and ``reference_seconds``, its work as it was counted beforehand. The chosen one has
    ``validated_tpr`` too, by false positive rate: what to expect of it, less the optimism of having been chosen. Each
    fold counts there with the candidate that wins on the other folds.
    """
    from scipy.stats import t as student

    lines = []
    for entry in entries:
        n_judged = entry.rates.shape[0]
        line: dict[str, Any] = {
            "name": entry.candidate.name,
            "kind": entry.candidate.kind,
            "params": entry.params,
            "status": entry.status,
            "chosen": entry is best,
            "folds": n_judged,
            "mean_tpr": float(entry.means.mean()) if n_judged else None,
            "tpr_at_fpr": _by_rate(entry.rates, folds[:n_judged], at) if n_judged else {},
            "difference": None,
            "reference_seconds": round(entry.work, 3),
        }
        if entry is best and n_judged:
            line["validated_tpr"] = _validated(entries, folds, at)
        if min(n_judged, best.rates.shape[0]) > 1:
            common = min(n_judged, best.rates.shape[0])
            deficit = entry.means[:common] - best.means[:common]
            reach = float(student.ppf(0.975, common - 1)) * _standard_error(deficit)
            mean = float(deficit.mean())
            line["difference"] = {"value": mean, "interval": [mean - reach, mean + reach]}
        lines.append(line)
    return sorted(
        lines, key=lambda line: -1.0 if line["mean_tpr"] is None else line["mean_tpr"], reverse=True
    )


def _standard_error(values: Float64) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0
