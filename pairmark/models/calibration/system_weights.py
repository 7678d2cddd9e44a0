"""Scores of several systems combined into one: a logistic regression whose weights are never negative.

The combined score is a natural log likelihood ratio at prior odds 1 (Brümmer & du Preez 2006): same pairs weigh one
half in all, and different ones. No weight is negative, so a pair that every system finds more alike never scores less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64

MAX_SYSTEMS = 16
_PENALTY = 1e-4
_SMALLEST_WEIGHT = 1e-3
_LARGEST_SCORE = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class SystemWeights:
    """``scores @ weight + intercept``.

    Attributes
    ----------
    weight : (n_systems,) at least 0, at least one above. intercept : natural log odds.
    """

    weight: Float64
    intercept: float

    @classmethod
    def fit(cls, scores: Float64, same: Bool) -> Self:
        """The weights of least log loss over pairs, (n, n_systems) and (n,); both kinds of pair occur."""
        # Imported here: serving does not need it.
        from scipy.optimize import minimize

        mean = scores.mean(axis=0)
        scale = scores.std(axis=0)
        scale[scale == 0] = 1.0
        z = (scores - mean) / scale
        n_same = int(np.count_nonzero(same))
        pair_weight = np.where(same, 0.5 / n_same, 0.5 / (same.size - n_same))
        target = same.astype(np.float64)
        n = z.shape[1]

        def loss(parameters: Float64) -> tuple[float, Float64]:
            weight, intercept = parameters[:n], parameters[n]
            log_odds = z @ weight + intercept
            residual = pair_weight * (expit(log_odds) - target)
            log_loss = float(pair_weight @ (np.logaddexp(0.0, log_odds) - target * log_odds))
            gradient = np.append(z.T @ residual + _PENALTY * weight, residual.sum())
            return log_loss + _PENALTY * float(weight @ weight) / 2, gradient

        start = np.append(np.full(n, 1.0 / n), 0.0)
        bounds = [(0.0, None)] * n + [(None, None)]
        solution = minimize(
            loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500}
        ).x
        weight = np.maximum(solution[:n], 0.0)
        if not weight.any():
            # Scores that fall where pairs are the same: nothing is gained, but they still order pairs.
            weight = np.full(n, _SMALLEST_WEIGHT / n)
        return cls(weight=weight / scale, intercept=float(solution[n]) - float((weight / scale) @ mean))

    def combined(self, scores: NDArray[np.floating]) -> Float32:
        """One score from each row of (n, n_systems), which depends on that row alone, to the last bit: (n,)."""
        total = np.zeros(len(scores))
        for weight, column in zip(self.weight.tolist(), scores.T, strict=True):
            # A system of weight 0 has no say, however large its score.
            if weight:
                total += weight * column.astype(np.float64)
        return np.clip(total + self.intercept, -_LARGEST_SCORE, _LARGEST_SCORE).astype(np.float32)


def halves(same: Bool, units: Int64 | None, random_state: int) -> tuple[Int64, Int64]:
    """Numbers of the pairs within either half of the units: one weighs systems, the other calibrates.

    Pairs across the halves are in neither, and the halves look at no score.

    Parameters
    ----------
    units : (n, 2) the sampling unit on each side; None: pairs are independent.

    Raises
    ------
    ValueError
        Where a half has no pairs of one kind.
    """
    random = np.random.default_rng([random_state, 4])
    of_pairs = np.repeat(np.arange(same.size)[:, None], 2, axis=1) if units is None else units
    codes = np.unique(of_pairs, return_inverse=True)[1].reshape(of_pairs.shape)
    in_first = np.zeros(int(codes.max()) + 1, dtype=np.bool_)
    in_first[random.permutation(in_first.size)[: in_first.size // 2]] = True
    # 2: both sides in the first half, 0: none; pairs across the halves (1) would share people with both.
    sides_in_first = in_first[codes].sum(axis=1)
    weight_rows, calibration_rows = np.flatnonzero(sides_in_first == 2), np.flatnonzero(sides_in_first == 0)
    for rows, purpose in ((weight_rows, "weigh the systems"), (calibration_rows, "calibrate")):
        if same[rows].all() or not same[rows].any():
            kind = "differ" if same[rows].any() else "are the same"
            raise ValueError(
                f"the half of the units that is to {purpose} has no pairs that {kind}: bring more people, or scores "
                "of one system"
            )
    return weight_rows, calibration_rows
