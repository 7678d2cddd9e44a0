"""Who wins a race, and the table of all candidates."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import stdtrit

from pairmark.models.auto.race import NEGLIGIBLE, NOTHING, Entry, standard_error, to_the_end
from pairmark.models.core.arrays import Float64
from pairmark.models.evaluation.validation import fold_means, other_folds, shown_rates


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
