"""The finite-sample bounds: which of them answers follows from what was scored, never from scores or labels.

- independent rows, and units that are each in one pair: the exact binomial tail;
- a random sample of a fixed population of pairs: the exact hypergeometric tail;
- pairs of units, and pairs inside of blocks: a product over independent parts (`matching_product`, `listed_product`,
  `block_product`), compared with 1 / (1 - confidence).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pairmark.models.calibration.block_product import Blocks
from pairmark.models.calibration.bounds import (
    binomial_log_tail,
    last_true,
    log_tail,
    order_rank,
    order_upper,
    population_rank,
    smallest_true,
)
from pairmark.models.calibration.listed_product import ListedPairs
from pairmark.models.calibration.matching_product import AllPairs, mixture, multiple_of_floor
from pairmark.models.core.arrays import Float64

STEPS_PER_DECADE = 10
"""Rates that bounds of many thresholds step through."""
_MOST_STEPS = 60
"""Rates that a bound at a fixed threshold is looked for among: down to one in a million."""
_HAIR = 1e-9


@dataclass(frozen=True, kw_only=True)
class FiniteSample:
    """The bounds by threshold number (0 is the largest score of a different pair, where nothing is above).

    Attributes
    ----------
    above : (k,) float64, ascending from 0: A at each distinct score of different pairs, best first.
    n : independent observations that an average over all pairs is worth; of counted rows, their number.
    n_matched : pairs that share no unit, of either class, or blocks: by sizes alone.
    different_share : B.
    counts_rows : whether rows are independent of each other, or drawn from a population, so that they are counted.
    product : the bound for pairs that share units or blocks; None where rows are counted.
    population : pairs of the population that the rows are a random sample of; None: rows are of people to come.
    n_same : same pairs of that sample.
    """

    above: Float64 = field(repr=False)
    n: int
    n_matched: int
    different_share: float
    counts_rows: bool = False
    product: AllPairs | ListedPairs | Blocks | None = field(default=None, repr=False)
    population: int | None = None
    n_same: int = 0

    def choose(self, fpr: float, confidence: float) -> tuple[int, float] | None:
        """Number of the chosen threshold and the upper bound of its rate; None when ``fpr`` is not answered.

        The bound is ``fpr`` itself unless the rank of the threshold was fixed before any score was seen.
        """
        if self.product is not None:
            # By sizes alone: too few units are refused before any score is looked at.
            multiple = multiple_of_floor(self.n_matched, fpr, confidence)
            if multiple < 1 - _HAIR:
                return None
            at = self.product.lookup(fpr, _limit(confidence), mixture(multiple))
            return None if at is None else (at, fpr)
        rank = self._rank(fpr, confidence)
        if rank is None:
            return None
        # A is a multiple of 1 / n here; rounding takes off what the division added.
        at = last_true(lambda at: round(float(self.above[at]) * self.n) <= rank, self.above.size)
        if self.population is not None:
            return at or 0, fpr
        return at or 0, min(fpr, order_upper(rank, self.n, confidence))

    def _rank(self, fpr: float, confidence: float, most: float = math.inf) -> int | None:
        """False matches that rows which are counted may show."""
        if self.population is None:
            return order_rank(self.n, fpr, confidence)
        return population_rank(self.n, self.population - self.n_same, fpr, confidence, most)

    def rate(self, at: int) -> float:
        """The observed false positive rate at a threshold."""
        return min(1.0, float(self.above[at]) / self.different_share)

    def upper(self, at: int, confidence: float) -> float | None:
        """Upper confidence bound of the rate at a threshold ``at`` fixed beforehand, for people to look at: by the
        average over all pairs, or the exact tail; None without."""
        highest = math.nextafter(1.0, 0.0)
        if self.n < 1 or not self._average_admits(at, highest, confidence):
            return None
        lowest = min(max(self.rate(at), math.ulp(0.0)), highest)
        return smallest_true(lambda rate: self._average_admits(at, rate, confidence), lowest, highest)

    def _average_admits(self, at: int, fpr: float, confidence: float) -> bool:
        if self.counts_rows:
            tail = binomial_log_tail(round(float(self.above[at]) * self.n), fpr, self.n)
        else:
            # The average of 1{different, above} + fpr 1{same}, whose expectation exceeds fpr exactly when the
            # rate does.
            tail = self.n * log_tail(float(self.above[at]) + fpr * (1 - self.different_share), fpr)
        return tail <= math.log1p(-confidence)

    def bound_at(self, at: int, confidence: float) -> float:
        """Upper bound of the rate at a threshold ``at`` fixed without a look at these pairs, by the rule that answers.

        The least of the rates 10^(-k / 10) such that it and all larger ones are rejected at the threshold; 1 where none
        is. If the true rate is p, the bound is below p only where the largest of these rates that p reaches was
        rejected, which has probability at most 1 - confidence.
        """
        bound = 1.0
        for step in range(1, _MOST_STEPS):
            rate = 10 ** (-step / STEPS_PER_DECADE)
            choice = self.choose(rate, confidence)
            # Not rejected at this threshold: the next higher rate, which was, is the bound.
            if choice is None or choice[0] < at:
                break
            bound = rate
        return bound

    def answers(self, fpr: float, confidence: float) -> bool:
        """Whether ``fpr`` is answered at all."""
        if self.population is not None:
            return self._rank(fpr, confidence, 0) is not None
        if self.product is None:
            return self.choose(fpr, confidence) is not None
        multiple = multiple_of_floor(self.n_matched, fpr, confidence)
        return multiple >= 1 - _HAIR and self.product.admits(0, fpr, _limit(confidence), mixture(multiple))

    def smallest(self, confidence: float) -> float | None:
        """The floor: the smallest rate that is answered; None when none is."""
        highest = math.nextafter(1.0, 0.0)
        if self.n_matched < 1:
            return None
        # Of a population no rate below one pair means less than another.
        floor = (
            0.5 / self.population
            if self.population is not None
            else order_upper(0, self.n_matched, confidence)
        )
        if not self.answers(floor, confidence) and not self.answers(highest, confidence):
            return None
        return smallest_true(lambda rate: self.answers(rate, confidence), floor, highest)


def _limit(confidence: float) -> float:
    """log(1 / (1 - confidence)), which the statistic has to reach, a hair off: a floor asked back is answered."""
    return -math.log1p(-confidence) * (1 - _HAIR)
