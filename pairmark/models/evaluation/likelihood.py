"""What log likelihood ratios are worth on held-out pairs: Cllr.

Cllr (Brümmer & du Preez 2006) is the mean cost, in bits, of the decisions that likelihood ratios support over all
priors; 0 is perfect and 1 is what knowing nothing costs. Cllr_min is what is left after the best rising map of the same
pairs, so Cllr - Cllr_min is the cost of bad calibration. Values are natural log LRs; same and different pairs each
weigh 1 in all, people weighing equally in open-set use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.calibration.likelihood_ratios import DEFAULT_METHOD, LikelihoodRatios, pool_adjacent
from pairmark.models.core.arrays import Float64
from pairmark.models.pairs.samples import pair_sample


@dataclass(frozen=True, kw_only=True)
class LogRatios:
    """Log LRs and what each pair weighs: same pairs 1 in all, and different ones.

    Attributes
    ----------
    same, different : (n,) natural log LRs. same_weight, different_weight : (n,), each sums to 1.
    """

    same: Float64 = field(repr=False)
    same_weight: Float64 = field(repr=False)
    different: Float64 = field(repr=False)
    different_weight: Float64 = field(repr=False)

    def cross_entropy(self) -> float:
        """The empirical cross-entropy in bits at prior 1/2 (Ramos & Gonzalez-Rodriguez 2013, equation 6)."""
        same = self.same_weight @ np.logaddexp(0.0, -self.same)
        different = self.different_weight @ np.logaddexp(0.0, self.different)
        return float((same + different) / (2 * np.log(2)))


def cllr(log_lr: ArrayLike, same: ArrayLike, units: ArrayLike | None = None) -> float:
    """The cost of log likelihood ratios in bits: 0 is perfect, 1 is knowing nothing, more is misleading.

    Parameters
    ----------
    log_lr : (n,) natural, finite. same : (n,) 0 or 1, both present.
    units : (n, 2) the sampling unit on each side; None: every pair weighs the same.

    Examples
    --------
    >>> from pairmark import cllr
    >>> round(cllr([3.0, 2.0, -2.0, -3.0], [1, 1, 0, 0]), 2)
    0.13
    >>> cllr([0.0, 0.0], [1, 0])  # knows nothing
    1.0
    """
    return evidence(log_lr, same, units).cross_entropy()


def cllr_min(scores: ArrayLike, same: ArrayLike, units: ArrayLike | None = None) -> float:
    """The least Cllr that a rising map of the scores can have on these very pairs; parameters as `cllr`.

    Examples
    --------
    >>> from pairmark import cllr_min
    >>> cllr_min([0.9, 0.8, 0.2, 0.1], [1, 1, 0, 0])  # the scores tell both kinds apart
    0.0
    >>> round(cllr_min([0.9, 0.2, 0.8, 0.1], [1, 1, 0, 0]), 2)
    0.5
    """
    return _best(evidence(scores, same, units)).cross_entropy()


def evidence(log_lr: ArrayLike, same: ArrayLike, units: ArrayLike | None = None) -> LogRatios:
    """Log LRs with the weights of their pairs; a ``ValueError`` as of `roc_curve_pairs`."""
    ratios = np.asarray(log_lr, dtype=np.float64)
    is_same = np.asarray(same)
    if ratios.ndim == 1 and ratios.size and (ratios == ratios[0]).all() and np.isfinite(ratios[0]):
        # Equal values weigh what they weigh.
        value, weight = ratios[:1], np.ones(1)
        if is_same.shape != ratios.shape or not (is_same == 1).any() or not (is_same == 0).any():
            raise ValueError("same should hold 0 or 1 for each pair, both kinds present")
        return LogRatios(same=value, same_weight=weight, different=value, different_weight=weight)
    sample = pair_sample(ratios, same, units, both_kinds=True)
    return LogRatios(
        same=sample.same.scores.astype(np.float64),
        same_weight=sample.same.weight / sample.same.weight.sum(),
        different=sample.different.scores.astype(np.float64),
        different_weight=sample.different.weight / sample.different.weight.sum(),
    )


def likelihood_report(
    ratios: LikelihoodRatios,
    scores: ArrayLike,
    same: ArrayLike,
    units: ArrayLike | None = None,
    method: str = DEFAULT_METHOD,
) -> dict[str, Any]:
    """What a calibrated map's log LRs are worth on held-out pairs.

    Returns
    -------
    JSON-able: ``cllr``, ``cllr_min``, ``calibration_loss`` (their difference), ``misleading_same`` and
    ``misleading_different`` (shares of pairs whose LR supports the other side), and ``limits`` (the least and the
    greatest log LR).
    """
    log_ratios = evidence(ratios.log_lr(scores, method), same, units)
    floor = cllr_min(scores, same, units)
    value = log_ratios.cross_entropy()
    return {
        "method": method,
        "cllr": value,
        "cllr_min": floor,
        "calibration_loss": value - floor,
        "misleading_same": float(log_ratios.same_weight @ (log_ratios.same < 0)),
        "misleading_different": float(log_ratios.different_weight @ (log_ratios.different > 0)),
        "limits": [ratios.low, ratios.high],
    }


def _best(log_ratios: LogRatios) -> LogRatios:
    """The same pairs under the best rising map of their own values."""
    values, code = np.unique(np.concatenate([log_ratios.same, log_ratios.different]), return_inverse=True)
    n = log_ratios.same.size
    same_weight: Any = np.bincount(code[:n], log_ratios.same_weight, values.size)
    different_weight: Any = np.bincount(code[n:], log_ratios.different_weight, values.size)
    log_lr = pool_adjacent(same_weight, different_weight)
    kept_same, kept_different = same_weight > 0, different_weight > 0
    return LogRatios(
        same=log_lr[kept_same],
        same_weight=same_weight[kept_same],
        different=log_lr[kept_different],
        different_weight=different_weight[kept_different],
    )
