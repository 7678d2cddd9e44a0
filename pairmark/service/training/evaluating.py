"""The evaluating stage: what the test part says of the model, of baselines, and of production."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.guarantees import askable
from pairmark.models.calibration.partial import costs_of_columns
from pairmark.models.evaluation.comparison import classification_metrics
from pairmark.models.evaluation.intervals import CONFIDENCE
from pairmark.models.evaluation.pairs import FPR_TARGETS, pair_report
from pairmark.models.evaluation.precision import precision_report
from pairmark.models.evaluation.rankings import ranking_metrics
from pairmark.service.errors import refusals
from pairmark.service.jobs.progress import Progress
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.training.comparing import compared_pairs, compared_rankings, promotion
from pairmark.service.training.stages import CalibratedJob, EvaluatedJob, ScoredJob


def evaluate(
    job: CalibratedJob, versions: ModelStore, settings: Settings, progress: Progress
) -> EvaluatedJob:
    """The job with what the test part says: metrics, the model among baselines, and whether it takes production's
    place."""
    parts, pairs, rows = job.parts, job.parts.test, job.row_predictions
    curve, precision, columns = None, None, list[dict[str, Any]]()
    metrics: dict[str, Any] = {}
    with refusals("the held-out part cannot be used"):
        if pairs is not None and job.test_scores is not None:
            tested: Any = (job.test_scores, pairs.same, pairs.units)
            design: Any = {
                "protocol": pairs.protocol,
                "clusters": pairs.clusters,
                "random_state": job.seed,
            }
            curve = pair_report(*tested, **design)
            metrics |= curve.metrics
            if job.data.schema is not None:
                precision = precision_report(*tested, **design)
                metrics |= precision.metrics
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
        precision=precision,
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
