"""Split a dataset, and choose the held-out pairs to score, before anything is learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from pairmark.models.core.arrays import Int64
from pairmark.models.evaluation.ranking_metrics import split_rankings
from pairmark.models.pairs.splits import HeldOutPairs, split_data, split_drawn, split_pairs
from pairmark.service.datasets.data import LabelledData
from pairmark.service.errors import refusals
from pairmark.service.heldout.groups import without_groups
from pairmark.service.heldout.pairs import listed_pairs, pairs_among, split_codes, units_of_list
from pairmark.service.training.stages import LoadedJob, Parts, SplitJob

ROWS = "held-out-rows"
GROUPED = "held-out-groups"
_CALIBRATION_SEED = 0
"""Of the pairs that calibrate: no seed of the job's moves a threshold."""


def split(job: LoadedJob) -> SplitJob:
    """The job with the parts of its dataset, or `InvalidInput` when one would be too small."""
    data = job.data
    with refusals(f"dataset {data.name}:{data.version} cannot be split"):
        if job.spec.needs == "rankings":
            return SplitJob(**vars(job), parts=_rankings(job))
        together = without_groups(data, job.evaluation.groups)
        if data.pairs is not None:
            return SplitJob(**vars(job), parts=_pair_list(job, together))
        if data.y is None:
            raise ValueError("it has neither a label column nor a list of pairs")
        return SplitJob(**vars(job), parts=_identities(job, together))


def _rankings(job: LoadedJob) -> Parts:
    """Rows to learn from and rows to judge by; rankers calibrate themselves, so none go to that."""
    data = job.data
    if data.rankings is None:
        raise ValueError("it has no rankings: upload it with `ranking`")
    train, test = split_rankings(
        len(data), test_fraction=job.evaluation.test_fraction, groups=data.groups, random_state=job.seed
    )
    return Parts(
        protocol=ROWS if data.groups is None else GROUPED,
        rows=train,
        learned=train,
        test_rows=test,
        sizes={"train_rows": int(train.size), "test_rows": int(test.size)},
    )


def _fractions(job: LoadedJob) -> dict[str, Any]:
    evaluation = job.evaluation
    # Of a table an encoder learns, whatever the learner does.
    learns = job.data.schema is not None or job.spec.learns(job.claim.params)
    return {
        # Without anything to learn, everybody outside the test part is there to calibrate on.
        "calibration_fraction": evaluation.calibration_fraction if learns else None,
        "test_fraction": evaluation.test_fraction,
        "random_state": job.seed,
    }


def _pair_list(job: LoadedJob, data: LabelledData) -> Parts:
    assert data.pairs is not None
    evaluation, pairs = job.evaluation, data.pairs
    ends = np.asarray(pairs.left), np.asarray(pairs.right)
    same, units = np.asarray(pairs.same), units_of_list(data, evaluation.protocol)
    if pairs.population is None:
        parts = split_pairs(
            units.units, same, units.usable, protocol=units.protocol, name=units.name, **_fractions(job)
        )
    else:
        parts = split_drawn(
            np.asarray(pairs.drawn_from) > 0,
            same,
            protocol=units.protocol,
            test_fraction=evaluation.test_fraction,
            random_state=job.seed,
        )
    calibration_rows = np.unique(np.concatenate([end[parts.calibration] for end in ends]))
    seeds = (_CALIBRATION_SEED, job.seed + 2)
    calibration, test = (
        listed_pairs(
            data, numbers, units, n_pairs=evaluation.n_pairs, random_state=seed, listing=evaluation.listing
        )
        for seed, numbers in zip(seeds, (parts.calibration, parts.test), strict=True)
    )
    # A learner that learns nothing still wants to see data; it may see what calibrates it.
    pair_numbers = parts.train if parts.train.size else parts.calibration
    rows = np.unique(np.concatenate([end[pair_numbers] for end in ends]))
    return Parts(
        protocol=parts.protocol,
        rows=rows,
        learned=rows if parts.train.size else rows[:0],
        pairs=pair_numbers,
        calibration=calibration,
        test=test,
        calibration_rows=calibration_rows,
        sizes={
            "train_pairs": int(parts.train.size),
            "calibration_pairs": int(parts.calibration.size),
            "test_pairs": int(parts.test.size),
            "dropped_pairs": parts.n_dropped,
        },
    )


def _identities(job: LoadedJob, data: LabelledData) -> Parts:
    evaluation = job.evaluation
    codes, protocol = split_codes(data, evaluation.protocol)
    whole = "open-set" if data.groups is not None else protocol
    parts = split_data(codes, protocol=whole, **_fractions(job))
    seeds = (_CALIBRATION_SEED, job.seed + 2)
    calibration, test = (
        pairs_among(data, rows, protocol=protocol, n_pairs=evaluation.n_pairs, random_state=seed)
        for seed, rows in zip(seeds, (parts.calibration, parts.test), strict=True)
    )
    _check_both_kinds(calibration, test)
    y = np.asarray(data.y)
    rows = {"train": parts.train, "calibration": parts.calibration, "test": parts.test}
    return Parts(
        protocol=protocol,
        rows=parts.train if parts.train.size else parts.calibration,
        learned=parts.train,
        calibration=calibration,
        test=test,
        calibration_rows=np.asarray(parts.calibration, dtype=np.int64),
        test_rows=_rows_of_learned_classes(job, protocol, parts.test),
        sizes={
            **{f"{name}_rows": int(part.size) for name, part in rows.items()},
            **{f"{name}_identities": int(np.unique(y[part]).size) for name, part in rows.items()},
            "calibration_pairs": len(calibration),
            "test_pairs": len(test),
        },
    )


def _rows_of_learned_classes(job: LoadedJob, protocol: str, test: Int64) -> Int64 | None:
    return test if protocol == "closed-set" and "classify" in job.spec.capabilities else None


def _check_both_kinds(calibration: HeldOutPairs, test: HeldOutPairs) -> None:
    for name, pairs in (("calibration", calibration), ("test", test)):
        if pairs.same.all() or (name == "test" and not pairs.same.any()):
            kind = "differ" if pairs.same.all() else "are the same"
            raise ValueError(
                f"its {name} part gives no pairs that {kind}: bring more data or larger fractions"
            )
