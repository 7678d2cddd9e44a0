"""How many of a finite set of decisions are wrong, known at any time from a random sample of judgements.

Under the hypothesis that w of the N items are wrong, the judgements so far have the likelihood L(w) (hypergeometric,
in order; Waudby-Smith and Ramdas 2020, "Confidence sequences for sampling without replacement", section 2). Any
probability Q that predicts each judgement from those before it makes Q / L(w) a non-negative martingale that starts
at 1. By Ville's inequality it ever exceeds 1 / (1 - confidence) with probability at most 1 - confidence, whatever the
dependence among items. So the truth is, at all looks at once, among the w with L(w) > (1 - confidence) Q.

A sequence of n judgements, s of them wrong, has L(w) = (w)_s (N - w)_{n-s} / (N)_n, falling factorials; log L is
concave in w.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from pairmark.models.core.arrays import Float64

_NEAR: Final = ((0.0, 0.35), (0.125, 0.2), (0.25, 0.25), (0.4, 0.1), (0.55, 0.05), (0.7, 0.03))
"""Shares of wrong items that Q mixes, in parts of the share asked about, with their weights."""
_WIDE: Final = 0.03
"""Weight of all shares above the one asked about, which keep the bound close where more is wrong."""
_RATIO: Final = 1.6
_FARTHEST: Final = 20_000
"""Most judgements that `expected_judgements` looks ahead."""
_SLACK: Final = 1e-9
MATCHED_DRAWS: Final = 0.12
"""Share of draws that tell how many matches are true, where missed matches are counted."""


class Judgements:
    """Judgements of a population in the order in which its items were drawn, all with the same chance.

    Parameters
    ----------
    size : items of the population.
    wrong : (n,) whether each drawn item was wrong.
    """

    def __init__(self, size: int, wrong: ArrayLike) -> None:
        self.size = size
        self.wrong = np.asarray(wrong, dtype=np.int64)
        self.n, self.n_wrong = self.wrong.size, int(self.wrong.sum())

    def log_numerator(self, at_most: float, *, above: bool = False) -> float:
        """log Q of all judgements; ``above``: of a Q that expects more than the share asked about."""
        shares, weights = mixture(at_most)
        if above:
            above_limit = shares > at_most
            shares, weights = shares[above_limit], weights[above_limit] / weights[above_limit].sum()
        # What is wrong among the items not yet drawn; at least a quarter of the share, where more were found than it
        # says. Below 1, or one right judgement would rule the share out for good.
        wrong_before = np.cumsum(self.wrong) - self.wrong
        expected = (shares * self.size - wrong_before[:, None]) / (self.size - np.arange(self.n))[:, None]
        p = np.minimum(0.98, np.maximum(expected, 0.25 * shares))
        with np.errstate(divide="ignore"):
            log_p = np.where(self.wrong[:, None] > 0, np.log(p), np.log1p(-p))
        return float(logsumexp(np.log(weights) + log_p.sum(axis=0)))

    def most_wrong(self, at_most: float, confidence: float) -> int:
        """The largest number of wrong items in the population that the judgements do not rule out."""
        return self.most_likely_as(math.log1p(-confidence) + self.log_numerator(at_most))

    def most_likely_as(self, log_limit: float) -> int:
        """The largest number of wrong items whose likelihood is at least exp(``log_limit``)."""
        candidates = range(self.n_wrong + 1, self.size - self.n + self.n_wrong + 1)
        return self.n_wrong + bisect_left(
            candidates, True, key=lambda number: self.log_envelope(number) < log_limit - _SLACK
        )

    def log_envelope(self, min_wrong: int) -> float:
        """log of the largest likelihood of any number of wrong items from ``min_wrong`` on; -inf where none is
        possible."""
        size, n, s = self.size, self.n, self.n_wrong
        w = max(min_wrong, min(s * (size + 1) // n, size - n + s) if n else size)
        if size - w < n - s:
            return -math.inf
        return (
            math.lgamma(w + 1)
            - math.lgamma(w - s + 1)
            + math.lgamma(size - w + 1)
            - math.lgamma(size - w - (n - s) + 1)
            - math.lgamma(size + 1)
            + math.lgamma(size - n + 1)
        )


def share_bound(judgements: Judgements, at_most: float, confidence: float) -> float:
    """The share of wrong items that is exceeded, at any look ever, with probability at most 1 - confidence."""
    return judgements.most_wrong(at_most, confidence) / judgements.size


def exceeds(judgements: Judgements, at_most: float, confidence: float) -> bool:
    """Whether the judgements show that more than ``at_most`` is wrong: said wrongly, at any look ever, with probability
    at most 1 - confidence."""
    limit = math.floor(at_most * judgements.size + 1e-9)
    if judgements.n_wrong > limit:
        return True
    if at_most >= 0.95 / _RATIO or not judgements.n:
        return False
    # Right items instead of wrong ones, so that "at most" becomes "at least".
    log_likelihood = Judgements(judgements.size, 1 - judgements.wrong).log_envelope(judgements.size - limit)
    return judgements.log_numerator(at_most, above=True) - log_likelihood >= -math.log1p(-confidence)


def missed_bound(matched: Judgements, different: Judgements, at_most: float, confidence: float) -> float:
    """The bound of the share of same pairs that were decided to be different.

    Parameters
    ----------
    matched : pairs that match, wrong where they are not the same.
    different : pairs that do not, wrong where they are the same.
    """
    # The share of different pairs that are missed, if `at_most` of all same pairs are.
    hidden = min(0.9, max(at_most / (1 - at_most) * matched.size, 0.5) / max(different.size, 1))
    log_limit = math.log1p(-confidence) + matched.log_numerator(2 * at_most) + different.log_numerator(hidden)
    limit = matched.size - (matched.n - matched.n_wrong)
    grid = np.unique(np.linspace(0, limit, 200).astype(np.int64)).tolist()
    largest = 0.0
    for false, following in zip(grid, [*grid[1:], limit + 1], strict=True):
        value = matched.log_envelope(false)
        if value == -math.inf:
            break
        missed = different.most_likely_as(log_limit - value)
        if different.log_envelope(missed) + value < log_limit - _SLACK:
            break
        same = missed + matched.size - (following - 1)
        largest = max(largest, missed / same if same else 1.0)
    return largest


def draws_match(sizes: Sequence[int], drawn: Sequence[int]) -> bool:
    """Whether the next draw is of a match, where missed matches are counted: by numbers alone.

    Parameters
    ----------
    sizes, drawn : how many matches and how many others there are, and were drawn.
    """
    return drawn[0] < sizes[0] and ((drawn[0] < MATCHED_DRAWS * (sum(drawn) + 1)) or drawn[1] >= sizes[1])


def mixture(at_most: float) -> tuple[Float64, Float64]:
    """The shares that Q mixes where ``at_most`` was asked about, and their weights."""
    steps = max(1, math.ceil(math.log(0.95 / at_most) / math.log(_RATIO))) if at_most < 0.95 else 1
    wide = [min(0.95, at_most * _RATIO**step) for step in range(steps)]
    shares = [part * at_most for part, _ in _NEAR] + wide
    weights = np.array([weight for _, weight in _NEAR] + [_WIDE / len(wide)] * len(wide))
    return np.array(shares), weights / weights.sum()


def expected_judgements(judgements: Judgements, at_most: float, confidence: float) -> int | None:
    """About how many more judgements bring the bound down to ``at_most`` if they go on as so far; None: none may."""
    undrawn = judgements.size - judgements.n
    limit = math.floor(at_most * judgements.size + 1e-9)
    share = (judgements.n_wrong + 0.5 * (judgements.n_wrong > 0)) / (judgements.n + 1.0 / at_most)
    if judgements.n_wrong > limit:
        return None
    if share >= at_most:
        return undrawn

    def suffices(further: int) -> bool:
        steps = np.diff(np.floor(share * np.arange(further + 1) + 0.5)).astype(np.int64)
        total = Judgements(judgements.size, np.concatenate([judgements.wrong, steps]))
        return total.most_wrong(at_most, confidence) <= limit

    return _fewest(suffices, min(undrawn, _FARTHEST))


def _fewest(suffices: Callable[[int], bool], most: int) -> int:
    """About how many it takes, within a twentieth; ``most`` where fewer do not suffice."""
    high = min(64, most)
    while high < most and not suffices(high):
        high = min(2 * high, most)
    step = max(1, high // 40)
    return min(high, step * bisect_left(range(0, high, step), True, key=suffices))


_BETS: Final = (0.05, 0.15, 0.3, 0.5, 0.75, 0.95)
"""Parts of what can be lost that recall is bet on, in equal shares."""
_RECALLS: Final = np.arange(1, 200) / 200


def recall_bound(size: int, shares_found: ArrayLike, confidence: float) -> float:
    """The recall of records that is undercut, at any look ever, with probability at most 1 - confidence.

    Recall is the mean, over the records of a population that have partners, of the share of them that is found. If it
    is r or less, the shares less r, 0 without a partner, sum to 0 or less over the population, so that the mean of
    those not yet drawn is known to be at most m. A bet of lambda on the next has the expected return
    1 + lambda (z - m) of 1 or less: their product is a supermartingale (Waudby-Smith and Ramdas 2024, "Estimating means
    of bounded random variables by betting", section 4), and so is an average of several. Levels of r are ruled out
    from 0 upwards until the first that is not, so that one test alone can err.

    Parameters
    ----------
    size : records of the population.
    shares_found : (n,) of the records in the order in which they were drawn, all with the same chance:
        the share of each one's partners that is found; NaN for a record without any.
    """
    shares = np.asarray(shares_found, dtype=np.float64)
    z = np.where(np.isnan(shares)[:, None], 0.0, np.nan_to_num(shares)[:, None] - _RECALLS)
    m = -(np.cumsum(z, axis=0) - z) / (size - np.arange(len(z)))[:, None]
    # Nothing that is left can bring the sum down to 0.
    is_beyond = np.logical_or.reduce(m <= -_RECALLS, axis=0)
    at_risk = np.maximum(_RECALLS + m, 1e-9)
    log_returns = [np.log1p(bet / at_risk * (z - m)).sum(axis=0) for bet in _BETS]
    is_out = is_beyond | (logsumexp(log_returns, axis=0) - math.log(len(_BETS)) >= -math.log1p(-confidence))
    n_out = int(np.argmin(np.append(is_out, False)))
    return float(_RECALLS[n_out - 1]) if n_out else 0.0


def expected_records(size: int, shares_found: ArrayLike, at_least: float, confidence: float) -> int | None:
    """About how many more records bring the bound up to ``at_least`` if they go on as so far; None: none may."""
    shares = np.asarray(shares_found, dtype=np.float64)
    undrawn = size - shares.size
    if not undrawn:
        return None
    # Before anything is judged, every second record has a partner, and all are found.
    mean, has = (np.nanmean(shares), np.mean(~np.isnan(shares))) if (~np.isnan(shares)).any() else (1.0, 0.5)
    if mean <= at_least and shares.size:
        return None

    def suffices(further: int) -> bool:
        steps = np.diff(np.floor(has * np.arange(further + 1) + 0.5))
        return (
            recall_bound(size, np.append(shares, np.where(steps > 0, mean, np.nan)), confidence) >= at_least
        )

    return _fewest(suffices, min(undrawn, _FARTHEST // 4))
