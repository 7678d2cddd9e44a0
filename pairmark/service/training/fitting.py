"""Split the data and fit a learner on the training part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from joblib import parallel_config
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.core.arrays import Int64
from pairmark.models.core.inputs import checked_pairs
from pairmark.models.core.progress import listening
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.evaluation.pairs import EvaluationReport
from pairmark.models.evaluation.rankings import split_rankings
from pairmark.models.pairs.splits import (
    HeldOutPairs,
    split_data,
    split_drawn,
    split_pairs,
)
from pairmark.models.records.encoder import RecordEncoder
from pairmark.models.records.tables import declaration
from pairmark.schemas.jobs import EvaluationRequest
from pairmark.schemas.models import Evidence
from pairmark.service.cluster import connected
from pairmark.service.datasets.data import LabelledData
from pairmark.service.errors import refusals
from pairmark.service.jobs.child import Progress
from pairmark.service.jobs.queue import Claim
from pairmark.service.settings import Settings
from pairmark.service.store.calibrations import (
    listed_pairs,
    pairs_among,
    split_codes,
    taken_by,
    units_of_list,
    without_groups,
)


@dataclass(frozen=True, kw_only=True)
class LoadedJob:
    """The job and its data.

    Attributes
    ----------
    X : the points as the learner takes them.
    unlabelled : further rows for learners that use some; None without.
    encoder : what made vectors of a table's records, for a learner that takes vectors.
    seed : of the split and of what the learner draws: the learner's own, so that one number repeats the job.
    """

    claim: Claim
    spec: LearnerSpec
    data: LabelledData
    X: Any = field(repr=False)
    unlabelled: LabelledData | None
    seed: int
    encoder: RecordEncoder | None = None

    @property
    def evaluation(self) -> EvaluationRequest:
        """What is held out, and how it is measured."""
        return self.claim.evaluation


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
    sizes: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class SplitJob(LoadedJob):
    """The job, split."""

    parts: Parts

    @property
    def row_units(self) -> Int64 | None:
        """The group of each of `Parts.test_rows`, where rows of one group depend on each other."""
        groups = self.data.groups
        return None if groups is None else np.asarray(groups)[self.parts.test_rows]


@dataclass(frozen=True, kw_only=True)
class FittedJob(SplitJob):
    """The job with its learner, fitted on the training part."""

    estimator: Any


@dataclass(frozen=True, kw_only=True)
class PartScores:
    """What the learner says of the held-out parts.

    Attributes
    ----------
    calibration, test : scores of the held-out pairs.
    rows : of `Parts.test_rows`: predicted positions, or probabilities of classes.
    """

    calibration: NDArray[np.float32] | None = field(repr=False, default=None)
    test: NDArray[np.float32] | None = field(repr=False, default=None)
    rows: NDArray[np.float64] | None = field(repr=False, default=None)


@dataclass(frozen=True, kw_only=True)
class ScoredJob(FittedJob):
    """The job with the scores of its held-out parts."""

    scores: PartScores


@dataclass(frozen=True, kw_only=True)
class CalibratedJob(ScoredJob):
    """The job with what operating points are computed from; None for a learner that scores no pairs."""

    calibration: Calibration | None


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """What becomes of an alias.

    Attributes
    ----------
    alias : that moves to the new version; None for none.
    only_from : where the alias must stand for that: a version, or 0 for nowhere; None for anywhere.
    reason : a sentence for the job's owner.
    facts : JSON-able, kept with the version; None where nothing was compared.
    """

    alias: str | None
    only_from: int | None = None
    reason: str = ""
    facts: dict[str, Any] | None = field(default=None)


@dataclass(frozen=True, kw_only=True)
class EvaluatedJob(CalibratedJob):
    """The job with everything that was measured.

    Attributes
    ----------
    metrics : JSON-able. curve : the ROC, for a learner that scores pairs. evidence : what else held-out pairs say.
    leaderboard : the model among baselines; see `pairmark.service.training.measuring`.
    promotion : which alias moves to the version, and why.
    """

    metrics: dict[str, Any]
    curve: EvaluationReport | None
    leaderboard: dict[str, Any]
    promotion: Promotion
    evidence: Evidence | None = None


CONNECT_S = 30
JobT = TypeVar("JobT", bound=SplitJob)


def fit(job: SplitJob, settings: Settings, progress: Progress) -> FittedJob:
    """The job with its learner fitted, or `InvalidInput` when it refuses the training part."""
    spec, parts = job.spec, job.parts
    estimator = spec.estimator(
        **{**spec.params.model_validate(job.claim.params).model_dump(), **_data_params(job)}
    )
    options = _unlabelled(job, settings)
    with (
        _engine(spec, settings),
        listening(progress.within, progress.log),
        refusals("the learner refused the training part"),
    ):
        if spec.needs == "rankings":
            estimator.fit(job.X[parts.rows], np.asarray(job.data.rankings)[parts.rows])
        elif parts.pairs is None:
            estimator.fit(job.X[parts.rows], np.asarray(job.data.y)[parts.rows], **options)
        else:
            fit_listed(estimator, job, **options)
    if job.encoder is not None:
        estimator.encoder_ = job.encoder
    return FittedJob(**vars(job), estimator=estimator)


def encoded(job: JobT, *, always: bool = False) -> JobT:
    """A table's job with vectors for rows, where the learner takes those (or ``always``); others as they are.

    The encoder learns from the training rows alone.
    """
    schema = job.data.schema
    if schema is None or job.encoder is not None or (job.spec.takes_records and not always):
        return job
    sparse = job.spec.accepts_sparse and not always
    encoder = RecordEncoder(schema, sparse=sparse).fit(np.asarray(job.X)[job.parts.rows])
    return replace(job, X=encoder.transform(job.X), encoder=encoder)


def _data_params(job: SplitJob) -> dict[str, Any]:
    """What the job knows and a learner that chooses by cross-validation should: the use it is meant for."""
    claim, schema = job.claim, job.data.schema
    params: dict[str, Any] = {}
    if claim.params.get("protocol") == "auto":
        params["protocol"] = job.parts.protocol
    if job.spec.takes_records and schema is not None:
        params["columns"] = declaration(schema)
    target = claim.evaluation.target_fpr
    if target is not None and "target_fpr" in claim.params and claim.params["target_fpr"] is None:
        params["target_fpr"] = target
    return params


def fit_listed(estimator: Any, job: SplitJob, **options: Any) -> None:
    """Fit on the listed training pairs, or `ValueError` when those of positive weight are not of both kinds."""
    pairs, X, training_pairs = job.data.pairs, job.X, job.parts.pairs
    assert pairs is not None
    weight = None if pairs.weight is None else np.asarray(pairs.weight)[training_pairs]
    same = np.asarray(pairs.same)[training_pairs]
    # Some learners take pairs of one kind and learn a constant: nothing that a service should promote.
    checked_pairs(same.size, same, weight)
    left, right = (np.asarray(end)[training_pairs] for end in (pairs.left, pairs.right))
    estimator.fit_pairs(X[left], X[right], same, sample_weight=weight, **options)


def _unlabelled(job: LoadedJob, settings: Settings) -> dict[str, Any]:
    if job.unlabelled is None:
        return {}
    rows = taken_by(job.spec, job.unlabelled.X, settings.max_dense_bytes)
    return {"unlabelled": widened(rows, int(job.X.shape[1]))}


@contextmanager
def _engine(spec: LearnerSpec, settings: Settings) -> Iterator[None]:
    """Run joblib's parallel parts inside the block on the cluster, if there is one and the learner can use it. Results
    do not depend on where they were made: learners draw every seed before parallel work begins."""
    if settings.dask_scheduler is None or not spec.distributes:
        yield
        return
    client = connected(settings.dask_scheduler, CONNECT_S)
    try:
        with parallel_config(backend="dask", client=client, n_jobs=-1):
            yield
    finally:
        client.close()


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


def widened(X: Any, width: int) -> Any:
    """Sparse rows with so many columns: further ones are cut off, missing ones are empty. Dense rows as they are."""
    if isinstance(X, np.ndarray) or X.shape[1] == width:
        return X
    if X.shape[1] > width:
        return X[:, :width]
    return csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], width))


def in_blocks(
    predict: Callable[[Any], Any], X: Any, rows: NDArray[np.int64], size: int = 65_536
) -> NDArray[np.float64]:
    """What is predicted for some rows, (n, labels), ``size`` at a time."""
    starts = range(0, rows.size, size)
    return np.concatenate([np.asarray(predict(X[rows[start : start + size]])) for start in starts])
