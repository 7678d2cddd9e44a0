"""Chooses the finite-sample bound by sample sizes only (never by scores or labels), and evaluates it.

- independent rows: the exact binomial tail;
- pairs of units with few units for the rate, or each unit in one pair only: the order statistic of a random matching;
- pairs of units otherwise: the matching-product bound (`pairmark.models.calibration.matching_product`), except where
  there are so many pairs above the threshold that its search would take too long: the average, which has then
  converged.

Calibrations stored before there was a matching-product bound keep the rule of their time: the order statistic below
`EARLIER_ORDER_BELOW` times the floor's units, the average above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.bounds import (
    average_log_tail,
    binomial_log_tail,
    last_true,
    order_rank,
    order_upper,
    smallest_true,
)
from pairmark.models.calibration.listed_product import ListedPairs
from pairmark.models.calibration.matching_product import AllPairs, Mixture, mixture, multiple_of_floor

Rule = Literal["binomial", "average", "order", "product"]

EARLIER_ORDER_BELOW = 1.25
EARLIER_ORDER_BELOW_CLOSED = 8.0
STEPS_PER_DECADE = 10
"""Rates that bounds of many thresholds step through."""
_MOST_STEPS = 60
"""Rates that a bound at a fixed threshold is looked for among: down to one in a million."""


@dataclass(frozen=True, kw_only=True)
class FiniteSample:
    """The bounds by threshold number (0 is the largest score of a different pair, where nothing is above).

    Attributes
    ----------
    above : (k,) float64, ascending from 0: A at each distinct score of different pairs, best first.
    n : independent blocks that an average over all pairs is worth.
    different_share : B.
    exact_binomial : rows are independent, so that ``n above`` are counts.
    matched : (N,) ascending threshold numbers of the different pairs in a random matching of the units; None when
        there is none (independent rows, calibrations stored before it was drawn).
    n_matched : pairs of that matching, same ones included; None in calibrations stored before it was counted.
    disjoint : no unit is in two pairs, and each pair was scored once, so that the matching holds all there is.
    product : the matching-product bound, where the scored pairs allow it.
    protocol : ``open-set`` or ``closed-set``.
    """

    above: NDArray[np.float64] = field(repr=False)
    n: int
    different_share: float
    exact_binomial: bool
    matched: NDArray[np.int64] | None = field(default=None, repr=False)
    n_matched: int | None = None
    disjoint: bool = False
    product: AllPairs | ListedPairs | None = field(default=None, repr=False)
    protocol: str = "open-set"

    def rule(self, fpr: float, confidence: float) -> Rule:
        """Which bound answers: by sizes alone, never by scores or labels."""
        if self.exact_binomial:
            return "binomial"
        if self.matched is None:
            return "average"
        if self.n_matched is None:
            closed = self.protocol == "closed-set"
            earlier = EARLIER_ORDER_BELOW_CLOSED if closed else EARLIER_ORDER_BELOW
            return "order" if multiple_of_floor(self.n, fpr, confidence) < earlier else "average"
        if (
            self.disjoint
            or mixture(multiple_of_floor(self.n_matched, fpr, confidence), self.protocol) is None
        ):
            return "order"
        if self.product is not None and self.product.affordable(fpr):
            return "product"
        # Where an average over a list of pairs is worth few blocks, one matching of the list says more.
        return "average" if 2 * self.n >= self.n_matched else "order"

    def choose(self, fpr: float, confidence: float) -> tuple[int, float] | None:
        """Number of the chosen threshold and the upper bound of its rate; None when ``fpr`` is not answered.

        The bound is ``fpr`` itself unless the rank of the threshold was fixed before any score was seen.
        """
        rule = self.rule(fpr, confidence)
        if rule == "order":
            assert self.matched is not None
            rank = order_rank(self.matched.size, fpr, confidence)
            if rank is None:
                return None
            rank = min(rank, self.matched.size - 1)
            return int(self.matched[rank]), min(fpr, order_upper(rank, self.matched.size, confidence))
        if rule == "product":
            assert self.product is not None
            at = self.product.lookup(fpr, confidence, self._parts(fpr, confidence))
            return None if at is None else (at, fpr)
        at = self.lookup(fpr, confidence)
        if at is None:
            return None
        if rule == "binomial":
            rank = order_rank(self.n, fpr, confidence)
            return at, fpr if rank is None else min(fpr, order_upper(min(rank, self.n), self.n, confidence))
        return at, fpr

    def rate(self, at: int) -> float:
        """The observed false positive rate at a threshold."""
        return min(1.0, float(self.above[at]) / self.different_share)

    def admits(self, at: int, fpr: float, confidence: float) -> bool:
        """Whether the average (or binomial) at threshold ``at`` keeps a rate of ``fpr`` with this confidence."""
        if self.exact_binomial:
            tail = binomial_log_tail(round(float(self.above[at]) * self.n), fpr, self.n)
        else:
            tail = average_log_tail(float(self.above[at]) + fpr * (1 - self.different_share), fpr, self.n)
        return tail <= math.log1p(-confidence)

    def lookup(self, fpr: float, confidence: float) -> int | None:
        """Number of the lowest threshold that `admits`; None when not even the highest is."""
        return last_true(lambda at: self.admits(at, fpr, confidence), self.above.size)

    def upper(self, at: int, confidence: float) -> float | None:
        """Upper confidence bound of the rate at a threshold ``at`` fixed beforehand, by the average; None without."""
        highest = math.nextafter(1.0, 0.0)
        if self.n < 1 or not self.admits(at, highest, confidence):
            return None
        lowest = min(max(self.rate(at), math.ulp(0.0)), highest)
        return smallest_true(lambda rate: self.admits(at, rate, confidence), lowest, highest)

    def bound_at(self, at: int, confidence: float) -> float:
        """Upper bound of the rate at a threshold ``at`` fixed without a look at these pairs, by the rule that answers.

        The least of the rates 10^(-k / 10) such that it and all larger ones are rejected at the threshold; 1 where none
        is. If the true rate is p, the bound is below p only where the largest of these rates that p reaches was
        rejected, which has probability at most 1 - confidence.
        """
        bound = 1.0
        for step in range(1, _MOST_STEPS):
            rate = 10 ** (-step / STEPS_PER_DECADE)
            chosen = self.choose(rate, confidence)
            if chosen is None or chosen[0] < at:
                break
            bound = rate
        return bound

    def answers(self, fpr: float, confidence: float) -> bool:
        """Whether ``fpr`` is answered at all."""
        rule = self.rule(fpr, confidence)
        if rule == "order":
            assert self.matched is not None
            return order_rank(self.matched.size, fpr, confidence) is not None
        if rule == "product":
            assert self.product is not None
            return self.product.admits(0, fpr, confidence, self._parts(fpr, confidence))
        return self.admits(0, fpr, confidence)

    def smallest(self, confidence: float) -> float | None:
        """The floor: the smallest rate that is answered; None when none is."""
        if self.matched is not None and self.matched.size:
            floor = order_upper(0, self.matched.size, confidence)
            if self.rule(floor, confidence) == "order":
                return floor
            highest = math.nextafter(1.0, 0.0)
            if self.n_matched is not None and self.answers(highest, confidence):
                return smallest_true(lambda rate: self.answers(rate, confidence), floor, highest)
        return self.upper(0, confidence)

    def _parts(self, fpr: float, confidence: float) -> Mixture:
        assert self.n_matched is not None
        parts = mixture(multiple_of_floor(self.n_matched, fpr, confidence), self.protocol)
        assert parts is not None
        return parts
