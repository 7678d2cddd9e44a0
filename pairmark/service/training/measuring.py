"""Score the held-out parts, calibrate on one, evaluate on the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_jsonable_python

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.inputs import CheckedRows, LackedCells
from pairmark.models.core.arrays import Int64
from pairmark.models.evaluation.comparison import (
    CONFIDENCE,
    ScorerComparison,
    class_baselines,
    classification_metrics,
    compare_pairs,
    compare_rows,
    judged_by,
    pair_baselines,
    ranking_baselines,
    resolved_rates,
)
from pairmark.models.evaluation.pairs import (
    EvaluationReport,
    likelihood_report,
    pair_report,
    rates_by_time,
)
from pairmark.models.evaluation.rankings import kendall_tau, pair_disagreement, ranking_metrics
from pairmark.models.metric.estimator import MetricSimilarity
from pairmark.models.pairs.splits import HeldOutPairs
from pairmark.schemas.models import Evidence
from pairmark.service.errors import refusals
from pairmark.service.jobs.child import Progress
from pairmark.service.settings import Settings
from pairmark.service.store.reports import rates_by_group
from pairmark.service.store.store import ModelStore
from pairmark.service.training.fitting import (
    CalibratedJob,
    EvaluatedJob,
    FittedJob,
    PartScores,
    ScoredJob,
    SplitJob,
    encoded,
    fit_listed,
    in_blocks,
)
from pairmark.service.training.storing import promotion

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
    with reasons, ``best_baseline``, ``beaten`` (by a baseline) and ``verdict``, a sentence. For a classifier also
    ``classification``, the same for its classes.
    """
    if job.spec.needs == "rankings":
        return _compared_rankings(job)
    board = _pairs(job, on_progress)
    if job.scores.rows is not None:
        board["classification"] = _classes(job)
    return board


def _pairs(job: ScoredJob, on_progress: OnProgress) -> dict[str, Any]:
    job = encoded(job, always=True)
    pairs, X, model_scores = job.parts.test, job.X, job.scores.test
    assert pairs is not None
    assert model_scores is not None
    scores: dict[str, NDArray[np.float32]] = {MODEL: model_scores}
    trained_by: dict[str, Any] = {}
    left_out: list[dict[str, str]] = []
    baselines = pair_baselines(int(X.shape[1]))
    for number, (name, params) in enumerate(baselines.items()):
        on_progress(number / (len(baselines) + 1), f"baseline {name}")
        try:
            estimator = _fit(MetricSimilarity(**params), job)
            pair_scores = estimator.score_pairs(X, pairs.left, pairs.right)
            if pair_scores.min() == pair_scores.max():
                raise ValueError("it scores all held-out pairs alike")
        except ValueError as error:
            left_out.append({"name": name, "reason": str(error)[:300]})
            continue
        scores[name] = pair_scores
        trained_by[name] = {"learner": "metric", "params": params}
    on_progress(len(baselines) / (len(baselines) + 1), "comparing")
    rates = resolved_rates(int((~pairs.same).sum()), job.evaluation.target_fpr)
    compared = compare_pairs(
        scores,
        pairs.same,
        pairs.units,
        reference=MODEL,
        rates=rates,
        protocol=pairs.protocol,
        random_state=job.seed,
    )
    facts = {"n_pairs": len(pairs), "n_same_pairs": int(pairs.same.sum()), "rates": list(rates)}
    return _board("pairs", judged_by(rates), compared, left_out=left_out, trained_by=trained_by, facts=facts)


def _fit(estimator: MetricSimilarity, job: SplitJob) -> MetricSimilarity:
    if job.parts.pairs is None:
        rows = job.parts.rows
        return estimator.fit(job.X[rows], np.asarray(job.data.y)[rows])
    fit_listed(estimator, job)
    return estimator


def _compared_rankings(job: ScoredJob) -> dict[str, Any]:
    truth = np.asarray(job.data.rankings)
    positions = np.asarray(job.scores.rows)

    def right(predicted: Any, rows: Int64) -> NDArray[np.float64]:
        return np.nan_to_num(kendall_tau(predicted, truth[rows]))

    usable = _ordered(truth)
    return _rows(job, "rankings", "mean Kendall tau", truth, usable, positions, ranking_baselines, right)


def _classes(job: ScoredJob) -> dict[str, Any]:
    y = np.asarray(job.data.y)
    labels = np.asarray(job.estimator.classes_)[np.asarray(job.scores.rows).argmax(axis=1)]
    usable = np.ones(y.size, dtype=np.bool_)

    def right(predicted: Any, rows: Int64) -> NDArray[np.bool_]:
        return np.asarray(predicted == y[rows])

    return _rows(job, "classification", "accuracy", y, usable, labels, class_baselines, right)


def _rows(
    job: ScoredJob,
    task: str,
    judged_by: str,
    truth: NDArray[Any],
    usable: NDArray[np.bool_],
    predicted: NDArray[Any],
    baselines: Callable[..., Any],
    right: Callable[[Any, Int64], NDArray[Any]],
) -> dict[str, Any]:
    """Compared on held-out rows: ``right`` says how right each prediction is."""
    X, units, training_rows = job.X, job.row_units, job.parts.rows
    rows, at = _judged(job, usable)
    predictions = {MODEL: predicted[at]}
    left_out: list[dict[str, str]] = []
    try:
        predictions |= baselines(X[training_rows], truth[training_rows], X[rows], job.seed)
    except ValueError as error:
        left_out.append({"name": "baselines", "reason": str(error)[:300]})
    values = {name: right(prediction, rows) for name, prediction in predictions.items()}
    compared = compare_rows(values, reference=MODEL, units=None if units is None else units[at])
    return _board(task, judged_by, compared, left_out=left_out, facts={"n_rows": int(rows.size)})


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


MAX_LABELS = 40
"""Labels up to which each two of them are looked at by themselves."""


def score(job: FittedJob, progress: Progress) -> ScoredJob:
    """The job with scores of the held-out pairs and predictions for the held-out rows, or `InvalidInput` when the
    learner cannot score them."""
    parts, estimator, X = job.parts, job.estimator, job.X
    calibration = test = rows = None
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
        calibration = calibration.with_cells(LackedCells.of(job.X, pairs))
    return CalibratedJob(**vars(job), calibration=calibration)


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
    """Likelihood ratios and rates by time, on held-out pairs that the ratios were not fitted on."""
    data, pairs, scores = job.data, job.parts.test, job.scores.test
    assert pairs is not None
    assert scores is not None
    left_out: dict[str, str] = {}
    by_time = None
    if data.times is None:
        left_out["by_time"] = NO_TIMES
    else:
        times = np.asarray(data.times)
        aged = rates_by_time(scores, pairs.same, pairs.units, np.abs(times[pairs.left] - times[pairs.right]))
        if aged is None:
            left_out["by_time"] = FEW_TIMES
        else:
            by_time = {"unit": data.time_unit, **aged}
    likelihoods = []
    ratios = None if job.calibration is None else job.calibration.likelihood_ratios
    if ratios is None:
        left_out["likelihood_ratios"] = "the calibration part holds no same pair"
    elif not pairs.same.any():
        left_out["likelihood_ratios"] = "the test part holds no same pair"
    else:
        methods = ("pav", "logistic", *(["own"] if job.spec.log_lr else []))
        likelihoods = [
            likelihood_report(ratios, scores, pairs.same, pairs.units, method) for method in methods
        ]
    found = {"likelihood_ratios": likelihoods, "by_time": by_time, "left_out": left_out}
    return Evidence(**to_jsonable_python(found, fallback=lambda value: value.tolist()))


def _of_evidence(evidence: Evidence) -> dict[str, Any]:
    if not evidence.likelihood_ratios:
        return {}
    names = ("cllr", "cllr_min", "calibration_loss")
    return {
        "likelihood_ratios": {
            ratios["method"]: {name: ratios[name] for name in names} for ratios in evidence.likelihood_ratios
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


NO_TIMES = (
    "the dataset names no column of times (`time`), so rates by the time between two samples are not known"
)
FEW_TIMES = "the times of too few pairs of the same person are known, or all lie equally far apart"
