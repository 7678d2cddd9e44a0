"""From a dataset to a registered version: load, split, fit, score, calibrate, evaluate, store.

Each stage takes the record that the last one made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from joblib import cpu_count, parallel_config
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.operating_point import nothing_guaranteed
from pairmark.models.calibration.promises import askable
from pairmark.models.core.arrays import Int64
from pairmark.models.core.inputs import checked_pairs
from pairmark.models.core.progress import as_part, listening
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.evaluation.comparison import (
    CONFIDENCE,
    ScorerComparison,
    classification_metrics,
    compare_pairs,
    compare_rows,
    judged_by,
    pair_baselines,
    ranking_baselines,
    resolved_rates,
)
from pairmark.models.evaluation.pairs import (
    FPR_TARGETS,
    EvaluationReport,
    pair_report,
)
from pairmark.models.evaluation.rankings import (
    kendall_tau,
    ranking_metrics,
    split_rankings,
)
from pairmark.models.pairs.splits import (
    HeldOutPairs,
    ListedUnits,
    fold_pairs,
    identity_folds,
    split_data,
    split_drawn,
    split_pairs,
)
from pairmark.models.records.encoder import RecordEncoder
from pairmark.models.records.estimator import RecordSimilarity
from pairmark.models.records.tables import declaration
from pairmark.models.registry import spec_of
from pairmark.schemas.jobs import EvaluationRequest
from pairmark.service.blobs import Blobs
from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.held_out import (
    listed_pairs,
    pairs_among,
    split_codes,
    taken_by,
    units_of_list,
)
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.datasets.promises import folds_in_words
from pairmark.service.db import Database
from pairmark.service.errors import refusals
from pairmark.service.jobs.queue import Claim, JobQueue, Progress
from pairmark.service.processes import connected
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.training.storing import Promotion, Registrar, in_blocks, promotion

STAGES = {
    "loading": (0.0, 0.03),
    "splitting": (0.03, 0.05),
    "fitting": (0.05, 0.75),
    "scoring": (0.75, 0.85),
    "calibrating": (0.85, 0.92),
    "evaluating": (0.92, 0.97),
    "storing": (0.97, 1.0),
}
"""Where each stage begins and ends on the job's way from 0 to 1."""


@contextmanager
def on_threads(threads: int) -> Iterator[None]:
    """Learners that name no number of threads take so many."""
    # Without a backend, joblib's number is for processes, and what prefers threads runs on one.
    with parallel_config(backend="threading", n_jobs=threads), threadpool_limits(threads):
        yield


class Trainer:
    """Runs one attempt at a job, from its dataset to one transaction that registers what was made."""

    def __init__(self, db: Database, blobs: Blobs, settings: Settings) -> None:
        self._db = db
        self._settings = settings
        self._queue = JobQueue(db, settings)
        self._datasets = Datasets(db, blobs, settings)
        self._store = ModelStore(db, blobs, settings)
        self._registrar = Registrar(db=db, blobs=blobs, queue=self._queue, model_store=self._store)

    def run(self, claim: Claim) -> int:
        """Train and register; returns the version's number. `Fenced` when the attempt was superseded or cancelled:
        nothing was registered. Other `PairmarkError` are what a person can act on."""
        # A worker runs one job at a time, so a job that says nothing of threads gets every core. BLAS, left alone,
        # would start a thread for each core of the machine, whatever the container may use.
        threads = self._settings.job_threads or cpu_count()
        with on_threads(threads):
            return self._run(claim)

    def _run(self, claim: Claim) -> int:
        progress = Progress(self._queue, claim, STAGES)
        progress.stage("loading")
        job = self._load(claim)
        progress.stage("splitting")
        split_job = encoded(split(job))
        progress.log(_sizes_in_words(split_job.parts.sizes))
        progress.stage("fitting")
        fitted_job = fit(split_job, self._settings, progress)
        progress.stage("scoring")
        scored_job = score(fitted_job, progress)
        progress.stage("calibrating")
        calibrated_job = calibrate(scored_job)
        progress.stage("evaluating")
        evaluated_job = evaluate(calibrated_job, self._store, self._settings, progress)
        progress.stage("storing")
        return self._registrar.store(evaluated_job)

    def _load(self, claim: Claim) -> LoadedJob:
        spec = spec_of(claim.learner)
        data = self._datasets.load(claim.dataset_id)
        unlabelled_id = claim.unlabelled_id
        return LoadedJob(
            claim=claim,
            spec=spec,
            data=data,
            X=data.X if data.schema is not None else taken_by(spec, data.X, self._settings.max_dense_bytes),
            unlabelled=None if unlabelled_id is None else self._datasets.load(unlabelled_id),
            seed=int(claim.params.get("random_state") or 0),
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


@dataclass(frozen=True, kw_only=True)
class FittedJob(SplitJob):
    """The job with its learner, fitted on the training part, and those of its folds."""

    estimator: Any
    fold_models: tuple[Any, ...] = ()


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
class EvaluatedJob(CalibratedJob):
    """The job with everything that was measured.

    Attributes
    ----------
    metrics : JSON-able. curve : the ROC, for a learner that scores pairs.
    columns : what leaving columns of records out costs.
    leaderboard : the model among baselines.
    promotion : which alias moves to the version, and why.
    """

    metrics: dict[str, Any]
    curve: EvaluationReport | None
    leaderboard: dict[str, Any]
    promotion: Promotion
    columns: list[dict[str, Any]]


CONNECT_S = 30
JobT = TypeVar("JobT", bound=SplitJob)


def fit(job: SplitJob, settings: Settings, progress: Progress) -> FittedJob:
    """The job with its learners fitted, or `InvalidInput` when one refuses its training part.

    What a learner chooses is chosen once, on the whole training part: scores of folds whose models differ in kind are
    not on one scale.
    """
    estimator = job.spec.estimator(
        **{**job.spec.params.model_validate(job.claim.params).model_dump(), **_data_params(job)}
    )
    options = _unlabelled(job, settings)
    fold_models = []
    n_fits = 1 + len(job.parts.folds)
    with (
        _engine(job.spec, settings),
        listening(progress.within, progress.log),
        refusals("the learner refused the training part"),
    ):
        if n_fits == 1:
            _learn(estimator, job, among_rivals=True, **options)
        else:
            with as_part(0.0, 1 / n_fits, "learning from all that train"):
                _learn(estimator, job, among_rivals=True, **options)
        for number, fold in enumerate(job.parts.folds, 1):
            with as_part(number / n_fits, (number + 1) / n_fits, f"fold {number} of {n_fits - 1}"):
                settled = estimator.settled() if hasattr(estimator, "settled") else clone(estimator)
                fold_models.append(_learn(settled, encoded(fold_job(job, fold)), **options))
    return FittedJob(**vars(job), estimator=estimator, fold_models=tuple(fold_models))


def _learn(estimator: Any, job: SplitJob, *, among_rivals: bool = False, **options: Any) -> Any:
    rows = job.parts.rows
    if job.spec.needs == "rankings":
        estimator.fit(job.X[rows], np.asarray(job.data.rankings)[rows])
    elif job.parts.pairs is None:
        estimator.fit(job.X[rows], np.asarray(job.data.y)[rows], **options)
    else:
        fit_listed(estimator, job, among_rivals=among_rivals, **options)
    if job.encoder is not None:
        estimator.encoder_ = job.encoder
    return estimator


def fold_job(job: JobT, fold: Fold) -> JobT:
    """The job as one fold's model sees it, its records as they were uploaded."""
    parts = replace(job.parts, rows=fold.rows, learned=fold.rows, pairs=fold.pairs)
    return replace(job, X=_unencoded(job), encoder=None, parts=parts)


def _unencoded(job: LoadedJob) -> Any:
    return job.X if job.data.schema is None else job.data.X


def out_of_fold(
    model_of: Callable[[int], Any], folds: Int64, X: Any, left: Int64, right: Int64
) -> NDArray[np.float32]:
    """Scores of pairs, each by the model of its fold; ``model_of`` gives that of a fold's number."""
    scores = np.empty(folds.size, dtype=np.float32)
    for number in np.unique(folds).tolist():
        at, model = np.flatnonzero(folds == number), model_of(number)
        encoder = getattr(model, "encoder_", None)
        rows = X if encoder is None else encoder.transform(X)
        scores[at] = model.score_pairs(rows, left[at], right[at])
    return scores


@dataclass(frozen=True, kw_only=True)
class FoldScorer:
    """Scores records of calibration pairs, again without some columns, each pair by the model of its fold."""

    job: FittedJob
    folds: Int64 = field(repr=False)

    def patterns(self, left: Any, right: Any) -> Any:
        """As of the model that is kept."""
        return self.job.estimator.patterns(left, right)

    def score_pairs(self, cells: Any, left: Int64, right: Int64) -> NDArray[np.float32]:
        """(n,) scores of the pairs, all of them in their order."""
        return out_of_fold(self.job.fold_models.__getitem__, self.folds, cells, left, right)


def encoded(job: JobT) -> JobT:
    """A table's job with vectors for rows, where the learner takes those; others as they are.

    The encoder learns from the training rows alone.
    """
    schema = job.data.schema
    if schema is None or job.spec.takes_records:
        return job
    encoder = RecordEncoder(schema, sparse=job.spec.accepts_sparse).fit(np.asarray(job.X)[job.parts.rows])
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


def fit_listed(estimator: Any, job: SplitJob, *, among_rivals: bool = False, **options: Any) -> None:
    """Fit on the listed training pairs, or `ValueError` when those of positive weight are not of both kinds.

    ``among_rivals`` : learn from a pair's rivals in the tables, too, which link jobs score by.
    """
    pairs, X, training_pairs = job.data.pairs, job.X, job.parts.pairs
    assert pairs is not None
    weight = None if pairs.weight is None else np.asarray(pairs.weight)[training_pairs]
    same = np.asarray(pairs.same)[training_pairs]
    # Some learners take pairs of one kind and learn a constant: nothing that a service should promote.
    checked_pairs(same.size, same, weight)
    left, right = (np.asarray(end)[training_pairs] for end in (pairs.left, pairs.right))
    if among_rivals and isinstance(estimator, RecordSimilarity):
        estimator.fit_among(X, left, right, same, weight, n_left=job.data.n_left)
    else:
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


FREQUENT_IN_FOLDS = 32
"""Choices of columns that are scored beforehand: the models of folds, which alone may score others, are not kept."""
ROWS = "held-out-rows"
GROUPED = "held-out-groups"
_CALIBRATION_SEED = 0
"""Of the pairs that calibrate: no seed of the job's moves a threshold."""


def split(job: LoadedJob) -> SplitJob:
    """The job with the parts of its dataset, or `InvalidInput` when one would be too small."""
    data = job.data
    with refusals(f"dataset {data.name}:{data.version} cannot be split"):
        if job.spec.needs == "rankings":
            return SplitJob(**vars(job), parts=_ranking_parts(job))
        if data.pairs is not None:
            return SplitJob(**vars(job), parts=_pair_list(job))
        if data.y is None:
            raise ValueError("it has neither a label column nor a list of pairs")
        return SplitJob(**vars(job), parts=_identities(job))


def _ranking_parts(job: LoadedJob) -> Parts:
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


def _pair_list(job: LoadedJob) -> Parts:
    data = job.data
    assert data.pairs is not None
    evaluation, pairs = job.evaluation, data.pairs
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
        return _folded_list(job, units)
    else:
        parts = split_pairs(
            units.units,
            same,
            units.usable,
            protocol=units.protocol,
            name=units.name,
            **_fractions(job),
        )
    seeds = (_CALIBRATION_SEED, job.seed + 2)
    calibration, test = (
        listed_pairs(
            data, numbers, units, n_pairs=evaluation.n_pairs, random_state=seed, listing=evaluation.listing
        )
        for seed, numbers in zip(seeds, (parts.calibration, parts.test), strict=True)
    )
    # A learner that learns nothing still wants to see data; it may see what calibrates it.
    pair_numbers = parts.train if parts.train.size else parts.calibration
    rows = _rows_of(job, pair_numbers)
    return Parts(
        protocol=parts.protocol,
        rows=rows,
        learned=rows if parts.train.size else rows[:0],
        pairs=pair_numbers,
        calibration=calibration,
        test=test,
        calibration_rows=_rows_of(job, parts.calibration),
        sizes={
            "train_pairs": int(parts.train.size),
            "calibration_pairs": int(parts.calibration.size),
            "test_pairs": int(parts.test.size),
            "dropped_pairs": parts.n_dropped,
        },
    )


def _folded_list(job: LoadedJob, units: ListedUnits) -> Parts:
    """All listed pairs train, since withheld ones would guarantee nothing; threshold and figures come from folds."""
    data = job.data
    assert data.pairs is not None
    same = np.asarray(data.pairs.same)
    folds = fold_pairs(units.units, same, units.usable)
    pairs = listed_pairs(
        data,
        folds.scored,
        units,
        n_pairs=job.evaluation.n_pairs,
        random_state=_CALIBRATION_SEED,
        listing="random-rows" if job.evaluation.listing == "random-rows" else None,
    )
    pairs = replace(pairs, folds=folds.fold[pairs.units[:, 0]], clusters=folds.block[pairs.units])
    learned = [folds.learned(units.units, number) for number in range(folds.n_folds)]
    everything = np.arange(same.size)
    rows = _rows_of(job, everything)
    return Parts(
        protocol=units.protocol,
        rows=rows,
        learned=rows,
        pairs=everything,
        calibration=pairs,
        test=pairs,
        folds=tuple(Fold(rows=_rows_of(job, numbers), pairs=numbers) for numbers in learned),
        sizes={
            "train_pairs": int(same.size),
            "folds": folds.n_folds,
            "scored_pairs": int(folds.scored.size),
            "crossing_pairs": folds.n_crossing,
        },
    )


def _rows_of(job: LoadedJob, numbers: Int64) -> Int64:
    """The rows of some listed pairs."""
    pairs = job.data.pairs
    assert pairs is not None
    return np.unique(np.concatenate([np.asarray(pairs.left)[numbers], np.asarray(pairs.right)[numbers]]))


def _sizes_in_words(sizes: Mapping[str, int]) -> str:
    """How many rows or pairs each part has, in words."""
    if "scored_pairs" in sizes:
        return folds_in_words(sizes)
    names = {"train": "train", "calibration": "calibrate", "test": "test"}
    kind = "pairs" if "train_pairs" in sizes else "rows"
    counts = {verb: sizes.get(f"{name}_{kind}", 0) for name, verb in names.items()}
    words = ", ".join(f"{count:,} {verb}" for verb, count in counts.items() if count)
    dropped = sizes.get("dropped_pairs", 0)
    if dropped:
        share = dropped / (dropped + sum(counts.values()))
        words += f"; {dropped:,} ({100 * share:.0f} %) join two parts and are left out"
    return f"of the {kind}, {words}"


def _identities(job: LoadedJob) -> Parts:
    data, evaluation = job.data, job.evaluation
    codes, protocol = split_codes(data, evaluation.protocol)
    whole = "open-set" if data.groups is not None else protocol
    parts = split_data(codes, protocol=whole, **_fractions(job))
    n_pairs = evaluation.n_pairs
    calibration = pairs_among(
        data, parts.calibration, protocol=protocol, n_pairs=n_pairs, random_state=_CALIBRATION_SEED
    )
    folds: tuple[Fold, ...] = ()
    if evaluation.test_fraction:
        test = pairs_among(data, parts.test, protocol=protocol, n_pairs=n_pairs, random_state=job.seed + 2)
    else:
        fold = identity_folds(codes[parts.train])
        numbers = range(int(fold.max()) + 1)
        folds = tuple(Fold(rows=parts.train[fold != number]) for number in numbers)
        test = _pooled(
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
    y = np.asarray(data.y)
    rows = {"train": parts.train, "calibration": parts.calibration}
    rows |= {} if folds else {"test": parts.test}
    return Parts(
        protocol=protocol,
        rows=parts.train if parts.train.size else parts.calibration,
        learned=parts.train,
        calibration=calibration,
        test=test,
        calibration_rows=np.asarray(parts.calibration, dtype=np.int64),
        test_rows=_rows_of_learned_classes(job, protocol, parts.test),
        folds=folds,
        sizes={
            **{f"{name}_rows": int(part.size) for name, part in rows.items()},
            **{f"{name}_identities": int(np.unique(y[part]).size) for name, part in rows.items()},
            "calibration_pairs": len(calibration),
            "test_pairs": len(test),
            **({"folds": len(folds)} if folds else {}),
        },
    )


def _pooled(parts: list[HeldOutPairs]) -> HeldOutPairs:
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


MODEL = "this model"
MAX_ROWS = 5_000
"""Held-out rows that rankers and classifiers are compared on; more are sampled."""
OnProgress = Callable[[float, str], None]


def leaderboard(job: ScoredJob, on_progress: OnProgress) -> dict[str, Any]:
    """The model among baselines, best first.

    Returns
    -------
    JSON-able: ``task``, ``judged_by``, ``confidence``, ``items`` (each ``name``, ``role``, ``value``, ``interval``,
    ``difference`` of the model's value and this one's with its paired interval, and what trains it), ``left_out``
    with reasons, ``best_baseline``, ``beaten`` (by a baseline) and ``verdict``, a sentence.
    """
    if job.spec.needs == "rankings":
        return _compared_rankings(job)
    return _pairs(job, on_progress)


def _pairs(job: ScoredJob, on_progress: OnProgress) -> dict[str, Any]:
    schema = job.data.schema
    columns = None if schema is None else declaration(schema)
    if columns is not None:
        # Whatever the model takes: those who would train another one have the records.
        job = replace(job, X=job.data.X, encoder=None)
    pairs, X, model_scores = job.parts.test, job.X, job.scores.test
    assert pairs is not None
    assert model_scores is not None
    scores: dict[str, NDArray[np.float32]] = {MODEL: model_scores}
    trained_by: dict[str, Any] = {}
    left_out: list[dict[str, str]] = []
    baselines = pair_baselines(int(X.shape[1]), columns)
    for number, (name, (kind, params)) in enumerate(baselines.items()):
        if columns is not None and kind == job.spec.kind:
            continue
        on_progress(number / (len(baselines) + 1), f"baseline {name}")
        try:
            pair_scores = _baseline_scores(job, spec_of(kind), params)
            if pair_scores.min() == pair_scores.max():
                raise ValueError("it scores all held-out pairs alike")
        except ValueError as error:
            left_out.append({"name": name, "reason": str(error)[:300]})
            continue
        scores[name] = pair_scores
        trained_by[name] = {"learner": kind, "params": {n: v for n, v in params.items() if n != "columns"}}
    on_progress(len(baselines) / (len(baselines) + 1), "comparing")
    rates = resolved_rates(int((~pairs.same).sum()), job.evaluation.target_fpr)
    compared = compare_pairs(
        scores,
        pairs.same,
        pairs.units,
        reference=MODEL,
        rates=rates,
        protocol=pairs.protocol,
        clusters=pairs.clusters,
        random_state=job.seed,
    )
    facts = {"n_pairs": len(pairs), "n_same_pairs": int(pairs.same.sum()), "rates": list(rates)}
    return _board("pairs", judged_by(rates), compared, left_out=left_out, trained_by=trained_by, facts=facts)


def _baseline_scores(job: SplitJob, spec: LearnerSpec, params: dict[str, Any]) -> NDArray[np.float32]:
    """Scores of the test pairs by another learner that saw none of them."""
    pairs = job.parts.test
    assert pairs is not None
    if pairs.folds is not None:
        folds = [fold_job(job, fold) for fold in job.parts.folds]
        return out_of_fold(
            lambda number: _learn(spec.estimator(**params), folds[number]),
            pairs.folds,
            _unencoded(job),
            pairs.left,
            pairs.right,
        )
    scores: NDArray[np.float32] = _learn(spec.estimator(**params), job).score_pairs(
        job.X, pairs.left, pairs.right
    )
    return scores


def _compared_rankings(job: ScoredJob) -> dict[str, Any]:
    """Compared on held-out rows that order at least two labels."""
    X, units, training_rows = job.X, job.row_units, job.parts.rows
    truth = np.asarray(job.data.rankings)
    rows, at = _judged(job, _ordered(truth))
    predictions = {MODEL: np.asarray(job.scores.rows)[at]}
    left_out: list[dict[str, str]] = []
    try:
        predictions |= ranking_baselines(X[training_rows], truth[training_rows], X[rows], job.seed)
    except ValueError as error:
        left_out.append({"name": "baselines", "reason": str(error)[:300]})
    taus = {
        name: np.nan_to_num(kendall_tau(prediction, truth[rows])) for name, prediction in predictions.items()
    }
    compared = compare_rows(taus, reference=MODEL, units=None if units is None else units[at])
    facts = {"n_rows": int(rows.size)}
    return _board("rankings", "mean Kendall tau", compared, left_out=left_out, facts=facts)


def _ordered(truth: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Rows that order at least two labels."""
    low = np.where(np.isnan(truth), np.inf, truth).min(axis=1)
    return np.asarray(low < np.where(np.isnan(truth), -np.inf, truth).max(axis=1))


def _judged(job: SplitJob, usable: NDArray[np.bool_]) -> tuple[Int64, Int64]:
    """Test rows that are compared on, and where they stand among `Parts.test_rows`."""
    test_rows = job.parts.test_rows
    assert test_rows is not None
    at = np.flatnonzero(usable[test_rows])
    if at.size > MAX_ROWS:
        at = np.sort(np.random.default_rng(job.seed).choice(at, size=MAX_ROWS, replace=False))
    return test_rows[at], at


def _board(
    task: str,
    judged_by: str,
    compared: Mapping[str, ScorerComparison],
    *,
    left_out: list[dict[str, str]],
    facts: Mapping[str, Any],
    trained_by: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    names = sorted(compared, key=lambda name: -compared[name].value)
    items = [
        {
            "name": name,
            "role": "model" if name == MODEL else "baseline",
            **compared[name].as_dict(),
            **(trained_by or {}).get(name, {}),
        }
        for name in names
    ]
    baselines = [name for name in names if name != MODEL]
    best = baselines[0] if baselines else None
    return {
        "task": task,
        "judged_by": judged_by,
        "confidence": CONFIDENCE,
        **facts,
        "items": items,
        "left_out": left_out,
        "best_baseline": best,
        "beaten": best is not None and _surely_better(compared[best]),
        "verdict": None
        if best is None
        else verdict(judged_by, best, compared[best], compared[MODEL], (trained_by or {}).get(best, {})),
    }


def _surely_better(baseline: ScorerComparison) -> bool:
    interval = baseline.difference_interval
    return interval is not None and interval[1] < 0


def verdict(
    judged_by: str,
    name: str,
    baseline: ScorerComparison,
    model: ScorerComparison,
    trained_by: Mapping[str, Any],
) -> str:
    """How a model stands to the best baseline, in words; what is equal in three digits is said to be."""
    interval = baseline.difference_interval
    behind = f"{judged_by}: {baseline.value:.3f} against {model.value:.3f}"
    ahead = f"{judged_by}: {model.value:.3f} against {baseline.value:.3f}"
    if round(baseline.difference, 3) == 0:
        return f"{name} is as good on held-out data ({behind})"
    if baseline.difference < 0:
        hint = "" if _surely_better(baseline) else ", which may be chance"
        how = (
            f"; to use it, train {trained_by['learner']} with params {json.dumps(trained_by['params'])}"
            if trained_by
            else ""
        )
        return f"{name} is better on held-out data ({behind}{hint}){how}"
    if interval is not None and interval[0] <= 0:
        return f"not clearly better than {name} on held-out data ({ahead})"
    return f"better than every baseline on held-out data ({ahead} of {name})"


def score(job: FittedJob, progress: Progress) -> ScoredJob:
    """The job with scores of the held-out pairs and predictions for the held-out rows, or `InvalidInput` when the
    learner cannot score them."""
    parts, estimator, X = job.parts, job.estimator, job.X
    calibration = test = rows = None
    with refusals("the learner could not score the held-out part"):
        if parts.calibration is not None and parts.test is not None:
            share = len(parts.calibration) / (len(parts.calibration) + len(parts.test))

            def scores_of(pairs: HeldOutPairs, start: float, share: float) -> NDArray[np.float32]:
                if pairs.folds is not None:
                    models = job.fold_models.__getitem__
                    return out_of_fold(models, pairs.folds, _unencoded(job), pairs.left, pairs.right)
                scores: NDArray[np.float32] = estimator.score_pairs(
                    X, pairs.left, pairs.right, lambda part: progress.within(start + part * share)
                )
                return scores

            calibration = scores_of(parts.calibration, 0.0, share)
            test = calibration if parts.calibrates_by_folds else scores_of(parts.test, share, 1 - share)
        if parts.test_rows is not None:
            if job.spec.needs == "rankings":
                rows = in_blocks(estimator.predict, X, parts.test_rows)
            else:
                rows = in_blocks(estimator.predict_proba, X, parts.test_rows, 4_096)
    return ScoredJob(**vars(job), scores=PartScores(calibration=calibration, test=test, rows=rows))


def calibrate(job: ScoredJob) -> CalibratedJob:
    """The job with what operating points are computed from, or `InvalidInput` when the scores cannot be used."""
    pairs, scores = job.parts.calibration, job.scores.calibration
    if pairs is None or scores is None:
        return CalibratedJob(**vars(job), calibration=None)
    with refusals("the held-out calibration pairs cannot be used"):
        if pairs.folds is None:
            calibration = Calibration.of_pairs(
                scores,
                job.X,
                pairs,
                scorer=job.estimator,
                training=job.parts.learned,
                test=None if job.parts.folds else job.parts.test,
            )
        else:
            calibration = Calibration.of_pairs(scores, job.X, pairs)
            records = calibration.records
            if records is not None:
                fold_of = np.zeros(int(pairs.units.max()) + 1, dtype=np.int64)
                fold_of[pairs.units] = pairs.folds[:, None]
                scorer = FoldScorer(job=job, folds=fold_of[records.units[:, 0]])
                calibration.with_records(records.with_patterns(scorer, FREQUENT_IN_FOLDS))
    return CalibratedJob(**vars(job), calibration=calibration)


def evaluate(job: CalibratedJob, store: ModelStore, settings: Settings, progress: Progress) -> EvaluatedJob:
    """The job with what the test part says: metrics, the model among baselines, and whether it takes production's
    place."""
    curve = None if job.scores.test is None else _curve(job, job.scores.test)
    columns: list[dict[str, Any]] = []
    with refusals("the held-out rows cannot be used"):
        if curve is None:
            metrics = _ranking_report(job)
        else:
            columns = _costs_of_columns(job)
            metrics = dict(curve.metrics)
            if job.scores.rows is not None:
                metrics["classification"] = _classification(job)
        board = leaderboard(job, lambda share, what: progress.within(0.2 + 0.5 * share, what))
    progress.within(0.7, "comparing with production")
    return EvaluatedJob(
        **vars(job),
        metrics=metrics,
        curve=curve,
        leaderboard=board,
        promotion=promotion(job, store, settings),
        columns=columns,
    )


def _costs_of_columns(job: CalibratedJob) -> list[dict[str, Any]]:
    """What leaving columns of records out costs, at the smallest rate of the report that is supported, else at the
    smallest of all."""
    calibration, schema = job.calibration, job.data.schema
    if calibration is None or schema is None or calibration.records is None:
        return []
    supported = (rate for rate in sorted(FPR_TARGETS) if calibration.answers(rate, CONFIDENCE))
    smallest = calibration.smallest_fpr(CONFIDENCE)["finite-sample"]
    rate = next(supported, None if smallest is None else askable(smallest))
    names = [column.name for column in job.estimator.schema_.fields]
    return (
        []
        if rate is None
        else [
            {
                "missing": [names[at] for at in cost["lacked"]],
                "fpr": rate,
                "share": cost["share"],
                "tpr": cost["tpr"],
            }
            for cost in calibration.left_out(rate, CONFIDENCE, job.estimator)
        ]
    )


def _curve(job: ScoredJob, scores: NDArray[np.float32]) -> EvaluationReport:
    pairs = job.parts.test
    assert pairs is not None
    with refusals("the held-out test pairs cannot be used"):
        return pair_report(
            scores,
            pairs.same,
            pairs.units,
            protocol=pairs.protocol,
            clusters=pairs.clusters,
            random_state=job.seed,
        )


def _classification(job: ScoredJob) -> dict[str, Any]:
    """The report on held-out rows of learned classes, and what always naming the largest class would have done."""
    parts, rows = job.parts, job.scores.rows
    y, learned = np.asarray(job.data.y), np.asarray(job.estimator.classes_, dtype=np.int64)
    column = np.full(len(job.data.identities), -1, dtype=np.int64)
    column[learned] = np.arange(learned.size)
    assert rows is not None
    return classification_metrics(
        rows, column[y[parts.test_rows]], reference=column[y[parts.rows]], units=job.row_units
    )


def _ranking_report(job: ScoredJob) -> dict[str, Any]:
    """The report on held-out rows, and what one ranking for all would have done there."""
    parts, positions = job.parts, job.scores.rows
    truth = np.asarray(job.data.rankings)
    assert positions is not None
    return ranking_metrics(
        positions, truth[parts.test_rows], reference=truth[parts.rows], units=job.row_units
    )
