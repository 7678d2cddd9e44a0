"""Whether rows are still like those of the people who calibrated: for what single rows cannot show.

Three tests. `DriftTest` looks at statistics of a stream of rows; `PairTest` at how often rows of different people
score above the threshold of strangers, so that it sees how rows lie towards each other; `moved_at_once` at one large
request by itself. A person counts once: see `Returning`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np
from scipy.stats import binom

from pairmark.models.calibration.inputs import STATISTICS, RowRanges, scaled
from pairmark.models.core.arrays import Float32, Float64

OUTER = 0.2
"""The share of calibration people on each side of an edge."""
TOLERATED = 0.45
"""The largest share of new rows beyond an edge that is taken for theirs: the people who ask are few, and vary."""
ALTERNATIVES = (0.6, 0.75, 0.9)
"""Shares that the test looks out for."""
ALARM = 1e7
"""An alarm within n rows that are like calibration's has a chance of at most n over this."""
FEWEST_PEOPLE = 20
"""Fewer people say too little of where a fifth of them are."""
TOGETHER = 32
"""So many rows are taken at once: products of more might leave the range of numbers."""


REQUEST: Final = 1e-4
"""The chance that a request of people like those who calibrated is said not to be."""
LARGE: Final = 50
"""A request of so many rows is tested by itself."""
AT_ONCE: Final = 512
"""Rows of a request, at most, that are held against each other."""
FOUNDERS: Final = 512
"""Rows that stand for the people seen last."""
WINDOW: Final = 100
A_PERSON: Final = 2
"""So many of `WINDOW` rows count a person."""
STRANGERS: Final = 0.05
"""The largest share of pairs of strangers above the threshold of 1 % that is taken for theirs."""
HITS: Final = (0.08, 0.12, 0.25)
"""Shares that the test of pairs looks out for."""
POOL: Final = 256
PARTNERS: Final = 4
FEWEST_PARTNERS: Final = 16
"""Earlier rows that new ones are scored with: kept, drawn for one, and without which none is."""


class DriftTest:
    """Whether the rows of a stream are still like those of the calibration: for what single rows cannot show.

    Of each statistic the outer fifths of calibration people are watched, ten sides in all. Let L be q/p where a row is
    beyond an edge and (1 - q)/(1 - p) where it is not, p being `TOLERATED`, q an alternative. While the chance that
    the next row is beyond is at most p, whatever came before, E L <= 1. So the sums R <- (R + 1) L, averaged over
    sides and alternatives, make R_n + N - n a supermartingale, and P(R reaches A within N rows) <= N / A (Shiryaev and
    Roberts; Shin, Ramdas and Rinaldo 2022). People who come back do not break that: it asks for a chance below p, not
    for independence.
    """

    def __init__(self, ranges: RowRanges) -> None:
        self._ranges = ranges
        self._edges = edges_of(ranges)
        self._sums = np.zeros((2, len(STATISTICS), len(ALTERNATIVES)))
        self._enough = len(ranges.reference) >= FEWEST_PEOPLE
        self.n = 0
        self.moved: str | None = None
        """What has moved, in words; None: nothing is known to have."""

    def observe(self, rows: Float32) -> None:
        """Take rows, in order, none of them flagged; after an alarm nothing more."""
        q, p = np.array(ALTERNATIVES), TOLERATED
        hit, miss = q / p, (1 - q) / (1 - p)
        statistics = self._ranges.statistics(rows) if self._enough else self._ranges.reference[:0]
        for start in range(0, len(statistics), TOGETHER):
            if self.moved is not None:
                return
            part = statistics[start : start + TOGETHER]
            beyond = np.stack([part < self._edges[0], part > self._edges[1]], axis=1)
            # All rows at once: R_n = P_n (R_0 + sum of 1 / P_(j - 1) over j up to n), P the products of L.
            factors = np.where(beyond[..., None], hit, miss)
            products = np.cumprod(factors, axis=0)
            sums = products * (self._sums + np.cumsum(factors / products, axis=0))
            alarmed = np.flatnonzero(sums.mean(axis=(1, 2, 3)) >= ALARM)
            last = alarmed[0] if alarmed.size else len(part) - 1
            self.n += int(last) + 1
            self._sums = sums[last]
            if alarmed.size:
                side, statistic, _ = np.unravel_index(int(self._sums.argmax()), self._sums.shape)
                self.moved = _words(int(side), int(statistic), self._edges)


def edges_of(ranges: RowRanges) -> Float64:
    """(2, 5) the edges beyond which the outer fifths of calibration people are."""
    edges: Float64 = np.quantile(ranges.reference, [OUTER, 1 - OUTER], axis=0)
    return edges


def _words(side: int, statistic: int, edges: Float64) -> str:
    low, high = np.exp(edges[:, statistic])
    where, edge = ("below", low) if side == 0 else ("above", high)
    return (
        f"the {STATISTICS[statistic]} of most rows is now {where} {edge:.3g}, as it was for a fifth of the people who "
        "calibrated"
    )


class Returning:
    """Tells rows of people who come back from rows of new ones, without names.

    Rows of the same person are about as far from each other as those of the calibration's people were: a row that is
    at such a distance from one seen before stands for the same person, and of the last `WINDOW` rows so many count a
    person. Where honest people are dense, more do: by the share of calibration people who are as near. A row that is
    nearer than the same person's ever were may be nobody's return, since so lie the rows of an embedder that has
    collapsed: `PairTest` takes it as a new person's, `DriftTest` does not.
    """

    def __init__(self, ranges: RowRanges) -> None:
        assert ranges.people is not None, "nearness is known"
        assert ranges.near is not None, "nearness is known"
        self._people, (self._nearest, self._farthest) = ranges.people, ranges.near
        self._founders = np.empty((FOUNDERS, ranges.people.shape[1]), dtype=np.float32)
        self._shares = np.zeros(FOUNDERS)
        self._n = 0
        self._window: deque[int] = deque(maxlen=WINDOW)
        self._returned: deque[int] = deque(maxlen=WINDOW)

    def place(self, row: Float32) -> tuple[int, bool, bool]:
        """Whose a scaled row is, a number (-1: not known), whether it counts as a new person, and whether in a share
        of the stream."""
        known = self._founders[: min(self._n, FOUNDERS)]
        distances = np.linalg.norm(known - row, axis=1) if len(known) else np.array([np.inf])
        person = int(distances.argmin())
        is_too_near = bool(distances[person] < self._nearest)
        if distances[person] > self._farthest:
            person, self._n = self._n % FOUNDERS, self._n + 1
            self._founders[person] = row
            self._shares[person] = (np.linalg.norm(self._people - row, axis=1) <= self._farthest).mean()
        self._window.append(person)
        in_share = self._window.count(person) <= A_PERSON + WINDOW * self._shares[person]
        if is_too_near:
            return -1, True, in_share
        self._returned.append(person)
        return person, self._returned.count(person) <= A_PERSON, in_share


class PairTest:
    """Whether rows of different people are still strangers to the model.

    Each row is scored with a few rows of earlier requests, and the share above the threshold of 1 % of strangers is
    held against `STRANGERS`: with people like those who calibrated it is .01, and what remains of people who return
    adds a little. With a, the share of one row, L = a q/p + (1 - a)(1 - q)/(1 - p) has E L <= 1 while the chance of a
    hit is at most p, whatever came before and however the few pairs hang together; the rest is as in `DriftTest`.
    """

    def __init__(self, score: Callable[[Float32, Float32], Float32], threshold: float) -> None:
        self._score, self._threshold = score, np.float32(threshold)
        self._pool: deque[tuple[Float32, int, int]] = deque(maxlen=POOL)
        self._sums = np.zeros(len(HITS))
        # Which rows meet: by their number alone.
        self._random = np.random.default_rng(0)
        self.moved: str | None = None

    def observe(self, rows: list[tuple[Float32, int, int]]) -> None:
        """Take rows, each with whose it is and the number of its request."""
        lefts, rights, owners = [], [], []
        for number, (row, person, request) in enumerate(rows):
            others = [
                other
                for other, whose, asked in self._drawn()
                if asked != request and (whose != person or person < 0)
            ]
            lefts += [row] * len(others)
            rights += others
            owners += [number] * len(others)
            self._pool.append((row, person, request))
        if not lefts:
            return
        hits = self._score(np.stack(lefts), np.stack(rights)) > self._threshold
        q, p = np.array(HITS), STRANGERS
        for number in sorted(set(owners)):
            share = hits[np.equal(owners, number)].mean()
            self._sums = (self._sums + 1) * (share * q / p + (1 - share) * (1 - q) / (1 - p))
            if self._sums.mean() >= ALARM:
                self.moved = (
                    "rows of different requests score above the threshold of 1 % of strangers far more often, as if "
                    "most people had become alike"
                )
                return

    def _drawn(self) -> list[tuple[Float32, int, int]]:
        if len(self._pool) < FEWEST_PARTNERS:
            return []
        return [self._pool[at] for at in self._random.integers(0, len(self._pool), PARTNERS).tolist()]


class StreamMonitor:
    """All that watches the rows of one calibration.

    Parameters
    ----------
    score, threshold : scores pairs of rows, and what 1 % of strangers score above; None: rows are not scored.
    """

    def __init__(
        self,
        ranges: RowRanges,
        score: Callable[[Float32, Float32], Float32] | None = None,
        threshold: float | None = None,
    ) -> None:
        self._ranges, self._drift = ranges, DriftTest(ranges)
        is_known = ranges.near is not None
        self._returning = Returning(ranges) if is_known else None
        self._pairs = PairTest(score, threshold) if is_known and score and threshold is not None else None

    @property
    def n(self) -> int:
        """How many rows the test of drift has taken."""
        return self._drift.n

    @property
    def moved(self) -> str | None:
        """What has moved, in words; None: nothing is known to have."""
        return self._drift.moved or (None if self._pairs is None else self._pairs.moved)

    def observe(self, rows: Float32, requests: list[int]) -> None:
        """Take rows, none of them flagged, each with the number of its request; after an alarm nothing more."""
        if self.moved is not None:
            return
        if self._returning is None:
            self._drift.observe(rows)
            return
        placed = [self._returning.place(row) for row in scaled(rows, self._ranges.scales)]
        in_share = np.array([shares for *_, shares in placed])
        self._drift.observe(rows[in_share])
        if self._pairs is not None and self._drift.moved is None:
            self._pairs.observe(
                [
                    (row, person, request)
                    for row, request, (person, is_new, _) in zip(rows, requests, placed, strict=True)
                    if is_new
                ]
            )


def moved_at_once(ranges: RowRanges | None, rows: Float32) -> str | None:
    """How one request's rows, none of them flagged, are unlike the calibration's, in words; None: they may be like.

    While each row is another person's, beyond an edge with a chance of at most `TOLERATED`, the chance of an answer is
    at most `REQUEST`. Nothing is said of a film: where half of the rows are nearer to one than the same person's ever
    were.
    """
    if ranges is None or ranges.near is None or len(rows) < LARGE or len(ranges.reference) < FEWEST_PEOPLE:
        return None
    moved = _beyond(ranges, rows)
    if moved is None:
        return None
    # Only now is it worth the time to look at distances.
    some = scaled(rows[:: -(-len(rows) // AT_ONCE)], ranges.scales)
    near = [np.linalg.norm(some - row, axis=1) < ranges.near[0] for row in some]
    return None if np.mean(near, axis=1).max() > 0.5 else moved


def _beyond(ranges: RowRanges, rows: Float32) -> str | None:
    statistics, edges = ranges.statistics(rows), edges_of(ranges)
    counts = np.stack([statistics < edges[0], statistics > edges[1]]).sum(axis=1)
    if binom.sf(counts.max() - 1, len(rows), TOLERATED) > REQUEST / counts.size:
        return None
    side, statistic = np.unravel_index(int(counts.argmax()), counts.shape)
    return _words(int(side), int(statistic), edges)
