"""The comparison of candidates, on as many of them as the budget's work allows; who wins it, and the table of all.

Rates of two candidates on one fold move together, so candidates are compared fold by fold. The simplest one whose mean
is within one standard error of the best's, of the mean difference over folds, and within `NEGLIGIBLE`, wins: a
difference that small is no reason for a model that costs more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from scipy.special import stdtrit

from pairmark.models.auto.candidates import Candidate, Data
from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.core.progress import as_part, note
from pairmark.models.core.scores import Aggregation
from pairmark.models.evaluation.validation import (
    Fold,
    GroupedRows,
    PairFold,
    PairScores,
    fold_means,
    other_folds,
    pooled_rates,
    shown_rates,
)
from pairmark.models.plda.choosing import SettingRates

NEGLIGIBLE = 0.01
"""Mean TPR that a simpler candidate may be behind: of few folds, a standard error is many times as much."""
_COSTED_FOLDS = 8
NOTHING = 0.002
FAR_AHEAD = 0.1
"""Mean TPR by which a candidate that is not simpler must be ahead halfway for another to leave."""
_WORTH_LEAVING = 0.3
"""Reference seconds of a candidate's folds, from which on it may leave: less is no burden."""
RACE_SHARE = 0.75
"""Of the way of a fit, what the race takes."""
_SIDES, _FEWEST_SIDES, _SAMPLES = 40, 4, 5
"""People of a fold, most and least, that show how samples are put together, and samples a side."""
_LEAST_COST = 0.3
"""Seconds that any candidate takes, when progress is told."""


def fit_estimator(estimator: Any, X: Any, y: Any, groups: Int64 | None) -> Any:
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
        """On a fold, of an estimator fitted to its training part."""
        self._fit(estimator, fold)
        rows = self.X[fold.test]
        return fold.of_pairs(estimator.score_against(rows, rows))

    def usual_aggregation(self, estimator: Any, fprs: tuple[float, ...]) -> Aggregation | None:
        """By which it best compares new people of several samples: its own first one, unless another is ahead of it.

        Half of a person's samples meet everybody's other half, on the folds of the first repeat. Ahead is by more than
        a standard error of the mean difference, fold by fold. None where too few people have as many samples.
        """
        scores: dict[Aggregation, list[PairScores]] = {}
        for fold in (fold for fold in self.folds if not (fold.repeat or fold.closed)):
            places = [fold.test[fold.test_codes == code] for code in np.unique(fold.test_codes)]
            several = [rows for rows in places if rows.size >= 4][:_SIDES]
            if len(several) < _FEWEST_SIDES:
                return None
            left = [self.X[rows[: rows.size // 2][:_SAMPLES]] for rows in several for _ in several]
            right = [self.X[rows[rows.size // 2 :][:_SAMPLES]] for _ in several for rows in several]
            self._fit(estimator, fold)
            same = np.eye(len(several), dtype=np.bool_).reshape(-1)
            for way in estimator.aggregations:
                values = estimator.subject_score(left, right, aggregation=way)
                scores.setdefault(way, []).append((values[same], values[~same]))
        means = {way: fold_means(pooled_rates(parts, fprs)) for way, parts in scores.items()}
        if not means:
            return None
        usual, best = next(iter(means)), max(means, key=lambda way: float(means[way].mean()))
        lead = means[best] - means[usual]
        return best if lead.mean() > max(standard_error(lead), NEGLIGIBLE) else usual

    def _fit(self, estimator: Any, fold: Fold) -> None:
        groups = None if self.groups is None else self.groups[fold.train]
        fit_estimator(estimator, self.X[fold.train], self.codes[fold.train], groups)

    def plda_settings(self, estimator: Any) -> dict[str, Any]:
        """Parameters that it chose on the folds. Candidates share what they found of settings."""
        return dict(estimator.choose(self.X, self.codes, self.folds, self._setting_rates).setting.as_params())


@dataclass(frozen=True, kw_only=True)
class PairTask:
    """Listed pairs."""

    left: Any = field(repr=False)
    right: Any = field(repr=False)
    same: Bool = field(repr=False)
    weight: Float64 = field(repr=False)
    folds: Sequence[PairFold] = field(repr=False)
    data: Data

    def scores(self, estimator: Any, fold: PairFold) -> PairScores:
        """See `IdentityTask`."""
        train, test = fold.train, fold.test
        estimator.fit_pairs(
            self.left[train], self.right[train], self.same[train], sample_weight=self.weight[train]
        )
        scores, same = estimator.pair_score(self.left[test], self.right[test]), self.same[test]
        return scores[same], scores[~same]

    def plda_settings(self, estimator: Any) -> dict[str, Any]:
        """Chosen once, on identities that all pairs tell of, then judged by fold."""
        estimator.fit_pairs(self.left, self.right, self.same, sample_weight=self.weight)
        return dict(estimator.settings_)

    def usual_aggregation(self, estimator: Any, fprs: tuple[float, ...]) -> None:
        """Unknown: pairs do not say whose a sample is."""


@dataclass(kw_only=True)
class Entry:
    """One candidate's part of the race.

    Attributes
    ----------
    scores : of each fold judged. rates : (n_folds judged, n_rates), see `pooled_rates`. work : reference seconds of all
        its folds, counted beforehand. status : ``raced``, or why it did not race to
        the end. nested_rates, model : of a mean of candidates, its rates where each fold has no say in who is averaged,
        and the estimator, unfitted.
    """

    candidate: Candidate
    rates: Float64 = field(repr=False)
    params: dict[str, Any] = field(default_factory=dict)
    scores: list[PairScores] = field(repr=False, default_factory=list)
    work: float = 0.0
    status: str = "raced"
    nested_rates: Float64 | None = field(repr=False, default=None)
    model: Any = field(repr=False, default=None)

    @property
    def name(self) -> str:
        """The candidate's."""
        return self.candidate.name

    @property
    def means(self) -> Float64:
        """(n_folds,) what is judged: each fold's mean over the rates that it resolves."""
        return fold_means(self.rates)


def to_the_end(entries: Sequence[Entry]) -> list[Entry]:
    """Those that were judged on every fold."""
    return [entry for entry in entries if entry.status == "raced"]


class Race:
    """One race over a task.

    Parameters
    ----------
    task : an `IdentityTask` or a `PairTask`.
    shared : parameters that every candidate gets which knows them.
    """

    def __init__(
        self,
        task: Any,
        *,
        fprs: tuple[float, ...],
        shared: dict[str, Any],
        verbose: int = 0,
    ) -> None:
        self._task, self._fprs, self._shared = task, fprs, shared
        self._verbose = verbose

    def run(self, candidates: Sequence[Candidate]) -> list[Entry]:
        """Everybody's entry, in the order given. The cheapest race first, as many as the work allows."""
        data = self._task.data
        self._entries = [
            Entry(
                candidate=candidate,
                rates=np.empty((0, len(self._fprs))),
                work=candidate.cost(data) * len(self._task.folds) / _COSTED_FOLDS,
            )
            for candidate in candidates
        ]
        racing: list[Entry] = []
        work = data.work
        for entry in sorted(self._entries, key=lambda entry: entry.work):
            if not racing or entry.work <= work:
                work -= entry.work
                racing.append(entry)
            else:
                entry.status = "skipped (budget)"
        racing.sort(key=lambda entry: entry.name == "similarity forest")
        # Where on the way of a fit each candidate ends, by its work.
        ends = np.cumsum([_LEAST_COST + entry.work for entry in racing])
        ends *= RACE_SHARE / ends[-1]
        for entry, low, high in zip(racing, (0.0, *ends), ends, strict=False):
            if entry.name == "similarity forest" and self._trees_gain_nothing():
                entry.status = "skipped (trees over the ratio gain nothing)"
                continue
            with as_part(float(low), float(high), f"racing {entry.name}"):
                try:
                    self._run_one(entry)
                except ValueError as error:
                    # It finds nothing to learn in a fold, and the others race on.
                    entry.status, entry.rates = f"refused a fold: {str(error)[:200]}", entry.rates[:0]
        return self._entries

    def _trees_gain_nothing(self) -> bool:
        """Whether trees over PLDA's ratio are not ahead of it for identities never met: forests are then far behind."""
        judged = {entry.name: entry for entry in self._entries if entry.rates.size}
        trees, ratio = judged.get("residual forest"), judged.get("plda")
        return not self._task.data.closed and bool(
            trees and ratio and self._deficit(trees, ratio) >= -NOTHING
        )

    def _deficit(self, entry: Entry, rival: Entry) -> float:
        """By how much a candidate is behind one that was judged on as many folds or more."""
        means = fold_means(pooled_rates(rival.scores[: len(entry.scores)], self._fprs))
        return float((means - entry.means).mean())

    def _run_one(self, entry: Entry) -> None:
        """On all folds, unless it would take a while and is seen to be behind halfway."""
        n_folds = len(self._task.folds)
        if entry.candidate.kind == "plda":
            with as_part(0.0, 0.5, ""):
                entry.params = self._task.plda_settings(self._build(entry))
        elif entry.candidate.grid:
            self._tune(entry)
        if entry.work >= _WORTH_LEAVING:
            self._judge(entry, n_folds // 2)
        if entry.work < _WORTH_LEAVING or not self._leaves(entry):
            self._judge(entry, n_folds)
        # The candidate as it stands, for progress reports.
        mean, n_judged = float(entry.means.mean()), len(entry.scores)
        if self._verbose:
            print(f"SimilarityAuto: {entry.name}, mean TPR {mean:.4f}")
        line = f"{entry.name}: mean TPR {mean:.3f} over {n_judged} of {n_folds} folds"
        note(line, candidate=entry.name, mean_tpr=mean, folds=n_judged, of_folds=n_folds)

    def _tune(self, entry: Entry) -> None:
        """Parameters of a grid, by the first half of the folds: its first ones unless others are ahead.

        Ahead is by more than a standard error of the mean difference, fold by fold. Folds hold fewer rows or pairs
        than the winner learns from, so the best setting on them may differ from the best one later; the learner's
        default, first in the grid, is not left for a difference that small.
        """
        settings = [replace(entry, params=params, scores=[]) for params in entry.candidate.grid]
        for setting in settings:
            self._judge(setting, -(-len(self._task.folds) // 2))
        best = max(settings, key=lambda setting: float(setting.means.mean()))
        lead = best.means - settings[0].means
        chosen = best if lead.mean() > standard_error(lead) else settings[0]
        entry.params, entry.scores = chosen.params, chosen.scores

    def _leaves(self, entry: Entry) -> bool:
        """Whether a candidate goes no further: not ahead of a simpler one halfway, or far behind another."""
        n_judged, n_folds = len(entry.scores), len(self._task.folds)
        # What may be averaged stays while it is level; a forest costs more than it adds there.
        level = self._task.data.reach if entry.name != "similarity forest" else None
        simpler = True
        for rival in self._entries:
            simpler &= rival is not entry
            margin = (level or -NOTHING) if simpler else FAR_AHEAD
            is_ahead = rival.status == "raced" and len(rival.scores) > n_judged
            if is_ahead and self._deficit(entry, rival) > margin:
                entry.status = f"left after {n_judged} of {n_folds} folds"
        return entry.status != "raced"

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
        entry.rates = pooled_rates(entry.scores, self._fprs)

    def _build(self, entry: Entry) -> Any:
        return entry.candidate.build(entry.params, self._shared)


def standard_error(values: Float64) -> float:
    """Of the mean of some values, 0 of a single one."""
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0


def winner(entries: Sequence[Entry]) -> Entry:
    """The simplest candidate within one standard error of the best, fold by fold, and within `NEGLIGIBLE` of it."""
    eligible = to_the_end(entries)
    return eligible[_simplest(np.stack([entry.means for entry in eligible]))]


def _simplest(means: Float64) -> int:
    """Which candidate, simplest first, is as good as the best by ``means``, (n_candidates, n_folds)."""
    deficits = means[means.mean(axis=1).argmax()] - means
    return next(
        number
        for number, deficit in enumerate(deficits)
        if deficit.mean() <= max(min(standard_error(deficit), NEGLIGIBLE), NOTHING)
    )


def _validated_rates(entries: Sequence[Entry], best: Entry, folds: Sequence[Any]) -> Float64:
    """(n_folds, n_rates) TPR of racing: of the candidate that wins on the other folds of the repeat."""
    if best.nested_rates is not None:
        return best.nested_rates
    rates = np.stack([entry.rates for entry in to_the_end(entries)])
    winners = [_simplest(fold_means(rates)[:, is_other]) for is_other in other_folds(folds)]
    return np.asarray(rates[winners, np.arange(len(folds))])


def _by_rate(
    rates: Float64, folds: Sequence[Any], fprs: tuple[float, ...]
) -> tuple[dict[str, float | None], dict[str, list[float] | None]]:
    """Means over folds, and their 95 % intervals, as if folds of a repeat were all: the same rows come again in others.

    None at rates that so few cannot show. Folds that agree show no more than their number of people or rows, by the
    rule of three (Hanley and Lippman-Hand 1983).
    """
    shown = shown_rates(rates, folds, fprs) if folds else {}
    n_repeats = max(len({fold.repeat for fold in folds}), 1)
    n_each, least = len(folds) / n_repeats, 3 * n_repeats / max(sum(fold.n_units for fold in folds), 1)
    intervals: dict[str, list[float] | None] = {f"{rate:g}": None for rate in fprs if folds}
    for column, rate in enumerate(fprs):
        values = rates[:, column][np.isfinite(rates[:, column])]
        if rate in shown and values.size > 1:
            half = max(float(stdtrit(values.size - 1, 0.975) * values.std(ddof=1) / n_each**0.5), least)
            intervals[f"{rate:g}"] = [max(shown[rate] - half, 0.0), min(shown[rate] + half, 1.0)]
    return {name: shown.get(float(name)) for name in intervals}, intervals


def leaderboard(
    entries: Sequence[Entry], best: Entry, fprs: tuple[float, ...], folds: Sequence[Any]
) -> list[dict[str, Any]]:
    """The race for people, best first, JSON-able.

    Returns
    -------
    For each candidate ``name``, ``kind``, ``params``, ``status``, ``chosen``, ``folds``, ``mean_tpr`` (over folds and
    the rates that each resolves), ``tpr_at_fpr`` (None at rates that folds of so few identities cannot show),
    ``difference`` to the chosen one with its 95 % ``interval`` by Student's t over folds (which share training rows, so
    it is a guide and no test), and ``reference_seconds``, its work as it was counted beforehand. The chosen one has
    ``validated_tpr`` too, by false positive rate: what to expect of it, less the optimism of having been chosen. Each
    fold counts there with the candidate that wins on the other folds. ``tpr_interval`` and ``validated_interval`` are
    95 % intervals over folds, which hold identities or groups out.
    """
    lines = []
    for entry in entries:
        n_judged, common = entry.rates.shape[0], min(entry.rates.shape[0], best.rates.shape[0])
        tpr, interval = _by_rate(entry.rates, folds[:n_judged], fprs)
        line: dict[str, Any] = {
            "name": entry.name,
            "kind": entry.candidate.kind,
            "params": entry.params,
            "status": entry.status,
            "chosen": entry is best,
            "folds": n_judged,
            "mean_tpr": float(entry.means.mean()) if n_judged else None,
            "tpr_at_fpr": tpr,
            "tpr_interval": interval,
            "difference": None,
            "reference_seconds": round(entry.work, 3),
        }
        if entry is best and n_judged:
            nested = _validated_rates(entries, best, folds)
            line["validated_tpr"], line["validated_interval"] = _by_rate(nested, folds, fprs)
        if common > 1:
            deficit = entry.means[:common] - best.means[:common]
            mean, reach = float(deficit.mean()), float(stdtrit(common - 1, 0.975)) * standard_error(deficit)
            line["difference"] = {"value": mean, "interval": [mean - reach, mean + reach]}
        lines.append(line)
    return sorted(
        lines, key=lambda line: -1.0 if line["mean_tpr"] is None else line["mean_tpr"], reverse=True
    )
