"""A pair among its rivals: the other pairs that one of its two records could be in.

Rivals come from the tables themselves, whatever pairs are asked about: for each record those of the other table (or
of the same one) that share most with it. A model without context scores them. What is added to a pair's comparisons
is how many rivals of either record score more, what the best two score, and how far the pair is from them. Lower and
higher are over the two sides, so that swapped sides give the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.records import neighbours
from pairmark.models.records.comparators import Comparators, Prepared
from pairmark.models.records.kernels import neighbours as kernels

CONTEXT = ("rivals above", "margin to the best rival", "best rival", "margin to the second rival")
N_CONTEXT = 2 * len(CONTEXT)
_LEAST_CHANCE = 1e-4


class Rivals(NamedTuple):
    """Candidate pairs of one table or two, each once, as rows; of one table in both directions."""

    left: Int64
    right: Int64


def find_rivals(comparators: Comparators, records: Prepared, n_left: int | None) -> Rivals:
    """The pairs of each record with those that share most with it.

    Parameters
    ----------
    n_left : rows of the left table, which come first; None: there is one table.
    """
    left, right = neighbours.candidate_pairs(comparators, records, n_left)
    if n_left is not None:
        return Rivals(left, right)
    return Rivals(np.concatenate([left, right]), np.concatenate([right, left]))


class RivalIndex(NamedTuple):
    """Rivals of each row on the left and on the right: ``starts`` (n + 1,), ``others`` and ``scores`` (c,) of each."""

    sides: tuple[tuple[Int64, Int64, Float64], tuple[Int64, Int64, Float64]]

    @classmethod
    def of(cls, rivals: Rivals, scores: Float64, n: int) -> RivalIndex:
        """Rivals with their scores, which are `logits`, by row of ``n``."""
        sides = []
        for own, other in ((rivals.left, rivals.right), (rivals.right, rivals.left)):
            order = np.argsort(own, kind="stable")
            starts = np.searchsorted(own[order], np.arange(n + 1)).astype(np.int64)
            sides.append((starts, other[order], scores[order]))
        return cls((sides[0], sides[1]))

    def context(self, left: Int64, right: Int64, scores: Float64) -> Float32:
        """Features of pairs among their rivals, (n_pairs, `N_CONTEXT`); their own scores are `logits` too."""
        sides = []
        for side, own, other in zip(self.sides, (left, right), (right, left), strict=True):
            compared = np.empty((left.size, 3))
            kernels.compare_with_rivals(*side, own, other, scores, compared)
            above, best, second = compared.T
            sides.append(np.stack([above, scores - best, best, scores - second], axis=1))
        both = np.stack([np.fmin(*sides), np.fmax(*sides)], axis=2)
        return both.reshape(left.size, N_CONTEXT).astype(np.float32)


def logits(chances: Float32) -> Float64:
    within = np.clip(chances.astype(np.float64), _LEAST_CHANCE, 1 - _LEAST_CHANCE)
    return np.asarray(np.log(within / (1 - within)))
