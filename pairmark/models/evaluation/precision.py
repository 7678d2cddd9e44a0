"""What matches are worth: precision, recall and F1 of held-out pairs, the cut that has the best F1, and
labels that scores make doubtful.

Every pair counts the same, and the figures are of pairs mixed as the held-out ones are: among more different pairs the
same threshold has a lower precision.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from pairmark.models.core.arrays import ArrayLike, Bool, Float32, Float64, Int64, NDArray
from pairmark.models.evaluation.pairs import (
    MAX_POINTS,
    N_REPLICATES,
    SortedPairs,
    designs_of,
    intervals_of,
    widest_of,
)
from pairmark.models.pairs.samples import pair_sample

MEASURES: Final = ("f1", "precision", "recall", "average_precision")
_PR, _BEST_F1 = "pr_", "best_f1"


@dataclass(frozen=True, kw_only=True)
class PrecisionReport:
    """What was measured on the test pairs.

    Attributes
    ----------
    metrics : JSON-able: `MEASURES`, each ``{"value", "interval": [low, high]}``. F1, precision and recall are those of
        matches cut, in each half of the units, where F1 is best in the other half.
    recall, precision, thresholds : (n,) of ``score > threshold``, at most about 1,000 points, thresholds descending.
    best_f1 : the threshold that has the best F1 on all pairs.
    """

    metrics: dict[str, Any]
    recall: Float64 = field(repr=False)
    precision: Float64 = field(repr=False)
    thresholds: Float32 = field(repr=False)
    best_f1: np.float32

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The curve and the cut as named arrays, to be stored."""
        curve = {_PR + name: getattr(self, name) for name in ("recall", "precision", "thresholds")}
        return {**curve, _BEST_F1: np.array([self.best_f1], dtype=np.float32)}


def pr_lists(arrays: Mapping[str, NDArray[Any]], max_points: int | None = None) -> dict[str, Any] | None:
    """What `PrecisionReport.arrays` gave, as lists; None where it is not among the arrays. With ``max_points`` at most
    so many thresholds, first and last among them."""
    if _BEST_F1 not in arrays:
        return None
    n = arrays[_PR + "recall"].size
    points = np.unique(np.linspace(0, n - 1, min(n, max_points or n)).astype(np.int64))
    curve = {name: arrays[_PR + name][points].tolist() for name in ("recall", "precision", "thresholds")}
    return {**curve, _BEST_F1: float(arrays[_BEST_F1][0])}


def precision_report(
    scores: ArrayLike,
    same: ArrayLike,
    units: ArrayLike | None,
    *,
    protocol: str | None = None,
    clusters: Int64 | None = None,
    confidence: float = 0.95,
    random_state: int | None = None,
) -> PrecisionReport:
    """Precision, recall and F1 with intervals by units. Parameters and errors as for `pair_report`."""
    sample = pair_sample(scores, same, units, protocol=protocol, both_kinds=True)
    designs = [replace(pairs, weight=np.ones(pairs.scores.size)) for pairs in designs_of(sample, clusters)]
    pairs = designs[0]
    is_match = cross_matches(pairs.scores, pairs.is_same, pairs.units)
    point = _figures(pairs, is_match, pairs.weight)
    rng, intervals = np.random.default_rng(random_state), []
    for design in designs:
        weights = (design.resample(rng, independent=sample.rows_independent) for _ in range(N_REPLICATES))
        draws = np.stack([_figures(design, is_match, weight) for weight in weights])
        intervals.append(intervals_of(point, draws, sample, confidence))
    metrics = {
        name: {"value": float(value), "interval": interval.tolist()}
        for name, value, interval in zip(MEASURES, point, widest_of(intervals), strict=True)
    }
    hits = np.cumsum(pairs.is_same)[pairs.ends - 1]
    recall, precision = hits / hits[-1], hits / pairs.ends
    distinct = pairs.scores[pairs.ends - 1]
    thresholds = np.append(distinct[1:], np.nextafter(distinct[-1], np.float32(-np.inf)))
    points = np.arange(recall.size)
    if recall.size > MAX_POINTS:
        even = np.searchsorted(recall, np.linspace(0, 1, MAX_POINTS // 2))
        first = np.geomspace(1, recall.size, MAX_POINTS // 2).astype(np.int64) - 1
        points = np.unique(np.concatenate([even, first]))
    return PrecisionReport(
        metrics=metrics,
        recall=recall[points],
        precision=precision[points],
        thresholds=thresholds[points],
        best_f1=best_cut(pairs.scores, pairs.is_same),
    )


def cross_matches(scores: Float32, same: Bool, units: Int64) -> Bool:
    """(n,) which pairs match where each half of the units of the left is cut where F1 is best in the other half."""
    half = np.unique(units[:, 0], return_inverse=True)[1].ravel() % 2
    is_match = np.zeros(scores.size, dtype=np.bool_)
    for part in (0, 1):
        # One unit on the left has no other half.
        others = half != part if (half != part).any() else half == part
        is_match[half == part] = scores[half == part] > best_cut(scores[others], same[others])
    return is_match


def best_cut(scores: Float32, same: Bool) -> np.float32:
    """The threshold above which matches have the best F1: halfway to the next lower score."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    # No threshold tells equal scores apart.
    lasts = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), ranked.size - 1)
    f1 = 2 * np.cumsum(same[order])[lasts] / (lasts + 1 + max(int(same.sum()), 1))
    last = int(lasts[int(np.argmax(f1))])
    lowest = ranked[last]
    below = ranked[last + 1] if last + 1 < ranked.size else np.nextafter(lowest, np.float32(-np.inf))
    middle = np.float32((float(lowest) + float(below)) / 2)
    return middle if middle < lowest else below


def _figures(pairs: SortedPairs, is_match: Bool, weight: Float64) -> Float64:
    """`MEASURES` of these row weights."""
    same_weight = weight * pairs.is_same
    matched, same, hits = weight[is_match].sum(), same_weight.sum(), same_weight[is_match].sum()
    so_far, hits_so_far = np.cumsum([weight, same_weight], axis=1)[:, pairs.ends - 1]
    precision = hits_so_far / np.maximum(so_far, 1.0)
    average = (np.diff(hits_so_far, prepend=0.0) * precision).sum() / same
    return np.array([2 * hits / (matched + same), hits / max(matched, 1.0), hits / same, average])


TOLD = 20
"""Suspects of each kind that are listed."""
_RARE = 0.05


def suspects(
    scores: ArrayLike, same: ArrayLike, rows: ArrayLike, identities: ArrayLike
) -> tuple[Int64, Int64]:
    """Codes of pairs of identities, (n, 2), and rows, (m,), that scored pairs make doubtful, most doubtful first.

    Two identities are doubtful when the mean of their pairs is above the median score of same pairs. A row is doubtful
    when it is in at least two same pairs and even their best is below what one in twenty different pairs scores; where
    more than one row in twenty is, the scores cannot tell, and no row is called doubtful.

    Parameters
    ----------
    scores : (n,) finite. same : (n,) 0 or 1. rows : (n, 2) row of each side. identities : (n, 2) code of each side.
    """
    values, is_same = np.asarray(scores, dtype=np.float64), np.asarray(same).astype(np.bool_)
    ends, owners = np.asarray(rows), np.asarray(identities)
    no_pairs = np.empty((0, 2), np.int64), np.empty(0, np.int64)
    if is_same.all() or not is_same.any():
        return no_pairs
    typical_same, typical_different = float(np.median(values[is_same])), float(np.median(values[~is_same]))
    if typical_same <= typical_different:
        return no_pairs
    couples, couple_of_pair, counts = np.unique(
        np.sort(owners[~is_same], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    means = np.bincount(couple_of_pair.ravel(), weights=values[~is_same], minlength=counts.size) / counts
    doubtful = np.flatnonzero(means > typical_same)
    double = couples[doubtful[np.argsort(-means[doubtful], kind="stable")]]
    sides, places, n_pairs = np.unique(ends[is_same], return_inverse=True, return_counts=True)
    best = np.full(sides.size, -np.inf)
    np.maximum.at(best, places.ravel(), np.repeat(values[is_same], 2))
    wrong = np.flatnonzero((n_pairs >= 2) & (best < float(np.quantile(values[~is_same], 1 - _RARE))))
    if wrong.size > _RARE * sides.size:
        wrong = wrong[:0]
    return double.astype(np.int64), sides[wrong[np.argsort(best[wrong], kind="stable")]].astype(np.int64)
