"""From a dataset to a registered version: load, split, fit, score, calibrate, evaluate, store.

Each stage takes the record that the last one made: `splitting`, `fitting` (with scores and calibration), `evaluating`;
here stand the first, which loads, and the last, which stores and registers."""

from typing import Any

import numpy as np
from joblib import cpu_count, parallel_config
from sqlalchemy import select
from sqlalchemy.orm import Session
from threadpoolctl import threadpool_limits

from pairmark.models.calibration.guarantees import in_percent
from pairmark.models.calibration.operating_point import nothing_guaranteed
from pairmark.models.core.spec import LearnerSpec, capabilities_of, jsonable_params
from pairmark.models.evaluation.precision import TOLD, suspects
from pairmark.models.records.tables import declaration
from pairmark.models.registry import load, save, spec_of
from pairmark.schemas.models import VersionSummary
from pairmark.service.blobs import Blobs, delete_unused
from pairmark.service.datasets.data import LabelledData, naming_warnings
from pairmark.service.datasets.guarantees import folds_in_words
from pairmark.service.datasets.held_out import stack_rows, stranger_rows, taken_by
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.jobs.leases import Claim, Leases, Progress, persist
from pairmark.service.settings import Settings
from pairmark.service.store.calibrations import class_count, store_calibration
from pairmark.service.store.store import ModelStore
from pairmark.service.store.versions import error_arrays, fold_arrays, trained_on, write_report
from pairmark.service.tables import CalibrationRow, ModelVersion
from pairmark.service.training.evaluating import EvaluatedJob, evaluate
from pairmark.service.training.fitting import calibrate, fit, score
from pairmark.service.training.splitting import LoadedJob, sizes_in_words, split
from pairmark.version import code_version

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
        self._leases = Leases(db, settings)
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
            progress = Progress(self._leases, claim, STAGES)
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
            evaluated_job = evaluate(calibrated_job, self._store, progress)
            progress.stage("storing")
            return store(evaluated_job, self._db, self._blobs, self._leases, self._store)

    def _load(self, claim: Claim) -> LoadedJob:
        spec = spec_of(claim.learner)
        data = self._datasets.load(claim.dataset_id)
        unlabelled_id, named = claim.unlabelled_id, claim.evaluation.strangers
        cells, strangers = data.X, np.empty(0, dtype=np.int64)
        if named is not None:
            others = self._datasets.load(self._datasets.get(named).id)
            rows = stranger_rows(others, data)
            cells, strangers = stack_rows(data.X, others.X[rows]), len(data) + np.arange(rows.size)
        return LoadedJob(
            claim=claim,
            spec=spec,
            data=data,
            cells=cells,
            X=cells if data.schema is not None else taken_by(spec, cells, self._settings.max_dense_bytes),
            strangers=strangers,
            unlabelled=None if unlabelled_id is None else self._datasets.load(unlabelled_id),
            seed=int(claim.params.get("random_state") or 0),
        )


FEATURE_NAMES_KEPT = 1_000


def store(job: EvaluatedJob, db: Database, blobs: Blobs, leases: Leases, versions: ModelStore) -> int:
    """Store artefact, report and calibration, then register the version; returns its number. `Fenced` when the
    attempt was superseded or cancelled: nothing is left behind."""
    keys: list[str] = []
    try:
        new = _new_version(job, blobs, keys)
        return _register_version(job, new, _new_calibration(job, blobs, keys), db, leases, versions)
    except BaseException:
        delete_unused(db, blobs, keys)
        raise


def _new_version(job: EvaluatedJob, blobs: Blobs, keys: list[str]) -> ModelVersion:
    """Write the blobs; ``keys`` takes theirs as they are stored."""
    parts, estimator, spec = job.parts, job.estimator, job.spec
    report = None
    with blobs.workspace() as folder:
        artefact_sha256 = save(estimator, folder / "artefact")
        # Read back at once: what cannot be loaded must not be registered.
        load(folder / "artefact")
        size = sum(path.stat().st_size for path in (folder / "artefact").iterdir())
        if job.curve is not None:
            digests = trained_on(job.data, parts.learned, job.claim.job_id)
            assert parts.test is not None
            assert job.test_scores is not None
            errors = error_arrays(parts.test, job.test_scores)
            if job.precision is not None:
                errors |= job.precision.arrays()
            if parts.folds:
                errors |= fold_arrays(parts.test, job.test_scores, job.data)
            write_report(folder / "report", job.curve, digests, errors, parts.calibration_rows, job.columns)
        artefact = blobs.put_folder(folder / "artefact")
        keys.append(artefact)
        if job.curve is not None:
            report = blobs.put_folder(folder / "report")
            keys.append(report)
    names, classes = job.data.given_feature_names, _class_names(spec, job.data, estimator)
    if job.encoder is not None:
        names = tuple(job.encoder.feature_names)
    schema = job.data.schema
    doubts = _suspects(job)
    capabilities = capabilities_of(spec, estimator) - (set() if classes is not None else {"classify"})
    return ModelVersion(
        kind=spec.kind,
        capabilities=sorted(capabilities),
        params=jsonable_params(spec, estimator),
        metrics=job.metrics,
        lineage=_lineage(job),
        facts={
            "n_features": int(estimator.n_features_in_),
            "feature_names": None if names is None else list(names[:FEATURE_NAMES_KEPT]),
            **({} if schema is None else {"columns": declaration(schema)}),
            **({"label_names": list(job.data.label_names)} if spec.needs == "rankings" else {}),
            **({} if classes is None else {"class_names": classes}),
            # What a learner reports about itself, such as the features that it selected.
            **spec.facts(estimator, names),
            "protocol": parts.protocol,
            "parts": parts.sizes,
            "size_bytes": size,
            "leaderboard": job.leaderboard,
            **({} if doubts is None else {"suspects": doubts}),
            **({} if job.promotion.facts is None else {"promotion": job.promotion.facts}),
        },
        artefact=artefact,
        artefact_sha256=artefact_sha256,
        report=report,
        job_id=job.claim.job_id,
    )


def _new_calibration(job: EvaluatedJob, blobs: Blobs, keys: list[str]) -> CalibrationRow | None:
    calibration = job.calibration
    if calibration is None:
        return None
    keys.append(store_calibration(blobs, calibration))
    dataset = f"{job.data.name}:{job.data.version}"
    return CalibrationRow(
        name=f"{job.claim.model} held out of {dataset}"[:200],
        blob=keys[-1],
        protocol=calibration.protocol,
        summary={
            **calibration.summary(),
            "dataset": dataset,
            "random_state": job.seed,
            "part": "folds" if job.parts.calibrates_by_folds else "held-out",
            **class_count(job.data, calibration.protocol),
        },
        dataset_id=job.data.dataset_id,
        dataset_sha256=job.data.sha256,
    )


def _register_version(
    job: EvaluatedJob,
    new: ModelVersion,
    calibration: CalibrationRow | None,
    db: Database,
    leases: Leases,
    versions: ModelStore,
) -> int:
    """Register the version, move the alias and end the job, all or nothing."""
    claim = job.claim
    numbers: list[int] = []

    def register(session: Session) -> None:
        done = select(ModelVersion.version).where(ModelVersion.job_id == claim.job_id)
        if numbers and session.scalar(done) in numbers:
            # The commit before went through and only its answer was lost.
            return
        promotion = job.promotion
        summary = versions.register(
            session,
            claim.model,
            new,
            calibration,
            promote=promotion.alias,
            only_from=promotion.only_from,
            actor=f"job:{claim.job_id}",
            reason=promotion.reason,
        )
        message = _message(claim.model, calibration, summary, job)
        leases.finish(claim, session, version=summary.version, message=message)
        numbers.append(summary.version)

    persist(db, register)
    return numbers[-1]


def _message(
    model: str, calibration: CalibrationRow | None, version: VersionSummary, job: EvaluatedJob
) -> str:
    """What became of the job, for its owner: the version, its alias and why, the baselines, what it can guarantee."""
    promotion, verdict = job.promotion, job.leaderboard["verdict"]
    message = f"registered {model}:{version.version}"
    if promotion.alias in version.aliases:
        message += f", now {model}@{promotion.alias}"
    elif promotion.alias is not None:
        message += f", not promoted, since {model}@{promotion.alias} was moved meanwhile"
    elif promotion.reason:
        message += ", not promoted"
    if promotion.reason:
        message += f": {promotion.reason}"
    if verdict is not None:
        message += f". {verdict[0].upper()}{verdict[1:]}"
    folds = folds_in_words(job.parts.sizes)
    if calibration is not None:
        summary = calibration.summary
        smallest = summary["smallest_fpr"]["0.95"]["finite-sample"]
        nothing = nothing_guaranteed(summary["origin"])
        if nothing is not None:
            message += f". {nothing}"
        elif smallest is None:
            message += ". It supports no false positive rate: calibrate on more people"
        else:
            message += (
                f". It supports false positive rates of {in_percent(smallest)} and above (95 % confidence)"
            )
    return f"{message}. {folds}" if folds else message


def _lineage(job: EvaluatedJob) -> dict[str, Any]:
    data, extra = job.data, job.unlabelled
    return {
        "dataset": f"{data.name}:{data.version}",
        "dataset_sha256": data.sha256,
        **(
            {}
            if extra is None
            else {"unlabelled": f"{extra.name}:{extra.version}", "unlabelled_sha256": extra.sha256}
        ),
        "job": job.claim.job_id,
        "code_version": code_version(),
        "random_state": job.seed,
        "evaluation": job.claim.evaluation.model_dump(),
    }


def _class_names(spec: LearnerSpec, data: LabelledData, estimator: Any) -> list[str] | None:
    """Names of a classifier's classes, in the order of its probabilities. None where the kind does not classify, or
    learned from listed pairs, whose groups have no names."""
    if "classify" not in spec.capabilities or data.pairs is not None or data.y is None:
        return None
    return [data.identities[int(code)] for code in estimator.classes_]


SHOWN = 3


def _suspects(job: EvaluatedJob) -> dict[str, Any] | None:
    """Identities and rows that look wrong among those that calibrate, JSON-able; None where nobody is known by label.

    Returns
    -------
    ``rows`` (0-based) whose labels look wrong; ``double_names``, two labels each (open-set); how many there are of each
    (``n_rows``, ``n_double_names``); ``text``, a sentence, empty when there is nothing to say.
    """
    pairs, scores, data = job.parts.calibration, job.calibration_scores, job.data
    if pairs is None or scores is None or data.y is None:
        return None
    y = np.asarray(data.y)
    # Strangers have no labels that could be wrong.
    is_labeled = np.maximum(pairs.left, pairs.right) < len(data)
    rows = np.stack([pairs.left, pairs.right], axis=1)[is_labeled]
    double_names, labels = suspects(scores[is_labeled], pairs.same[is_labeled], rows, y[rows])
    names = double_names if pairs.protocol == "open-set" else double_names[:0]
    n_rows = int(labels.size)
    sentences = [f"A feature {line}." for line in naming_warnings(data)]
    if len(names):
        first_name, second_name = (data.identities[code] for code in names[0].tolist())
        sentences.append(
            f"{len(names)} pair{'s' * (len(names) != 1)} of identities score{'s' * (len(names) == 1)} like one person "
            f"(first {first_name[:50]!r} and {second_name[:50]!r}): is it one person under two names?"
        )
    if n_rows:
        first = ", ".join(str(row) for row in labels[:SHOWN].tolist())
        sentences.append(
            f"{n_rows} row{'s' * (n_rows != 1)} score{'s' * (n_rows == 1)} as if the label were wrong (first: {first})."
        )
    return {
        "rows": labels[:TOLD].tolist(),
        "n_rows": n_rows,
        "double_names": [[data.identities[code] for code in codes] for codes in names[:TOLD].tolist()],
        "n_double_names": len(names),
        "text": " ".join([*sentences, "Nothing was removed: the guarantee counts the labels as they are."])
        if sentences
        else "",
    }
