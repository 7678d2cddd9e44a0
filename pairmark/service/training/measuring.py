"""Score the held-out parts, calibrate on one, report on the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.operating_points import Calibration
from pairmark.models.evaluation.classification import classification_metrics
from pairmark.models.evaluation.pairs import EvaluationReport, pair_report
from pairmark.models.evaluation.ranking_metrics import pair_disagreement, ranking_metrics
from pairmark.models.pairs.splits import HeldOutPairs
from pairmark.service.errors import refusals
from pairmark.service.heldout.evidence import measure_evidence
from pairmark.service.heldout.groups import rates_by_group
from pairmark.service.heldout.schemas import Evidence
from pairmark.service.heldout.scoring import in_blocks
from pairmark.service.jobs.progress import Progress
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.training.leaderboard import leaderboard
from pairmark.service.training.promotion import promotion
from pairmark.service.training.records import Calibrated, Fitted, Reported, Scored

MAX_LABELS = 40
"""Labels up to which each two of them are looked at by themselves."""


def score(model: Fitted, progress: Progress) -> Scored:
    """Scores of the held-out pairs, predictions for the held-out rows, or `InvalidInput` when the learner cannot score
    them."""
    parts, estimator, X = model.parts, model.estimator, model.parts.job.X
    calibration = test = rows = None
    with refusals("the learner could not score the held-out part"):
        if parts.calibration is not None and parts.test is not None:
            share = len(parts.calibration) / (len(parts.calibration) + len(parts.test))

            def scored(pairs: HeldOutPairs, start: float, share: float) -> NDArray[np.float32]:
                scores: NDArray[np.float32] = estimator.score_pairs(
                    X, pairs.left, pairs.right, lambda part: progress.within(start + part * share)
                )
                return scores

            calibration = scored(parts.calibration, 0.0, share)
            test = scored(parts.test, share, 1 - share)
        if parts.test_rows is not None:
            if parts.job.spec.needs == "rankings":
                rows = in_blocks(estimator.predict, X, parts.test_rows)
            else:
                rows = in_blocks(estimator.predict_proba, X, parts.test_rows, 4_096)
    return Scored(model=model, calibration=calibration, test=test, rows=rows)


def calibrate(scored: Scored) -> Calibrated:
    """What operating points are computed from, or `InvalidInput` when the scores cannot be used."""
    parts = scored.model.parts
    if parts.calibration is None or scored.calibration is None:
        return Calibrated(scored=scored, calibration=None)
    with refusals("the held-out calibration pairs cannot be used"):
        calibration = Calibration.fit(
            scored.calibration,
            parts.calibration.same,
            parts.calibration.units,
            protocol=parts.calibration.protocol,
            units_assumed=parts.calibration.units_assumed,
            listing=parts.calibration.listing,
            blocks=parts.calibration.blocks,
            chance=parts.chance,
        )
    return Calibrated(scored=scored, calibration=calibration)


def report(calibrated: Calibrated, store: ModelStore, settings: Settings, progress: Progress) -> Reported:
    """What the test part says: metrics, the model among baselines, and whether it takes production's place."""
    scored = calibrated.scored
    curve = None if scored.test is None else _curve(scored)
    evidence = None
    with refusals("the held-out rows cannot be used"):
        if curve is None:
            metrics = _rankings(scored)
        else:
            evidence = _evidence(calibrated)
            metrics = {**curve.metrics, **_of_groups(calibrated), **_of_evidence(evidence)}
            if scored.rows is not None:
                metrics["classification"] = _classification(scored)
        board = leaderboard(scored, lambda share, what: progress.within(0.2 + 0.5 * share, what))
    progress.within(0.7, "comparing with production")
    return Reported(
        calibrated=calibrated,
        metrics=metrics,
        curve=curve,
        leaderboard=board,
        promotion=promotion(scored, store, settings),
        evidence=evidence,
    )


def _evidence(calibrated: Calibrated) -> Evidence:
    scored = calibrated.scored
    parts, calibration = scored.model.parts, calibrated.calibration
    assert parts.test is not None
    assert scored.test is not None
    return measure_evidence(
        scored.model.estimator,
        parts.job.X,
        parts.job.data,
        parts.test,
        scored.test,
        None if calibration is None else calibration.likelihood_ratios,
        own=parts.job.spec.log_lr,
        random_state=parts.job.seed,
    )


def _of_evidence(evidence: Evidence) -> dict[str, Any]:
    """What lists show of it."""
    if not evidence.likelihood_ratios:
        return {}
    names = ("cllr", "cllr_min", "calibration_loss")
    return {
        "likelihood_ratios": {
            ratios.method: {name: getattr(ratios, name) for name in names}
            for ratios in evidence.likelihood_ratios
        }
    }


def _curve(scored: Scored) -> EvaluationReport:
    parts = scored.model.parts
    assert parts.test is not None
    assert scored.test is not None
    with refusals("the held-out test pairs cannot be used"):
        return pair_report(
            scored.test,
            parts.test.same,
            parts.test.units,
            protocol=parts.test.protocol,
            random_state=parts.job.seed,
        )


def _of_groups(calibrated: Calibrated) -> dict[str, Any]:
    """Rates by group of people, where the job asked for them."""
    parts = calibrated.scored.model.parts
    if parts.job.claim.evaluation.groups != "compare" or calibrated.calibration is None:
        return {}
    assert parts.test is not None
    rates = rates_by_group(calibrated.calibration, calibrated.scored.test, parts.test, parts.job.data)
    return {"groups": rates}


def _classification(scored: Scored) -> dict[str, Any]:
    """The report on held-out rows of learned classes, and what always naming the largest class would have done."""
    parts = scored.model.parts
    y, learned = np.asarray(parts.job.data.y), np.asarray(scored.model.estimator.classes_, dtype=np.int64)
    column = np.full(len(parts.job.data.identities), -1, dtype=np.int64)
    column[learned] = np.arange(learned.size)
    assert scored.rows is not None
    return classification_metrics(
        scored.rows, column[y[parts.test_rows]], reference=column[y[parts.rows]], units=parts.row_units
    )


def _rankings(scored: Scored) -> dict[str, Any]:
    """The report on held-out rows, and what one ranking for all would have done there."""
    parts = scored.model.parts
    truth = np.asarray(parts.job.data.rankings)
    assert scored.rows is not None
    truth_of_test = truth[parts.test_rows]
    metrics = ranking_metrics(scored.rows, truth_of_test, reference=truth[parts.rows], units=parts.row_units)
    if truth_of_test.shape[1] <= MAX_LABELS:
        metrics["pair_disagreement"] = pair_disagreement(scored.rows, truth_of_test)
    return metrics
