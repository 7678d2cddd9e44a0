"""Score the held-out parts, calibrate on one, evaluate on the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.inputs import CheckedRows
from pairmark.models.evaluation.classification import classification_metrics
from pairmark.models.evaluation.pairs import EvaluationReport, pair_report
from pairmark.models.evaluation.ranking_metrics import pair_disagreement, ranking_metrics
from pairmark.models.pairs.splits import HeldOutPairs
from pairmark.schemas.evidence import Evidence
from pairmark.service.errors import refusals
from pairmark.service.heldout.evidence import measure_evidence
from pairmark.service.heldout.groups import rates_by_group
from pairmark.service.heldout.scoring import in_blocks
from pairmark.service.jobs.progress import Progress
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.training.leaderboard import leaderboard
from pairmark.service.training.promotion import promotion
from pairmark.service.training.stages import CalibratedJob, EvaluatedJob, FittedJob, PartScores, ScoredJob

MAX_LABELS = 40
"""Labels up to which each two of them are looked at by themselves."""


def score(job: FittedJob, progress: Progress) -> ScoredJob:
    """The job with scores of the held-out pairs and predictions for the held-out rows, or `InvalidInput` when the
    learner cannot score them."""
    parts, estimator, X = job.parts, job.estimator, job.X
    calibration = test = rows = None
    among: dict[str, NDArray[np.float32]] = {}
    with refusals("the learner could not score the held-out part"):
        if parts.calibration is not None and parts.test is not None:
            share = len(parts.calibration) / (len(parts.calibration) + len(parts.test))

            def scores_of(pairs: HeldOutPairs, start: float, share: float) -> NDArray[np.float32]:
                scores: NDArray[np.float32] = estimator.score_pairs(
                    X, pairs.left, pairs.right, lambda part: progress.within(start + part * share)
                )
                return scores

            calibration = scores_of(parts.calibration, 0.0, share)
            test = scores_of(parts.test, share, 1 - share)
            among = _among(job)
        if parts.test_rows is not None:
            if job.spec.needs == "rankings":
                rows = in_blocks(estimator.predict, X, parts.test_rows)
            else:
                rows = in_blocks(estimator.predict_proba, X, parts.test_rows, 4_096)
    return ScoredJob(**vars(job), scores=PartScores(calibration=calibration, test=test, rows=rows, **among))


def _among(job: FittedJob) -> dict[str, NDArray[np.float32]]:
    """Scores of the held-out pairs among their rivals in the dataset's tables."""
    estimator, calibration, test = job.estimator, job.parts.calibration, job.parts.test
    if getattr(estimator, "context_", None) is None or calibration is None or test is None:
        return {}
    ends = (
        np.concatenate([getattr(part, side) for part in (calibration, test)]) for side in ("left", "right")
    )
    scores = estimator.score_among(job.X, *ends, n_left=job.data.n_left)
    return {"calibration_among": scores[: len(calibration)], "test_among": scores[len(calibration) :]}


def calibrate(job: ScoredJob) -> CalibratedJob:
    """The job with what operating points are computed from, or `InvalidInput` when the scores cannot be used."""
    pairs, scores = job.parts.calibration, job.scores.calibration
    if pairs is None or scores is None:
        return CalibratedJob(**vars(job), calibration=None)
    with refusals("the held-out calibration pairs cannot be used"):
        calibration = Calibration.fit(
            scores,
            pairs.same,
            pairs.units,
            protocol=pairs.protocol,
            units_assumed=pairs.units_assumed,
            listing=pairs.listing,
            blocks=pairs.blocks,
            population=pairs.population,
        ).with_inputs(CheckedRows.of(job.X, pairs, training=job.parts.learned, test=job.parts.test))
        among, scores_among = None, job.scores.calibration_among
        if scores_among is not None and pairs.population is not None:
            among = Calibration.fit(
                scores_among,
                pairs.same,
                population=pairs.population,
                protocol=pairs.protocol,
            )
    return CalibratedJob(**vars(job), calibration=calibration, among=among)


def evaluate(job: CalibratedJob, store: ModelStore, settings: Settings, progress: Progress) -> EvaluatedJob:
    """The job with what the test part says: metrics, the model among baselines, and whether it takes production's
    place."""
    curve = None if job.scores.test is None else _curve(job, job.scores.test)
    evidence = None
    with refusals("the held-out rows cannot be used"):
        if curve is None:
            metrics = _rankings(job)
        else:
            evidence = _evidence(job)
            metrics = {**curve.metrics, **_of_groups(job), **_of_evidence(evidence)}
            if job.scores.test_among is not None:
                metrics["among_candidates"] = _curve(job, job.scores.test_among).metrics
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
        evidence=evidence,
    )


def _evidence(job: CalibratedJob) -> Evidence:
    assert job.parts.test is not None
    assert job.scores.test is not None
    return measure_evidence(
        job.estimator,
        job.X,
        job.data,
        job.parts.test,
        job.scores.test,
        None if job.calibration is None else job.calibration.likelihood_ratios,
        own=job.spec.log_lr,
        random_state=job.seed,
    )


def _of_evidence(evidence: Evidence) -> dict[str, Any]:
    if not evidence.likelihood_ratios:
        return {}
    names = ("cllr", "cllr_min", "calibration_loss")
    return {
        "likelihood_ratios": {
            ratios.method: {name: getattr(ratios, name) for name in names}
            for ratios in evidence.likelihood_ratios
        }
    }


def _curve(job: ScoredJob, scores: NDArray[np.float32]) -> EvaluationReport:
    pairs = job.parts.test
    assert pairs is not None
    with refusals("the held-out test pairs cannot be used"):
        return pair_report(scores, pairs.same, pairs.units, protocol=pairs.protocol, random_state=job.seed)


def _of_groups(job: CalibratedJob) -> dict[str, Any]:
    """Rates by group of people, where the job asked for them."""
    evaluation, pairs = job.claim.evaluation, job.parts.test
    if evaluation.groups != "compare" or job.calibration is None:
        return {}
    assert pairs is not None
    rates = rates_by_group(job.calibration, job.scores.test, pairs, job.data)
    return {"groups": rates}


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


def _rankings(job: ScoredJob) -> dict[str, Any]:
    """The report on held-out rows, and what one ranking for all would have done there."""
    parts, positions = job.parts, job.scores.rows
    truth = np.asarray(job.data.rankings)
    assert positions is not None
    truth_of_test = truth[parts.test_rows]
    metrics = ranking_metrics(positions, truth_of_test, reference=truth[parts.rows], units=job.row_units)
    if truth_of_test.shape[1] <= MAX_LABELS:
        metrics["pair_disagreement"] = pair_disagreement(positions, truth_of_test)
    return metrics
