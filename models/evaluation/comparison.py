"""Several scorers on the same held-out pairs (or rows), with paired intervals.

Everybody is judged on the same pairs and resampled with the same draws of sampling units, so what makes a test part
easy or hard for all of them cancels out of the differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from pairmark.models.evaluation.kernels.sweep import sweep
from pairmark.models.evaluation.validation import judged_rates
from pairmark.models.pairs.samples import PairSample, pair_sample

Float64 = NDArray[np.float64]

CONFIDENCE = 0.95
N_REPLICATES = 200
_BLOCK = 10
_NO_THRESHOLDS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Compared:
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
        return {
            "value": self.value,
            "interval": _listed(self.interval),
            "difference": self.difference,
            "difference_interval": _listed(self.difference_interval),
            **({} if self.tpr_at_fpr is None else {"tpr_at_fpr": self.tpr_at_fpr}),
        }


def resolved_rates(n_different: int, target_fpr: float | None = None) -> tuple[float, ...]:
    """The rates at which scorers are compared: of those that a race is judged at, what so many different pairs resolve.

    Parameters
    ----------
    target_fpr : compare around this rate.
    """
    wanted = judged_rates(target_fpr)
    return tuple(rate for rate in wanted if n_different * rate >= 1) or wanted[:1]


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
) -> dict[str, Compared]:
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

    Raises
    ------
    ValueError
        As `pair_report`.
    """
    targets = np.array(sorted(rates), dtype=np.float64)
    sorted_pairs = {
        name: _Sorted.of(pair_sample(values, same, units, protocol=protocol))
        for name, values in scores.items()
    }
    point = {name: pairs.tpr(None, targets) for name, pairs in sorted_pairs.items()}
    seeds = np.random.SeedSequence(0 if random_state is None else random_state).spawn(n_replicates)
    blocks = [seeds[start : start + _BLOCK] for start in range(0, n_replicates, _BLOCK)]
    done = joblib.Parallel(n_jobs=None, prefer="threads")(
        joblib.delayed(_replicates)(sorted_pairs, block, targets) for block in blocks
    )
    drawn = np.concatenate(done, axis=1)
    order = list(sorted_pairs)
    at = order.index(reference)
    return {
        name: Compared(
            value=float(point[name].mean()),
            interval=_percentiles(drawn[number]),
            difference=float(point[reference].mean() - point[name].mean()),
            difference_interval=_percentiles(drawn[at] - drawn[number]),
            tpr_at_fpr={f"{rate:g}": float(value) for rate, value in zip(targets, point[name], strict=True)},
        )
        for number, name in enumerate(order)
    }


def compare_rows(
    values: Mapping[str, ArrayLike], *, reference: str, units: ArrayLike | None = None
) -> dict[str, Compared]:
    """Means over the same rows of several predictors, with Student's t intervals.

    Parameters
    ----------
    values : name -> (n_rows,) how well each row was predicted, e.g. Kendall's tau, or 0 and 1.
    units : (n_rows,) groups that rows depend within; default: every row stands for itself.
    """
    arrays = {name: np.asarray(one, dtype=np.float64) for name, one in values.items()}
    base = arrays[reference]
    owner = np.arange(base.size) if units is None else np.unique(np.asarray(units), return_inverse=True)[1]
    return {
        name: Compared(
            value=float(one.mean()),
            interval=_t_interval(one, owner),
            difference=float((base - one).mean()),
            difference_interval=_t_interval(base - one, owner),
        )
        for name, one in arrays.items()
    }


@dataclass(frozen=True, kw_only=True)
class _Sorted:
    """Pairs of both kinds, best score first, with the units that they depend on."""

    weight: Float64 = field(repr=False)
    is_same: NDArray[np.bool_] = field(repr=False)
    ends: NDArray[np.int64] = field(repr=False)
    units: NDArray[np.int64] = field(repr=False)
    n_units: int

    @classmethod
    def of(cls, sample: PairSample) -> _Sorted:
        sides = (sample.different, sample.same)
        if not len(sample.same):
            raise ValueError("there is no pair marked same; expected both kinds")
        scores = np.concatenate([side.scores for side in sides])
        order = np.argsort(-scores, kind="stable")
        units = np.concatenate([side.edge_units[side.edge] for side in sides])
        known, codes = np.unique(units, return_inverse=True)
        best_first = scores[order]
        return cls(
            weight=np.concatenate([side.weight for side in sides])[order],
            is_same=np.repeat([False, True], [len(side) for side in sides])[order],
            ends=np.append(np.flatnonzero(best_first[1:] != best_first[:-1]) + 1, scores.size).astype(
                np.int64
            ),
            units=codes.reshape(-1, 2)[order].astype(np.int64),
            n_units=int(known.size),
        )

    def tpr(self, count: Float64 | None, targets: Float64) -> Float64:
        """TPR at each rate, units drawn so many times; NaN where a kind of pairs was not drawn at all."""
        weight = self.weight
        if count is not None:
            left, right = self.units[:, 0], self.units[:, 1]
            weight = weight * count[left] * np.where(left == right, 1.0, count[right])
            if not (weight[self.is_same].any() and weight[~self.is_same].any()):
                return np.full(targets.size, np.nan)
        summary = np.empty(2 + targets.size)
        sweep(weight, self.is_same, self.ends, targets, _NO_THRESHOLDS, summary, np.empty((2, 0)))
        return summary[2:]


def _replicates(
    sorted_pairs: Mapping[str, _Sorted], seeds: Sequence[np.random.SeedSequence], targets: Float64
) -> Float64:
    """(n_scorers, n_seeds) mean TPR under the same draws of units for all."""
    out = np.empty((len(sorted_pairs), len(seeds)))
    n_units = next(iter(sorted_pairs.values())).n_units
    for column, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        while True:
            count = rng.multinomial(n_units, np.full(n_units, 1 / n_units)).astype(np.float64)
            means = [float(pairs.tpr(count, targets).mean()) for pairs in sorted_pairs.values()]
            if not np.isnan(means).any():
                break
        out[:, column] = means
    return out


def _percentiles(values: Float64) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _t_interval(values: Float64, owner: NDArray[np.int64]) -> tuple[float, float] | None:
    """Of the mean, with the variance of sums over owners."""
    n_owners = int(owner.max()) + 1
    if n_owners < 2:
        return None
    mean = float(values.mean())
    off = np.bincount(owner, values - mean)
    error = float(np.sqrt((off**2).sum() * n_owners / (n_owners - 1)) / values.size)
    reach = float(stdtrit(n_owners - 1, (1 + CONFIDENCE) / 2)) * error
    return mean - reach, mean + reach


def _listed(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else list(interval)
