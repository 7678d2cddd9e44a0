"""From a dataset to a registered version: load, split, fit, score, calibrate, evaluate, store.

Each stage takes the record that the last one made: `splitting`, `fitting`, here, `comparing`, `storing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import cpu_count, parallel_config
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.guarantees import askable
from pairmark.models.calibration.partial import costs_of_columns
from pairmark.models.core.arrays import Int64
from pairmark.models.evaluation.comparison import CONFIDENCE, classification_metrics
from pairmark.models.evaluation.pairs import FPR_TARGETS, EvaluationReport, pair_report
from pairmark.models.evaluation.rankings import ranking_metrics
from pairmark.models.registry import spec_of
from pairmark.service.blobs import Blobs
from pairmark.service.datasets.held_out import taken_by
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.errors import refusals
from pairmark.service.jobs.queue import Claim, JobQueue, Progress
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.training.comparing import Promotion, compared_pairs, compared_rankings, promotion
from pairmark.service.training.fitting import FittedJob, ScoredJob, fit, out_of_fold, score
from pairmark.service.training.splitting import LoadedJob, sizes_in_words, split
from pairmark.service.training.storing import store

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


class Trainer:
    """Runs one attempt at a job, from its dataset to one transaction that registers what was made."""

    def __init__(self, db: Database, blobs: Blobs, settings: Settings) -> None:
        self._db, self._blobs, self._settings = db, blobs, settings
        self._queue = JobQueue(db, settings)
        self._datasets = Datasets(db, blobs, settings)
        self._store = ModelStore(db, blobs, settings)

    def run(self, claim: Claim) -> int:
        """Train and register; returns the version's number. `Fenced` when the attempt was superseded or cancelled:
        nothing was registered. Other `PairmarkError` are what a person can act on."""
        # A worker runs one job at a time, so a job that says nothing of threads gets every core. BLAS, left alone,
        # would start a thread for each core of the machine, whatever the container may use. Without a backend, joblib's
        # number is for processes, and what prefers threads runs on one.
        threads = self._settings.job_threads or cpu_count()
        with parallel_config(backend="threading", n_jobs=threads), threadpool_limits(threads):
            progress = Progress(self._queue, claim, STAGES)
            progress.stage("loading")
            job = self._load(claim)
            progress.stage("splitting")
            split_job = split(job)
            progress.log(sizes_in_words(split_job.parts.sizes))
            progress.stage("fitting")
            fitted_job = fit(split_job, self._settings, progress)
            progress.stage("scoring")
            scored_job = score(fitted_job, progress)
            progress.stage("calibrating")
            calibrated_job = calibrate(scored_job)
            progress.stage("evaluating")
            evaluated_job = evaluate(calibrated_job, self._store, self._settings, progress)
            progress.stage("storing")
            return store(evaluated_job, self._db, self._blobs, self._queue, self._store)

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


FREQUENT_IN_FOLDS = 32
"""Choices of columns that are scored beforehand: the models of folds, which alone may score others, are not kept."""


def calibrate(job: ScoredJob) -> CalibratedJob:
    """The job with what operating points are computed from, or `InvalidInput` when the scores cannot be used."""
    pairs, scores = job.parts.calibration, job.calibration_scores
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
                scorer = FoldScorer(job, fold_of[records.units[:, 0]])
                calibration.with_records(records.with_patterns(scorer, FREQUENT_IN_FOLDS))
    return CalibratedJob(**vars(job), calibration=calibration)


@dataclass(frozen=True)
class FoldScorer:
    """Scores records of calibration pairs, again without some columns, each pair by the model of its fold."""

    job: FittedJob
    folds: Int64

    def patterns(self, left: Any, right: Any) -> Any:
        """As of the model that is kept."""
        return self.job.estimator.patterns(left, right)

    def score_pairs(self, cells: Any, left: Int64, right: Int64) -> NDArray[np.float32]:
        """(n,) scores of the pairs, all of them in their order."""
        return out_of_fold(self.job.fold_models.__getitem__, self.folds, cells, left, right)


def evaluate(
    job: CalibratedJob, versions: ModelStore, settings: Settings, progress: Progress
) -> EvaluatedJob:
    """The job with what the test part says: metrics, the model among baselines, and whether it takes production's
    place."""
    parts, pairs, rows = job.parts, job.parts.test, job.row_predictions
    curve, columns = None, list[dict[str, Any]]()
    metrics: dict[str, Any] = {}
    with refusals("the held-out part cannot be used"):
        if pairs is not None and job.test_scores is not None:
            curve = pair_report(
                job.test_scores,
                pairs.same,
                pairs.units,
                protocol=pairs.protocol,
                clusters=pairs.clusters,
                random_state=job.seed,
            )
            metrics |= curve.metrics
            columns = _costs_of_columns(job)
            if rows is not None:
                metrics["classification"] = _classification(job, rows)
            board = compared_pairs(job, lambda share, what: progress.within(0.2 + 0.5 * share, what))
        else:
            truth = np.asarray(job.data.rankings)
            # Beside what one ranking for all would have done there.
            metrics |= ranking_metrics(
                np.asarray(rows), truth[parts.test_rows], reference=truth[parts.rows], units=job.row_units
            )
            board = compared_rankings(job)
    progress.within(0.7, "comparing with production")
    return EvaluatedJob(
        **vars(job),
        metrics=metrics,
        curve=curve,
        leaderboard=board,
        promotion=promotion(job, versions, settings),
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
            for cost in costs_of_columns(calibration, rate, CONFIDENCE, job.estimator)
        ]
    )


def _classification(job: ScoredJob, probabilities: NDArray[np.float64]) -> dict[str, Any]:
    """The report on held-out rows of learned classes, and what always naming the largest class would have done."""
    parts = job.parts
    y, learned = np.asarray(job.data.y), np.asarray(job.estimator.classes_, dtype=np.int64)
    column = np.full(len(job.data.identities), -1, dtype=np.int64)
    column[learned] = np.arange(learned.size)
    return classification_metrics(
        probabilities, column[y[parts.test_rows]], reference=column[y[parts.rows]], units=job.row_units
    )
