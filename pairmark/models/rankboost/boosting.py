"""RankBoost: weak rankers one after another, each chosen for the pairs that are still ranked wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pairmark.models.core.arrays import Float64, Int32, Int64
from pairmark.models.rankboost.binning import BinnedRows
from pairmark.models.rankboost.kernels import boosting as kernels
from pairmark.models.rankboost.rules import Rules

_REFRESH, _LOWER = 1024, 64
"""Rounds after which weights and sums are made anew, so that rounding errors of updates do not add up; and after which
the heaviest row is looked for anew."""
_SHRUNK = 1e-5
_BEAMS = 4
"""Features tried as a grid's first condition each round."""
_NOTHING = 1e-12
_Factors = tuple[Float64, Float64, Float64, Float64]
_FREQUENT = {"r": 500, "z": 1 << 40}
"""Features in at least one of so many rows are kept up to date from the start: rare ones win by Z, hardly by r."""


@dataclass(frozen=True, kw_only=True)
class RankingTask:
    """What to rank: rows by level, pairs of levels by how much they matter, each row's weight in its pairs.

    Attributes
    ----------
    levels : (n,) 0 to L - 1, the higher ranked above the lower. A row of weight 0 takes no part.
    preference : (L, L), >= 0, upper triangular: P(i, j) of the paper's equation 7 by level.
    """

    levels: Int64
    preference: Float64
    weight: Float64


@dataclass(frozen=True, kw_only=True)
class BoostSettings:
    """How to boost; see `RankBoostKernel`."""

    n_estimators: int
    weak: Literal["stump", "grid"]
    criterion: Literal["r", "z"]
    upper_only: bool = False
    alternate: bool = False
    """Of equal rankers, in turn the one that ranks up what it fires on and the one that ranks it down."""


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A weak ranker: one or two ranges of bins, and what it was chosen by."""

    conditions: tuple[tuple[int, int, int], ...]
    rows: Int32
    gain: float


class _Weights:
    """Pair weights, factorised: D(i, j) = P(level i, level j) u_i w_j, for levels i < j."""

    def __init__(self, data: BinnedRows, task: RankingTask, frequent: int) -> None:
        n_levels = task.preference.shape[0]
        at_u = np.where(np.arange(n_levels) < n_levels - 1, np.arange(n_levels), -1)
        at_w = np.where(np.arange(n_levels) > 0, n_levels - 2 + np.arange(n_levels), -1)
        taking_part = task.weight > 0
        self._data, self._task = data, task
        self.slot_u = np.where(taking_part, at_u[task.levels], -1)
        self.slot_w = np.where(taking_part, at_w[task.levels], -1)
        slots = max(2, 2 * n_levels - 2)
        self.cross = np.zeros((slots, slots))
        for i, j in zip(*np.nonzero(task.preference), strict=True):
            self.cross[at_u[i], at_w[j]] = task.preference[i, j]
        self.scores = np.zeros(data.n_rows)
        # Sums are kept for frequent features only, until others could matter.
        self.active = int(np.count_nonzero(data.support * frequent >= data.n_rows))
        self.mass = np.empty((slots, 0))
        self._everything = np.arange(data.n_rows, dtype=np.int32)
        self.refresh()

    def refresh(self) -> None:
        """Weights and sums from the scores alone, scaled to stay within what floats hold."""
        scores, weight = self.scores, self._task.weight
        lesser, greater = self.slot_u >= 0, self.slot_w >= 0
        # A pair weighs u w, of which only shares matter: shifts that bring the largest u and the largest w to
        # the row's own weight keep exp within floats.
        self.u, self.w = np.zeros_like(scores), np.zeros_like(scores)
        self.u[lesser] = weight[lesser] * np.exp(scores[lesser] - scores[lesser].max(initial=-np.inf))
        self.w[greater] = weight[greater] * np.exp(scores[greater].min(initial=np.inf) - scores[greater])
        self.totals = np.zeros(self.cross.shape[0])
        kernels.fired_sums(self._everything, self.u, self.w, self.slot_u, self.slot_w, self.totals)
        self.lower_tops()
        self._fresh = self.totals.copy()
        self._fill()

    def lower_tops(self) -> None:
        """The largest weight of each slot: updates only raise what is known of it."""
        self.tops = np.zeros(self.cross.shape[0])
        lesser, greater = self.slot_u >= 0, self.slot_w >= 0
        np.maximum.at(self.tops, self.slot_u[lesser], self.u[lesser])
        np.maximum.at(self.tops, self.slot_w[greater], self.w[greater])

    def _fill(self) -> None:
        self.mass, self.sums = self.of_rows(self._everything, self.mass)
        # Nothing is known of features any more: weights may have a new scale.
        self.drift = np.zeros_like(self.sums)
        self.memory = np.zeros((self.active, kernels.N_REMEMBERED))
        self.memory[:, (kernels.LOW, kernels.HIGH)] = np.inf
        self.memory[:, (kernels.LOW_SCALE, kernels.HIGH_SCALE)] = 1.0

    def of_rows(self, rows: Int32, mass: Float64) -> tuple[Float64, Float64]:
        """Sums over some rows by bin, written to ``mass`` where that is large enough, and by feature."""
        data, slots = self._data, self.cross.shape[0]
        limit = int(data.offsets[self.active])
        if mass.shape[0] != slots or mass.shape[1] < limit:
            mass = np.empty((slots, limit))
        sums = np.empty((slots, self.active))
        kernels.mass_of_rows(
            rows, data.starts, data.codes, data.owners, self.active, limit, self.u, self.w, self.slot_u, self.slot_w,
            mass, sums,
        )  # fmt: skip
        return mass, sums

    def look_further(self) -> None:
        """Keep sums for twice as many features."""
        self.active = min(self._data.support.size, max(64, 2 * self.active))
        self._fill()

    def factors(self) -> _Factors:
        """``pull, cross, alone_w, alone_u`` of `kernels.scan`: shares of the weight of all pairs."""
        total = float(self.totals @ self.cross @ self.totals)
        alone_w = self.totals @ self.cross / total
        alone_u = self.cross @ self.totals / total
        return alone_w - alone_u, self.cross / total, alone_w, alone_u

    def add(self, rows: Int32, alpha: float) -> None:
        """Let the scores of some rows grow by alpha."""
        data = self._data
        kernels.reweigh(
            rows, alpha, data.starts, data.codes, data.owners, self.active, self.scores, self.u, self.w, self.slot_u,
            self.slot_w, self.mass, self.sums, self.drift, self.totals, self.tops,
        )  # fmt: skip

    def is_worn(self) -> bool:
        """Whether weights shrank or grew so far that rounding errors could show."""
        return bool(
            (self.totals < _SHRUNK * self._fresh).any() or (_SHRUNK * self.totals > self._fresh).any()
        )


def boost(
    data: BinnedRows,
    task: RankingTask,
    settings: BoostSettings,
    *,
    on_progress: Callable[[float], None] | None = None,
) -> Rules:
    """Learn the rankers of one task.

    Parameters
    ----------
    on_progress : called with the share of rounds done.

    Returns
    -------
    `Rules` with at most ``n_estimators`` rankers: fewer when one ranks every pair right, or none helps.

    Notes
    -----
    With ``r``, alpha = 1/2 ln((1 + r) / (1 - r)), r being held 1/(2n) away from -1 and 1 (the third method of Freund et
    al., section 3.2). With ``z``, the exact Z = 1 - (sqrt(W-) - sqrt(W+))^2 is minimised and alpha = 1/2 ln(W- / W+),
    1/(2n) being added to both (the smoothing of Schapire and Singer 1999, section 4.2), W- and W+ being the weights of
    the pairs that the ranker puts right and wrong.
    """
    weights = _Weights(data, task, _FREQUENT[settings.criterion])
    search = _Search(data, settings)
    smooth = 0.5 / max(1, int((task.weight > 0).sum()))
    rankers: list[Rules] = []
    for number in range(settings.n_estimators):
        if number and (number % _REFRESH == 0 or weights.is_worn()):
            weights.refresh()
        elif number and number % _LOWER == 0:
            weights.lower_tops()
        favour = -1.0 if settings.alternate and number % 2 else 1.0
        factors = weights.factors()
        ranker = search.best(weights, factors, favour)
        if ranker is None:
            break
        alpha, perfect = _alpha(weights, factors, ranker.rows, settings.criterion, smooth)
        rankers.append(_as_rules(data, ranker, alpha))
        if perfect:
            break
        weights.add(ranker.rows, alpha)
        if on_progress is not None:
            on_progress((number + 1) / settings.n_estimators)
    return Rules.concatenate(rankers)


def _alpha(
    weights: _Weights, factors: _Factors, rows: Int32, criterion: str, smooth: float
) -> tuple[float, bool]:
    """The ranker's weight, and whether it ranks all pairs right by itself."""
    fired = np.zeros(weights.cross.shape[0])
    kernels.fired_sums(rows, weights.u, weights.w, weights.slot_u, weights.slot_w, fired)
    pull, cross, alone_w, alone_u = factors
    r = float(pull @ fired)
    perfect = abs(r) >= 1.0 - _NOTHING
    if criterion == "r":
        r = float(np.clip(r, smooth - 1.0, 1.0 - smooth))
        return 0.5 * float(np.log((1.0 + r) / (1.0 - r))), perfect
    joint = float(fired @ cross @ fired)
    right, wrong = max(float(alone_w @ fired) - joint, 0.0), max(float(alone_u @ fired) - joint, 0.0)
    return 0.5 * float(np.log((right + smooth) / (wrong + smooth))), perfect


class _Search:
    """Finds the best weak ranker for given weights."""

    def __init__(self, data: BinnedRows, settings: BoostSettings) -> None:
        self._data, self._settings = data, settings
        self._stamps, self._stamp = np.zeros(data.n_rows, np.int64), 0
        self._mass = np.empty((0, 0))

    def best(self, weights: _Weights, factors: _Factors, favour: float) -> _Candidate | None:
        """The ranker of the largest gain; of equal ones, of the most frequent feature. None when nothing helps."""
        stump = self._settings.weak == "stump"
        firsts = self._complete(weights, factors, favour, 1 if stump else _BEAMS, None)
        if not firsts:
            return None
        if stump:
            gain, condition = firsts[0]
            return _Candidate(conditions=(condition,), rows=self._data.rows_within(*condition), gain=gain)
        best = None
        for _, first in firsts:
            rows = self._data.rows_within(*first)
            seconds = self._complete(weights, factors, favour, 1, rows)
            if seconds and (best is None or seconds[0][0] > best.gain * (1 + 1e-9)):
                gain, second = seconds[0]
                best = _Candidate(
                    conditions=(first, second), rows=self._rows_of_both(rows, second), gain=gain
                )
        return best

    def _complete(
        self, weights: _Weights, factors: _Factors, favour: float, places: int, rows: Int32 | None
    ) -> list[tuple[float, tuple[int, int, int]]]:
        """The best conditions, on all rows or some, best first: the gain and (feature, first bin, last bin)."""
        data, settings = self._data, self._settings
        gains = np.empty(min(places, data.support.size))
        features, ats, sides = (np.zeros(gains.size, np.int64) for _ in range(3))
        criterion = kernels.BY_R if settings.criterion == "r" else kernels.BY_Z
        while gains.size:
            mass, sums = weights.mass, weights.sums
            if rows is not None:
                mass, sums = weights.of_rows(rows, self._mass)
                self._mass = mass
            short = kernels.scan(
                criterion, mass, sums, weights.drift, weights.memory, rows is None, data.offsets, data.support,
                weights.active, *factors, weights.tops, favour, settings.upper_only, gains, features, ats, sides,
            )  # fmt: skip
            if not short:
                break
            weights.look_further()
        rankers = []
        for gain, feature, at, side in zip(gains, features, ats, sides, strict=True):
            if gain > _NOTHING:
                first, last = data.all_of(int(feature))
                if first >= 0:
                    first, last = (int(at), last) if side == 0 else (first, int(at) - 1)
                rankers.append((float(gain), (int(feature), first, last)))
        return rankers

    def _rows_of_both(self, rows: Int32, condition: tuple[int, int, int]) -> Int32:
        self._stamp += 1
        out = np.empty_like(rows)
        second_rows = self._data.rows_within(*condition)
        return out[: kernels.rows_of_both(rows, second_rows, self._stamps, self._stamp, out)]


def _as_rules(data: BinnedRows, ranker: _Candidate, alpha: float) -> Rules:
    """One ranker as rules in terms of values. Conditions on one feature become one range."""
    conditions = list(ranker.conditions)
    if len(conditions) == 2 and conditions[0][0] == conditions[1][0]:
        (feature, a, b), (_, c, d) = conditions
        conditions = [(feature, max(a, c), min(b, d))]
    low, high = np.full((1, 2), -np.inf, np.float32), np.full((1, 2), np.inf, np.float32)
    rule = Rules(features=np.full((1, 2), -1, np.int64), low=low, high=high, alpha=np.array([alpha]))
    for at, (feature, first, last) in enumerate(sorted(conditions)):
        rule.features[0, at] = data.names[feature]
        low[0, at], high[0, at] = data.bounds(feature, first, last)
    return rule


def one_against_rest(codes: Int64, positive: Int64) -> RankingTask:
    """The bipartite task that ranks rows of some classes above all others."""
    return RankingTask(
        levels=np.isin(codes, positive).astype(np.int64),
        preference=np.array([[0.0, 1.0], [0.0, 0.0]]),
        weight=np.ones(codes.size),
    )
