"""Scores as likelihood ratios: how much more likely a score is for same than for different pairs.

``log LR`` is natural. There are two maps, both rising with the score:

``pav``
    The pool-adjacent-violators map, the rising one that fits the calibration pairs best; steps.
``own``
    The score itself, for learners whose score is a log likelihood ratio already.

In open-set use pairs of people and people weigh equally, as in the rates. A likelihood ratio says what the evidence is
worth on average; unlike the operating points it promises no error rate. But no value is more than people can show:

- Among scores above t, LR = TPR(t) / FPR(t) on average. So no score is worth more than the largest
  TPR(t) / ((n A(t) + c) / (n + c)) of the t below it, A(t) being the share of different pairs above t and n the
  independent ones (half the people, where all pairs are scored), however many pairs they make: as if people had shown
  c = `UNSEEN` more false matches. Without any, that is at most n / c + 1.
- No score is worth less than 1 / (S + 1), S being the independent same pairs (the rule of succession).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairmark.models.core.arrays import Float32, Float64
from pairmark.models.core.state import refuse, require
from pairmark.models.pairs.samples import PairSample, Side, pair_sample

LrMethod = Literal["pav", "own"]

METHODS = ("pav", "own")
DEFAULT_METHOD: LrMethod = "pav"
UNSEEN = 1.8
"""1 is the rule of succession; with it, people who match everybody and were not drawn made ratios of 300 simulated
people more than 1.3 times too large in 24 % of calibrations, with 1.3 in 11 %, with this in 5 %. Larger numbers cost
Cllr where people are few."""
_FACTS = ("low", "high")


@dataclass(frozen=True, kw_only=True)
class LikelihoodRatios:
    """Maps from scores to natural log likelihood ratios.

    Made by `fit`, `of_sample` or `from_state`.

    Attributes
    ----------
    pav_scores, pav_values : (k,) where each step of the PAV map begins, ascending, and its log LR.
    cap_scores, cap_values : (c,) scores above which the log LR may be at most the value, both ascending; at most 0 up
        to the first.
    low, high : what the numbers of people can show at most.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import LikelihoodRatios
    >>> same = np.repeat([1, 0], 500)
    >>> scores = np.random.default_rng(0).normal(size=1000) + 3 * same
    >>> ratios = LikelihoodRatios.fit(scores, same)
    >>> ratios.log_lr([0.0, 3.0]) > 0  # evidence against and for the same person
    array([False,  True])
    """

    pav_scores: Float32 = field(repr=False)
    pav_values: Float64 = field(repr=False)
    cap_scores: Float32 = field(repr=False)
    cap_values: Float64 = field(repr=False)
    low: float
    high: float

    @classmethod
    def fit(cls, scores: ArrayLike, same: ArrayLike, units: ArrayLike | None = None) -> Self:
        """Fit the map on scored held-out pairs.

        Parameters
        ----------
        scores : (n,) higher is more similar; taken as float32. same : (n,) 0 or 1, both present.
        units : (n, 2) the sampling unit on each side, as `pairmark.operating_point` takes it.

        Raises
        ------
        ValueError
            As `operating_point`, and without a same pair.
        """
        return cls.of_sample(pair_sample(scores, same, units, both_kinds=True))

    @classmethod
    def of_sample(cls, sample: PairSample) -> Self:
        """Fit the map on pairs of both kinds that were checked before."""
        begins, values = _pav(sample.same, sample.different)
        cap_scores, cap_values = _caps(sample)
        low, high = -math.log(sample.same.n_blocks + 1), float(cap_values[-1])
        # Steps begin where either does: the lesser of two rising steps rises.
        starts = np.unique(np.concatenate([begins, np.nextafter(cap_scores, np.float32(np.inf))]))
        starts = starts[starts >= begins[0]]
        raw = values[np.searchsorted(begins, starts, side="right") - 1]
        log_ratios = np.maximum(np.minimum(raw, _cap_at(starts, cap_scores, cap_values)), low)
        rises = np.concatenate([[True], log_ratios[1:] > log_ratios[:-1]])
        return cls(
            pav_scores=starts[rises],
            pav_values=log_ratios[rises],
            cap_scores=cap_scores,
            cap_values=cap_values,
            low=low,
            high=high,
        )

    def log_lr(self, scores: ArrayLike, method: str = DEFAULT_METHOD) -> Float64:
        """The natural log likelihood ratio of each score.

        Parameters
        ----------
        scores : (n,) finite; taken as float32.
        method : ``pav`` or ``own``.
        """
        if method not in METHODS:
            raise ValueError(f"method is {method!r}; expected one of {', '.join(METHODS)}")
        with np.errstate(over="ignore"):
            values = np.atleast_1d(np.asarray(scores)).astype(np.float32)
        if method == "pav":
            at = np.searchsorted(self.pav_scores, values, side="right") - 1
            return np.asarray(self.pav_values[np.maximum(at, 0)], dtype=np.float64)
        own = values.astype(np.float64)
        return np.maximum(np.minimum(own, _cap_at(values, self.cap_scores, self.cap_values)), self.low)

    def to_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays and JSON-able facts; `from_state` gives the same answers to the last bit."""
        arrays: dict[str, NDArray[Any]] = {
            "lr_scores": self.pav_scores,
            "lr_values": self.pav_values,
            "lr_cap_scores": self.cap_scores,
            "lr_cap_values": self.cap_values,
        }
        return arrays, {name: getattr(self, name) for name in _FACTS}

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], facts: Any) -> Self:
        """Rebuild from `to_state`.

        Raises
        ------
        ArtefactError
            A `ValueError`, for what `to_state` does not write; names the array and row.
        """
        if not isinstance(facts, Mapping) or any(
            not isinstance(facts.get(name), float) or not math.isfinite(facts[name]) for name in _FACTS
        ):
            raise refuse("likelihood_ratios", None, f"holds {facts!r}"[:200], "two finite numbers")
        if not facts["low"] < 0 <= facts["high"]:
            raise refuse("likelihood_ratios", None, "has no room", "low < 0 <= high")
        begins, values = arrays["lr_scores"], arrays["lr_values"]
        if not begins.size:
            raise refuse("lr_scores", None, "has no rows", "one or more")
        require(begins[1:] > begins[:-1], "lr_scores", begins[1:], "more than the row before it", first_row=1)
        in_range = (values >= facts["low"]) & (values <= facts["high"])
        require(in_range, "lr_values", values, "within the limits of the likelihood ratios")
        if "lr_cap_values" in arrays:
            steps, caps = arrays["lr_cap_scores"], arrays["lr_cap_values"]
            if not steps.size or (np.diff(steps) <= 0).any() or (np.diff(caps) < 0).any() or caps[0] < 0:
                raise refuse(
                    "lr_cap_values", None, "do not rise from 0", "values that rise with their scores"
                )
        # Maps of earlier versions were capped by pairs only.
        number = {name: float(facts[name]) for name in _FACTS}
        return cls(
            **number,
            pav_scores=begins,
            pav_values=values,
            cap_scores=np.asarray(arrays.get("lr_cap_scores", np.array([-np.inf], np.float32))),
            cap_values=np.asarray(arrays.get("lr_cap_values", np.array([number["high"]]))),
        )


def pool_adjacent(weight_same: Float64, weight_different: Float64) -> Float64:
    """The rising log LR that fits weights of same and different pairs, one of each by ascending score, best.

    Minimises Cllr over all rising maps (Ayer et al. 1955): isotonic regression of the posterior at prior 1/2.
    """
    # SciPy's, which gives what scikit-learn's does to the bit, loads none of scipy.stats.
    from scipy.optimize import isotonic_regression

    weight = weight_same + weight_different
    posterior = np.clip(isotonic_regression(weight_same / weight, weights=weight).x, 0.0, 1.0)
    with np.errstate(divide="ignore"):
        log_odds: Float64 = np.log(posterior) - np.log1p(-posterior)
    return log_odds


def by_score(same: Side, different: Side) -> tuple[Float32, Float64, Float64]:
    """Distinct scores, ascending, and the weight of same and of different pairs at each; each kind sums to 1."""
    scores = np.concatenate([same.scores, different.scores])
    distinct, code = np.unique(scores, return_inverse=True)
    n = len(same)
    same_weight: Any = np.bincount(code[:n], same.weight / same.weight.sum(), distinct.size)
    different_weight: Any = np.bincount(code[n:], different.weight / different.weight.sum(), distinct.size)
    return distinct, same_weight, different_weight


def _pav(same: Side, different: Side) -> tuple[Float32, Float64]:
    """Steps of the PAV map: the first score of each, and its log LR, infinite at the ends where one kind is alone."""
    scores, same_weight, different_weight = by_score(same, different)
    values = pool_adjacent(same_weight, different_weight)
    first = np.flatnonzero(np.concatenate([[True], values[1:] > values[:-1]]))
    return scores[first], values[first]


def _caps(sample: PairSample) -> tuple[Float32, Float64]:
    """Scores above which a log LR may be at most a value; both ascend."""
    thresholds, above = sample.different.steps()
    share = sample.different.total() if sample.protocol == "closed-set" else 1.0
    n = sample.different.n_blocks
    scores, weight = sample.same.scores, np.cumsum(sample.same.weight) / sample.same.weight.sum()
    tpr = np.concatenate([[0.0], weight])[np.searchsorted(-scores, -thresholds, side="left")]
    with np.errstate(divide="ignore"):
        # log of TPR over FPR above the threshold, the FPR with `UNSEEN` more false matches in as many more blocks.
        log_ratio = np.log(tpr) - np.log((n * above / share + UNSEEN) / (n + UNSEEN))
    # From the lowest threshold up: what a score above one threshold is worth, a score above a higher one is.
    rising = np.maximum.accumulate(np.maximum(log_ratio[::-1], 0.0))
    first = np.flatnonzero(np.concatenate([[True], rising[1:] > rising[:-1]]))
    return thresholds[::-1][first], rising[first]


def _cap_at(scores: Float32, cap_scores: Float32, cap_values: Float64) -> Float64:
    """The most that each score may be worth."""
    most: Float64 = np.concatenate([[0.0], cap_values])[np.searchsorted(cap_scores, scores, side="left")]
    return most
