"""Several scorers on the same held-out pairs (or rows), with paired intervals.

Everybody is judged on the same pairs and resampled with the same draws of sampling units, so what makes a test part
easy or hard for all of them cancels out of the differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairmark.models.calibration.bounds import t_reach
from pairmark.models.evaluation.pairs import SortedPairs
from pairmark.models.evaluation.validation import judged_rates, resolved
from pairmark.models.pairs.samples import pair_sample

Float64 = NDArray[np.float64]

CONFIDENCE = 0.95
N_REPLICATES = 200
_BLOCK = 10


@dataclass(frozen=True, kw_only=True)
class ScorerComparison:
    """One scorer among others.

    Attributes
    ----------
    value : what decides: the mean TPR at the judged rates, or the mean over rows.
    interval : of ``value``, at `CONFIDENCE`.
    difference : the reference's value minus this one's; 0 for the reference itself.
    difference_interval : paired, over the same draws of units.
    tpr_at_fpr : rate -> TPR, for pairs.
    """

    value: float
    interval: tuple[float, float] | None
    difference: float
    difference_interval: tuple[float, float] | None
    tpr_at_fpr: dict[str, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: the attributes by name."""
        entry = asdict(self)
        if self.tpr_at_fpr is None:
            del entry["tpr_at_fpr"]
        return entry


def resolved_rates(n_different: int, target_fpr: float | None = None) -> tuple[float, ...]:
    """The rates at which scorers are compared: of those that a race is judged at, what so many different pairs resolve.

    Parameters
    ----------
    target_fpr : compare around this rate.
    """
    rates = judged_rates(target_fpr)
    return tuple(rate for rate, can in zip(rates, resolved(n_different, rates), strict=True) if can)


def judged_by(rates: Sequence[float]) -> str:
    """What `compare_pairs` decides by, in words."""
    return "mean TPR at FPR " + ", ".join(f"{100 * rate:.3g} %" for rate in rates)


def compare_pairs(
    scores: Mapping[str, ArrayLike],
    same: ArrayLike,
    units: ArrayLike,
    *,
    reference: str,
    rates: Sequence[float],
    protocol: str | None = None,
    n_replicates: int = N_REPLICATES,
    random_state: int | None = None,
) -> dict[str, ScorerComparison]:
    """Mean TPR at fixed false positive rates of several scorers of the same pairs.

    Parameters
    ----------
    scores : name -> (n_pairs,) scores, higher is more similar.
    same, units, protocol : as `pairmark.models.evaluation.pairs.pair_report`; people weigh equally in open-set use.
    reference : the name that the others are compared with.
    rates : false positive rates, strictly between 0 and 1.

    Returns
    -------
    name -> how it did. Intervals are percentiles over draws of the units with replacement.
    """
    targets = np.array(sorted(rates), dtype=np.float64)
    sorted_pairs = {
        name: SortedPairs.of(pair_sample(values, same, units, protocol=protocol, both_kinds=True))
        for name, values in scores.items()
    }
    point = {name: _tpr(pairs, pairs.weight, targets) for name, pairs in sorted_pairs.items()}
    seeds = np.random.SeedSequence(0 if random_state is None else random_state).spawn(n_replicates)
    blocks = [seeds[start : start + _BLOCK] for start in range(0, n_replicates, _BLOCK)]
    results = joblib.Parallel(n_jobs=None, prefer="threads")(
        joblib.delayed(_replicates)(sorted_pairs, block, targets) for block in blocks
    )
    draws = np.concatenate(results, axis=1)
    order = list(sorted_pairs)
    at = order.index(reference)
    return {
        name: ScorerComparison(
            value=float(point[name].mean()),
            interval=_percentiles(draws[number]),
            difference=float(point[reference].mean() - point[name].mean()),
            difference_interval=_percentiles(draws[at] - draws[number]),
            tpr_at_fpr={f"{rate:g}": float(value) for rate, value in zip(targets, point[name], strict=True)},
        )
        for number, name in enumerate(order)
    }


def compare_rows(
    values: Mapping[str, ArrayLike], *, reference: str, units: ArrayLike | None = None
) -> dict[str, ScorerComparison]:
    """Means over the same rows of several predictors, with Student's t intervals.

    Parameters
    ----------
    values : name -> (n_rows,) how well each row was predicted, e.g. Kendall's tau, or 0 and 1.
    units : (n_rows,) groups that rows depend within; default: every row stands for itself.
    """
    arrays = {name: np.asarray(rows, dtype=np.float64) for name, rows in values.items()}
    base = arrays[reference]
    owner = np.arange(base.size) if units is None else np.unique(np.asarray(units), return_inverse=True)[1]
    return {
        name: ScorerComparison(
            value=float(rows.mean()),
            interval=_t_interval(rows, owner),
            difference=float((base - rows).mean()),
            difference_interval=_t_interval(base - rows, owner),
        )
        for name, rows in arrays.items()
    }


def _replicates(
    sorted_pairs: Mapping[str, SortedPairs], seeds: Sequence[np.random.SeedSequence], targets: Float64
) -> Float64:
    """(n_scorers, n_seeds) mean TPR under the same draws of units for all."""
    out = np.empty((len(sorted_pairs), len(seeds)))
    first = next(iter(sorted_pairs.values()))
    for column, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        while True:
            count = first.draw(rng)
            weights = [pairs.weighed(pairs.times(count)) for pairs in sorted_pairs.values()]
            # All scorers have the same pairs, so that none has a kind that another one lacks.
            if weights[0] is not None:
                break
        out[:, column] = [
            _tpr(pairs, weight, targets).mean()
            for pairs, weight in zip(sorted_pairs.values(), weights, strict=True)
            if weight is not None
        ]
    return out


def _tpr(pairs: SortedPairs, weight: Float64, targets: Float64) -> Float64:
    return pairs.measure(weight, targets)[0][2:]


def _percentiles(values: Float64) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _t_interval(values: Float64, owner: NDArray[np.int64]) -> tuple[float, float] | None:
    mean = float(values.mean())
    reach = t_reach((values - mean) / values.size, owner, CONFIDENCE)
    return None if reach is None else (mean - reach, mean + reach)
