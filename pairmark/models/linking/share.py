"""What share of the links is false: the model's own estimate, checked by columns that are held out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool, Float64
from pairmark.models.linking.mixture import LEVEL_OF, PERSON, Mixture, chances

_SURE, _FEWEST_SURE = 0.95, 20
"""The chance from which on a link is sure, and how many of them a share takes."""
_VERY_SURE = 4.6
_FEWEST = 30
_LEAST_GAP = 0.4
_FLOOR = 0.01
_AGREES, _ALARM = 2.0, 3.0
_MOST_AGREEMENT, _KEPT, _UNSHARED = 0.05, 0.9, 0.1
"""Columns that strangers agree in at most so often, matches that moved agree in as others at least so often, and no
relatives as matches do."""
_MOST_OF_MATCH, _MOST_SHIFT = 0.995, 3.0
_JUDGED = 150
_MOST_APART, _FEW_APART = 0.04, 2
"""The share of links whose given names may be apart, and how many may be whatever their share."""


@dataclass(frozen=True)
class FalseShare:
    """One of two statements on the share of false links.

    Attributes
    ----------
    estimate : the share as the model has it; None where it cannot be believed. check : what columns that were held out
        say of it. judge : links to judge where nothing is known, about.
    """

    estimate: float | None = None
    check: Literal["agrees", "doubtful"] | None = None
    judge: int | None = None


def unknown(n_links: int) -> FalseShare:
    """Nobody knows before some links are judged."""
    return FalseShare(judge=min(n_links, _JUDGED))


def share_of(
    model: Mixture, symbols: NDArray[Any], counts: Float64, cut: float, n_links: int, estimate: float
) -> FalseShare:
    """The share of false links by the patterns of candidates.

    Links are made again without a column, which then says how many of them are false: matches agree in it as the sure
    ones do, and others as the model has it. Where that is far more than the model says of them, the model is wrong.

    Parameters
    ----------
    symbols, counts : patterns of candidates, and how many have each. cut : chance above which a pair is linked.
    estimate : what the model has of the links.
    """
    odds = model.log_odds(symbols)
    p = chances(odds)
    if counts[p > _SURE].sum() < _FEWEST_SURE:
        return unknown(n_links)
    ratios = [
        ratio
        for at in range(len(model.columns))
        if (ratio := _ratio(model, symbols, counts, cut, at)) is not None
    ]
    is_wrong = bool(ratios) and max(ratios) > _ALARM
    if is_wrong or _look_like_twins(model, symbols, np.where(p > cut, counts, 0)):
        return unknown(n_links)
    agrees = len(ratios) > 1 and max(ratios) <= _AGREES
    return FalseShare(estimate=estimate, check="agrees" if agrees else "doubtful")


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


def _ratio(model: Mixture, symbols: NDArray[Any], counts: Float64, cut: float, number: int) -> float | None:
    """How many times what the model says of links without a column that column says; None where it cannot tell."""
    column = _held_out(model, symbols, counts, number)
    if column is None:
        return None
    p = chances(column.odds)
    weight = np.where(p > cut, column.counts, 0)
    if weight.sum() < _FEWEST:
        return None
    total, others = weight.sum(), weight * (1 - p)
    of_other = float(others @ column.of_other / max(others.sum(), 1e-9))
    if column.of_match - of_other < _LEAST_GAP:
        return None
    agreement = float(weight @ column.agrees / total)
    error = np.sqrt(max(agreement * (1 - agreement), 1 / total) / total)
    share = (column.of_match - agreement - 2 * error) / (column.of_match - of_other)
    return float(max(share, 0.0) / max(others.sum() / total, _FLOOR))
