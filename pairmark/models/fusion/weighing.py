"""Scores of several learners combined into one: a logistic regression whose weights are never negative.

The combined score is a natural log likelihood ratio at prior odds 1 (Brümmer & du Preez 2006): same pairs weigh one
half in all, and different ones. No weight is negative, so a pair that every learner finds more alike never scores less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

MOST_SYSTEMS = 16
_PULL = 1e-4
_LEAST = 1e-3
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Pairs of one fold that no learner saw.

    Attributes
    ----------
    scores : (n, n_learners) float64. same : (n,) booleans; both kinds occur.
    """

    scores: Float64 = field(repr=False)
    same: NDArray[np.bool_] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Weights:
    """``weight @ score + intercept``.

    Attributes
    ----------
    weight : (n_learners,) at least 0, at least one above. intercept : natural log odds.
    """

    weight: Float64
    intercept: float

    @classmethod
    def fit(cls, folds: Sequence[Judged]) -> Self:
        """The weights that lose least over folds, which weigh equally."""
        # Imported here: serving does not need it.
        from scipy.optimize import minimize

        scores = np.concatenate([fold.scores for fold in folds])
        same = np.concatenate([fold.same for fold in folds])
        weigh = np.concatenate([_of_pairs(fold.same) for fold in folds]) / len(folds)
        centre, spread = standard(scores)
        z = (scores - centre) / spread
        target = same.astype(np.float64)
        n = z.shape[1]

        def loss(at: Float64) -> tuple[float, Float64]:
            line = z @ at[:n] + at[n]
            pull = weigh * (expit(line) - target)
            value = (
                float(weigh @ (np.logaddexp(0.0, line) - target * line)) + _PULL * float(at[:n] @ at[:n]) / 2
            )
            return value, np.append(z.T @ pull + _PULL * at[:n], pull.sum())

        start = np.append(np.full(n, 1.0 / n), 0.0)
        bounds = [(0.0, None)] * n + [(None, None)]
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500})
        weight, intercept = np.maximum(found.x[:n], 0.0), float(found.x[n])
        if not weight.any():
            # Scores that fall where pairs are the same: nothing is gained, but they still order pairs.
            weight = np.full(n, _LEAST / n)
        return cls(weight=weight / spread, intercept=intercept - float((weight / spread) @ centre))

    @classmethod
    def alone(cls, which: int, folds: Sequence[Judged]) -> Self:
        """One learner's scores, as log likelihood ratios, and no other's."""
        n = folds[0].scores.shape[1]
        one = Weights.fit([Judged(scores=fold.scores[:, [which]], same=fold.same) for fold in folds])
        weight = np.zeros(n)
        weight[which] = one.weight[0]
        return cls(weight=weight, intercept=one.intercept)

    @classmethod
    def equal(cls, scores: Float64) -> Self:
        """Every learner alike, each score in units of its standard deviation over the given pairs, (n, n_learners)."""
        centre, spread = standard(scores)
        weight = 1.0 / (spread * spread.size)
        return cls(weight=weight, intercept=-float(weight @ centre))

    def combined(self, scores: Sequence[NDArray[np.floating] | None]) -> Float32:
        """One score from each learner's, arrays of any equal shape; None where the weight is 0.

        Returns
        -------
        float32 of that shape: each entry depends on that entry of the scores alone, to the last bit.
        """
        total: Float64 | None = None
        for weight, one in zip(self.weight.tolist(), scores, strict=True):
            if weight == 0.0 or one is None:
                continue
            part = weight * np.asarray(one, dtype=np.float64)
            total = part if total is None else total + part
        assert total is not None
        return np.clip(total + self.intercept, -_LARGEST, _LARGEST).astype(np.float32)


def halves(
    same: NDArray[np.bool_], units: NDArray[np.int64] | None, random_state: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
    given = np.repeat(np.arange(same.size)[:, None], 2, axis=1) if units is None else units
    codes = np.unique(given, return_inverse=True)[1].reshape(given.shape)
    first = np.zeros(int(codes.max()) + 1, dtype=np.bool_)
    first[random.permutation(first.size)[: first.size // 2]] = True
    inside = first[codes].sum(axis=1)
    used, rest = np.flatnonzero(inside == 2), np.flatnonzero(inside == 0)
    for rows, what in ((used, "weigh the systems"), (rest, "calibrate")):
        if same[rows].all() or not same[rows].any():
            kind = "differ" if same[rows].any() else "are the same"
            raise ValueError(
                f"the half of the units that is to {what} has no pairs that {kind}: bring more people, or scores of "
                "one system"
            )
    return used, rest


def standard(scores: Float64) -> tuple[Float64, Float64]:
    """Mean and standard deviation of each column; 1 where a column is constant."""
    spread = scores.std(axis=0)
    return scores.mean(axis=0), np.where(spread > 0, spread, 1.0)


def _of_pairs(same: NDArray[np.bool_]) -> Float64:
    n_same = int(np.count_nonzero(same))
    return np.where(same, 0.5 / n_same, 0.5 / (same.size - n_same))
