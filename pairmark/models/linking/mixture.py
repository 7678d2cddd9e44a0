"""The model of Fellegi and Sunter on patterns of agreement, fitted without labels.

A comparison is a column, or several columns that depend on each other (a suburb and its postcode), whose levels are
taken together. Each has shares of its levels among matches (m) and among pairs drawn at random (u). u is counted; m and
the share of matches among all pairs are found by expectation maximization over candidates. A missing cell says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float64

LEVELS = 3
"""Apart, alike, equal; in codes 1, 2 and 3, and 0 where a cell is missing."""
_FIRST_M = (0.15, 0.15, 0.7)
_FIRST_SHARE = 1e-5
_PSEUDO = 0.5
_MAX_ITER = 200
_TOLERANCE = 1e-7
_LEAST_U = 1e-9
_MOST_MATCHES = 2.0
"""Matches for each row, at most; more means that strangers are taken for matches."""
_IDENTIFYING = 0.05
"""Columns that agree in fewer random pairs should agree in most matches."""


class NeedsJudgements(ValueError):
    """Matches cannot be told from strangers without labels.

    Attributes
    ----------
    model : what was found all the same: it says which pairs look most alike, and nothing more.
    """

    def __init__(self, doubts: str, model: Mixture) -> None:
        super().__init__(doubts)
        self.model = model


@dataclass(frozen=True)
class Comparison:
    """One or several columns whose levels are taken together.

    Attributes
    ----------
    columns : their places. u : (3 ** k,) shares of the levels among random pairs, the last column's level fastest.
    kind : "name" of a column of names, "date" where a date is among the columns: people of one household differ in
        these.
    """

    columns: tuple[int, ...]
    u: Float64
    kind: str = ""

    @cached_property
    def combinations(self) -> NDArray[np.int64]:
        """(3 ** k, k) levels, 1 to 3, in the order of ``u``."""
        return _product(range(1, LEVELS + 1), len(self.columns))

    @cached_property
    def _codes(self) -> NDArray[np.int64]:
        return _product(range(LEVELS + 1), len(self.columns))

    @cached_property
    def _consistent(self) -> Float64:
        """(4 ** k, 3 ** k) whether a code, missing cells and all, may be a combination."""
        same = (self._codes[:, None] == self.combinations[None]) | (self._codes[:, None] == 0)
        return np.asarray(same.all(axis=2), dtype=np.float64)

    @cached_property
    def _above(self) -> list[NDArray[np.intp]]:
        """For each code those that agree as much or more, of the same cells."""
        codes = self._codes
        return [
            np.flatnonzero(((codes == 0) == (code == 0)).all(axis=1) & (codes >= code).all(axis=1))
            for code in codes
        ]

    @property
    def identifies(self) -> bool:
        """Whether strangers seldom agree."""
        return self.agreement(self.u) < _IDENTIFYING

    def agreement(self, shares: Float64) -> float:
        """The share of pairs in which no column is apart."""
        return float(shares[(self.combinations > 1).all(axis=1)].sum())

    def codes(self, levels: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """(n, d) levels -> (n,) codes in base 4."""
        powers = 4 ** np.arange(len(self.columns))[::-1]
        return np.asarray(levels[:, list(self.columns)] @ powers)

    def weights(self, m: Float64, *, lowered: bool) -> Float64:
        """(4 ** k,) log m / u by code; ``lowered``: never more for less agreement, and none where agreement would speak
        against a match."""
        ratio = np.log((self._consistent @ m) / (self._consistent @ self.u))
        # Whatever rounding makes of it, what is missing says nothing.
        ratio[0] = 0.0
        if not lowered:
            return np.asarray(ratio)
        if ratio[-1] <= 0:
            return np.zeros(ratio.size)
        return np.array([ratio[above].min() for above in self._above])

    def maximized(self, m: Float64, expected: NDArray[Any]) -> Float64:
        """The next m: what is expected of each code, shared out over the combinations that it may be."""
        # Code 0, all missing, says nothing.
        of = self._consistent[1:]
        new = m * (of.T @ (expected[1:] / np.maximum(of @ m, 1e-300))) + _PSEUDO / m.size
        return np.asarray(new / new.sum())


def _product(levels: range, n: int) -> NDArray[np.int64]:
    return np.array(list(product(levels, repeat=n)), dtype=np.int64)


@dataclass(frozen=True)
class Mixture:
    """A fitted model.

    Attributes
    ----------
    comparisons : with u. m : shares among matches, one array for each. weights : (4 ** k,) log m / u by code, one array
        for each. share : of matches among all pairs. others : the same of further kinds of pairs than strangers.
    """

    comparisons: Sequence[Comparison]
    m: Sequence[Float64]
    weights: Sequence[Float64]
    share: float
    others: Sequence[tuple[float, Sequence[Float64]]] = ()

    def log_odds(self, levels: NDArray[np.int64]) -> Float64:
        """(n, d) levels -> (n,) log odds of a match."""
        codes = [comparison.codes(levels) for comparison in self.comparisons]
        rest = 1 - self.share - sum(share for share, _ in self.others)
        against = [np.full(levels.shape[0], np.log(rest))]
        against += [np.log(share) + self._total(weights, codes) for share, weights in self.others]
        return np.asarray(
            np.log(self.share) + self._total(self.weights, codes) - np.logaddexp.reduce(against)
        )

    def contributions(self, levels: NDArray[np.int64]) -> list[float]:
        """(d,) levels of one pair -> what each comparison adds to the log odds."""
        return [
            float(weights[comparison.codes(levels[None])[0]])
            for comparison, weights in zip(self.comparisons, self.weights, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "comparisons": [
                {"columns": list(each.columns), "u": each.u.tolist(), "kind": each.kind}
                for each in self.comparisons
            ],
            "m": [m.tolist() for m in self.m],
            "weights": [weights.tolist() for weights in self.weights],
            "share": self.share,
            "others": [[share, [weights.tolist() for weights in of]] for share, of in self.others],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Mixture:
        """What `to_json` gave, to the bit."""
        comparisons = [
            Comparison(tuple(each["columns"]), np.array(each["u"]), each["kind"])
            for each in value["comparisons"]
        ]
        m, weights = ([np.array(each) for each in value[name]] for name in ("m", "weights"))
        others = [(share, [np.array(each) for each in of]) for share, of in value["others"]]
        return cls(comparisons, m, weights, value["share"], others)

    @staticmethod
    def _total(weights: Sequence[Float64], codes: Sequence[NDArray[np.int64]]) -> Float64:
        total = np.zeros(codes[0].size)
        for of, code in zip(weights, codes, strict=True):
            total += of[code]
        return total


def chances(log_odds: Float64) -> Float64:
    return np.asarray(1 / (1 + np.exp(-np.clip(log_odds, -500, 500))))


def shares_of(
    comparison: Sequence[int], levels: NDArray[np.int64], counts: Float64, all_equal: float
) -> Float64:
    """u of a comparison: that all columns are equal as groups of equal cells have it, the rest as random pairs have it.

    Parameters
    ----------
    levels, counts : patterns of random pairs. all_equal : share of pairs that are equal in all columns.
    """
    blank = Comparison(tuple(comparison), np.empty(0))
    complete = (levels[:, list(comparison)] > 0).all(axis=1)
    by_code = np.bincount(
        blank.codes(levels[complete]), weights=counts[complete], minlength=4 ** len(blank.columns)
    )
    powers = 4 ** np.arange(len(blank.columns))[::-1]
    u = by_code[blank.combinations @ powers] + _PSEUDO
    u[-1] = 0.0
    all_equal = float(np.clip(all_equal, _LEAST_U, 0.999))
    return np.asarray(np.append(u[:-1] / u[:-1].sum() * (1 - all_equal), all_equal))


def fit(
    comparisons: Sequence[Comparison], levels: NDArray[np.int64], counts: Float64, n_pairs: float, n_rows: int
) -> Mixture:
    """Shares among matches, by expectation maximization over the patterns of candidates.

    People of one household agree like matches in all but what tells people apart. So pairs that agree like that make a
    class of their own beside matches and strangers, where the patterns show one.

    Parameters
    ----------
    levels, counts : patterns of candidates. n_pairs : of all rows, candidates or not.

    Raises
    ------
    NeedsJudgements
        Where what was found are not matches: more than rows allow, or columns that identify disagree in them.
    """
    candidates = _Candidates(comparisons, levels, counts, n_pairs, n_rows)
    first = [_first_shares(comparison) for comparison in comparisons]
    classes = candidates.fitted([first])
    matches = classes[0].m
    strange = candidates.disagreeing(matches) if candidates.doubts(matches, classes[0].share) else []
    strange = sorted({*strange, *candidates.renamed(matches)})
    is_doubtful = bool(strange)
    strange = strange or [at for at, comparison in enumerate(comparisons) if comparison.kind == "date"]
    if strange:
        relatives = [
            comparison.u if at in strange else matches[at] for at, comparison in enumerate(comparisons)
        ]
        among = candidates.fitted([first, relatives], by_chance=strange if is_doubtful else ())
        apart = set(candidates.disagreeing(among[1].m)) - set(candidates.disagreeing(among[0].m))
        if is_doubtful or (len(apart) > 1 and apart & set(strange)):
            classes = among
    if doubts := candidates.doubts(classes[0].m, classes[0].share):
        raise NeedsJudgements(doubts, candidates.mixture(classes))
    return candidates.mixture(classes)


def matches(
    comparisons: Sequence[Comparison],
    levels: NDArray[np.integer[Any]],
    counts: NDArray[Any],
    n_pairs: float,
    n_rows: int,
) -> tuple[list[Float64], float]:
    """m and the share of matches of one class beside strangers, whatever speaks against it; parameters as `fit`."""
    first = [_first_shares(comparison) for comparison in comparisons]
    found = _Candidates(comparisons, levels, counts, n_pairs, n_rows).fitted([first])[0]
    return found.m, found.share


@dataclass(frozen=True)
class _Class:
    """Pairs of one kind: shares of their levels for each comparison, and of the kind among all pairs."""

    m: list[Float64]
    share: float


class _Candidates:
    def __init__(
        self,
        comparisons: Sequence[Comparison],
        levels: NDArray[np.integer[Any]],
        counts: NDArray[Any],
        n_pairs: float,
        n_rows: int,
    ) -> None:
        self.comparisons, self.counts, self.n_pairs, self.n_rows = comparisons, counts, n_pairs, n_rows
        self.codes = [comparison.codes(levels) for comparison in comparisons]

    def _log_ratio(self, m: Sequence[Float64], *, lowered: bool) -> Float64:
        total = np.zeros(self.counts.size)
        for comparison, shares, codes in zip(self.comparisons, m, self.codes, strict=True):
            total += comparison.weights(shares, lowered=lowered)[codes]
        return total

    def fitted(self, starts: Sequence[list[Float64]], by_chance: Sequence[int] = ()) -> list[_Class]:
        """Classes beside strangers, the first one of matches; the others agree in some comparisons as strangers do."""
        share = min(0.25, 0.1 * self.n_rows / self.n_pairs)
        classes = [_Class(m, share) for m in starts]
        for _ in range(_MAX_ITER):
            logs = [
                self._log_ratio(each.m, lowered=at == 0) + np.log(each.share)
                for at, each in enumerate(classes)
            ]
            total = np.logaddexp.reduce(
                [*logs, np.full(self.counts.size, np.log1p(-sum(c.share for c in classes)))]
            )
            new = [
                self._maximized(each, np.exp(log - total) * self.counts, by_chance if at else ())
                for at, (each, log) in enumerate(zip(classes, logs, strict=True))
            ]
            moved = max(
                float(np.abs(after - before).max())
                for one, other in zip(classes, new, strict=True)
                for before, after in zip(one.m, other.m, strict=True)
            )
            classes = new
            if moved < _TOLERANCE:
                break
        return classes

    def _maximized(self, before: _Class, expected: Float64, by_chance: Sequence[int]) -> _Class:
        share = float(
            np.clip(
                expected.sum() / self.n_pairs, 1e-15, min(0.25, _MOST_MATCHES * self.n_rows / self.n_pairs)
            )
        )
        m = [
            shares
            if at in by_chance
            else comparison.maximized(
                shares, np.bincount(codes, weights=expected, minlength=4 ** len(comparison.columns))
            )
            for at, (comparison, shares, codes) in enumerate(
                zip(self.comparisons, before.m, self.codes, strict=True)
            )
        ]
        return _Class(m, share)

    def doubts(self, m: Sequence[Float64], share: float) -> str:
        """Why what was found are not matches; empty where nothing speaks against it."""
        if share * self.n_pairs >= 0.99 * _MOST_MATCHES * self.n_rows:
            return "more pairs look the same than there are rows"
        if len(self.disagreeing(m)) > 1:
            return "pairs that look the same differ in the columns that tell most apart"
        if self.renamed(m):
            return "many pairs that look the same have different names"
        return ""

    def renamed(self, m: Sequence[Float64]) -> list[int]:
        """Names that many pairs of a class have different, and few alike, where no date tells people apart: spelling
        does not do that."""
        if any(comparison.kind == "date" and comparison.identifies for comparison in self.comparisons):
            return []
        return [
            at
            for at, (comparison, shares) in enumerate(zip(self.comparisons, m, strict=True))
            if comparison.kind == "name" and comparison.identifies and shares[0] > max(0.1, 1.5 * shares[1])
        ]

    def disagreeing(self, m: Sequence[Float64]) -> list[int]:
        """Comparisons in which strangers seldom agree, and pairs of a class do not either."""
        return [
            at
            for at, (comparison, shares) in enumerate(zip(self.comparisons, m, strict=True))
            if comparison.identifies and comparison.agreement(shares) < 0.5
        ]

    def mixture(self, classes: Sequence[_Class]) -> Mixture:
        weights = [c.weights(m, lowered=True) for c, m in zip(self.comparisons, classes[0].m, strict=True)]
        others = [
            (each.share, [c.weights(m, lowered=False) for c, m in zip(self.comparisons, each.m, strict=True)])
            for each in classes[1:]
        ]
        return Mixture(self.comparisons, classes[0].m, weights, classes[0].share, others)


def _first_shares(comparison: Comparison) -> Float64:
    first = np.array(_FIRST_M)
    shares = np.ones(1)
    for _ in comparison.columns:
        shares = np.outer(shares, first).ravel()
    return shares
