"""Choosing between similarities: folds that hold identities out, and how well scores find same pairs in them.

One split decides by luck; the mean over eight folds hardly does. What is judged is the mean true positive rate at a few
low false positive rates, since that is where decisions are made; AUC and equal error rate weigh rates nobody uses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from scipy.sparse import csr_array, issparse, vstack
from sklearn.base import clone

from pairmark.models.core.arrays import ArrayLike, Bool, Float64, Int64, NDArray
from pairmark.models.core.base import PairScorerMixin
from pairmark.models.core.inputs import codes_by_appearance, identity_codes
from pairmark.models.pairs.lists import distinct_rows, identities_of_pairs, joined_groups
from pairmark.models.pairs.sampling import rank_within
from pairmark.models.pairs.splits import Protocol, resolve_protocol

JUDGED_FPR = (0.1, 0.03, 0.01, 0.003)
"""False positive rates whose mean TPR is what settings are chosen by."""
REPEATS, FOLDS = 2, 4
JUDGED_ROWS = 800
"""Most rows of a fold that are held against each other, all pairs of them."""
OPEN_SET_LEARNERS_FROM = 15
"""With fewer training identities than this a learner without a setting takes classes to be shared (closed-set)."""
_TARGET_SPREAD = (3.0, 1.0, 1.0 / 3.0)
SHOWN_FROM = 0.4
"""Least number of independent different pairs (`Fold.n_independent`) times rate. Scores of the same two people are
alike, and one odd row is in many pairs, so folds of few hold few of the highest scores: with 6 pairs of people the TPR
at FPR 0.03 came out .02 to .09 too high, with 15 at most .03; with 19 rows at FPR 0.01 up to .04, 40 .02.
"""


def judged_rates(target_fpr: float | None = None) -> tuple[float, ...]:
    """Rates to judge at: `JUDGED_FPR`, or a target with a third and three times of it."""
    if target_fpr is None:
        return JUDGED_FPR
    return tuple(min(target_fpr * factor, 0.5) for factor in _TARGET_SPREAD)


PairScores = tuple[NDArray[np.floating], NDArray[np.floating]]
"""Scores of same, and of different pairs."""


@dataclass(frozen=True, kw_only=True)
class Fold:
    """One split of the rows.

    Attributes
    ----------
    train, test : row numbers.
    test_codes : identities of the test rows. test_units : what the folds never split.
    closed : whether classes are shared.
    repeat : number of the repeat; its folds judge disjoint rows.
    """

    train: Int64 = field(repr=False)
    test: Int64 = field(repr=False)
    test_codes: Int64 = field(repr=False)
    test_units: Int64 = field(repr=False)
    closed: bool = False
    repeat: int = 0

    @cached_property
    def places(self) -> tuple[Int64, Int64]:
        """Same and different pairs as places in the flattened square of scores."""
        left, right = np.triu_indices(self.test.size, 1)
        is_same = self.test_codes[left] == self.test_codes[right]
        flat = left * self.test.size + right
        return flat[is_same], flat[~is_same]

    @property
    def n_units(self) -> int:
        """How many of what folds never split."""
        return int(np.unique(self.test_units).size)

    @property
    def n_independent(self) -> int:
        """About how many different pairs tell something new: of identities or groups, two by two; of shared classes
        as many as rows or groups."""
        return self.n_units if self.closed else self.n_units * (self.n_units - 1) // 2

    def of_pairs(self, square: NDArray[np.floating]) -> PairScores:
        """Those of a square of scores, (n_test, n_test), of which the upper half counts."""
        same, different = self.places
        flat = np.ascontiguousarray(square).reshape(-1)
        return flat[same], flat[different]

    def rates(self, square: NDArray[np.floating], fprs: tuple[float, ...] = JUDGED_FPR) -> Float64:
        """TPR at each FPR of a square of scores; NaN at rates that the fold's different pairs do not resolve."""
        same, different = self.of_pairs(square)
        return np.where(are_resolved(different.size, fprs), tpr_at(same, different, fprs), np.nan)


def are_resolved(n_different: int, fprs: tuple[float, ...]) -> Bool:
    """Which false positive rates, falling, so many different pairs resolve: one of them or more; always the first."""
    return np.asarray((n_different * np.array(fprs) >= 1) | (np.arange(len(fprs)) == 0))


def pooled_rates(scores: Sequence[PairScores], fprs: tuple[float, ...]) -> Float64:
    """(n_folds, n_rates) TPR of each fold at the thresholds of all folds' different pairs together.

    One odd row is in many pairs, and most folds of few rows have none: thresholds of their own would be too low, and
    similarities without an upper bound look better than they are.
    """
    different = np.concatenate([different for _, different in scores])
    borders = np.where(are_resolved(different.size, fprs), _thresholds(different, fprs), np.nan)
    return np.array([_shares_above(same, borders) for same, _ in scores])


def fold_means(rates: Float64) -> Float64:
    """Mean over resolved rates, which are the last axis."""
    return np.asarray(np.nanmean(rates, axis=-1))


def other_folds(folds: Sequence[Any]) -> Bool:
    """(n, n) by whom each fold's choice is made where it is to have no say: the other folds of its repeat."""
    repeats = np.array([fold.repeat for fold in folds])
    is_other = np.asarray((repeats[:, None] == repeats) & ~np.eye(repeats.size, dtype=np.bool_))
    is_other[~is_other.any(axis=1)] = True
    return is_other


def nested_rates(rates: Float64, folds: Sequence[Any]) -> Float64:
    """What choosing among candidates brings: each fold's rates of the one that the other folds of its repeat choose.

    Parameters
    ----------
    rates : (n_candidates, n_folds, n_rates); of equals the first is chosen.

    Returns
    -------
    (n_folds, n_rates), without the optimism of the best of many.
    """
    winners = (fold_means(rates) @ other_folds(folds).T).argmax(axis=0)
    return np.asarray(rates[winners, np.arange(winners.size)])


def shown_rates(rates: Float64, folds: Sequence[Any], fprs: tuple[float, ...]) -> dict[float, float]:
    """Mean TPR over folds at those rates that at least half of the folds have enough identities, or rows, to show."""
    is_enough = np.array([fold.n_independent * np.array(fprs) >= SHOWN_FROM for fold in folds])
    is_shown = is_enough & np.isfinite(rates)
    return {
        rate: float(rates[is_shown_at, column].mean())
        for column, (rate, is_shown_at) in enumerate(zip(fprs, is_shown.T, strict=True))
        if 2 * is_shown_at.sum() >= max(is_shown_at.size, 1)
    }


def tpr_at(same: NDArray[np.floating], different: NDArray[np.floating], fprs: tuple[float, ...]) -> Float64:
    """Share of same scores above the threshold at which at most each share of different ones is."""
    return _shares_above(same, _thresholds(different, fprs))


def _thresholds(different: NDArray[np.floating], fprs: tuple[float, ...]) -> NDArray[np.floating]:
    ranks = [different.size - 1 - min(int(rate * different.size), different.size - 1) for rate in fprs]
    # Only the thresholds need to be at their places; a full sort costs more.
    return np.partition(different, sorted(set(ranks)))[ranks]


def _shares_above(same: NDArray[np.floating], thresholds: NDArray[np.floating]) -> Float64:
    """NaN for a threshold that is."""
    shares = 1.0 - np.searchsorted(np.sort(same), thresholds, side="right") / same.size
    return np.where(np.isnan(thresholds), np.nan, shares)


def learner_protocol(protocol: str, n_identities: int) -> Protocol:
    """``auto`` as a learner reads it, which sees training identities only."""
    return resolve_protocol(protocol, n_identities, OPEN_SET_LEARNERS_FROM)


class GroupedRows(PairScorerMixin):
    """A similarity that divides its training rows, and keeps groups of them together."""

    _groups: Int64 | None = None

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Learn from points and their identities.

        Parameters
        ----------
        X, y : see `PairScorerMixin.fit`.
        groups : (n,) what rows belong together, e.g. the person where y is what they do: no fold splits a group.
        """
        if groups is not None:
            self._groups = codes_by_appearance(identity_codes(groups, np.size(y), "groups", "group")[1])[0]
        try:
            return super().fit(X, y)
        finally:
            vars(self).pop("_groups", None)


def row_units(rows: Any, groups: Int64 | None) -> Int64:
    """(n,) numbers of what folds of shared classes may not split: equal rows (of dense ones), and rows of a group."""
    number = np.arange(rows.shape[0]) if bool(issparse(rows)) else distinct_rows(rows)[1]
    return number if groups is None else _join_codes(number, groups)


def _join_codes(a: Int64, b: Int64) -> Int64:
    """(n,) numbers of what rows are of that share either code, at one or more removes."""
    n = int(a.max()) + 1
    return joined_groups(n + int(b.max()) + 1, a, n + b)[1][a]


def dealt_units(units: Int64, codes: Int64, n_folds: int, random: np.random.Generator) -> Int64:
    """Fold of each row: whole units, those of each class spread evenly."""
    _, first, place = np.unique(units, return_index=True, return_inverse=True)
    return deal_entries(codes[first], n_folds, random)[place]


def validation_folds(
    codes: Int64,
    protocol: Protocol,
    random: np.random.Generator,
    *,
    repeats: int = REPEATS,
    groups: Int64 | None = None,
) -> list[Fold]:
    """Folds of whole identities (open-set), or of rows, each class spread evenly over them (closed-set).

    Of so few rows of shared classes that a quarter does not resolve the lowest of `JUDGED_FPR`, folds are
    halves: a fold's highest scores of different pairs decide there, of which few pairs have too few. They make
    similarities without an upper bound look better than trees, which are ahead at those rates.

    Parameters
    ----------
    codes : (n,) identities 0, 1, ...
    groups : (n,) numbers of what no fold splits, beside identities (open-set) or instead of rows (closed-set).

    Returns
    -------
    folds whose test part has pairs of both kinds and whose training part has at least two rows of one identity; fewer
    than asked for, possibly none, where the data does not hold as many.
    """
    counts, closed = np.bincount(codes), protocol == "closed-set"
    if closed:
        units = np.arange(codes.size) if groups is None else groups
        n_different = int(counts.sum() ** 2 - (counts**2).sum()) // 2
        n_folds = 2 if n_different / FOLDS**2 < 1.0 / JUDGED_FPR[-1] else FOLDS
        n_folds = min(n_folds, int(counts.max()) // 2, np.unique(units).size)
    else:
        units = codes if groups is None else _join_codes(codes, groups)
        # Those that have pairs first, so that every part has its share of them.
        single = ~np.isin(np.arange(units.max() + 1), units[counts[codes] > 1])
        n_folds = min(FOLDS, int(np.count_nonzero(~single)), single.size // 2)
    if n_folds < 2:
        return [] if closed else validation_folds(codes, "closed-set", random, groups=groups)
    folds = []
    for repeat in range(repeats):
        part = (
            dealt_units(units, codes, n_folds, random)
            if closed
            else deal_entries(single, n_folds, random)[units]
        )
        for number in range(n_folds):
            train, test = np.flatnonzero(part != number), np.flatnonzero(part == number)
            test = some_rows(codes, random, JUDGED_ROWS, test)
            n_each = np.unique(codes[test], return_counts=True)[1]
            if n_each.size > 1 and n_each.max() > 1 and np.bincount(codes[train]).max() > 1:
                folds.append(
                    Fold(
                        train=train,
                        test=test,
                        test_codes=codes[test],
                        test_units=units[test],
                        closed=closed,
                        repeat=repeat,
                    )
                )
    return folds


def deal_entries(key: NDArray[Any], n_folds: int, random: np.random.Generator) -> Int64:
    """Fold of each entry: entries of equal keys, in random order, spread evenly over the folds."""
    order = random.permutation(key.size)
    order = order[np.argsort(key[order], kind="stable")]
    parts = np.empty(key.size, dtype=np.int64)
    parts[order] = np.arange(key.size) % n_folds
    return parts


def some_rows(codes: Int64, random: np.random.Generator, limit: int, rows: Int64 | None = None) -> Int64:
    """At most so many of some rows, or of all: about equally many an identity, whole identities left out where there
    are too many."""
    rows = np.arange(codes.size) if rows is None else rows
    if rows.size <= limit:
        return rows
    rows = random.permutation(rows)
    identities, place = np.unique(codes[rows], return_inverse=True)
    # Identities in a random order, rows in theirs within: the first few of each are taken until there are enough.
    turn = random.permutation(identities.size)[place]
    order = np.argsort(turn, kind="stable")
    rank = rank_within(turn, np.arange(turn.size))[order]
    return np.sort(rows[order[rank < max(8, limit // identities.size)]][:limit])


@dataclass(frozen=True, kw_only=True)
class PairFold:
    """Numbers of listed pairs: training ones, and those that judge; see `pairmark.models.evaluation.validation.Fold`.

    Attributes
    ----------
    n_independent, n_units : pairs of groups, or points, that the different pairs of ``test`` are of, and how many of
        these there are.
    """

    train: Int64 = field(repr=False)
    test: Int64 = field(repr=False)
    n_independent: int
    n_units: int
    repeat: int


def pair_folds(
    a: Any,
    b: Any,
    same: Bool,
    weight: Float64,
    protocol: str,
    random: np.random.Generator,
) -> tuple[list[PairFold], int, int, bool]:
    """Folds that hold out connected groups of points which same pairs join (open-set), or points (closed-set).

    Parameters
    ----------
    a, b : (n, d) sides of the pairs, both dense or both CSR. weight : pairs of weight 0 are in no fold.

    Returns
    -------
    folds with pairs of both kinds on both sides, possibly none; those of one repeat judge disjoint points, and pairs
    across the border of a fold are left out of it. Numbers of distinct points, and of groups of them that same pairs
    join; and whether points rather than groups are held out.
    """
    numbers = np.flatnonzero(weight > 0)
    points, group = _points(a, b, same & (weight > 0))
    n = same.size
    n_groups = int(group.max()) + 1
    closed = learner_protocol(protocol, n_groups) == "closed-set"
    unit = points if closed else group
    n_units = int(unit.max()) + 1
    folds = []
    for repeat in range(REPEATS):
        part = (random.permutation(n_units) % FOLDS)[unit]
        left, right = part[:n], part[n:]
        for number in range(FOLDS):
            test = numbers[(left[numbers] == number) & (right[numbers] == number)]
            train = numbers[(left[numbers] != number) & (right[numbers] != number)]
            if all(0 < np.count_nonzero(same[rows]) < rows.size for rows in (train, test)):
                sides = np.sort(np.stack([unit[:n], unit[n:]])[:, test[~same[test]]], axis=0)
                pair_codes = sides if closed else sides[0] * n_units + sides[1]
                folds.append(
                    PairFold(
                        train=train,
                        test=test,
                        n_independent=np.unique(pair_codes).size,
                        n_units=np.unique(sides).size,
                        repeat=repeat,
                    )
                )
    return folds, int(points.max()) + 1, n_groups, closed


def _points(a: Any, b: Any, same: Bool) -> tuple[Int64, Int64]:
    """Numbers of distinct points, and of the groups that same pairs join, of left rows, then right rows."""
    if bool(issparse(a)):
        rows = csr_array(vstack([a, b]))
        rows.sort_indices()
        keys = [
            rows.indices[start:stop].tobytes() + rows.data[start:stop].tobytes()
            for start, stop in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        ]
        points = np.unique(np.array(keys, dtype=object), return_inverse=True)[1].astype(np.float32)[:, None]
    else:
        points = np.concatenate([a, b])
    number = np.unique(points, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return number, identities_of_pairs(points, same)


SHARES: Final = (0.25, 0.5, 0.75, 1.0)
FEWEST = 4
"""People to train on, at least."""
AHEAD: Final = (1.0, 1.5, 2.0)
"""Multiples of the people there are that the trend is followed to."""


def learning_curve(
    estimator: Any,
    X: Any,
    y: Int64,
    fpr: float,
    random_state: int = 0,
    progress: Callable[[float], object] = lambda share: None,
) -> list[dict[str, Any]]:
    """TPR at a false positive rate by the number of people who train.

    Four folds hold people out; in each, models learn from the same people in the same order, a quarter of them to all,
    and find pairs of those held out, who are always the same.

    Parameters
    ----------
    estimator : a similarity, cloned for each fit, so that all have its seed.
    X, y : (n, d) rows and (n,) codes of people, 0, 1, ...

    Returns
    -------
    ``{"people", "tpr", "deviation", "measured"}`` by people: measured, with the standard deviation over folds; then
    a + b log(people), fitted to those by least squares and kept within 0 and 1. It is a trend, and guarantees nothing.

    Raises
    ------
    ValueError
        Where held-out people do not resolve the rate, or fewer than two shares of the people can train.
    """
    random = np.random.default_rng(random_state)
    folds = [fold for fold in validation_folds(y, "open-set", random, repeats=1) if not fold.closed]
    # People who train in every fold.
    n_trained = min((np.unique(y[fold.train]).size for fold in folds), default=0)
    counts = np.unique([max(FEWEST, round(share * n_trained)) for share in SHARES])
    if not folds or counts.size < 2:
        raise ValueError(f"{np.unique(y).size} people; expected twelve or more, with two rows each")
    rates = np.empty((counts.size, len(folds), 1))
    for number, fold in enumerate(folds):
        people = y[fold.train]
        # Those with two rows and more first: without them there is nothing to learn from.
        order = random.permutation(np.unique(people))
        order = order[np.argsort(np.bincount(people)[order] < 2, kind="stable")]
        left, right = np.triu_indices(fold.test.size, 1)
        is_same = fold.test_codes[left] == fold.test_codes[right]
        for row, count in enumerate(counts.tolist()):
            rows = fold.train[np.isin(people, order[:count])]
            scores = clone(estimator).fit(X[rows], y[rows]).score_pairs(X, fold.test[left], fold.test[right])
            rates[row, number] = tpr_at(scores[is_same], scores[~is_same], (fpr,))
            progress((number * counts.size + row + 1) / (len(folds) * counts.size))
    means = [shown_rates(of_count, folds, (fpr,)).get(fpr) for of_count in rates]
    if None in means:
        least = SHOWN_FROM / float(np.median([fold.n_independent for fold in folds]))
        raise ValueError(f"people held out do not show the TPR at a rate below {least:.2g}")
    b, a = np.polyfit(np.log(counts), np.array(means, dtype=np.float64), 1)
    deviations = rates.std(axis=(1, 2)).tolist()
    ahead = [round(factor * np.unique(y).size) for factor in AHEAD]
    trend = [float(np.clip(a + b * np.log(people), 0, 1)) for people in ahead]
    points = [
        *zip(counts.tolist(), means, deviations, [True] * counts.size, strict=True),
        *zip(ahead, trend, [None] * len(ahead), [False] * len(ahead), strict=True),
    ]
    return [dict(zip(("people", "tpr", "deviation", "measured"), point, strict=True)) for point in points]
