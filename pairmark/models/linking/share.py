"""What share of the links is false: the model's own estimate, checked by columns that are held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float64
from pairmark.models.linking.mixture import LEVEL_OF, Mixture, chances

_SURE, _FEWEST_SURE = 0.95, 20
"""The chance from which on a link is sure, and how many of them a share takes."""
_VERY_SURE = 4.6
_FEWEST = 30
_LEAST_GAP = 0.4
_FLOOR = 0.01
_AGREES, _ALARM = 2.0, 3.0
_MOST_AGREEMENT, _KEPT = 0.2, 0.9
"""Columns that strangers agree in at most so often, and matches that moved agree in as others at least so often."""
_JUDGED = 150


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
    if ratios and max(ratios) > _ALARM:
        return unknown(n_links)
    agrees = len(ratios) > 1 and max(ratios) <= _AGREES
    return FalseShare(estimate=estimate, check="agrees" if agrees else "doubtful")


def _ratio(model: Mixture, symbols: NDArray[Any], counts: Float64, cut: float, at: int) -> float | None:
    """How many times what the model says of links without a column that column says; None where it cannot tell."""
    column = model.columns[at]
    is_there = symbols[:, at] > 0
    moves = model.shared[: model.n_matching, at].min() < _KEPT
    if column.agreement > _MOST_AGREEMENT or not model.weight(at) or moves:
        return None
    without = symbols[is_there].copy()
    without[:, at] = 0
    joint = model.by_class(without)
    posterior = np.exp(joint - np.logaddexp.reduce(joint))
    n = model.n_matching
    odds = np.logaddexp.reduce(joint[:n]) - np.logaddexp.reduce(joint[n:])
    weight = np.where(chances(odds) > cut, counts[is_there], 0)
    agrees = LEVEL_OF[symbols[is_there, at]] > 2
    sure = weight * (odds > _VERY_SURE)
    if sure.sum() < _FEWEST:
        return None
    of_match = float((sure * agrees).sum() / sure.sum())
    others = posterior[n:] @ weight
    shared = np.append(model.shared[n:, at], 0.0)
    of_other = float(others @ (shared * of_match + (1 - shared) * column.agreement) / max(others.sum(), 1e-9))
    if of_match - of_other < _LEAST_GAP:
        return None
    total = weight.sum()
    agreement = float((weight * agrees).sum() / total)
    error = np.sqrt(max(agreement * (1 - agreement), 1 / total) / total)
    found = (of_match - agreement - 2 * error) / (of_match - of_other)
    said = others.sum() / total
    return float(max(found, 0.0) / max(said, _FLOOR))
