"""Whether rows are still like those of the people who calibrated: for what single rows cannot show.

Three tests. `DriftTest` looks at statistics of a stream of rows, in which a person counts once (`Returning`);
`NearnessTest` at how near rows lie to each other; `describe_move` at one large request by itself.
"""

from collections import deque
from typing import Final

import numpy as np
from scipy.special import bdtrc

from pairmark.models.calibration.inputs import STATISTICS, RowRanges, scale_rows
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
NEARER: Final = 0.03
"""The largest share of near rows that are nearer than one in a hundred of one person's, that is taken for theirs."""
NEARER_ALTERNATIVES: Final = (0.06, 0.15, 0.5)
"""Shares that the test of nearness looks out for."""
POOL: Final = 256
"""Earlier rows to which new ones are held."""


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
    return np.asarray(np.quantile(ranges.reference, [OUTER, 1 - OUTER], axis=0))


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
    person. Where honest people are dense, more do: by the share of calibration people who are as near.
    """

    def __init__(self, people: Float32, farthest: float) -> None:
        self._people, self._farthest = people, farthest
        self._founders = np.empty((FOUNDERS, people.shape[1]), dtype=np.float32)
        self._shares = np.zeros(FOUNDERS)
        self._n = 0
        self._window: deque[int] = deque(maxlen=WINDOW)
        self._counted: deque[int] = deque(maxlen=WINDOW)

    def place(self, row: Float32) -> tuple[bool, bool]:
        """Of the next scaled row, whether its person sent no more than a share of the last ones, and whether of those
        that were counted, this one included, no more are theirs."""
        founders = self._founders[: min(self._n, FOUNDERS)]
        distances = np.linalg.norm(founders - row, axis=1) if len(founders) else np.array([np.inf])
        person = int(distances.argmin())
        if distances[person] > self._farthest:
            person, self._n = self._n % FOUNDERS, self._n + 1
            self._founders[person] = row
            self._shares[person] = (np.linalg.norm(self._people - row, axis=1) <= self._farthest).mean()
        self._window.append(person)
        share = A_PERSON + WINDOW * self._shares[person]
        is_counted = bool(self._counted.count(person) < share)
        self._counted.append(person if is_counted else -1)
        return bool(self._window.count(person) <= share), is_counted


class NearnessTest:
    """Whether rows still lie towards each other in as many directions as those of people do.

    Two rows are *near* if they are no farther from each other than 99 in 100 pairs of rows of one calibration person
    were, and *too near* if they are nearer than all but one in 100. Of near rows of one person .01 are too near, and of
    strangers fewer: in d directions about (nearest / farthest)^d. So whoever comes back, and however often, the share
    stays below `NEARER`; where rows collapse to k directions it becomes (nearest / farthest)^k. With a, the share of
    one row among its near earlier rows, L = a q/p + (1 - a)(1 - q)/(1 - p) has E L <= 1 while the chance of too near is
    at most p, whatever came before and however the pairs hang together; the rest is as in `DriftTest`.
    """

    def __init__(self, near: Float64, d: int) -> None:
        self._nearest, self._farthest = near
        self._rows, self._requests = np.empty((POOL, d), dtype=np.float32), np.empty(POOL, dtype=np.int64)
        self._n = 0
        self._sums = np.zeros(len(NEARER_ALTERNATIVES))
        self.moved: str | None = None

    def observe(self, rows: Float32, requests: list[int]) -> None:
        """Take scaled rows, each with the number of its request: only those of other requests are held to it."""
        q, p = np.array(NEARER_ALTERNATIVES), NEARER
        for row, request in zip(rows, requests, strict=True):
            others = np.flatnonzero(self._requests[: min(self._n, POOL)] != request)
            distances = np.linalg.norm(self._rows[others] - row, axis=1)
            near = distances[distances <= self._farthest]
            self._rows[self._n % POOL], self._requests[self._n % POOL] = row, request
            self._n += 1
            if not near.size:
                continue
            share = (near < self._nearest).mean()
            self._sums = (self._sums + 1) * (share * q / p + (1 - share) * (1 - q) / (1 - p))
            if self._sums.mean() >= ALARM:
                self.moved = (
                    "rows of different requests are far more often nearer to each other than rows of one person were, "
                    "as if most people had become alike"
                )
                return


class StreamMonitor:
    """All that watches the rows of one calibration."""

    def __init__(self, ranges: RowRanges) -> None:
        self._ranges, self._drift = ranges, DriftTest(ranges)
        self._returning: Returning | None = None
        if ranges.near is not None and ranges.people is not None:
            self._returning = Returning(ranges.people, ranges.near[1])
            self._nearness = NearnessTest(ranges.near, ranges.people.shape[1])

    @property
    def moved(self) -> str | None:
        """What has moved, in words; None: nothing is known to have."""
        return self._drift.moved or (None if self._returning is None else self._nearness.moved)

    def observe(self, rows: Float32, requests: list[int]) -> None:
        """Take rows, none of them flagged, each with the number of its request; after an alarm nothing more."""
        if self.moved is not None:
            return
        if self._returning is not None:
            own_rows = scale_rows(rows, self._ranges.scales)
            in_share, is_counted = np.transpose([self._returning.place(row) for row in own_rows])
            # People differ in how near their rows are: who sends most of them counts no more than others.
            self._nearness.observe(own_rows[is_counted], np.array(requests)[is_counted].tolist())
            rows = rows[in_share]
        self._drift.observe(rows)


def describe_move(ranges: RowRanges | None, rows: Float32) -> str | None:
    """How one request's rows, none of them flagged, are unlike the calibration's, in words; None: they may be like.

    While each row is another person's, beyond an edge with a chance of at most `TOLERATED`, the chance of an answer is
    at most `REQUEST`. Nothing is said of a film: where half of the rows are nearer to one than the same person's ever
    were.
    """
    if ranges is None or ranges.near is None or len(rows) < LARGE or len(ranges.reference) < FEWEST_PEOPLE:
        return None
    statistics, edges = ranges.statistics(rows), edges_of(ranges)
    counts = np.stack([statistics < edges[0], statistics > edges[1]]).sum(axis=1)
    if bdtrc(counts.max() - 1, len(rows), TOLERATED) > REQUEST / counts.size:
        return None
    # Only now is it worth the time to look at distances.
    sampled = scale_rows(rows[:: -(-len(rows) // AT_ONCE)], ranges.scales)
    near = [np.linalg.norm(sampled - row, axis=1) < ranges.near[0] for row in sampled]
    side, statistic = np.unravel_index(int(counts.argmax()), counts.shape)
    return None if np.mean(near, axis=1).max() > 0.5 else _words(int(side), int(statistic), edges)
