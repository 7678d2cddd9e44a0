"""The first stages of a job: what was loaded, and which of its rows and pairs train, calibrate and test.

Each stage takes the record of the one before and adds what it made, which its file says: `LoadedJob`, `SplitJob`,
`FittedJob`, `ScoredJob`, `CalibratedJob`, `EvaluatedJob`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pairmark.models.calibration.operating_point import nothing_guaranteed
from pairmark.models.core.arrays import Int64
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.evaluation.rankings import split_rankings
from pairmark.models.pairs.lists import ListedUnits, fold_pairs
from pairmark.models.pairs.sampling import HeldOutPairs
from pairmark.models.pairs.splits import identity_folds, split_data, split_drawn, split_pairs
from pairmark.models.records.encoder import RecordEncoder
from pairmark.service.datasets.data import DatasetPairs, LabelledData
from pairmark.service.datasets.guarantees import folds_in_words
from pairmark.service.datasets.held_out import (
    groups_of_rows,
    listed_pairs,
    pairs_among,
    split_codes,
    units_of_list,
)
from pairmark.service.errors import refusals
from pairmark.service.jobs.leases import Claim


@dataclass(frozen=True, kw_only=True)
class LoadedJob:
    """The job and its data.

    Attributes
    ----------
    cells : the points as they were loaded; last those of ``strangers``.
    X : the points as the learner takes them, likewise.
    strangers : numbers of rows of which each is another person; none unless they were named.
    unlabelled : further rows for learners that use some; None without.
    encoder : what made vectors of a table's records, for a learner that takes vectors.
    seed : of the split and of what the learner draws: the learner's own, so that one number repeats the job.
    """

    claim: Claim
    spec: LearnerSpec
    data: LabelledData
    cells: Any = field(repr=False)
    X: Any = field(repr=False)
    strangers: Int64 = field(repr=False)
    unlabelled: LabelledData | None
    seed: int
    encoder: RecordEncoder | None = None

    @property
    def unencoded(self) -> Any:
        """The points as the learner takes them, those of a table as its records."""
        return self.X if self.data.schema is None else self.cells


@dataclass(frozen=True, kw_only=True)
class Fold:
    """What one fold's model learns from: rows, and numbers of listed pairs where the dataset lists some."""

    rows: Int64 = field(repr=False)
    pairs: Int64 | None = field(repr=False, default=None)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What is trained on and what is held out.

    Attributes
    ----------
    rows : training rows. pairs : numbers of the listed training pairs, when the dataset lists pairs.
    learned : the rows that the learner learns from: ``rows``, or none where it learns nothing.
    calibration, test : held-out pairs to score; None for a learner that scores none.
    calibration_rows : rows held out to calibrate on.
    test_rows : held-out rows that are judged one by one: rankings, and rows of learned classes; else None.
    folds : where figures come from folds, what each fold's model learns from; `HeldOutPairs.folds` of ``test`` says
        whom it scores. The model that is kept learns from ``rows`` as a whole.
    sizes : rows (or listed pairs) in each part, for the lineage.
    """

    protocol: str
    rows: Int64 = field(repr=False)
    pairs: Int64 | None = field(repr=False, default=None)
    learned: Int64 = field(repr=False)
    calibration: HeldOutPairs | None = None
    test: HeldOutPairs | None = None
    calibration_rows: Int64 = field(repr=False, default_factory=lambda: np.empty(0, dtype=np.int64))
    test_rows: Int64 | None = field(repr=False, default=None)
    folds: tuple[Fold, ...] = field(repr=False, default=())
    sizes: dict[str, int]

    def of_fold(self, number: int) -> "Parts":
        """The parts as that fold's model sees them."""
        fold = self.folds[number]
        return replace(self, rows=fold.rows, learned=fold.rows, pairs=fold.pairs)

    @property
    def calibrates_by_folds(self) -> bool:
        """Whether the threshold comes from folds, too: everybody trains, since nothing can be guaranteed."""
        return self.calibration is not None and self.calibration.folds is not None


@dataclass(frozen=True, kw_only=True)
class SplitJob(LoadedJob):
    """The job, split."""

    parts: Parts

    @property
    def row_units(self) -> Int64 | None:
        """The group of each of `Parts.test_rows`, where rows of one group depend on each other."""
        groups = self.data.groups
        return None if groups is None else np.asarray(groups)[self.parts.test_rows]


ROWS = "held-out-rows"
GROUPED = "held-out-groups"
_CALIBRATION_SEED = 0
"""Of the pairs that calibrate: no seed of the job's moves a threshold."""


def split(job: LoadedJob) -> SplitJob:
    """The job with the parts of its dataset, or `InvalidInput` when one would be too small."""
    data = job.data
    grouped = (
        ""
        if data.groups is None
        else " (rows of one group stay together; identities that share one count as one)"
    )
    with refusals(f"dataset {data.name}:{data.version} cannot be split{grouped}"):
        if job.spec.needs == "rankings":
            parts = _ranking_parts(job)
        elif data.pairs is not None:
            parts = _listed_parts(job, data.pairs)
        elif data.y is not None:
            parts = _identity_parts(job, data.y)
        else:
            raise ValueError("it has neither a label column nor a list of pairs")
    return encode(SplitJob(**vars(job), parts=parts))


def _ranking_parts(job: LoadedJob) -> Parts:
    """Rows to learn from and rows to judge by; rankers calibrate themselves, so none go to that."""
    data = job.data
    train, test = split_rankings(
        len(data), test_fraction=job.claim.evaluation.test_fraction, groups=data.groups, random_state=job.seed
    )
    return Parts(
        protocol=ROWS if data.groups is None else GROUPED,
        rows=train,
        learned=train,
        test_rows=test,
        sizes={"train_rows": int(train.size), "test_rows": int(test.size)},
    )


def _fractions(job: LoadedJob) -> dict[str, Any]:
    evaluation = job.claim.evaluation
    # Of a table an encoder learns, whatever the learner does.
    learns = job.data.schema is not None or job.spec.learns(job.claim.params)
    return {
        # Without anything to learn, everybody outside the test part is there to calibrate on.
        "calibration_fraction": evaluation.calibration_fraction if learns else None,
        "test_fraction": evaluation.test_fraction,
        "random_state": job.seed,
    }


def _listed_parts(job: LoadedJob, pairs: DatasetPairs) -> Parts:
    data, evaluation = job.data, job.claim.evaluation
    same, units = np.asarray(pairs.same), units_of_list(data, evaluation.protocol)
    origin = units.origin(same, evaluation.listing)
    if pairs.population is not None:
        parts = split_drawn(
            np.asarray(pairs.drawn_from) > 0,
            same,
            protocol=units.protocol,
            test_fraction=evaluation.test_fraction,
            random_state=job.seed,
        )
    elif nothing_guaranteed(origin) is not None:
        return _folded_list(job, pairs, units)
    else:
        parts = split_pairs(
            units.units,
            same,
            units.usable,
            protocol=units.protocol,
            name=units.name,
            **_fractions(job),
        )
    # Of more pairs than are wanted a sample is drawn, and never by the seed of the job for those that calibrate.
    seeds = (_CALIBRATION_SEED, job.seed + 2)
    calibration, test = (
        listed_pairs(
            data, numbers, units, n_pairs=evaluation.n_pairs, random_state=seed, listing=evaluation.listing
        )
        for seed, numbers in zip(seeds, (parts.calibration, parts.test), strict=True)
    )
    # A learner that learns nothing still wants to see data; it may see what calibrates it.
    pair_numbers = parts.train if parts.train.size else parts.calibration
    rows = _rows_of(pairs, pair_numbers)
    return Parts(
        protocol=parts.protocol,
        rows=rows,
        learned=rows if parts.train.size else rows[:0],
        pairs=pair_numbers,
        calibration=calibration,
        test=test,
        calibration_rows=_rows_of(pairs, parts.calibration),
        sizes={
            "train_pairs": int(parts.train.size),
            "calibration_pairs": int(parts.calibration.size),
            "test_pairs": int(parts.test.size),
            "dropped_pairs": parts.n_dropped - int(units.contradictory.size),
            **_contradictory(units),
        },
    )


def _contradictory(units: ListedUnits) -> dict[str, int]:
    return {"contradictory_pairs": int(units.contradictory.size)} if units.contradictory.size else {}


def _folded_list(job: LoadedJob, pairs: DatasetPairs, units: ListedUnits) -> Parts:
    """All listed pairs train, since withheld ones would guarantee nothing; threshold and figures come from folds."""
    evaluation, same = job.claim.evaluation, np.asarray(pairs.same)
    folds = fold_pairs(units.units, same, units.usable)
    scored = listed_pairs(
        job.data,
        folds.scored,
        units,
        n_pairs=evaluation.n_pairs,
        random_state=_CALIBRATION_SEED,
        listing="random-rows" if evaluation.listing == "random-rows" else None,
    )
    scored = replace(scored, folds=folds.fold[scored.units[:, 0]], clusters=folds.block[scored.units])
    # Contradictory pairs teach nobody.
    learned = [
        np.setdiff1d(folds.learned(units.units, number), units.contradictory)
        for number in range(folds.n_folds)
    ]
    everything = np.setdiff1d(np.arange(same.size), units.contradictory)
    rows = _rows_of(pairs, everything)
    return Parts(
        protocol=units.protocol,
        rows=rows,
        learned=rows,
        pairs=everything,
        calibration=scored,
        test=scored,
        folds=tuple(Fold(rows=_rows_of(pairs, numbers), pairs=numbers) for numbers in learned),
        sizes={
            "train_pairs": int(everything.size),
            **_contradictory(units),
            "folds": folds.n_folds,
            "scored_pairs": int(folds.scored.size),
            "crossing_pairs": folds.n_crossing,
        },
    )


def _rows_of(pairs: DatasetPairs, numbers: Int64) -> Int64:
    """The rows of some listed pairs."""
    return np.unique(np.concatenate([np.asarray(pairs.left)[numbers], np.asarray(pairs.right)[numbers]]))


def sizes_in_words(sizes: Mapping[str, int]) -> str:
    """How many rows or pairs each part has, in words."""
    if "scored_pairs" in sizes:
        return folds_in_words(sizes)
    contradictory = sizes.get("contradictory_pairs", 0)
    left_out = f"; {contradictory:,} contradict the others and are left out" if contradictory else ""
    names = {"train": "train", "calibration": "calibrate", "test": "test"}
    kind = "pairs" if "train_pairs" in sizes else "rows"
    counts = {verb: sizes.get(f"{name}_{kind}", 0) for name, verb in names.items()}
    words = ", ".join(f"{count:,} {verb}" for verb, count in counts.items() if count)
    dropped = sizes.get("dropped_pairs", 0)
    if dropped:
        share = dropped / (dropped + sum(counts.values()))
        words += f"; {dropped:,} ({100 * share:.0f} %) join two parts and are left out"
    return f"of the {kind}, {words}{left_out}"


def _identity_parts(job: LoadedJob, labels: Int64) -> Parts:
    data, evaluation = job.data, job.claim.evaluation
    # 1. Who goes where: people as wholes in open-set use, rows in closed-set use, and groups as wholes in both.
    codes, protocol = split_codes(data, evaluation.protocol)
    parts = split_data(codes, protocol="open-set" if data.groups is not None else protocol, **_fractions(job))
    n_pairs = evaluation.n_pairs
    # 2. The pairs that calibrate, among those people and the strangers.
    calibration = pairs_among(
        data,
        parts.calibration,
        protocol=protocol,
        n_pairs=n_pairs,
        random_state=_CALIBRATION_SEED,
        strangers=job.strangers,
    )
    if evaluation.groups is not None:
        names = groups_of_rows(data, evaluation.groups, job.strangers.size)
        calibration = replace(
            calibration, groups=names[np.stack([calibration.left, calibration.right], axis=1)]
        )
    # 3. The pairs that test: of their own part, or of each fold of those who train, scored by a model of the others.
    folds: tuple[Fold, ...] = ()
    if evaluation.test_fraction:
        test = pairs_among(data, parts.test, protocol=protocol, n_pairs=n_pairs, random_state=job.seed + 2)
    else:
        fold = identity_folds(codes[parts.train])
        numbers = range(int(fold.max()) + 1)
        folds = tuple(Fold(rows=parts.train[fold != number]) for number in numbers)
        test = _pool_pairs(
            [
                pairs_among(
                    data,
                    parts.train[fold == number],
                    protocol=protocol,
                    n_pairs=max(1, n_pairs // len(folds)),
                    random_state=job.seed + 2,
                )
                for number in numbers
            ]
        )
    _check_both_kinds(calibration, test)
    y = np.asarray(labels)
    rows = {"train": parts.train, "calibration": parts.calibration}
    rows |= {} if folds else {"test": parts.test}
    return Parts(
        protocol=protocol,
        rows=parts.train if parts.train.size else parts.calibration,
        learned=parts.train,
        calibration=calibration,
        test=test,
        calibration_rows=np.asarray(parts.calibration, dtype=np.int64),
        test_rows=parts.test if protocol == "closed-set" and "classify" in job.spec.capabilities else None,
        folds=folds,
        sizes={
            **{f"{name}_rows": int(part.size) for name, part in rows.items()},
            **{f"{name}_identities": int(np.unique(y[part]).size) for name, part in rows.items()},
            "calibration_pairs": len(calibration),
            "test_pairs": len(test),
            **({"strangers": int(job.strangers.size)} if job.strangers.size else {}),
            **({"folds": len(folds)} if folds else {}),
        },
    )


def _pool_pairs(parts: list[HeldOutPairs]) -> HeldOutPairs:
    """The pairs of all folds; no two folds share a unit."""
    most = 1 + max(int(pairs.units.max()) for pairs in parts)
    return replace(
        parts[0],
        left=np.concatenate([pairs.left for pairs in parts]),
        right=np.concatenate([pairs.right for pairs in parts]),
        same=np.concatenate([pairs.same for pairs in parts]),
        units=np.concatenate([pairs.units + number * most for number, pairs in enumerate(parts)]),
        folds=np.repeat(np.arange(len(parts)), [len(pairs) for pairs in parts]),
    )


def _check_both_kinds(calibration: HeldOutPairs, test: HeldOutPairs) -> None:
    for name, pairs in (("calibration", calibration), ("test", test)):
        if pairs.same.all() or (name == "test" and not pairs.same.any()):
            kind = "differ" if pairs.same.all() else "are the same"
            raise ValueError(
                f"its {name} part gives no pairs that {kind}: bring more data or larger fractions"
            )


def encode(job: SplitJob) -> SplitJob:
    """A table's job with vectors for rows, where the learner takes those; others as they are.

    The encoder learns from the training rows alone.
    """
    schema = job.data.schema
    if schema is None or job.spec.takes_records:
        return job
    encoder = RecordEncoder(schema, sparse=job.spec.accepts_sparse).fit(job.cells[job.parts.rows])
    return replace(job, X=encoder.transform(job.cells), encoder=encoder)
