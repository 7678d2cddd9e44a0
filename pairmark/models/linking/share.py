"""What share of the links is false: the model's own estimate, checked by columns that are held out; or, of links to a
register without duplicates, what its own pairs say.

The best score of a row of the register within the register is that of a record whose own partner is not there: a null.
Where records of the other tables that have no partner score against the register as the register's own rows do, the
share of nulls at or above a record's best score, itself counted, is a conformal p-value (Vovk, Gammerman and Shafer
2005, "Algorithmic learning in a random world"; Bates et al. 2023, "Testing for outliers with conformal p-values"), and
Benjamini's and Hochberg's step-up rule keeps the expected share of false links at what is asked. It does not hold where
the register has duplicates (nulls are matches, and little is found: `doubles` says so) or where strangers are nearer to
the register than its own rows are to each other, as members of its rows' households are.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.linking.mixture import LEVEL_OF, PERSON, Mixture, chances
from pairmark.schemas.link_shares import FalseLinks

_SURE, _FEWEST_SURE = 0.95, 20
"""The chance from which on a link is sure, and how many of them a share takes."""
_VERY_SURE = 4.6
_FEWEST = 30
_LEAST_GAP = 0.4
_FLOOR = 0.01
_AGREES, _ALARM = 2.0, 3.0
_MOST_APART, _FEW_APART = 0.04, 2
"""The share of links whose given names may be apart, and how many may be whatever their share."""
_MOST_MOVED, _OWN = 0.3, frozenset({"given", "name", "date", "id"})
"""Of matches, more of which have another address may be branches, unless a column votes in which those differ."""
_MOST_AGREEMENT, _KEPT, _UNSHARED = 0.05, 0.9, 0.1
"""Columns that strangers agree in at most so often, matches that moved agree in as others at least so often, and no
relatives as matches do."""
_MOST_OF_MATCH, _MOST_SHIFT = 0.995, 3.0
_JUDGED = 150


def unknown(n_links: int) -> FalseLinks:
    """Nobody knows before some links are judged."""
    return FalseLinks(unknown=True, judge=min(n_links, _JUDGED))


def share_of(
    model: Mixture, symbols: NDArray[Any], counts: Float64, cut: float, n_links: int, estimate: float
) -> FalseLinks:
    """The share of false links by the patterns of candidates.

    Links are made again without a column, which then says how many of them are false: matches agree in it as the sure
    ones do, and others as the model has it. Where that is far more than the model says of them, the model is wrong; so
    it is where many links have another address and no column of one thing alone votes: they may be branches. The check
    agrees where two columns or more say within a factor of two what the model says, no more and no less, of links that
    are nearly as good as those with all columns: of worse links they say nothing about these.

    Parameters
    ----------
    symbols, counts : patterns of candidates, and how many have each. cut : chance above which a pair is linked.
    estimate : what the model has of the links.
    """
    votes = [
        vote
        for at in range(len(model.columns))
        if (vote := _vote(model, symbols, counts, cut, at)) is not None
    ]
    p = chances(model.log_odds(symbols))
    n_moved = sum(share for kind, share in zip(model.kinds, model.shares, strict=True) if kind == "moved")
    are_branches = n_moved > _MOST_MOVED * model.shares[: model.n_matching].sum() and not any(
        vote.role in _OWN for vote in votes
    )
    if (
        not votes
        or counts[p > _SURE].sum() < _FEWEST_SURE
        or max(vote.least / vote.stated for vote in votes) > _ALARM
        or are_branches
        or _look_like_twins(model, symbols, np.where(p > cut, counts, 0))
    ):
        return unknown(n_links)
    agrees = (
        len(votes) > 1
        and all(vote.least <= _AGREES * vote.stated for vote in votes)
        and all(vote.stated <= max(_FLOOR, _AGREES * vote.most) for vote in votes)
        and min(vote.stated for vote in votes) <= _ALARM * max(estimate, _FLOOR)
    )
    return FalseLinks(estimate=estimate, check="agrees" if agrees else "doubtful")


def _look_like_twins(model: Mixture, symbols: NDArray[Any], weights: Float64) -> bool:
    """Whether links are apart in one name far more often than in another, as those of twins are. Last names that are
    known to be such may be: people change them."""
    apart = [
        (
            column.role,
            max(weights @ (symbols[:, at] == 1) - _FEW_APART, 0) / max(weights @ (symbols[:, at] > 0), 1),
        )
        for at, column in enumerate(model.columns)
        if column.role in PERSON
    ]
    least = min((share for _, share in apart), default=0.0)
    given = [share for role, share in apart if role == "given"] or [share for _, share in apart]
    return len(apart) > 1 and max(given) > max(_MOST_APART, 3 * least)


@dataclass(frozen=True)
class _HeldOut:
    """Pairs that have a column on both sides, by what the others say of them.

    Attributes
    ----------
    odds, counts, agrees : (n,) log odds of each pattern without the column, how many pairs have it, and whether they
        agree in the column. of_match, of_other : how often matches do, and (n,) others like them.
    """

    odds: Float64
    counts: Float64
    agrees: Bool
    of_match: float
    of_other: Float64


def _held_out(model: Mixture, symbols: NDArray[Any], counts: Float64, number: int) -> _HeldOut | None:
    """None: matches and others cannot be told by that column."""
    column, n = model.columns[number], model.n_matching
    if (
        column.agreement > _MOST_AGREEMENT
        or not model.weight(number)
        or model.shared[:n, number].min() < _KEPT
    ):
        return None
    is_there = symbols[:, number] > 0
    without, counts = symbols[is_there].copy(), counts[is_there]
    without[:, number] = 0
    joint = model.by_class(without)
    odds = np.logaddexp.reduce(joint[:n]) - np.logaddexp.reduce(joint[n:])
    agrees = LEVEL_OF[symbols[is_there, number]] > 2
    sure = counts * (odds > _VERY_SURE)
    of_match = float(model.m[number, 2:].sum())
    if sure.sum() >= _FEWEST:
        of_match = float((sure * agrees).sum() / sure.sum())
    others = np.exp(joint[n:] - np.logaddexp.reduce(joint[n:]))
    shared = np.append(model.shared[n:, number], 0.0)
    of_other = (shared * of_match + (1 - shared) * column.agreement) @ others
    return _HeldOut(odds, counts, agrees, min(of_match, _MOST_OF_MATCH), of_other)


def calibrate_matches(model: Mixture, symbols: NDArray[Any], counts: Float64) -> Mixture:
    """The model with as many matches as columns in which no other pairs agree say that there are.

    EM takes columns of relatives for independent, which moves all chances of pairs that lack what tells one thing from
    another (a number of its own, a date of birth) the same way. Pairs that have it on both sides are such pairs
    once it is held out: how often they agree in it says by how much log odds are to be moved.

    Parameters
    ----------
    symbols, counts : patterns of candidates, and how many have each.
    """
    # Few processes link: a start need not import it.
    from scipy.optimize import minimize_scalar

    is_related = [kind not in ("match", "moved", "twins") for kind in model.kinds]
    unshared = model.shared[is_related].max(axis=0, initial=0.0) <= _UNSHARED
    held_out = [
        column
        for at in np.flatnonzero(unshared).tolist()
        if (column := _held_out(model, symbols, counts, at)) is not None
    ]

    def misfit(shift: float) -> float:
        total = shift**2 / 2
        for column in held_out:
            p = chances(column.odds + shift)
            agreement = np.clip(p * column.of_match + (1 - p) * column.of_other, 1e-6, 1 - 1e-6)
            total -= float(column.counts @ np.log(np.where(column.agrees, agreement, 1 - agreement)))
        return total

    shift = (
        minimize_scalar(misfit, bounds=(-_MOST_SHIFT, _MOST_SHIFT), method="bounded").x if held_out else 0.0
    )
    shares = model.shares.copy()
    shares[: model.n_matching] *= np.exp(shift)
    return replace(model, shares=shares)


@dataclass(frozen=True)
class _Vote:
    """What a column says of links that are made without it: which share of them is false at least and at most (two
    standard errors), beside what the model says."""

    role: str
    least: float
    most: float
    stated: float


def _vote(model: Mixture, symbols: NDArray[Any], counts: Float64, cut: float, number: int) -> _Vote | None:
    """None where a column cannot tell."""
    column = _held_out(model, symbols, counts, number)
    if column is None:
        return None
    p = chances(column.odds)
    weight = np.where(p > cut, column.counts, 0)
    total, others = weight.sum(), weight * (1 - p)
    of_other = float(others @ column.of_other / max(others.sum(), 1e-9))
    if total < _FEWEST or column.of_match - of_other < _LEAST_GAP:
        return None
    agreement = float(weight @ column.agrees / total)
    error = 2 * np.sqrt(max(agreement * (1 - agreement), 1 / total) / total)
    least, most = (
        max(float(column.of_match - agreement + side) / (column.of_match - of_other), 0.0)
        for side in (-error, error)
    )
    return _Vote(model.columns[number].role, least, most, max(float(others.sum() / total), _FLOOR))


@dataclass(frozen=True)
class ExpectedLinks:
    """What is linked, of the candidates.

    Attributes
    ----------
    is_link : (c,) of each. cut : the least score of a link; infinite where there is none.
    doubles : the share of the register's rows whose null is likely a match: the register may have duplicates.
    """

    is_link: Bool
    cut: float
    doubles: float

    def meaning(self, expected: float) -> str:
        """What is said of these links, in a sentence."""
        return (
            f"on average at most {expected:.1%} of the links are expected to be false, if every row of the unique "
            f"table is another thing ({self.doubles:.1%} of them look like another), and records without a partner "
            "there are no nearer to its rows than these are to each other"
        )


def register_links(
    a: Int64, b: Int64, score: Float64, is_register: Bool, expected: float, likely: float
) -> ExpectedLinks:
    """`expected_links` of pairs of rows, of which (n,) ``is_register`` says which are the register's: its own pairs are
    the nulls."""
    left, right = is_register[a], is_register[b]
    nulls = np.full(is_register.size, -np.inf)
    for side in (a, b):
        np.maximum.at(nulls, side[left & right], score[left & right])
    one = np.flatnonzero(left ^ right)
    query = np.where(left, b, a)[one]
    found = expected_links(query, score[one], int((~is_register).sum()), nulls[is_register], expected, likely)
    return ExpectedLinks(np.isin(np.arange(a.size), one[found.is_link]), found.cut, found.doubles)


def expected_links(
    query: Int64, score: Float64, n_queries: int, nulls: Float64, expected: float, likely: float
) -> ExpectedLinks:
    """Link each record to its best of the register where false links are to be ``expected`` of all on average.

    Parameters
    ----------
    query, score : (c,) the record and the score of each candidate that has one row of the register.
    n_queries : records of all other tables. nulls : (m,) of each row of the register, -inf where it has no candidate.
    likely : score above which two records are taken for one where nothing is known of a register.
    """
    # Of equal scores the first candidate.
    order = np.lexsort((np.arange(query.size), -score, query))
    best = order[np.unique(query[order], return_index=True)[1]]
    ranked = best[np.argsort(-score[best], kind="stable")]
    above = nulls.size - np.searchsorted(np.sort(nulls), score[ranked], side="left")
    p = (1 + above) / (1 + nulls.size)
    kept = np.flatnonzero(p <= expected * np.arange(1, ranked.size + 1) / n_queries)
    linked = ranked[: kept[-1] + 1] if kept.size else ranked[:0]
    cut = float(score[linked].min(initial=np.inf))
    return ExpectedLinks(np.isin(np.arange(query.size), linked), cut, float((nulls > likely).mean()))
