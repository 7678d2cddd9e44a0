"""The evaluating stage: what the test part says of the model, of baselines, and of production, which it may replace."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from pairmark.models.calibration.guarantees import askable
from pairmark.models.calibration.records import costs_of_columns
from pairmark.models.evaluation.comparison import (
    ScorerComparison,
    classification_metrics,
    compare_pairs,
    compare_rows,
    measure_in_words,
    pair_baselines,
    ranking_baselines,
    resolved_rates,
)
from pairmark.models.evaluation.pairs import FPR_TARGETS, EvaluationReport, pair_report
from pairmark.models.evaluation.precision import PrecisionReport, precision_report
from pairmark.models.evaluation.rankings import CONFIDENCE, kendall_tau, ranking_metrics
from pairmark.models.linking.fellegi_sunter import FellegiSunter
from pairmark.models.pairs.sampling import HeldOutPairs
from pairmark.models.records.tables import declaration
from pairmark.models.registry import spec_of
from pairmark.schemas.jobs import IF_BETTER
from pairmark.schemas.models import VersionOut
from pairmark.service.errors import Conflict, CorruptArtefact, InvalidInput, UnknownModel, refusals
from pairmark.service.jobs.leases import Progress
from pairmark.service.names import PRODUCTION, ModelRef
from pairmark.service.store.store import ModelStore
from pairmark.service.store.versions import fold_scores, overlapping_rows
from pairmark.service.training.fitting import CalibratedJob, ScoredJob, in_blocks, learn, out_of_fold
from pairmark.service.training.splitting import SplitJob


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
    metrics : JSON-able. curve : the ROC, for a learner that scores pairs.
    precision : what matches are worth, for one that scores records.
    columns : what leaving columns of records out costs.
    leaderboard : the model among baselines.
    promotion : which alias moves to the version, and why.
    """

    metrics: dict[str, Any]
    curve: EvaluationReport | None
    precision: PrecisionReport | None
    leaderboard: dict[str, Any]
    promotion: Promotion
    columns: list[dict[str, Any]]


def evaluate(job: CalibratedJob, versions: ModelStore, progress: Progress) -> EvaluatedJob:
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
        promotion=promotion(job, versions),
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


MODEL = "this model"
MAX_ROWS = 5_000
"""Held-out rows that rankers are compared on; more are sampled."""


def compared_pairs(job: ScoredJob, on_progress: Callable[[float, str], None]) -> dict[str, Any]:
    """The model among baselines on the held-out pairs, as `_board` tells it."""
    pairs, model_scores = job.parts.test, job.test_scores
    assert pairs is not None
    assert model_scores is not None
    schema = job.data.schema
    columns = None if schema is None else declaration(schema)
    # Whatever the model takes: those who would train another one have the records.
    job = replace(job, X=job.unencoded, encoder=None)
    scores: dict[str, NDArray[np.float32]] = {MODEL: model_scores}
    trained_by: dict[str, Any] = {}
    left_out: list[dict[str, str]] = []
    baselines = pair_baselines(int(job.X.shape[1]), columns)
    for number, (name, (kind, params)) in enumerate(baselines.items()):
        if columns is not None and kind == job.spec.kind:
            continue
        on_progress(number / (len(baselines) + 1), f"baseline {name}")
        try:
            pair_scores = _baseline_scores(job, pairs, spec_of(kind).estimator(**params))
            if pair_scores.min() == pair_scores.max():
                raise ValueError("it scores all held-out pairs alike")
        except ValueError as error:
            # A baseline that cannot learn here is named with its reason: no comparison is missing without one.
            left_out.append({"name": name, "reason": str(error)[:300]})
            continue
        scores[name] = pair_scores
        trained_by[name] = {"learner": kind, "params": {n: v for n, v in params.items() if n != "columns"}}
    on_progress(len(baselines) / (len(baselines) + 1), "comparing")
    rates = resolved_rates(int((~pairs.same).sum()), job.claim.evaluation.target_fpr)
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
    return _board(
        "pairs", measure_in_words(rates), compared, left_out=left_out, trained_by=trained_by, facts=facts
    )


def _baseline_scores(job: SplitJob, pairs: HeldOutPairs, baseline: Any) -> NDArray[np.float32]:
    """Scores of the test pairs by another learner that was told of none of them."""
    if pairs.folds is None:
        learn(baseline, job)
    elif isinstance(baseline, FellegiSunter):
        # It learns without labels, so that one fit knows no more of the pairs that it scores than those of folds.
        baseline.fit(job.X[job.parts.rows])
    else:

        def model_of(number: int) -> Any:
            return learn(clone(baseline), replace(job, parts=job.parts.of_fold(number)))

        return out_of_fold(model_of, pairs.folds, job.X, pairs.left, pairs.right)
    scores: NDArray[np.float32] = baseline.score_pairs(job.X, pairs.left, pairs.right)
    return scores


def compared_rankings(job: ScoredJob) -> dict[str, Any]:
    """The model among baselines on held-out rows that order at least two labels, as `_board` tells it."""
    X, units, training_rows, test_rows = job.X, job.row_units, job.parts.rows, job.parts.test_rows
    truth = np.asarray(job.data.rankings)
    assert test_rows is not None
    places = np.flatnonzero(np.nanmin(truth[test_rows], axis=1) < np.nanmax(truth[test_rows], axis=1))
    if places.size > MAX_ROWS:
        places = np.sort(np.random.default_rng(job.seed).choice(places, size=MAX_ROWS, replace=False))
    rows = test_rows[places]
    predictions = {MODEL: np.asarray(job.row_predictions)[places]}
    left_out: list[dict[str, str]] = []
    try:
        predictions |= ranking_baselines(X[training_rows], truth[training_rows], X[rows], job.seed)
    except ValueError as error:
        left_out.append({"name": "baselines", "reason": str(error)[:300]})
    taus = {
        name: np.nan_to_num(kendall_tau(prediction, truth[rows])) for name, prediction in predictions.items()
    }
    compared = compare_rows(taus, reference=MODEL, units=None if units is None else units[places])
    facts = {"n_rows": int(rows.size)}
    return _board("rankings", "mean Kendall tau", compared, left_out=left_out, facts=facts)


def _board(
    task: str,
    judged_by: str,
    compared: Mapping[str, ScorerComparison],
    *,
    left_out: list[dict[str, str]],
    facts: Mapping[str, Any],
    trained_by: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The leaderboard, best first.

    Returns
    -------
    JSON-able: ``task``, ``judged_by``, ``confidence``, ``items`` (each ``name``, ``role``, ``value``, ``interval``,
    ``difference`` of the model's value and this one's with its paired interval, and what trains it), ``left_out``
    with reasons, ``best_baseline``, ``beaten`` (by a baseline) and ``verdict``, a sentence.
    """
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
        else _verdict(judged_by, best, compared[best], compared[MODEL], (trained_by or {}).get(best, {})),
    }


def _surely_better(baseline: ScorerComparison) -> bool:
    # Differences are the model's value less the baseline's.
    interval = baseline.difference_interval
    return interval is not None and interval[1] < 0


def _verdict(
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


MARGIN = 0.01
"""Loss that the interval of the difference must exclude: in TPR at the asked rate, or mean Kendall tau."""
MIN_PAIRS = 30
"""Same and different pairs each, or rows, that a comparison takes."""


_NEW, _OLD = "new", "production"


def promotion(job: CalibratedJob, store: ModelStore) -> Promotion:
    """What the job asked for; with ``if-better``, after a comparison with production."""
    claim = job.claim
    if claim.promote != IF_BETTER:
        return Promotion(alias=claim.promote)
    target = claim.evaluation.target_fpr
    if target is not None and job.calibration is not None:
        smallest = job.calibration.smallest_fpr(CONFIDENCE)["finite-sample"]
        if smallest is None or smallest > target:
            reason = f"its calibration does not support the rate that was asked for, {100 * target:g} %"
            facts = {"asked": IF_BETTER, "promoted": False, "reason": reason}
            return Promotion(alias=None, reason=reason, facts=facts)
    try:
        production = store.version(*store.resolve(ModelRef(name=claim.model, alias=PRODUCTION)))
    except UnknownModel:
        return Promotion(alias=PRODUCTION, only_from=0, reason="the first version in production")
    comparison = _Comparison(job, production, store)
    try:
        return comparison.decision()
    except (InvalidInput, CorruptArtefact, Conflict) as error:
        # The two cannot be measured on the same data.
        return comparison.refused(error.detail)


class _Comparison:
    """The new version beside production on this job's test part."""

    def __init__(self, job: ScoredJob, production: VersionOut, store: ModelStore) -> None:
        self._job, self._data = job, job.data
        self._production, self._name = production, f"{production.model}:{production.version}"
        self._store = store
        self._facts: dict[str, Any] = {
            "asked": IF_BETTER,
            "against": production.version,
            "margin": MARGIN,
            "confidence": CONFIDENCE,
        }

    def decision(self) -> Promotion:
        """Promote what loses no more than the margin; say what would decide where neither that nor a loss is shown."""
        if self._job.spec.needs == "rankings":
            units, compare = "rows", self._rankings
        else:
            units = "people" if self._job.parts.protocol == "open-set" else "samples"
            compare = self._pairs
        judged_by, compared, n_units = compare()
        new, old = compared[_NEW], compared[_OLD]
        self._facts |= {
            "judged_by": judged_by,
            "value": new.value,
            "production_value": old.value,
            "difference": old.difference,
            "difference_interval": None if old.difference_interval is None else list(old.difference_interval),
        }
        low, high = old.difference_interval or (-1.0, 1.0)
        decided = (
            f"{judged_by}: {new.value:.3f} against {old.value:.3f} of {self._name} in production on the same held-out "
            f"data (difference {old.difference:+.3f}, {100 * CONFIDENCE:.0f} % interval {low:+.3f} to {high:+.3f}"
        )
        if low >= -MARGIN:
            reason = f"{decided})"
            return Promotion(
                alias=PRODUCTION,
                only_from=self._production.version,
                reason=reason,
                facts={**self._facts, "promoted": True, "reason": reason},
            )
        self._facts["undecided"] = high >= 0
        if high < 0:
            return self.refused(f"{decided}; it may be at most {MARGIN:g} worse)")
        # Intervals narrow with the root of the number of units: either bound gets there if the difference stays.
        far, near = old.difference - low, old.difference + MARGIN
        if near <= 0:
            far, near = high - old.difference, -old.difference
        enough = math.ceil(n_units * (far / near) ** 2)
        self._facts["units_to_decide"] = enough
        return self.refused(
            f"undecided: {decided}; a loss of {MARGIN:g} is not excluded: a test part of about {enough:,} "
            f"{units} ({n_units:,} now) would decide, or promote it by hand)"
        )

    def refused(self, reason: str) -> Promotion:
        """Registered only."""
        return Promotion(
            alias=None, reason=reason, facts={**self._facts, "promoted": False, "reason": reason}
        )

    def _pairs(self) -> tuple[str, dict[str, ScorerComparison], int]:
        pairs, new_scores = self._job.parts.test, self._job.test_scores
        assert pairs is not None
        assert new_scores is not None
        self._check_capability("similarity")
        there = self._production
        stored = self._store.report(self._store.row(there.model, there.version))
        old = (
            np.full(len(pairs), np.nan, dtype=np.float32)
            if stored is None or "fold_rows" not in stored.arrays
            else fold_scores(stored.arrays, pairs, self._data)
        )
        unseen = np.isfinite(old)
        by_folds = _suffices(pairs.same[unseen])
        if not by_folds:
            # Pairs of which production learned neither side.
            unseen = np.ones(len(pairs), dtype=np.bool_)
            if stored is not None:
                is_open_set = pairs.protocol == "open-set"
                overlap = overlapping_rows(stored.trained_on, self._data, identities=is_open_set)
                unseen = ~(overlap[pairs.left] | overlap[pairs.right])
        if not _suffices(pairs.same[unseen]):
            # Production knows these people: judged on all of them it looks too good, which is the safe side.
            self._facts["overlap"] = "production was trained on most of the test part, which favours it"
            unseen = np.ones(len(pairs), dtype=np.bool_)
        with refusals(f"{self._name} in production cannot score this data"):
            if not by_folds:
                estimator, X = self._store.load_with_rows(there.model, there.version, self._data)
                old[unseen] = estimator.score_pairs(X, pairs.left[unseen], pairs.right[unseen])
            target = self._job.claim.evaluation.target_fpr
            # At the rate that was asked for, if so many pairs resolve it; else at those that they do.
            rates = resolved_rates(int((~pairs.same[unseen]).sum()), target)
            rates = (target,) if target in rates else rates
            comparisons = compare_pairs(
                {_NEW: new_scores[unseen], _OLD: old[unseen]},
                pairs.same[unseen],
                pairs.units[unseen],
                reference=_NEW,
                rates=rates,
                protocol=pairs.protocol,
                clusters=None if pairs.clusters is None else pairs.clusters[unseen],
                random_state=self._job.seed,
            )
        self._facts |= {"n_pairs": int(unseen.sum()), "n_left_out": int((~unseen).sum())}
        return measure_in_words(rates), comparisons, np.unique(pairs.units[unseen]).size

    def _rankings(self) -> tuple[str, dict[str, ScorerComparison], int]:
        self._check_capability("rank-labels")
        there = self._production
        names = self._store.names(there.model, there.version, "label_names") or []
        if set(names) != set(self._data.label_names):
            raise InvalidInput(f"{self._name} in production ranks other labels")
        truth, rows = np.asarray(self._data.rankings), self._job.parts.test_rows
        assert rows is not None
        order = [names.index(name) for name in self._data.label_names]
        with refusals(f"{self._name} in production cannot rank this data"):
            estimator, X = self._store.load_with_rows(there.model, there.version, self._data)
            old = in_blocks(estimator.predict, X, rows)[:, order]
        taus = {
            name: np.nan_to_num(kendall_tau(positions, truth[rows]))
            for name, positions in ((_NEW, np.asarray(self._job.row_predictions)), (_OLD, old))
        }
        self._facts["n_rows"] = int(rows.size)
        return "mean Kendall tau", compare_rows(taus, reference=_NEW, units=self._job.row_units), rows.size

    def _check_capability(self, capability: str) -> None:
        there = self._production
        if capability not in there.capabilities:
            raise InvalidInput(
                f"{self._name} in production is a {there.kind}, which does other things: promote: true takes its place"
            )
        if self._data.schema is None and there.n_features != self._data.n_features:
            raise InvalidInput(
                f"{self._name} in production takes {there.n_features} features and this data has "
                f"{self._data.n_features}, so the two cannot be compared: promote: true takes its place"
            )


def _suffices(same: NDArray[np.bool_]) -> bool:
    return min(int(same.sum()), int((~same).sum())) >= MIN_PAIRS
