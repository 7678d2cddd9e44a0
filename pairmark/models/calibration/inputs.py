"""Which rows are like those of the people who calibrated, and whether a stream of rows still is.

The guarantee of an operating point is about people like those who calibrated. `RowRanges` looks at one row: five
statistics, each within what calibration rows showed. A row outside is answered *no*, which can only lower a false
positive rate, so that the guarantee stands for every input. Three tests look at many rows, for what one cannot show:
`DriftTest` at statistics of a stream of rows, in which a person counts once (`Returning`), `NearnessTest` at how near
rows lie to each other, `describe_move` at one large request by itself.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
from scipy import sparse
from scipy.special import bdtrc

from pairmark.models.calibration.kernels import row_statistics, rows_outside
from pairmark.models.core.arrays import Bool, Float32, Float64, Int64, NDArray
from pairmark.models.pairs.sampling import HeldOutPairs

STATISTICS = ("largest distance", "typical distance", "typical size", "norm", "spread")
"""Of a row, as logs: the largest and a typical |x - median| / scale, a typical |x| / scale, the norm, and the standard
deviation over features. What is typical is the square of the mean root: a few large features do not rule it."""
MARGIN = 0.15
"""The share of its width by which each range is widened on both sides, from `AMPLE` people on; more with fewer."""
AMPLE = 100
ROUNDING = 0.02
"""Added to both sides of each range, so that rows of norm 1 may be rounded."""
FEWEST = 5
"""People without whom there are no ranges."""
FOLDS = 5
_RANGES = ("scales", "ranges", "reference")
_NEIGHBORS = ("people", "near")
MOST_PEOPLE, MOST_CELLS = 256, 1 << 20
"""Rows of calibration people that are kept, at most, and their numbers."""
MATES = 50
"""Pairs of rows of the same person without which it is not known how near such rows are."""


@dataclass(frozen=True, kw_only=True)
class RowRanges:
    """The ranges of calibration rows' statistics.

    Attributes
    ----------
    scales : (2, d) float32, the median of each feature and one over its scale.
    ranges : (2, 5) float64, least and greatest values of `STATISTICS`, widened.
    reference : (n_people, 5) float64, `STATISTICS` of one row of each calibration person.
    people : (n, d) float32, scaled rows of some calibration people, one each; None where that was not kept.
    near : (2,) how far rows of the same person are from each other, scaled: one in a hundred is nearer, and another
        farther. None: there are too few of them.
    facts : JSON-able: the ``people`` and ``rows`` that made the ranges, ``flagged`` and ``positive_pairs_flagged``, the
        shares of rows and of positive pairs with such a row among others, and whom they were ``measured_on``, ``test``
        or ``folds``. Empty where that was not measured.
    """

    scales: Float32 = field(repr=False)
    ranges: Float64
    reference: Float64 = field(repr=False)
    people: Float32 | None = field(repr=False, default=None)
    near: Float64 | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def fit(cls, rows: Any, people: Any, training: Any = None) -> Self | None:
        """Ranges of calibration rows; None for rows that are not vectors, and of fewer than `FEWEST` people.

        Parameters
        ----------
        rows : (n, d) dense or sparse; NaN is a missing cell.
        people : (n,) whose each row is.
        training : rows to take medians and scales from; None: the same.
        """
        first = np.sort(np.unique(np.asarray(people), return_index=True)[1])
        if not is_numeric(rows) or first.size < FEWEST:
            return None
        scales = _scales(rows if training is None or not training.shape[0] else training)
        statistics = _statistics(rows, scales)
        low, high = statistics.min(axis=0), statistics.max(axis=0)
        margin = MARGIN * max(1.0, AMPLE / first.size) * (high - low) + ROUNDING
        neighbors: dict[str, Any] = (
            {} if is_sparse(rows) else _neighbors(rows, np.asarray(people), first, scales)
        )
        return cls(
            scales=scales,
            ranges=np.stack([low - margin, high + margin]),
            reference=statistics[first],
            **neighbors,
        )

    @classmethod
    def of_pairs(
        cls, X: Any, pairs: HeldOutPairs, *, training: Any = None, test: HeldOutPairs | None = None
    ) -> Self | None:
        """Ranges of the rows of calibration pairs, measured on ``test`` pairs, or by folds of people without them; None
        where there are no ranges.

        Parameters
        ----------
        X : all rows. training : the rows among them to take medians and scales from, numbers; None: the pairs' own.
        """
        rows, people = _rows_of(pairs)
        if not is_numeric(X) or X.shape[1] == 0:
            return None
        learned = None if training is None or not len(training) else X[training]
        ranges = cls.fit(X[rows], people, learned)
        if ranges is None:
            return None
        flags, seen = np.zeros(X.shape[0], dtype=np.bool_), pairs if test is None else test
        measured, who = _rows_of(seen)
        if test is not None:
            flags[measured] = ranges.flags(X[measured])
        else:
            who = np.unique(who, return_inverse=True)[1]
            for fold in range(FOLDS):
                mine = who % FOLDS == fold
                others = cls.fit(X[rows[~mine]], who[~mine], learned)
                if others is not None and mine.any():
                    flags[rows[mine]] = others.flags(X[rows[mine]])
        positive = flags[seen.left[seen.same]] | flags[seen.right[seen.same]]
        facts = {
            "people": len(ranges.reference),
            "rows": len(rows),
            "flagged": float(flags[measured].mean()),
            "positive_pairs_flagged": float(positive.mean()) if positive.size else 0.0,
            "measured_on": "folds" if test is None else "test",
        }
        return replace(ranges, facts=facts)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> Self | None:
        """What `arrays` wrote; None where there is none."""
        if "inputs_scales" not in arrays:
            return None
        # Kernels are compiled for writable arrays.
        stored = {
            name: np.array(arrays[f"inputs_{name}"])
            for name in (*_RANGES, *_NEIGHBORS)
            if f"inputs_{name}" in arrays
        }
        return cls(**stored, facts=facts.get("inputs") or {})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As they are kept with a calibration."""
        parts = {name: getattr(self, name) for name in (*_RANGES, *_NEIGHBORS)}
        return {f"inputs_{name}": part for name, part in parts.items() if part is not None}

    def unlike(self, left: Any, right: Any = None) -> Bool:
        """(n_left + n_right,) which rows are outside a range; empty where none is, and for rows that are no vectors."""
        right = left[:0] if right is None else right
        if is_dense(left) and is_dense(right):
            return np.asarray(rows_outside(left, right, self.scales, self.ranges))
        are_vectors = is_numeric(left) and is_numeric(right)
        outside = np.concatenate([self.flags(left), self.flags(right)]) if are_vectors else np.zeros(0, bool)
        return outside if outside.any() else outside[:0]

    def flags(self, rows: Any) -> Bool:
        """(n,) whether a row is outside a range."""
        statistics = self.statistics(rows)
        return ~np.asarray(((statistics >= self.ranges[0]) & (statistics <= self.ranges[1])).all(axis=1))

    def statistics(self, rows: Any) -> Float64:
        """(n, 5) `STATISTICS` of rows."""
        return _statistics(rows, self.scales)


def scale_rows(rows: Any, scales: Float32) -> Float32:
    """Rows in units of the spread of each feature; a missing cell is the median."""
    return np.asarray(np.nan_to_num((rows - scales[0]) * scales[1]).astype(np.float32))


def _neighbors(rows: Any, people: NDArray[Any], first: Int64, scales: Float32) -> dict[str, Any]:
    """Rows of some people, and how near rows of the same person are; nothing where too few people have several."""
    order = np.argsort(people, kind="stable")
    is_mate = people[order[1:]] == people[order[:-1]]
    mates = np.stack([order[:-1][is_mate], order[1:][is_mate]])
    if mates.shape[1] < MATES:
        return {}
    mates = mates[:, :: max(1, mates.shape[1] // 2_000)]
    one, other = (scale_rows(rows[side], scales) for side in mates)
    distances = np.linalg.norm(one - other, axis=1).astype(np.float64)
    most = max(16, min(MOST_PEOPLE, MOST_CELLS // max(1, rows.shape[1])))
    return {
        "people": scale_rows(rows[first[:most]], scales),
        "near": np.quantile(distances, [0.01, 0.99]),
    }


def is_dense(rows: Any) -> bool:
    """Whether rows are as the kernel takes them."""
    return isinstance(rows, np.ndarray) and rows.dtype == np.float32 and bool(rows.flags.c_contiguous)


def is_sparse(rows: Any) -> bool:
    """Whether rows are a sparse matrix."""
    return bool(sparse.issparse(rows))


def is_numeric(rows: Any) -> bool:
    """Whether rows are vectors of numbers, dense or sparse."""
    return is_sparse(rows) or (isinstance(rows, np.ndarray) and rows.dtype.kind in "fiub")


def _scales(rows: Any) -> Float32:
    """Medians, and one over the root mean square distance from them; sparse rows have the median 0.

    A feature that never varies is held against what features vary by: that it varies is no surprise of its own.
    """
    if is_sparse(rows):
        center = np.zeros(rows.shape[1])
        square = np.asarray(rows.multiply(rows).mean(axis=0)).ravel()
    else:
        with np.errstate(invalid="ignore"):
            center = np.nan_to_num(np.nanmedian(rows, axis=0))
            square = np.nan_to_num(np.nanmean((rows - center) ** 2, axis=0))
    scale, typical = np.sqrt(square), math.sqrt(float(square.mean())) or 1.0
    return np.stack([center, 1 / np.where(scale > 0, scale, typical)]).astype(np.float32)


def _statistics(rows: Any, scales: Float32) -> Float64:
    if not is_sparse(rows):
        return np.asarray(row_statistics(np.array(rows, dtype=np.float32, order="C"), scales))
    X = rows.tocsr().astype(np.float64)
    scaled = X.multiply(scales[1].astype(np.float64)).tocsr()
    d, squares = X.shape[1], np.asarray(X.multiply(X).sum(axis=1)).ravel()
    mean = np.asarray(X.sum(axis=1)).ravel() / d
    typical = (np.asarray(abs(scaled).sqrt().sum(axis=1)).ravel() / d) ** 2
    values = (
        np.asarray(abs(scaled).max(axis=1).todense()).ravel(),
        typical,
        typical,
        np.sqrt(squares),
        np.sqrt(np.maximum(squares / d - mean**2, 0)),
    )
    return np.asarray(np.log(np.maximum(np.stack(values, axis=1), 1e-30)))


def _rows_of(pairs: HeldOutPairs) -> tuple[Int64, NDArray[Any]]:
    """The numbers of the rows of pairs, and whose each is."""
    rows, first = np.unique([pairs.left, pairs.right], return_index=True)
    return rows, np.asarray(pairs.units).T.ravel()[first]


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
