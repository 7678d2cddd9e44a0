"""Calibration pairs of records, which can be scored again without some columns, and what they say of pairs that lack
them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from pairmark.models.calibration.guarantees import units_needed
from pairmark.models.core.arrays import Bool, Float32, Float64, Int64, NDArray
from pairmark.models.core.base import SCORE_BLOCK, prepare_subjects, score_subjects
from pairmark.models.core.inputs import cells_missing as cells_missing
from pairmark.models.core.scores import SampleSets
from pairmark.models.pairs.lists import joined_groups
from pairmark.models.pairs.sampling import HeldOutPairs, rank_within
from pairmark.models.pairs.splits import permutation_of

if TYPE_CHECKING:
    from pairmark.models.calibration.calibration import Calibration
    from pairmark.models.calibration.operating_point import OperatingPoint


def are_records(rows: Any) -> bool:
    """Whether rows are cells of records, which may be missing."""
    return isinstance(rows, np.ndarray) and rows.dtype.kind == "O"


MOST_PAIRS, MOST_SUBJECT_PAIRS = 20_000, 5_000
"""Negative pairs that are scored without some columns, about, of single records and of subjects, of which none are
scored beforehand: of more people, so many more."""


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
        cell = joined_groups(m, *ends.T)[1]
        place = rank_within(cell, permutation_of(m, 0))
        # Couples stay together: a part of an odd number of people would lose one of them to every matching.
        couples = (np.bincount(cell) + 1) // 2
        n_parts = -(-couples // max(1, most // m))
        part = place // 2 * n_parts[cell] // couples[cell]
        numbers = numbers[part[ends[:, 0]] == part[ends[:, 1]]]
    else:
        numbers = np.sort(permutation_of(same.size)[:most])
    # Of several rows of the same two people, and of one person, a few.
    edge = np.unique(np.sort(ends[numbers], axis=1), axis=0, return_inverse=True)[1].ravel()
    few = max(1, most // (int(edge.max()) + 1))
    return numbers[rank_within(edge, np.arange(edge.size)) < few], {**origin, "listing": listing}


_ENDS = ("left", "right", "same", "units")
N_FREQUENT = 8
"""Choices of columns that calibration pairs lack most often, which are scored without these beforehand."""
N_PARTS = 10
"""Columns, those that cost least being one, of which choices are left out beforehand."""
N_MORE = 2
"""Of these, how many more are left out at most where a choice was not itself."""


def pattern_codes(lacked: Bool) -> list[bytes]:
    """A code for what the sides of each pair lack, (n, 2, d), whichever side is left."""
    return [b"".join(sorted(side.tobytes() for side in pair)) for pair in np.packbits(lacked, axis=2)]


def pattern_of(code: bytes, n_columns: int) -> Bool:
    """(2, d) what `pattern_codes` wrote a code for, in either order of the sides."""
    sides = np.frombuffer(code, dtype=np.uint8).reshape(2, -1)
    return np.asarray(np.unpackbits(sides, axis=1, count=n_columns) > 0)


def blanked_subjects(
    left: SampleSets, right: SampleSets, without: Bool | None = None
) -> tuple[SampleSets, SampleSets]:
    """Subjects of records, pair by pair, without the columns that any sample of either side lacks, and those (n, d).

    Subjects of vectors are returned as they are.
    """
    if not (are_records(left.rows) and are_records(right.rows)):
        return left, right
    n = max(len(left), len(right))
    every = np.arange(n)
    pairs = [side.take(every if len(side) == n else np.zeros_like(every)) for side in (left, right)]
    lacked = np.logical_or(*(lacked_by_subject(side) for side in pairs)) | (
        False if without is None else without
    )
    blanked = []
    for side in pairs:
        rows = side.rows[side.index]
        rows[np.repeat(lacked, side.counts, axis=0)] = None
        blanked.append(SampleSets.of_rows(rows, side.counts))
    return blanked[0], blanked[1]


def lacked_by_subject(subjects: SampleSets) -> Bool:
    """(n, d) columns that any sample of a subject lacks."""
    missing = cells_missing(subjects.rows)[subjects.index]
    return np.asarray(np.logical_or.reduceat(missing, subjects.ends - subjects.counts, axis=0))


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


@dataclass(frozen=True, kw_only=True, eq=False)
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
        """About `MOST_PAIRS` or `MOST_SUBJECT_PAIRS` of the pairs, and their rows; None for rows without cells that can
        be missing.

        Parameters
        ----------
        X : rows that pairs number; with ``aggregation`` subjects of several samples, `SampleSets`.
        """
        sets = X if isinstance(X, SampleSets) else SampleSets.of_rows(X)
        if not are_records(sets.rows):
            return None
        most = MOST_PAIRS if aggregation is None else MOST_SUBJECT_PAIRS
        sample, origin = _enough_pairs(pairs.same, pairs.units, pairs.origin, most)
        numbers, ends = np.unique([pairs.left[sample], pairs.right[sample]], return_inverse=True)
        (left, right), drawn = ends.reshape(2, -1), sets.take(numbers)
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
        for number, row in enumerate(rows):
            if len(row) != cells.shape[1]:
                raise ValueError(
                    f"records_cells: row {number} has {len(row)} cells; expected {cells.shape[1]}"
                )
            cells[number, :] = [tuple(cell) if isinstance(cell, list) else cell for cell in row]
        stored: dict[str, Any] = {
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
        how = facts.get("records_aggregation")
        return cls(subjects=subjects, facts=dict(facts["records"]), aggregation=how, **stored)

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
        columns that pairs lack together, and without choices of which one contains whatever else a pair lacks."""
        d = self.n_columns
        identity, natural = np.eye(d, dtype=np.bool_), _natural(self, scorer)
        codes = pattern_codes(natural)
        frequent = [codes.index(code) for code, _ in Counter(codes).most_common(n_frequent)]
        either: Int64 = np.any(self.lacked, axis=1).astype(np.int64)
        # How many pairs lack each two columns, counted once.
        together = np.triu(either.T @ either, 1)
        twos = [divmod(int(at), d) for at in np.argsort(-together, axis=None, kind="stable")[:n_frequent]]
        pairs = np.array(
            [identity[[a, b]].any(axis=0) for a, b in twos if together[a, b]], dtype=np.bool_
        ).reshape(-1, d)
        singles = scorer.patterns(identity, np.zeros_like(identity))
        first = self._scored(
            np.concatenate([singles, natural[frequent], scorer.patterns(pairs, pairs)]), self, scorer
        )
        covers = _covers(identity[np.argsort([-first.tpr(columns) for columns in singles], kind="stable")])
        return self._scored(scorer.patterns(covers, covers), first, scorer)

    def _scored(self, chosen: Bool, earlier: Self, scorer: Any) -> Self:
        """The earlier ones, with scores without each of the choices that these do not leave out, too."""
        distinct = {
            code: lacked
            for code, lacked in zip(pattern_codes(chosen), chosen, strict=True)
            if lacked.any() and code not in earlier.codes
        }
        if not distinct:
            return earlier
        patterns = np.stack(list(distinct.values()))
        scores = np.stack([self.scored_without(lacked, scorer) for lacked in patterns])
        if len(earlier.patterns):
            patterns = np.concatenate([earlier.patterns, patterns])
            scores = np.concatenate([earlier.scores, scores])
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

    @cached_property
    def codes(self) -> dict[bytes, int]:
        """Of each choice that was left out beforehand, by its code, which of `patterns` it is."""
        return {code: number for number, code in enumerate(pattern_codes(self.patterns))}

    def cover(self, columns: Bool) -> list[tuple[bytes, Bool]]:
        """Choices that were left out beforehand and contain ``columns``, the best first: their codes, and what they
        leave out on the sides of ``columns``."""
        if not len(self.patterns):
            return []
        # A pair has no left and right of its own: a choice holds for either order of the sides.
        ways = np.stack([self.patterns, self.patterns[:, ::-1]])
        contains: Bool = np.all(ways | ~columns, axis=(2, 3))
        codes, way = [*self.codes], np.argmax(contains, axis=0)
        order = np.argsort(-self.tprs, kind="stable")
        return [(codes[at], ways[way[at], at]) for at in order[np.any(contains, axis=0)[order]].tolist()]

    @property
    def n_columns(self) -> int:
        """d, columns of a record."""
        return int(self.subjects.rows.shape[1])

    @cached_property
    def lacked(self) -> Bool:
        """(n_pairs, 2, d) columns that each side of each pair lacks; of several samples, that any of both lacks."""
        missing = lacked_by_subject(self.subjects)
        lacked = np.stack([missing[self.left], missing[self.right]], axis=1)
        return lacked if self.aggregation is None else np.repeat(lacked.any(axis=1, keepdims=True), 2, axis=1)

    def lack(self, columns: Bool, scorer: Any) -> Bool:
        """(n_pairs,) which pairs a scorer compares just without these columns, (2, d), in either order of the sides."""
        lacked = _natural(self, scorer)
        return np.asarray((lacked == columns).all(axis=(1, 2)) | (lacked == columns[::-1]).all(axis=(1, 2)))

    def scored_without(self, columns: Bool, scorer: Any) -> Float32:
        """(n,) scores of the pairs with columns, (2, d), blanked on either side."""
        number = self.codes.get(pattern_codes(columns[None])[0])
        if number is not None:
            return np.asarray(self.scores[number])
        score = _compare_subjects(self, scorer) if (columns[0] == columns[1]).all() else None
        if score is None:
            return self._scored_anew(columns, scorer)
        return np.asarray(score(columns[0], np.arange(self.same.size)))

    def _scored_anew(self, columns: Bool, scorer: Any) -> Float32:
        subjects = self.subjects
        if self.aggregation is not None:
            # Of subjects both sides lack the same.
            rows = subjects.rows.copy()
            rows[:, columns[0]] = None
            sets = SampleSets(rows=rows, index=subjects.index, counts=subjects.counts)
            return score_subject_pairs(scorer, sets, self.left, self.right, self.aggregation)
        # Sides without the same columns are of one table, which is prepared once.
        sides = columns if (columns[0] != columns[1]).any() else columns[:1]
        cells = np.tile(subjects.rows[subjects.index], (len(sides), 1))
        for start, side in enumerate(sides):
            cells[start * len(subjects) : (start + 1) * len(subjects), side] = None
        right = self.right + (len(sides) - 1) * len(subjects)
        return np.asarray(scorer.score_pairs(cells, self.left, right))


@lru_cache(maxsize=16)
def _natural(records: CalibrationRecords, scorer: Any) -> Bool:
    """(n_pairs, 2, d) columns without which pairs are compared of themselves."""
    return np.asarray(scorer.patterns(records.lacked[:, 0], records.lacked[:, 1]))


@lru_cache(maxsize=4)
def _compare_subjects(records: CalibrationRecords, scorer: Any) -> Any:
    """What scores pairs again without columns, None where nothing does: of the last few calibrations, since it takes
    tens of megabytes."""
    is_single = records.aggregation is None
    return scorer.compare_once(records.subjects.rows, records.left, records.right) if is_single else None


def _covers(singles: Bool) -> Bool:
    """Choices of columns, (n, d), greedily: whatever choice of `N_PARTS` parts of the columns a pair lacks, one of them
    contains it and lacks at most `N_MORE` parts more.

    Parameters
    ----------
    each : (d, d) one column each, those that cost least first; where there are more, the first ones are one part.
    """
    n_first = max(1, len(singles) - N_PARTS + 1)
    parts = np.concatenate([singles[:n_first].any(axis=0, keepdims=True), singles[n_first:]])
    # All but nothing and everything; a part that costs less stands for a lower bit, so that of equals it leaves first.
    choices = (np.arange(1, (1 << len(parts)) - 1)[:, None] >> np.arange(len(parts))) & 1
    sizes = choices.sum(axis=1)
    contains = (choices[:, None] >= choices).all(axis=2) & (sizes[:, None] - sizes <= N_MORE)
    columns: Bool = (choices @ parts).astype(np.bool_)
    # Single columns are left out anyway.
    is_open, chosen = columns.sum(axis=1) > 1, []
    while is_open.any():
        chosen.append(int(np.argmax(contains[:, is_open].sum(axis=1))))
        is_open &= ~contains[chosen[-1]]
    return np.asarray(columns[chosen])


FEWEST_COMPARED = 0.1
"""A column of which at least this share of the calibration pairs has both cells is known well enough."""


class PartialCalibration(NamedTuple):
    """What decides pairs of records that lack columns.

    Attributes
    ----------
    whole : of all calibration pairs, scored without these columns.
    natural : of those that lack just these of themselves; None where there are too few to say anything.
    """

    whole: Calibration
    natural: Calibration | None

    def points(
        self, fpr: float, confidence: float = 0.95, method: str = "auto", **options: Any
    ) -> list[OperatingPoint]:
        """What either answers, as `Calibration.operating_point`: the stricter threshold decides."""
        points = [self.whole.operating_point(fpr, confidence, method, **options)]
        # To refuse takes long.
        if self.natural is not None and self.natural.answers(fpr, confidence):
            with suppress(ValueError):
                points.append(self.natural.operating_point(fpr, confidence, method, **options))
        return points


def supports_columns(calibration: Calibration, columns: Bool, fpr: float, confidence: float) -> bool:
    """Whether calibration pairs say something of pairs that lack ``columns`` (2, d): each of the others is there in
    a tenth of them, or in pairs of as many people as the rate takes."""
    if calibration.records is None or columns.shape[1] != calibration.records.n_columns:
        return False
    is_prepared = pattern_codes(columns[None])[0] in calibration.records.codes
    if calibration.facts.folds is not None and not is_prepared:
        # The model that is kept learned from these very pairs.
        return False
    there = ~np.asarray(calibration.records.lacked.any(axis=1))[:, ~columns.any(axis=0)]
    needed = units_needed(fpr, confidence)["finite-sample"] or 0
    return all(
        column.mean() >= FEWEST_COMPARED or np.unique(calibration.records.units[column]).size >= needed
        for column in there.T
    )


def without_columns(calibration: Calibration, columns: Bool, scorer: Any) -> PartialCalibration:
    """What decides pairs of records that lack columns.

    Parameters
    ----------
    columns : (2, d) those that the sides of a pair lack, in either order. scorer : the fitted model of records.

    Raises
    ------
    ValueError
        When what is left of the records says nothing.
    """
    records, natural = calibration.records, None
    assert records is not None
    same, units = records.same, records.units
    lacking = np.flatnonzero(records.lack(columns, scorer))
    scores = records.scored_without(columns, scorer)
    whole = calibration.fit(scores, same, units, groups=calibration.groups_of(units), **records.facts)
    # Which of all pairs they are depends on cells that are missing, not on people.
    facts = records.facts | ({"listing": "drawn"} if calibration.facts.origin == "all" else {})
    with suppress(ValueError):
        natural = calibration.fit(scores[lacking], same[lacking], units[lacking], **facts)
    return PartialCalibration(whole, natural)


def costs_of_columns(
    calibration: Calibration, fpr: float, confidence: float, scorer: Any
) -> list[dict[str, Any]]:
    """What leaving columns out costs: the TPR at a rate of pairs that lack nothing, and without the columns that
    were left out beforehand.

    Returns
    -------
    JSON-able dicts: ``lacked`` (column numbers), ``share`` of the pairs that lack just these, and ``tpr``, None
    where the others say too little.
    """
    records = calibration.records
    if records is None or not calibration.answers(fpr, confidence):
        return []
    share = float((~records.lacked.any(axis=(1, 2))).mean())
    tpr = calibration.operating_point(fpr, confidence).tpr
    costs: list[dict[str, Any]] = [{"lacked": [], "share": share, "tpr": tpr}]
    for columns in records.patterns:
        lacked = np.flatnonzero(columns.any(axis=0)).tolist()
        share, tpr = float(records.lack(columns, scorer).mean()), None
        if len(lacked) > 1 and not share:
            # Prepared for those who lack some of these: nobody lacks just these.
            continue
        with suppress(ValueError):
            partial = without_columns(calibration, columns, scorer)
            tpr = max(partial.points(fpr, confidence), key=attrgetter("threshold")).tpr
        costs.append({"lacked": lacked, "share": share, "tpr": tpr})
    return costs
