"""Who wins a race, and the table of all candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pairmark.models.auto.race import NEGLIGIBLE, NOTHING, Entry, standard_error
from pairmark.models.core.arrays import Float64
from pairmark.models.evaluation.validation import fold_means, other_folds, shown_rates


def winner(entries: Sequence[Entry]) -> Entry:
    """The simplest candidate within one standard error of the best, fold by fold, and within `NEGLIGIBLE` of it.

    Or within its margin.
    """
    eligible = _eligible(entries)
    return eligible[_simplest(eligible, np.stack([entry.means for entry in eligible]))]


def _eligible(entries: Sequence[Entry]) -> list[Entry]:
    """Who raced to the end."""
    return [entry for entry in entries if entry.is_complete]


def _simplest(entries: Sequence[Entry], means: Float64) -> int:
    """Which candidate, simplest first, is as good as the best by ``means``, (n_candidates, n_folds)."""
    deficits = means[means.mean(axis=1).argmax()] - means
    return next(
        number
        for number, deficit in enumerate(deficits)
        if deficit.mean() <= max(min(standard_error(deficit), NEGLIGIBLE), NOTHING, entries[number].margin)
    )


def _validated(entries: Sequence[Entry], best: Entry, folds: Sequence[Any]) -> Float64:
    """(n_folds, n_rates) TPR of racing: of the candidate that wins on the other folds of the repeat."""
    if best.nested_rates is not None:
        return best.nested_rates
    eligible = _eligible(entries)
    rates = np.stack([entry.rates for entry in eligible])
    winners = [_simplest(eligible, fold_means(rates)[:, is_other]) for is_other in other_folds(folds)]
    return np.asarray(rates[winners, np.arange(len(folds))])


def _intervals(rates: Float64, folds: Sequence[Any], at: tuple[float, ...]) -> dict[str, list[float] | None]:
    """95 % intervals of the means over folds, as if those of a repeat were all: the same rows come again in others."""
    from scipy.stats import t as student

    n_each = len(folds) / len({fold.repeat for fold in folds})
    shown = shown_rates(rates, folds, at)
    found: dict[str, list[float] | None] = {f"{rate:g}": None for rate in at}
    for column, rate in enumerate(at):
        values = rates[:, column][np.isfinite(rates[:, column])]
        if rate in shown and values.size > 1:
            half = float(student.ppf(0.975, values.size - 1) * values.std(ddof=1) / n_each**0.5)
            found[f"{rate:g}"] = [max(shown[rate] - half, 0.0), min(shown[rate] + half, 1.0)]
    return found


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
    fold counts there with the candidate that wins on the other folds. ``tpr_interval`` and ``validated_interval`` are
    95 % intervals over folds, which hold identities or groups out.
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
            "tpr_interval": _intervals(entry.rates, folds[:n_judged], at) if n_judged else {},
            "difference": None,
            "reference_seconds": round(entry.work, 3),
        }
        if entry is best and n_judged:
            nested = _validated(entries, best, folds)
            line["validated_tpr"] = _by_rate(nested, folds, at)
            line["validated_interval"] = _intervals(nested, folds, at)
        if min(n_judged, best.rates.shape[0]) > 1:
            common = min(n_judged, best.rates.shape[0])
            deficit = entry.means[:common] - best.means[:common]
            reach = float(student.ppf(0.975, common - 1)) * standard_error(deficit)
            mean = float(deficit.mean())
            line["difference"] = {"value": mean, "interval": [mean - reach, mean + reach]}
        lines.append(line)
    return sorted(
        lines, key=lambda line: -1.0 if line["mean_tpr"] is None else line["mean_tpr"], reverse=True
    )
