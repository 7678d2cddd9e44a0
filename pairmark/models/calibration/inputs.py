"""Which rows are like those of the people who calibrated, and whether a stream of rows still is.

The guarantee of an operating point is about people like those who calibrated. `RowRanges` looks at one row: five
statistics, each within what calibration rows showed. A row outside is answered *no*, which can only lower a false
positive rate, so that the guarantee stands for every input. `monitor` looks at many rows, for what one cannot show.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from scipy import sparse

from pairmark.models.calibration.kernels import row_statistics, rows_outside
from pairmark.models.core.arrays import Bool, Float32, Float64, Int64, NDArray
from pairmark.models.pairs.held_out import HeldOutPairs

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
