"""Pairs that hold a row unlike those of the calibration: they are decided without their score."""

from __future__ import annotations

from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.inputs import RowRanges
from pairmark.service.runtime.vectors import VectorPairs

UNLIKE: Final = "unlike-calibration"
"""The reason of such a decision."""


class UnlikePairs:
    """Which pairs of a request hold such a row, and which of their rows are.

    Attributes
    ----------
    rows : how many rows are. flags : which, the left ones first.
    pairs : (n_pairs,) whether a row of a pair is.
    """

    def __init__(self, flags: NDArray[np.bool_], pairs: VectorPairs) -> None:
        self.rows, self.flags = int(flags.sum()), flags
        self._sides = {"left": flags[: len(pairs.left)], "right": flags[len(pairs.left) :]}
        self._starts = None
        subjects = list(self._sides.values())
        if pairs.counts is not None:
            self._starts = [np.concatenate([[0], np.cumsum(counts)]) for counts in pairs.counts]
            subjects = [
                np.logical_or.reduceat(side, starts[:-1])
                for side, starts in zip(subjects, self._starts, strict=True)
            ]
        left, right = subjects
        self.pairs: NDArray[np.bool_] = left | right

    @classmethod
    def of(cls, ranges: RowRanges | None, pairs: VectorPairs | None) -> Self | None:
        """None where no row is, and where nothing is known of rows."""
        if ranges is None or pairs is None:
            return None
        left, right = (pairs.left, pairs.right) if pairs.rows is None else pairs.rows
        flags = ranges.unlike(left, right)
        return cls(flags, pairs) if flags.size else None

    @property
    def places(self) -> list[int]:
        """The numbers of those pairs."""
        places: list[int] = np.flatnonzero(self.pairs).tolist()
        return places

    def names(self, pair: int) -> list[str]:
        """The rows of a pair that are: ``left``, ``right``, of subjects ``left[2]``."""
        names = []
        for number, (side, flags) in enumerate(self._sides.items()):
            if self._starts is None:
                if flags[pair if len(flags) > 1 else 0]:
                    names.append(side)
                continue
            starts = self._starts[number]
            at = pair if len(starts) > 2 else 0
            places = np.flatnonzero(flags[starts[at] : starts[at + 1]])
            names += [f"{side}[{place}]" for place in places.tolist()]
        return names
