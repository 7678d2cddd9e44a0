"""RankBoost: weak rankers one after another, each chosen for the pairs that are still ranked wrong.

Rankers are kept as arrays (`Rules`), which define the feature map of the kernel.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array, hstack

from pairmark.models.core.arrays import Bool, Float32, Float64, Int32, Int64
from pairmark.models.core.inputs import csr_parts
from pairmark.models.core.state import Array
from pairmark.models.rankboost import kernels
from pairmark.models.rankboost.rows import BinnedRows, bin_rows, places_of

_REFRESH = 1024
"""Rounds after which weights and sums are made anew, so that rounding errors of updates do not add up."""
# Weights are worn once their sums shrank to this share of what they were when made, or grew as much.
_SHRUNK = 1e-5
_BEAMS = 4
"""Features tried as a grid's first condition each round."""
# A gain no larger is none, and an r no farther from 1 or -1 ranks every pair right.
_NOTHING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Weak rankers in order: ranker t fires on the rows that hold its feature, or both its features, within bounds.

    Attributes
    ----------
    features : (T, 2); -1 where there is no second condition.
    low, high : (T, 2) float32, bounds: low < x <= high. An absent value is within none.
    alpha : (T,) weights in the ranking score, equation 6.
    """

    features: Annotated[Int64, Array(shape=("rankers", 2), low=-1, below="features")]
    low: Annotated[Float32, Array(shape=("rankers", 2), infinite=True)]
    high: Annotated[Float32, Array(shape=("rankers", 2), infinite=True)]
    alpha: Annotated[Float64, Array(shape=("rankers",))]

    def __len__(self) -> int:
        return int(self.alpha.size)

    @classmethod
    def concatenate(cls, sets: "Sequence[Rules]") -> "Rules":
        """All rankers of some sets of rules, in order."""
        bounds = np.empty((0, 2), np.float32)
        empty = cls(features=np.empty((0, 2), np.int64), low=bounds, high=bounds, alpha=np.empty(0))
        names = [field.name for field in fields(cls)]
        return cls(
            **{name: np.concatenate([getattr(rules, name) for rules in (empty, *sets)]) for name in names}
        )


class FeatureMap:
    """Phi of equation 9: rows -> (n, rankers) CSR of float64, coordinates ascending.

    Parameters
    ----------
    rules : the rankers. value : (T,) what each is when it fires.

    Attributes
    ----------
    width : coordinates.
    """

    def __init__(self, rules: Rules, value: Float64) -> None:
        second = rules.features[:, 1] >= 0
        self.n_conditions = (1 + second).astype(np.int32)
        self.value = np.ascontiguousarray(value, dtype=np.float64)
        rule_of = np.concatenate([np.arange(len(rules)), np.flatnonzero(second)])
        feature = np.concatenate([rules.features[:, 0], rules.features[second, 1]])
        low = np.concatenate([rules.low[:, 0], rules.low[second, 1]])
        high = np.concatenate([rules.high[:, 0], rules.high[second, 1]])
        order = np.lexsort((rule_of, feature))
        self.features, begins = np.unique(feature[order], return_index=True)
        self._begins = np.append(begins, feature.size).astype(np.int64)
        self._rankers = rule_of[order].astype(np.int64)
        self._low, self._high = low[order].astype(np.float32), high[order].astype(np.float32)
        self.width = len(rules)

    def __call__(self, rows: csr_array) -> csr_array:
        starts, columns, values = csr_parts(rows)
        places = places_of(columns, self.features)
        # A row has at most as many coordinates as its values are asked for; the last 0 is for those that are not.
        n_asked = np.append(np.diff(self._begins), 0)[places]
        most = np.diff(np.concatenate([[0], np.cumsum(n_asked)])[starts])
        capacity = int(np.minimum(most, self.width).sum())
        out_starts = np.zeros(starts.size, dtype=np.int64)
        out_columns, value = np.empty(capacity, dtype=np.int32), np.empty(capacity)
        kernels.apply_rules(
            starts, places, values, self._begins, self._rankers, self._low, self._high, self.n_conditions,
            self.value, out_starts, out_columns, value,
        )  # fmt: skip
        n = int(out_starts[-1])
        # What reads it often takes 32 bits only.
        kind = np.int32 if n < 2**31 else np.int64
        return csr_array(
            (value[:n], out_columns[:n], out_starts.astype(kind)), shape=(starts.size - 1, self.width)
        )


@dataclass(frozen=True, kw_only=True)
class RankingTask:
    """What to rank: rows that are to be above all others, and each row's weight in its pairs.

    Attributes
    ----------
    upper : (n,) bool. weight : (n,). A row of weight 0 takes no part.
    """

    upper: Bool
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


Condition = tuple[int, int, int]
"""A feature, and the first and last of its bins that are met."""


class Candidate(NamedTuple):
    """A weak ranker: one or two conditions, the rows that it fires on, and what it was chosen by."""

    conditions: tuple[Condition, ...]
    rows: Int32
    gain: float


class Weights:
    """Pair weights, factorised: D(i, j) = v_i v_j for i below j."""

    def __init__(self, data: BinnedRows, task: RankingTask) -> None:
        self._data, self._task = data, task
        self._kinds = task.upper.astype(np.int64)
        self.scores = np.zeros(data.n_rows)
        self.refresh()

    def refresh(self) -> None:
        """Weights and sums from the scores alone, scaled to stay within what floats hold."""
        self.weight = np.zeros_like(self.scores)
        # D(i, j) grows as exp(score of i - score of j): a row of the lower kind counts more the higher it is scored,
        # one of the upper kind less.
        for kind, sign in enumerate((1.0, -1.0)):
            rows = np.flatnonzero((self._kinds == kind) & (self._task.weight > 0))
            power = sign * self.scores[rows]
            # Only shares matter: shifts that bring the largest of either kind to the row's own weight change none.
            self.weight[rows] = self._task.weight[rows] * np.exp(power - power.max(initial=-np.inf))
        everything = np.arange(self._data.n_rows, dtype=np.int32)
        self.totals = self.fired(everything)
        self._fresh = self.totals.copy()
        self.mass, self.sums = self.of_rows(everything)

    def of_rows(self, rows: Int32) -> tuple[Float64, Float64]:
        """Sums over some rows by bin, and by feature."""
        data = self._data
        mass, sums = np.empty((2, data.owners.size)), np.empty((2, data.support.size))
        kernels.mass_of_rows(rows, data.starts, data.codes, data.owners, self._kinds, self.weight, mass, sums)
        return mass, sums

    def fired(self, rows: Int32) -> Float64:
        """Sums over some rows, by kind."""
        return np.bincount(self._kinds[rows], weights=self.weight[rows], minlength=2).astype(np.float64)

    def shares(self, rows: Int32) -> tuple[float, float]:
        """The shares of the weight of the lower, and the upper kind, that some rows have."""
        a, b = self.fired(rows) / self.totals
        return float(a), float(b)

    def add(self, rows: Int32, alpha: float) -> None:
        """Let the scores of some rows grow by alpha."""
        data = self._data
        kernels.reweigh(
            rows, alpha, data.starts, data.codes, data.owners, self._kinds, self.scores, self.weight, self.mass,
            self.sums, self.totals,
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
    weights = Weights(data, task)
    smooth = 0.5 / max(1, int((task.weight > 0).sum()))
    rankers: list[Rules] = []
    for number in range(settings.n_estimators):
        if number and (number % _REFRESH == 0 or weights.is_worn()):
            weights.refresh()
        favour = -1.0 if settings.alternate and number % 2 else 1.0
        ranker = best_ranker(data, settings, weights, favour)
        if ranker is None:
            break
        alpha, perfect = _alpha(*weights.shares(ranker.rows), settings.criterion, smooth)
        rankers.append(_as_rules(data, ranker, alpha))
        if perfect:
            break
        weights.add(ranker.rows, alpha)
        if on_progress is not None:
            on_progress((number + 1) / settings.n_estimators)
    return Rules.concatenate(rankers)


def _alpha(a: float, b: float, criterion: str, smooth: float) -> tuple[float, bool]:
    """A ranker's weight, from its shares of either kind, and whether it ranks all pairs right by itself."""
    r = b - a
    perfect = abs(r) >= 1.0 - _NOTHING
    if criterion == "r":
        r = float(np.clip(r, smooth - 1.0, 1.0 - smooth))
        return 0.5 * float(np.log((1.0 + r) / (1.0 - r))), perfect
    right, wrong = max(b * (1.0 - a), 0.0), max(a * (1.0 - b), 0.0)
    return 0.5 * float(np.log((right + smooth) / (wrong + smooth))), perfect


def best_ranker(
    data: BinnedRows, settings: BoostSettings, weights: Weights, favour: float
) -> Candidate | None:
    """The ranker of the largest gain; of equal ones, of the most frequent feature. None when nothing helps."""
    best, places = None, 1 if settings.weak == "stump" else _BEAMS
    for gain, first in _best_conditions(data, settings, weights, favour, places):
        rows = data.rows_within(*first)
        if settings.weak == "stump":
            return Candidate((first,), rows, gain)
        for both, second in _best_conditions(data, settings, weights, favour, 1, rows):
            # Beyond rounding, so that of equal ones the first stays.
            if best is None or both > best.gain * (1 + 1e-9):
                shared = np.intersect1d(rows, data.rows_within(*second), assume_unique=True)
                best = Candidate((first, second), shared, both)
    return best


def _best_conditions(
    data: BinnedRows,
    settings: BoostSettings,
    weights: Weights,
    favour: float,
    places: int,
    rows: Int32 | None = None,
) -> Iterator[tuple[float, Condition]]:
    """The best conditions on all rows or some, best first, and their gains."""
    gains = np.empty(min(places, data.support.size))
    if not gains.size:
        return
    features, ats, sides = (np.zeros(gains.size, np.int64) for _ in range(3))
    criterion = kernels.BY_R if settings.criterion == "r" else kernels.BY_Z
    mass, sums = (weights.mass, weights.sums) if rows is None else weights.of_rows(rows)
    kernels.scan(
        criterion,
        mass,
        sums,
        weights.totals,
        data.offsets,
        favour,
        settings.upper_only,
        gains,
        features,
        ats,
        sides,
    )
    for gain, feature, start, side in zip(
        *(part.tolist() for part in (gains, features, ats, sides)), strict=True
    ):
        if gain > _NOTHING:
            first, last = data.all_of(feature)
            if first >= 0:
                first, last = (start, last) if side == 0 else (first, start - 1)
            yield gain, (feature, first, last)


def _as_rules(data: BinnedRows, ranker: Candidate, alpha: float) -> Rules:
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


MOST_CLASSES = 32
"""With more classes than this, tasks are random halves of the classes instead of each against the rest."""


def class_tasks(codes: Int64, n_classes: int, rng: np.random.Generator) -> list[RankingTask]:
    """Tasks for classes.

    Two classes: the second above the first (the paper's bipartite form). Up to `MOST_CLASSES`: each against the rest,
    so that every weak ranker finds what one class has in common, which is what makes rows of a class similar. Pairwise
    preferences between classes would need k(k - 1)/2 rankings, and an order of classes that identities do not have.
    More: `MOST_CLASSES` random halves of the classes (output codes: Dietterich and Bakiri 1995), so that the time does
    not grow with the number of identities.
    """
    if n_classes > MOST_CLASSES:
        upper = [rng.permutation(n_classes)[: n_classes // 2] for _ in range(MOST_CLASSES)]
    else:
        upper = [np.array([label]) for label in range(n_classes == 2, n_classes)]
    return [RankingTask(upper=np.isin(codes, labels), weight=np.ones(codes.size)) for labels in upper]


def pair_task(
    points: csr_array,
    same: Bool,
    weight: Float64,
    settings: BoostSettings,
    on_progress: Callable[[float], None],
) -> Rules:
    """Rankers of points, learned by ranking same pairs above different ones.

    Parameters
    ----------
    points : (2n, d), the left side of each pair, then the right side of each.
    same, weight : (n,) of the pairs.
    """
    n, width = same.size, points.shape[1]
    # Where both sides hold a value: the lesser in column j, and minus the greater in column width + j. "Both above a"
    # is then one condition, and so is "both below b".
    both = points[:n].astype(np.bool_).multiply(points[n:].astype(np.bool_))
    least, greatest = csr_array(points[:n].multiply(both)), csr_array(points[n:].multiply(both))
    lesser, greater = np.minimum(least.data, greatest.data), np.maximum(least.data, greatest.data)
    least.data, greatest.data = lesser, -greater
    pairs = csr_array(hstack([least, greatest], format="csr"))
    task = RankingTask(upper=same, weight=weight)
    rules = boost(bin_rows(pairs), task, replace(settings, upper_only=True), on_progress=on_progress)
    return _of_points(rules, width)


def _of_points(rules: Rules, width: int) -> Rules:
    """Conditions on pairs' columns as conditions on points: below < -max means max < -below."""
    features, low, high = rules.features.copy(), rules.low.copy(), rules.high.copy()
    is_mirror = features >= width
    below = -rules.low[is_mirror]
    low[is_mirror] = -np.inf
    high[is_mirror] = np.where(np.isinf(below), below, np.nextafter(below, np.float32(-np.inf)))
    features[is_mirror] -= width
    # A grid may have looked at one feature from both sides: that is one range.
    for rule in np.flatnonzero(features[:, 0] == features[:, 1]):
        low[rule] = low[rule].max(), -np.inf
        high[rule] = high[rule].min(), np.inf
        features[rule, 1] = -1
    return Rules(features=features, low=low, high=high, alpha=rules.alpha)
