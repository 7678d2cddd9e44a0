"""How many of a finite set of decisions are wrong, known at any time from a random sample of judgements.

Under the hypothesis that w of the N items are wrong, the judgements so far have the likelihood L(w) (hypergeometric,
in order; Waudby-Smith and Ramdas 2020, "Confidence sequences for sampling without replacement", section 2). Any
probability Q that predicts each judgement from those before it makes Q / L(w) a non-negative martingale that starts
at 1. By Ville's inequality it ever exceeds 1 / (1 - confidence) with probability at most 1 - confidence, whatever the
dependence among items. So the truth is, at all looks at once, among the w with L(w) > (1 - confidence) Q.

With strata the hypothesis is one number for each, and a total is ruled out when all its configurations are. Items are
first drawn from all alike; a rule of the judgements so far may then turn to drawing by strata, and the evidence is the
product of both phases (Stark's ALPHA; Spertus and Stark 2022 for strata).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.reviews.kernels import best_shares, log_envelope, log_numerators, most_wrong

_CONVINCING = 3.5
"""Log likelihood ratio by which strata must differ before draws follow them."""
_MOST = 8.0
"""Most often that an item of one stratum is drawn for one of all."""


def strata_differ(n: Int64, s: Int64) -> bool:
    """Whether wrong items concentrate in some stratum, by the likelihood of one share each against one for all."""
    log_separate = sum(_fit(float(a), float(b)) for a, b in zip(n, s, strict=True))
    return log_separate - _fit(float(n.sum()), float(s.sum())) >= _CONVINCING


def _fit(n: float, s: float) -> float:
    if s <= 0 or s >= n:
        return 0.0
    return s * math.log(s / n) + (n - s) * math.log1p(-s / n)


def next_stratum(sizes: Int64, n: Int64, s: Int64, at_most: float) -> int:
    """The stratum that is furthest behind its share of draws.

    Until something is wrong, or while more is than was asked about, that is its share of the items; then see
    `best_shares`.
    """
    share = sizes / sizes.sum()
    n_draws = n.sum()
    target = share if s.sum() == 0 or n_draws == 0 else _target_shares(share, n, s, at_most)
    behind = np.where(n < sizes, target * (n_draws + 1) - n, -np.inf)
    return int(np.argmax(behind))


def _target_shares(share: Float64, n: Int64, s: Int64, at_most: float) -> Float64:
    risk = (s + 0.5) / (s.sum() * n / n.sum() + 0.5)
    p = np.clip(s.sum() / (n @ risk) * risk, 0.0, 0.98)
    if share @ p >= at_most:
        return share
    shares: Float64 = best_shares(share, p, at_most, _MOST)
    return shares


_NEAR: Final = ((0.0, 0.35), (0.125, 0.2), (0.25, 0.25), (0.4, 0.1), (0.55, 0.05), (0.7, 0.03))
"""Shares of wrong items that Q mixes, in parts of the share asked about, with their weights."""
_WIDE: Final = 0.03
"""Weight of all shares above the one asked about, which keep the bound close where more is wrong."""
_RATIO: Final = 1.6
_FARTHEST: Final = 20_000
"""Most judgements that `expected_judgements` looks ahead."""
MATCHED_DRAWS: Final = 0.12
"""Share of draws that tell how many matches are true, where missed matches are counted."""


@dataclass(frozen=True)
class Judgements:
    """Judgements in the order in which their items were drawn.

    Attributes
    ----------
    sizes : (n_strata,) items of each stratum of the population.
    stratum, wrong : (n,) the stratum of each drawn item, and 1 where it was wrong.
    alike : how many of the first were drawn from all items alike, whatever their stratum.
    """

    sizes: Int64
    stratum: Int64
    wrong: Int64
    alike: int

    @classmethod
    def of(
        cls, sizes: Sequence[int], stratum: Sequence[int], wrong: Sequence[int], alike: int | None = None
    ) -> Judgements:
        """From sequences; ``alike`` None: all were drawn alike."""
        order = np.asarray(stratum, dtype=np.int64)
        return cls(
            np.asarray(sizes, dtype=np.int64),
            order,
            np.asarray(wrong, dtype=np.int64),
            order.size if alike is None else alike,
        )

    def counts(self, start: int = 0, end: int | None = None) -> tuple[Int64, Int64]:
        """Judgements and wrong ones of each stratum, of the draws from ``start`` to ``end``."""
        k = self.sizes.size
        of = self.stratum[start:end]
        n = np.bincount(of, minlength=k).astype(np.int64)
        return n, np.bincount(of, weights=self.wrong[start:end], minlength=k).astype(np.int64)

    def log_numerator(self, at_most: float, *, above: bool = False) -> float:
        """log Q of all judgements; ``above``: of a Q that expects more than the share asked about."""
        shares, weights = mixture(at_most)
        if above:
            above_limit = shares > at_most
            shares, weights = shares[above_limit], weights[above_limit] / weights[above_limit].sum()
        log = np.log(weights)
        total, zero = np.array([self.sizes.sum()], dtype=np.int64), np.zeros(1, dtype=np.int64)
        split = min(self.alike, self.stratum.size)
        single_stratum = np.zeros(split, dtype=np.int64)
        log_numerators(single_stratum, self.wrong[:split], total, zero, zero, False, shares, log)
        if split < self.stratum.size:
            # From here on, half of Q follows what the strata show, and half expects the first one to hold the most.
            later_draws = self.stratum[split:], self.wrong[split:], self.sizes, *self.counts(0, split)
            near = log + math.log(0.5)
            log = near.copy()
            log_numerators(*later_draws, True, shares, log)
            log_numerators(*later_draws, False, shares, near)
            log = np.concatenate([log, near])
        top = log.max()
        return float(top + math.log(np.exp(log - top).sum()))

    def most_wrong(self, at_most: float, confidence: float) -> int:
        """The largest number of wrong items in the population that the judgements do not rule out."""
        split = min(self.alike, self.stratum.size)
        n, s = self.counts(0, split)
        later_n, later_s = self.counts(split)
        before = np.array([self.sizes.sum(), n.sum(), s.sum()], dtype=np.int64)
        log_limit = math.log1p(-confidence) + self.log_numerator(at_most)
        return int(most_wrong(self.sizes - n, later_n, later_s, before, log_limit))

    def draws_alike(self) -> bool:
        """Whether the next item is drawn from all alike still: strata that have once differed stay in use."""
        if self.alike < self.stratum.size:
            return False
        n, s = self.counts()
        return self.sizes.size == 1 or not strata_differ(n, s)

    def next_stratum(self, at_most: float) -> int:
        """The stratum of the next draw, where draws go by strata."""
        n, s = self.counts()
        return next_stratum(self.sizes, n, s, at_most)


def share_bound(judgements: Judgements, at_most: float, confidence: float) -> float:
    """The share of wrong items that is exceeded, at any look ever, with probability at most 1 - confidence."""
    return judgements.most_wrong(at_most, confidence) / int(judgements.sizes.sum())


def exceeds(judgements: Judgements, at_most: float, confidence: float) -> bool:
    """Whether the judgements show that more than ``at_most`` is wrong: said wrongly, at any look ever, with probability
    at most 1 - confidence."""
    sizes = judgements.sizes
    limit = math.floor(at_most * int(sizes.sum()) + 1e-9)
    if int(judgements.wrong.sum()) > limit:
        return True
    if at_most >= 0.95 / _RATIO or not judgements.stratum.size:
        return False
    split = min(judgements.alike, judgements.stratum.size)
    n, s = judgements.counts(0, split)
    later_n, later_s = judgements.counts(split)
    total, n_draws, right = (np.array([counts.sum()], dtype=np.int64) for counts in (sizes, n, n - s))
    # Right items instead of wrong ones, so that "at most" becomes "at least".
    log_ratio = log_envelope(total, n_draws, right, int(sizes.sum()) - limit)
    undrawn = sizes - n
    log_ratio += log_envelope(
        undrawn, later_n, later_n - later_s, int(undrawn.sum()) - (limit - int(s.sum()))
    )
    return bool(judgements.log_numerator(at_most, above=True) - log_ratio >= -math.log1p(-confidence))


def missed_bound(matched: Judgements, different: Judgements, at_most: float, confidence: float) -> float:
    """The bound of the share of same pairs that were decided to be different.

    Parameters
    ----------
    matched : pairs that match, wrong where they are not the same.
    different : pairs that do not, wrong where they are the same. Both drawn by strata.
    """
    n_matched = int(matched.sizes.sum())
    hidden = _share_hidden(n_matched, int(different.sizes.sum()), at_most)
    log_limit = math.log1p(-confidence) + matched.log_numerator(2 * at_most) + different.log_numerator(hidden)
    of_matched, of_different = matched.counts(), different.counts()
    undrawn = np.array([different.sizes.sum(), 0, 0], dtype=np.int64)
    limit = n_matched - int(of_matched[0].sum() - of_matched[1].sum())
    grid = np.unique(np.linspace(0, limit, 200).astype(np.int64)) if limit else np.zeros(1, dtype=np.int64)
    largest = 0.0
    for at, false in enumerate(grid):
        value = log_envelope(matched.sizes, *of_matched, int(false))
        if value == -math.inf:
            break
        missed = int(most_wrong(different.sizes, *of_different, undrawn, log_limit - value))
        if log_envelope(different.sizes, *of_different, missed) + value < log_limit - 1e-9:
            break
        most_false = limit if at + 1 == grid.size else int(grid[at + 1]) - 1
        same = missed + n_matched - most_false
        largest = max(largest, missed / same if same else 1.0)
    return largest


def next_group(matched: Judgements, different: Judgements, at_most: float) -> tuple[bool, int]:
    """Whether the next draw is of a match, and its stratum."""
    n_matched, n_different = (int(group.sizes.sum()) for group in (matched, different))
    n_draws = matched.stratum.size, different.stratum.size
    behind = n_draws[0] < MATCHED_DRAWS * (sum(n_draws) + 1)
    if n_draws[0] < n_matched and (behind or n_draws[1] >= n_different):
        return True, matched.next_stratum(2 * at_most)
    return False, different.next_stratum(_share_hidden(n_matched, n_different, at_most))


def _share_hidden(n_matched: int, n_different: int, at_most: float) -> float:
    """The share of different pairs that are missed, if ``at_most`` of all same pairs are."""
    return min(0.9, max(at_most / (1 - at_most) * n_matched, 0.5) / max(n_different, 1))


def mixture(at_most: float) -> tuple[Float64, Float64]:
    """The shares that Q mixes where ``at_most`` was asked about, and their weights."""
    steps = max(1, math.ceil(math.log(0.95 / at_most) / math.log(_RATIO))) if at_most < 0.95 else 1
    wide = [min(0.95, at_most * _RATIO**step) for step in range(steps)]
    shares = [part * at_most for part, _ in _NEAR] + wide
    weights = np.array([weight for _, weight in _NEAR] + [_WIDE / len(wide)] * len(wide))
    return np.array(shares), weights / weights.sum()


def expected_judgements(judgements: Judgements, at_most: float, confidence: float) -> int | None:
    """About how many more judgements bring the bound down to ``at_most`` if they go on as so far; None: none may."""
    size = int(judgements.sizes.sum())
    n, s = judgements.stratum.size, int(judgements.wrong.sum())
    limit = math.floor(at_most * size + 1e-9)
    share = (s + 0.5 * (s > 0)) / (n + 1.0 / at_most)
    if s > limit:
        return None
    if share >= at_most:
        return size - n

    def suffices(further: int) -> bool:
        steps = np.diff(np.floor(share * np.arange(further + 1) + 0.5)).astype(np.int64)
        wrong = np.concatenate([judgements.wrong, steps])
        total = Judgements(np.array([size]), np.zeros(wrong.size, dtype=np.int64), wrong, wrong.size)
        return total.most_wrong(at_most, confidence) <= limit

    low, high = -1, min(64, size - n)
    while not suffices(high):
        if high in (size - n, _FARTHEST):
            return high
        low, high = high, min(2 * high, size - n, _FARTHEST)
    while high - low > max(1, high // 50):
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
