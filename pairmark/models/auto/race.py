"""The comparison of candidates: everybody on all folds while time allows, else the slow ones that can still win.

Rates of two candidates on one fold move together, so candidates are compared fold by fold. The simplest one whose mean
is within one standard error of the best's, of the mean difference over folds, and within `NEGLIGIBLE`, wins: a
difference that small is no reason for a model that costs more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray

from pairmark.models.auto.candidates import Candidate, Data, KernelGroup, judging_cost
from pairmark.models.core.checkpoints import Checkpoints
from pairmark.models.core.compiled import CompileClock
from pairmark.models.core.progress import as_part, note
from pairmark.models.evaluation.pair_folds import PairFold
from pairmark.models.evaluation.validation import (
    Fold,
    fold_means,
    other_folds,
    resolved_tpr,
    shown_rates,
)
from pairmark.models.plda.choosing import SettingRates

Float64 = NDArray[np.float64]
Indices = NDArray[np.int64]

_RUNGS = (1, 3)
"""Where time is short: folds after which the worse half of the slow candidates leaves, and all that are behind."""
NEGLIGIBLE = 0.01
"""Mean TPR that a simpler candidate may be behind: of few folds, a standard error is many times as much."""
_COSTED_FOLDS = 8
_NOTHING = 0.002
_FREE_SHARE, _FREE_SECONDS = 0.5, 3.0
"""As many candidates as are thought to take less together, of the budget, are raced whatever the clock says."""
_SIMPLEST_SHARE, _FEWEST_ROWS = 0.25, 1_000
"""The simplest candidate may take this of what is free; a race on fewer rows than these shows too little."""
_LOOKS = (2, 4, 8)
"""Folds after which a candidate that others are far ahead of leaves: by `_FAR` standard errors of the mean difference
and `_FAR_AHEAD` over the number of folds, of which two or four may all be odd."""
_FAR, _FAR_AHEAD = 3.0, 0.2
_WORTH_LEAVING = 5.0
"""Seconds that a candidate is thought to take on all folds, from which on it may leave: less is no burden."""
RACE_SHARE = 0.75
"""Of the way of a fit, what the race takes."""
_LEAST_COST = 0.3
"""Seconds that any candidate takes, when progress is told."""
_CHEAP_SHARE = 0.1
"""A candidate that is thought to take less of the budget is fitted on all folds again for a second question."""
_FIT_FOLDS = 1.5
"""What fitting the winner to all rows is thought to take, in folds."""


def raced_rows(n: int, width: float, budget_seconds: float) -> int:
    """How many of n rows to race on: so many that the simplest candidate takes a small share of the budget."""
    seconds = _SIMPLEST_SHARE * max(_FREE_SECONDS, _FREE_SHARE * budget_seconds)
    return min(n, max(_FEWEST_ROWS, int(n * (seconds / max(judging_cost(n, width), seconds)) ** 0.5)))


class TunedParams(NamedTuple):
    """Parameters that a learner chose, and its rates on all folds where it worked those out by the way."""

    params: dict[str, Any]
    rates: Float64 | None


_OUT_OF_TIME = "out of time"


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
    codes: Indices = field(repr=False)
    folds: Sequence[Fold] = field(repr=False)
    data: Data
    _setting_rates: SettingRates = field(repr=False, default_factory=dict)

    def rates(self, estimator: Any, fold: Fold, at: tuple[float, ...]) -> Float64:
        """See `RaceTask`."""
        estimator.fit(self.X[fold.train], self.codes[fold.train])
        rows = self.X[fold.test]
        return fold.rates(estimator.score_against(rows, rows), at)

    def tuned(self, candidate: Candidate, estimator: Any) -> TunedParams | None:
        """See `RaceTask`. Candidates of one kind share what they found of settings."""
        if candidate.kind != "plda":
            return None
        choice = estimator.choose(self.X, self.codes, self.folds, self._setting_rates)
        assert choice.rates is not None
        return TunedParams(choice.setting.as_params(), choice.rates)


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
    rates : (n_folds judged, n_rates), NaN where a fold does not resolve a rate. seconds : CPU seconds. elapsed : wall
        seconds without those of compilation, which further folds do not take. status : ``raced``, or why it did not
        race to the end.
    """

    candidate: Candidate
    params: dict[str, Any]
    rates: Float64 = field(repr=False)
    seconds: float = 0.0
    elapsed: float = 0.0
    status: str = "raced"

    @property
    def means(self) -> Float64:
        """(n_folds,) what is judged: each fold's mean over the rates that it resolves."""
        return fold_means(self.rates)

    @property
    def timed_out(self) -> bool:
        """Whether the budget ended its race."""
        return self.status.startswith(_OUT_OF_TIME)

    @property
    def is_complete(self) -> bool:
        """Whether it was judged on every fold."""
        return self.status == "raced"


class Race:
    """One race over a task.

    Parameters
    ----------
    shared : parameters that every candidate gets which knows them.
    budget_seconds : wall seconds for the race and the fit of its winner, compilation of kernels among them.
    shelf : where finished candidates are kept, so that a race that was cut goes on.
    """

    def __init__(
        self,
        task: RaceTask,
        *,
        at: tuple[float, ...],
        shared: dict[str, Any],
        budget_seconds: float,
        shelf: Checkpoints | None,
        verbose: int = 0,
    ) -> None:
        self._task, self._at, self._shared, self._shelf = task, at, shared, shelf
        self._start, self._budget, self._verbose = time.monotonic(), budget_seconds, verbose

    def run(self, candidates: Sequence[Candidate]) -> list[Entry]:
        """Everybody's entry, in the order given."""
        entries = [
            Entry(candidate=candidate, params={}, rates=np.empty((0, len(self._at))))
            for candidate in candidates
        ]
        self._entries = entries
        quick = self._quick(entries)
        self._raced_at_once = {entry.candidate.name for entry in quick}
        self._ways = self._shared_out(entries)
        for entry in quick:
            with self._surviving(entry):
                self._to_the_end(entry, at_once=True)
        slow = [
            entry
            for entry in entries
            if entry.candidate.name not in self._raced_at_once and not self._restored(entry)
        ]
        if slow:
            self._race_slow(slow)
        return entries

    def _shared_out(self, entries: list[Entry]) -> dict[str, tuple[float, float]]:
        """Where on the way of a fit each candidate begins and ends, by what it is thought to take: quick ones first."""
        order = sorted(entries, key=lambda entry: entry.candidate.name not in self._raced_at_once)
        ends = np.cumsum([_LEAST_COST + self._cost(entry) for entry in order])
        ends *= RACE_SHARE / ends[-1]
        starts = np.append(0.0, ends)
        return {
            entry.candidate.name: (float(low), float(high))
            for entry, low, high in zip(order, starts, ends, strict=False)
        }

    def _judging(self, entry: Entry, number: int) -> AbstractContextManager[None]:
        """Progress while a fold is judged."""
        low, high = self._ways[entry.candidate.name]
        starts = low + (high - low) * np.array([number, number + 1]) / len(self._task.folds)
        return as_part(float(starts[0]), float(starts[1]), f"racing {entry.candidate.name}")

    def folds_again(self, entry: Entry) -> list[Any]:
        """Folds to fit a candidate on once more: all of a cheap one, else those of one repeat.

        Cheap and quick are so by the data; a slow one gets none where the budget would not last.
        """
        folds, data = list(self._task.folds), self._task.data
        cost = self._cost(entry) + judging_cost(data.raced, data.cells / data.n)
        if cost <= _CHEAP_SHARE * self._budget:
            return folds
        folds = [fold for fold in folds if fold.repeat == folds[0].repeat]
        is_quick = entry.candidate.name in self._raced_at_once
        seconds = self._seconds_for(entry, entry.rates.shape[0] + len(folds))
        return folds if is_quick or self._elapsed() + seconds < self._budget else []

    def _quick(self, entries: list[Entry]) -> list[Entry]:
        """By the data and what is to be compiled, not by the clock.

        Where everybody is quick, the same seed has the same winner everywhere. A budget too small to compile anything
        asks for the quick ones and no others, so there only the data count.
        """
        free, quick = max(_FREE_SECONDS, _FREE_SHARE * self._budget), []
        to_compile = self._budget >= _FREE_SECONDS
        compiled: set[KernelGroup] = set()
        for entry in entries:
            groups = {
                group for group in entry.candidate.compiles if to_compile and not group.is_ready
            } - compiled
            cost = self._cost(entry) + sum(group.seconds for group in groups)
            if cost <= free:
                free -= cost
                compiled |= groups
                quick.append(entry)
        return quick

    def _cost(self, entry: Entry) -> float:
        return entry.candidate.cost(self._task.data) * len(self._task.folds) / _COSTED_FOLDS

    def _to_the_end(self, entry: Entry, *, at_once: bool = False) -> None:
        if self._restored(entry):
            return
        cpu_start, wall_start = time.process_time(), time.monotonic()
        with CompileClock() as compiling:
            with as_part(*self._ways[entry.candidate.name], f"racing {entry.candidate.name}"):
                tuned = self._task.tuned(entry.candidate, self._build(entry))
            if tuned is not None:
                entry.params = tuned.params
                entry.rates = entry.rates if tuned.rates is None else tuned.rates
            elif entry.candidate.grid:
                self._tune(entry)
            if at_once:
                self._judge_while_close(entry)
            else:
                self._judge(entry, len(self._task.folds))
        entry.seconds = time.process_time() - cpu_start
        entry.elapsed = time.monotonic() - wall_start - compiling.seconds
        self._store(entry)
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
            self._judge_at_once(entry, first)
            tuned.append((entry.rates, params))
        best = max(tuned, key=lambda result: float(fold_means(result[0]).mean()))
        lead = fold_means(best[0]) - fold_means(tuned[0][0])
        entry.rates, entry.params = best if lead.mean() > _standard_error(lead) else tuned[0]

    def _race_slow(self, racing: list[Entry]) -> None:
        """Slow candidates: all on all folds if that fits, else the better half after a fold, unless they are behind.

        They race in their order, not in that of their seconds: who has raced to the end decides who is behind.
        """
        n_folds = len(self._task.folds)
        first, early = (min(rung, n_folds) for rung in _RUNGS)
        for entry in racing:
            self._advance(entry, first)
        racing = [entry for entry in racing if entry.is_complete and entry.rates.shape[0] < n_folds]
        all_stay = (
            self._elapsed() + sum(self._seconds_for(entry, n_folds, 0.0) for entry in racing) < self._budget
        )
        if not all_stay:
            best = sorted(racing, key=lambda entry: -float(entry.means.mean()))
            for entry in best[-(-len(best) // 2) :]:
                entry.status = f"left after {first} of {n_folds} folds"
            racing = [entry for entry in racing if entry.is_complete]
        for entry in racing:
            if not all_stay:
                self._advance(entry, early)
                if entry.is_complete and early < n_folds and self._trails(entry):
                    entry.status = f"left after {early} of {n_folds} folds"
            if entry.is_complete:
                self._advance(entry, n_folds)
                self._store(entry)

    @contextmanager
    def _surviving(self, entry: Entry) -> Iterator[None]:
        """A candidate that finds nothing to learn in a fold leaves, and the others race on."""
        try:
            yield
        except ValueError as error:
            entry.status, entry.rates = f"refused a fold: {str(error)[:200]}", entry.rates[:0]

    def _elapsed(self) -> float:
        return time.monotonic() - self._start

    def _seconds_for(self, entry: Entry, n_folds: int, fits: float = _FIT_FOLDS) -> float:
        """Wall seconds to judge a candidate on further folds, up to a number of them, and to fit it in the end."""
        n_judged = entry.rates.shape[0]
        n_fits = n_folds - n_judged + fits
        if n_judged:
            return float(n_fits * entry.elapsed / n_judged)
        compiling = sum(group.seconds for group in entry.candidate.compiles if not group.is_ready)
        return float(n_fits * self._cost(entry) / len(self._task.folds) + compiling)

    def _advance(self, entry: Entry, n_folds: int) -> None:
        with self._surviving(entry):
            self._advance_to(entry, n_folds)

    def _advance_to(self, entry: Entry, n_folds: int) -> None:
        if entry.candidate.tunes and not entry.rates.size:
            # Choosing cannot be cut into folds.
            if self._elapsed() + self._seconds_for(entry, len(self._task.folds)) < self._budget:
                self._to_the_end(entry)
            else:
                entry.status = f"{_OUT_OF_TIME} after 0 of {len(self._task.folds)} folds"
            return
        self._judge(entry, n_folds)
        self._tell(entry)

    def _tell(self, entry: Entry) -> None:
        """The candidate as it stands, for progress reports."""
        n_judged, n_folds = entry.rates.shape[0], len(self._task.folds)
        if not n_judged:
            return
        mean = float(entry.means.mean())
        line = f"{entry.candidate.name}: mean TPR {mean:.3f} over {n_judged} of {n_folds} folds"
        note(line, candidate=entry.candidate.name, mean_tpr=mean, folds=n_judged, of_folds=n_folds)

    def _trails(self, entry: Entry, errors: float = 1.0, least: float = 0.0) -> bool:
        """Whether somebody who raced to the end is ahead, on the folds so far, by more than so many standard errors."""
        n_judged = entry.means.size
        finished = [rival for rival in self._entries if rival.is_complete and rival.means.size > n_judged]
        leads = [rival.means[:n_judged] - entry.means for rival in finished]
        return any(lead.mean() > max(errors * _standard_error(lead), least) for lead in leads)

    def _looks(self, entry: Entry) -> tuple[int, ...]:
        """Folds after which a candidate that would take a while may leave."""
        return _LOOKS if self._cost(entry) >= _WORTH_LEAVING else ()

    def _leaves(self, entry: Entry) -> bool:
        """Whether a candidate is too far behind to go on: its status says so."""
        n_judged, n_folds = entry.rates.shape[0], len(self._task.folds)
        may_leave = n_judged in self._looks(entry) and n_judged < n_folds
        if may_leave and self._trails(entry, _FAR, _FAR_AHEAD / n_judged):
            entry.status = f"left after {n_judged} of {n_folds} folds"
        return not entry.is_complete

    def _judge(self, entry: Entry, n_folds: int) -> None:
        """On folds up to a number of them, as long as there is time."""
        while entry.rates.shape[0] < n_folds:
            n_judged = entry.rates.shape[0]
            if self._elapsed() + self._seconds_for(entry, n_judged + 1) >= self._budget:
                entry.status = f"{_OUT_OF_TIME} after {n_judged} of {len(self._task.folds)} folds"
                return
            cpu_start, wall_start = time.process_time(), time.monotonic()
            with CompileClock() as compiling, self._judging(entry, n_judged):
                rates = self._task.rates(self._build(entry), self._task.folds[n_judged], self._at)
            entry.rates = np.vstack([entry.rates, rates])
            entry.seconds += time.process_time() - cpu_start
            entry.elapsed += time.monotonic() - wall_start - compiling.seconds
            if self._leaves(entry):
                return

    def _judge_while_close(self, entry: Entry) -> None:
        """On all folds, unless it is seen to be far behind."""
        for n_folds in (*self._looks(entry), len(self._task.folds)):
            self._judge_at_once(entry, min(n_folds, len(self._task.folds)))
            if self._leaves(entry):
                return

    def _judge_at_once(self, entry: Entry, n_folds: int) -> None:
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

    def _store(self, entry: Entry) -> None:
        if self._verbose and entry.rates.size:
            print(f"SimilarityAuto: {entry.candidate.name}, mean TPR {entry.means.mean():.4f}")
        if self._shelf is not None and entry.is_complete:
            params = json.dumps(entry.params)
            self._shelf.store(
                _file(entry),
                {"rates": entry.rates, "seconds": np.array(entry.seconds), "params": np.array(params)},
            )

    def _restored(self, entry: Entry) -> bool:
        arrays = None if self._shelf is None else self._shelf.load(_file(entry))
        if arrays is None:
            return False
        entry.rates, entry.seconds = arrays["rates"], float(arrays["seconds"])
        entry.params = json.loads(str(arrays["params"]))
        return True


def _file(entry: Entry) -> str:
    return entry.candidate.name.replace(" ", "-")


def winner(entries: Sequence[Entry]) -> Entry:
    """The simplest candidate within one standard error of the best, fold by fold, and within `NEGLIGIBLE` of it.

    Those that ran out of time take part if half of the folds have judged them: then those folds decide.
    """
    eligible, n_common = _eligible(entries)
    return eligible[_simplest(np.stack([entry.means[:n_common] for entry in eligible]))]


def _eligible(entries: Sequence[Entry]) -> tuple[list[Entry], int]:
    """Who can win, and how many folds have judged them all."""
    n_folds = max(entry.rates.shape[0] for entry in entries)
    eligible = [
        entry
        for entry in entries
        if (entry.is_complete or entry.timed_out) and 2 * entry.rates.shape[0] >= n_folds
    ] or [entry for entry in entries if entry.rates.shape[0] == n_folds]
    return eligible, min(entry.rates.shape[0] for entry in eligible)


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
    eligible, n_common = _eligible(entries)
    folds = folds[:n_common]
    rates = np.stack([entry.rates[:n_common] for entry in eligible])
    winners = [_simplest(fold_means(rates)[:, is_other]) for is_other in other_folds(folds)]
    nested = rates[winners, np.arange(n_common)]
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
    it is a guide and no test), and CPU ``seconds``. The chosen one has ``validated_tpr`` too, by false positive rate:
    what to expect of it, less the optimism of having been chosen. Each fold counts there with the candidate that wins
    on the other folds.
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
            "seconds": round(entry.seconds, 3),
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
