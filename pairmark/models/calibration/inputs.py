"""Which rows are like those of the people who calibrated, and whether a stream of rows still is.

The guarantee of an operating point is about people like those who calibrated. `RowRanges` looks at one row: five
statistics, each within what calibration rows showed. A row outside is answered *no*, which can only lower a false
positive rate, so that the guarantee stands for every input. `monitor` looks at many rows, for what one cannot show.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pairmark.models.calibration.kernels.row_statistics import row_statistics, rows_outside
from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.base import SCORE_BLOCK, prepare_subjects, score_subjects
from pairmark.models.core.scores import SampleSets
from pairmark.models.pairs.held_out import HeldOutPairs
from pairmark.models.pairs.splits import permutation_of

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
_NEIGHBOURS = ("people", "near")
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
        kept: dict[str, Any] = {} if is_sparse(rows) else _neighbours(rows, np.asarray(people), first, scales)
        return cls(
            scales=scales, ranges=np.stack([low - margin, high + margin]), reference=statistics[first], **kept
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
        flags = np.zeros(X.shape[0], dtype=np.bool_)
        seen = pairs if test is None else test
        if test is not None:
            measured = _rows_of(test)[0]
            flags[measured] = ranges.flags(X[measured])
        else:
            measured, who = rows, np.unique(people, return_inverse=True)[1]
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
            for name in (*_RANGES, *_NEIGHBOURS)
            if f"inputs_{name}" in arrays
        }
        return cls(**stored, facts=facts.get("inputs") or {})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As they are kept with a calibration."""
        parts = {name: getattr(self, name) for name in (*_RANGES, *_NEIGHBOURS)}
        return {f"inputs_{name}": part for name, part in parts.items() if part is not None}

    def unlike(self, left: Any, right: Any = None) -> Bool:
        """(n_left + n_right,) which rows are outside a range; empty where none is, and for rows that are no vectors."""
        right = left[:0] if right is None else right
        if is_dense(left) and is_dense(right):
            flags: Bool = rows_outside(left, right, self.scales, self.ranges)
            return flags
        if not (is_numeric(left) and is_numeric(right)):
            return np.empty(0, dtype=np.bool_)
        outside = np.concatenate([self.flags(left), self.flags(right)])
        return outside if outside.any() else outside[:0]

    def flags(self, rows: Any) -> Bool:
        """(n,) whether a row is outside a range."""
        statistics = self.statistics(rows)
        outside: Bool = ~((statistics >= self.ranges[0]) & (statistics <= self.ranges[1])).all(axis=1)
        return outside

    def statistics(self, rows: Any) -> Float64:
        """(n, 5) `STATISTICS` of rows."""
        return _statistics(rows, self.scales)


def scaled(rows: Any, scales: Float32) -> Float32:
    """Rows in units of the spread of each feature; a missing cell is the median."""
    result: Float32 = np.nan_to_num((rows - scales[0]) * scales[1]).astype(np.float32)
    return result


def _neighbours(rows: Any, people: NDArray[Any], first: Int64, scales: Float32) -> dict[str, Any]:
    """Rows of some people, and how near rows of the same person are; nothing where too few people have several."""
    order = np.argsort(people, kind="stable")
    is_mate = people[order[1:]] == people[order[:-1]]
    mates = np.stack([order[:-1][is_mate], order[1:][is_mate]])
    if mates.shape[1] < MATES:
        return {}
    mates = mates[:, :: max(1, mates.shape[1] // 2_000)]
    distances = np.linalg.norm(scaled(rows[mates[0]], scales) - scaled(rows[mates[1]], scales), axis=1)
    most = max(16, min(MOST_PEOPLE, MOST_CELLS // max(1, rows.shape[1])))
    near = np.quantile(distances.astype(np.float64), [0.01, 0.99])
    return {"people": scaled(rows[first[:most]], scales), "near": near}


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
    scale = np.sqrt(square)
    typical = math.sqrt(float(square.mean())) or 1.0
    return np.stack([center, 1 / np.where(scale > 0, scale, typical)]).astype(np.float32)


def _statistics(rows: Any, scales: Float32) -> Float64:
    if not is_sparse(rows):
        seen: Float64 = row_statistics(np.array(rows, dtype=np.float32, order="C"), scales)
        return seen
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
    logs: Float64 = np.log(np.maximum(np.stack(values, axis=1), 1e-30))
    return logs


def _rows_of(pairs: HeldOutPairs) -> tuple[Int64, NDArray[Any]]:
    """The numbers of the rows of pairs, and whose each is."""
    ends = np.concatenate([pairs.left, pairs.right])
    rows, first = np.unique(ends, return_index=True)
    return rows, np.asarray(pairs.units).T.ravel()[first]


def cells_missing(rows: Any) -> Bool:
    """(n, d) which cells of records are missing."""
    none: Any = None
    is_missing: Bool = np.equal(rows, none).astype(np.bool_)
    return is_missing


def are_records(rows: Any) -> bool:
    """Whether rows are cells of records, which may be missing."""
    return isinstance(rows, np.ndarray) and rows.dtype.kind == "O"


MOST_PAIRS, FEW_PAIRS = 20_000, 5_000
"""Negative pairs that are scored without some columns, about, beforehand and while somebody waits: of more people, so
many more."""


def _enough_pairs(
    same: Bool, units: Int64, origin: dict[str, Any], most: int
) -> tuple[Int64, dict[str, Any]]:
    """Numbers of about ``most`` pairs of all people, and how these came about, as `HeldOutPairs.origin` has it.

    Where all pairs inside of cells are there, a list of all pairs being one cell, these are those inside of parts of
    the cells, so that they count as fully; which parts depends on the number of people alone, as if they were drawn. Of
    another list they are a part that depends on its length alone, and of the list's origin.
    """
    numbers = np.arange(same.size)
    if same.size <= most:
        return numbers, origin
    people, ends = np.unique(units, return_inverse=True)
    m, ends = people.size, ends.reshape(-1, 2)
    edges = np.unique(np.sort(ends[~same] if origin["protocol"] == "open-set" else ends, axis=1), axis=0)
    is_sample, listing = origin["population"] is not None, origin["listing"]
    if not is_sample and not origin["units_assumed"] and len(edges) == m * (m - 1) // 2:
        listing = "drawn"
    if not is_sample and listing in ("all", "drawn"):
        graph = coo_array((np.ones(same.size, dtype=np.int8), ends.T), shape=(m, m))
        _, cell = connected_components(graph, directed=False)
        by_cell = permutation_of(m, 0)
        by_cell = by_cell[np.argsort(cell[by_cell], kind="stable")]
        sizes = np.bincount(cell)
        place = np.empty(m, dtype=np.int64)
        place[by_cell] = np.arange(m) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        # Couples stay together: a part of an odd number of people would lose one of them to every matching.
        couples = (sizes + 1) // 2
        n_parts = -(-couples // max(1, most // m))
        part = place // 2 * n_parts[cell] // couples[cell]
        numbers = numbers[part[ends[:, 0]] == part[ends[:, 1]]]
    else:
        numbers = np.sort(permutation_of(same.size)[:most])
    # Of several rows of the same two people, and of one person, a few.
    _, edge, counts = np.unique(
        np.sort(ends[numbers], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    order = np.argsort(edge, kind="stable")
    turn = np.empty(numbers.size, dtype=np.int64)
    turn[order] = np.arange(numbers.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers[turn < max(1, most // counts.size)], {**origin, "listing": listing}


_ENDS = ("left", "right", "same", "units")
N_FREQUENT = 8
"""Choices of columns that calibration pairs lack most often, which are scored without these beforehand."""
DEAR = 3
"""Columns that cost most, which are left out beforehand together with all others, all but one of them."""


def pattern_codes(lacked: Bool) -> list[bytes]:
    """A code for what the sides of each pair lack, (n, 2, d), whichever side is left."""
    return [b"".join(sorted(side.tobytes() for side in pair)) for pair in np.packbits(lacked, axis=2)]


def blanked_subjects(left: SampleSets, right: SampleSets) -> tuple[SampleSets, SampleSets]:
    """Subjects of records, pair by pair, without the columns that any sample of either side lacks.

    Subjects of vectors are returned as they are.
    """
    if not (are_records(left.rows) and are_records(right.rows)):
        return left, right
    n = max(len(left), len(right))
    every = np.arange(n)
    pairs = [side.take(every if len(side) == n else np.zeros_like(every)) for side in (left, right)]
    lacked = np.logical_or(*(lacked_by_subject(side) for side in pairs))
    blanked = []
    for side in pairs:
        rows = side.rows[side.index]
        rows[np.repeat(lacked, side.counts, axis=0)] = None
        blanked.append(SampleSets.of_rows(rows, side.counts))
    return blanked[0], blanked[1]


def lacked_by_subject(subjects: SampleSets) -> Bool:
    """(n, d) columns that any sample of a subject lacks."""
    missing = cells_missing(subjects.rows)[subjects.index]
    lacked: Bool = np.logical_or.reduceat(missing, subjects.ends - subjects.counts, axis=0)
    return lacked


def score_subject_pairs(
    estimator: Any, subjects: SampleSets, left: Int64, right: Int64, aggregation: str
) -> Float32:
    """Scores of pairs of subjects by their numbers, (n,) float32."""
    numbers = np.unique(subjects.index)
    place = np.searchsorted(numbers, subjects.index)
    # Only the rows that were drawn are read, and prepared once for all pairs.
    prepared = prepare_subjects(
        estimator, SampleSets(rows=subjects.rows[numbers], index=place, counts=subjects.counts), aggregation
    )
    scores = np.empty(left.size, dtype=np.float32)
    for start in range(0, left.size, SCORE_BLOCK):
        part = slice(start, start + SCORE_BLOCK)
        sides = prepared.take(left[part]), prepared.take(right[part])
        if isinstance(prepared, SampleSets):
            sides = blanked_subjects(*sides)
        scores[part] = score_subjects(estimator, *sides, aggregation)
    return scores


@dataclass(frozen=True, kw_only=True)
class CalibrationRecords:
    """Calibration pairs with their records, so that they can be scored again without some columns.

    Attributes
    ----------
    subjects : the records of those who are compared; None is a missing cell.
    left, right, same, units, facts : as `HeldOutPairs` has them, rows being numbers of ``subjects``.
    aggregation : how subjects of several samples are compared; None: each has one.
    patterns : (p, 2, d) columns that were left out beforehand. scores : (p, n_pairs) what came of it.
    """

    subjects: SampleSets = field(repr=False)
    left: Int64 = field(repr=False)
    right: Int64 = field(repr=False)
    same: Bool = field(repr=False)
    units: Int64 = field(repr=False)
    facts: dict[str, Any]
    aggregation: str | None = None
    patterns: Bool = field(repr=False, default_factory=lambda: np.empty((0, 2, 0), dtype=np.bool_))
    scores: Float32 = field(repr=False, default_factory=lambda: np.empty((0, 0), dtype=np.float32))

    @classmethod
    def of(cls, X: Any, pairs: HeldOutPairs, aggregation: str | None = None) -> Self | None:
        """About `MOST_PAIRS` of the pairs, and their rows; None for rows without cells that can be missing.

        Parameters
        ----------
        X : rows that pairs number; with ``aggregation`` subjects of several samples, `SampleSets`.
        """
        sets = X if isinstance(X, SampleSets) else SampleSets.of_rows(X)
        if not are_records(sets.rows):
            return None
        sample, origin = _enough_pairs(pairs.same, pairs.units, pairs.origin, MOST_PAIRS)
        numbers, ends = np.unique([pairs.left[sample], pairs.right[sample]], return_inverse=True)
        left, right = ends.reshape(2, -1)
        drawn = sets.take(numbers)
        rows, index = np.unique(drawn.index, return_inverse=True)
        return cls(
            subjects=SampleSets(rows=sets.rows[rows], index=index, counts=drawn.counts),
            left=left,
            right=right,
            same=pairs.same[sample],
            units=pairs.units[sample],
            facts=origin,
            aggregation=aggregation,
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> Self | None:
        """What `arrays` wrote; None where there is none. `ValueError` for what nothing wrote."""
        if "records" not in facts:
            return None
        rows = json.loads(arrays["records_cells"].tobytes())
        cells = np.empty((len(rows), len(rows[0])), dtype=object)
        for at, row in enumerate(rows):
            if len(row) != cells.shape[1]:
                raise ValueError(f"records_cells: row {at} has {len(row)} cells; expected {cells.shape[1]}")
            for place, cell in enumerate(row):
                cells[at, place] = tuple(cell) if isinstance(cell, list) else cell
        stored = {
            name: np.array(arrays[f"records_{name}"])
            for name in (*_ENDS, "index", "counts", "patterns", "scores")
            if f"records_{name}" in arrays
        }
        subjects = SampleSets.of_rows(cells)
        if "counts" in stored:
            subjects = SampleSets(rows=cells, index=stored.pop("index"), counts=stored.pop("counts"))
            if subjects.counts.sum() != subjects.index.size or subjects.index.max() >= len(cells):
                raise ValueError(f"records_index and records_counts do not fit {len(cells)} records_cells")
        if max(stored["left"].max(), stored["right"].max()) >= len(subjects):
            raise ValueError(
                f"records_left and records_right name rows beyond the {len(subjects)} of records_cells"
            )
        origin = dict(facts["records"])
        return cls(subjects=subjects, facts=origin, aggregation=facts.get("records_aggregation"), **stored)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As they are kept with a calibration."""
        cells = np.frombuffer(json.dumps(self.subjects.rows.tolist()).encode(), dtype=np.uint8)
        parts = {name: getattr(self, name) for name in _ENDS}
        if self.aggregation is not None:
            parts |= {"index": self.subjects.index, "counts": self.subjects.counts}
        if len(self.patterns):
            parts |= {"patterns": self.patterns, "scores": self.scores}
        return {"records_cells": cells, **{f"records_{name}": part for name, part in parts.items()}}

    def with_patterns(self, scorer: Any, n_frequent: int = N_FREQUENT) -> Self:
        """These, with scores without each column, without the choices that the pairs lack most often, without two
        columns that pairs lack together, and without more and more of those that cost the least: whoever lacks other
        columns can be decided by one of these choices that contains them."""
        d = self.lacked.shape[2]
        each = np.eye(d, dtype=np.bool_)
        natural = scorer.patterns(self.lacked[:, 0], self.lacked[:, 1])
        codes = pattern_codes(natural)
        frequent = [codes.index(code) for code, _ in Counter(codes).most_common(n_frequent)]
        either: Int64 = np.any(self.lacked, axis=1).astype(np.int64)
        together = np.triu(either.T @ either, 1)
        twos = [divmod(int(at), d) for at in np.argsort(-together, axis=None, kind="stable")[:n_frequent]]
        pairs = np.array(
            [each[[a, b]].any(axis=0) for a, b in twos if together[a, b]], dtype=np.bool_
        ).reshape(-1, d)
        singles = scorer.patterns(each, np.zeros_like(each))
        prepared = self._scored(
            np.concatenate([singles, natural[frequent], scorer.patterns(pairs, pairs)]), scorer
        )
        cheapest = np.argsort([-prepared.tpr(columns) for columns in singles], kind="stable")
        order = cheapest.tolist()
        cheap, dear = order[: max(0, d - DEAR)], order[max(0, d - DEAR) :]
        # Whatever else a pair lacks, and whichever of the dearest columns: one of these contains it.
        wide = [[*cheap, *some] for n in range(min(DEAR, d)) for some in combinations(dear, n)]
        chosen = [order[: d // 4], order[: d // 2], *wide]
        chain = np.stack([each[columns].any(axis=0) for columns in chosen])
        return prepared._scored(np.concatenate([prepared.patterns, scorer.patterns(chain, chain)]), scorer)

    def _scored(self, chosen: Bool, scorer: Any) -> Self:
        distinct = {
            code: lacked for code, lacked in zip(pattern_codes(chosen), chosen, strict=True) if lacked.any()
        }
        patterns = np.stack(list(distinct.values()))
        scores = np.stack([self.scored_without(lacked, scorer) for lacked in patterns])
        return replace(self, patterns=patterns, scores=scores)

    def tpr(self, columns: Bool) -> float:
        """About the share of same pairs above the threshold of 1 % of the others, without columns that were left out
        beforehand."""
        scores = self.scored_without(columns, None)
        if self.same.all() or not self.same.any():
            return 0.0
        return float((scores[self.same] > np.quantile(scores[~self.same], 0.99)).mean())

    @cached_property
    def tprs(self) -> Float64:
        """(p,) `tpr` of each of `patterns`."""
        return np.array([self.tpr(columns) for columns in self.patterns])

    def cover(self, columns: Bool) -> list[tuple[Bool, bool]]:
        """Choices that were left out beforehand and contain ``columns``, the best first, and whether their sides are
        the other way round."""
        ways = [self.patterns, self.patterns[:, ::-1]]
        contains = np.stack([(way | ~columns).all(axis=(1, 2)) for way in ways])
        numbers = np.flatnonzero(contains.any(axis=0))
        order = numbers[np.argsort(-self.tprs[numbers], kind="stable")]
        return [(self.patterns[number], not contains[0, number]) for number in order.tolist()]

    def are_scored(self, columns: Bool) -> bool:
        """Whether these pairs were scored without ``columns`` beforehand."""
        return pattern_codes(columns[None])[0] in pattern_codes(self.patterns)

    def counted(self, columns: Bool) -> tuple[Int64, dict[str, Any]]:
        """Numbers of the pairs that decide without ``columns``, and how these came about: all, where they were scored
        beforehand; else fewer pairs of as many people, by sizes alone."""
        return (np.arange(self.same.size), self.facts) if self.are_scored(columns) else self._few

    @cached_property
    def _few(self) -> tuple[Int64, dict[str, Any]]:
        return _enough_pairs(self.same, self.units, self.facts, FEW_PAIRS)

    @cached_property
    def lacked(self) -> Bool:
        """(n_pairs, 2, d) columns that each side of each pair lacks; of several samples, that any of both lacks."""
        missing = lacked_by_subject(self.subjects)
        lacked = np.stack([missing[self.left], missing[self.right]], axis=1)
        return lacked if self.aggregation is None else np.repeat(lacked.any(axis=1, keepdims=True), 2, axis=1)

    def lack(self, columns: Bool, scorer: Any) -> Bool:
        """(n_pairs,) which pairs a scorer compares just without these columns, (2, d), in either order of the sides."""
        lacked = scorer.patterns(self.lacked[:, 0], self.lacked[:, 1])
        just: Bool = (lacked == columns).all(axis=(1, 2)) | (lacked == columns[::-1]).all(axis=(1, 2))
        return just

    def scored_without(self, columns: Bool, scorer: Any, numbers: Any = slice(None)) -> Float32:
        """(n,) scores of the pairs of these ``numbers`` with columns, (2, d), blanked on either side."""
        scored_patterns = pattern_codes(self.patterns)
        (code,) = pattern_codes(columns[None])
        scores: Float32
        if code in scored_patterns:
            scores = self.scores[scored_patterns.index(code)][numbers]
            return scores
        left, right = self.left[numbers], self.right[numbers]
        rows, index, counts = self.subjects.rows, self.subjects.index, self.subjects.counts
        # Sides without the same columns are of one table, which is prepared once.
        sides = columns if (columns[0] != columns[1]).any() else columns[:1]
        cells = np.tile(rows, (len(sides), 1))
        for start, side in enumerate(sides):
            cells[start * len(rows) : (start + 1) * len(rows), side] = None
        if self.aggregation is None:
            scores = scorer.score_pairs(cells, left, right + (len(sides) - 1) * len(rows))
            return scores
        # Of subjects both sides lack the same.
        sets = SampleSets(rows=cells, index=index, counts=counts)
        return score_subject_pairs(scorer, sets, left, right, self.aggregation)
