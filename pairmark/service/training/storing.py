"""Stores the result of a job and registers it in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.orm import Session

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.promises import in_percent
from pairmark.models.core.spec import LearnerSpec, capabilities_of, jsonable_params
from pairmark.models.records.tables import declaration
from pairmark.models.registry import load, save
from pairmark.schemas.models import VersionSummary
from pairmark.service.blobs import Blobs, delete_unused
from pairmark.service.datasets.data import LabelledData
from pairmark.service.db import Database
from pairmark.service.heldout.errors import error_arrays
from pairmark.service.heldout.overlap import trained_on
from pairmark.service.heldout.report import write_report
from pairmark.service.heldout.suspects import doubtful
from pairmark.service.jobs.leases import persist
from pairmark.service.jobs.queue import JobQueue
from pairmark.service.store.calibrations import class_count, store_calibration
from pairmark.service.store.registering import NewCalibration, NewVersion
from pairmark.service.store.store import ModelStore
from pairmark.service.store.subjects import CANDIDATES
from pairmark.service.training.stages import EvaluatedJob, LoadedJob
from pairmark.version import code_version

FEATURE_NAMES_KEPT = 1_000


@dataclass(frozen=True, kw_only=True)
class Registrar:
    """Stores what a job made and registers its version."""

    db: Database
    blobs: Blobs
    queue: JobQueue
    model_store: ModelStore

    def store(self, job: EvaluatedJob) -> int:
        """Store artefact, report and calibration, then register the version; returns its number. `Fenced` when the
        attempt was superseded or cancelled: nothing is left behind."""
        keys: list[str] = []
        try:
            return self._register(job, self._new_version(job, keys))
        except BaseException:
            delete_unused(self.db, self.blobs, keys)
            raise

    def _new_version(self, job: EvaluatedJob, keys: list[str]) -> NewVersion:
        """Write the blobs; ``keys`` takes theirs as they are stored."""
        parts, estimator, spec = job.parts, job.estimator, job.spec
        report = None
        with self.blobs.workspace() as folder:
            artefact_sha256 = save(estimator, folder / "artefact")
            load(folder / "artefact")
            size = sum(path.stat().st_size for path in (folder / "artefact").iterdir())
            if job.curve is not None:
                digests = trained_on(job.data, parts.learned, job.claim.job_id)
                assert parts.test is not None
                assert job.scores.test is not None
                errors = error_arrays(parts.test, job.scores.test)
                write_report(
                    folder / "report", job.curve, digests, errors, parts.calibration_rows, job.evidence
                )
            artefact = self.blobs.put_folder(folder / "artefact")
            keys.append(artefact)
            if job.curve is not None:
                report = self.blobs.put_folder(folder / "report")
                keys.append(report)
        calibration = self._calibration(job, job.calibration, keys)
        among = self._calibration(job, job.among, keys)
        if among is not None:
            among = replace(
                among,
                name=f"{among.name} (among candidates)"[:200],
                summary={**among.summary, "samples": [1, 1], "aggregation": CANDIDATES.aggregation},
                subjects=CANDIDATES.key,
            )
        names, classes = job.data.given_feature_names, _class_names(spec, job.data, estimator)
        if job.encoder is not None:
            names = tuple(job.encoder.feature_names)
        schema = job.data.schema
        capabilities = capabilities_of(spec, estimator) - (set() if classes is not None else {"classify"})
        return NewVersion(
            model=job.claim.model,
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
                **(estimator.model_facts(names) if hasattr(estimator, "model_facts") else {}),
                "protocol": parts.protocol,
                "parts": parts.sizes,
                "size_bytes": size,
                "leaderboard": job.leaderboard,
                **_suspects(job),
                **({} if job.promotion.facts is None else {"promotion": job.promotion.facts}),
            },
            artefact=artefact,
            artefact_sha256=artefact_sha256,
            report=report,
            calibration=calibration,
            among=among,
            job_id=job.claim.job_id,
        )

    def _calibration(
        self, job: EvaluatedJob, calibration: Calibration | None, keys: list[str]
    ) -> NewCalibration | None:
        if calibration is None:
            return None
        keys.append(store_calibration(self.blobs, calibration))
        dataset = f"{job.data.name}:{job.data.version}"
        return NewCalibration(
            name=f"{job.claim.model} held out of {dataset}"[:200],
            blob=keys[-1],
            protocol=calibration.protocol,
            summary={
                **calibration.summary(),
                "dataset": dataset,
                "random_state": job.seed,
                "part": "held-out",
                **class_count(job.data, calibration.protocol),
            },
            dataset_id=job.data.dataset_id,
            dataset_sha256=job.data.sha256,
        )

    def _register(self, job: EvaluatedJob, new: NewVersion) -> int:
        """Register the version, move the alias and end the job, all or nothing."""
        claim = job.claim
        versions: list[int] = []

        def register(session: Session) -> None:
            if versions and self.model_store.version_of_job(claim.job_id) in versions:
                # The commit before went through and only its answer was lost.
                return
            promotion = job.promotion
            summary = self.model_store.register(
                session,
                new,
                promote=promotion.alias,
                only_from=promotion.only_from,
                by=f"job:{claim.job_id}",
                reason=promotion.reason,
            )
            message = _message(new, summary, job)
            self.queue.finish(claim, session, version=summary.version, message=message)
            versions.append(summary.version)

        persist(self.db, register)
        return versions[-1]


def _message(new: NewVersion, version: VersionSummary, job: EvaluatedJob) -> str:
    """What became of the job, for its owner: the version, its alias and why, the baselines, what it can promise."""
    promotion, verdict = job.promotion, job.leaderboard["verdict"]
    message = f"registered {new.model}:{version.version}"
    if promotion.alias in version.aliases:
        message += f", now {new.model}@{promotion.alias}"
    elif promotion.alias is not None:
        message += f", not promoted, since {new.model}@{promotion.alias} was moved meanwhile"
    elif promotion.reason:
        message += ", not promoted"
    if promotion.reason:
        message += f": {promotion.reason}"
    if verdict is not None:
        message += f". {verdict[0].upper()}{verdict[1:]}"
    if new.calibration is not None:
        smallest = new.calibration.summary["smallest_fpr"]["0.95"]["finite-sample"]
        message += (
            ". It supports no false positive rate: calibrate on more people"
            if smallest is None
            else f". It supports false positive rates of {in_percent(smallest)} and above (95 % confidence)"
        )
    return message


def _suspects(job: EvaluatedJob) -> dict[str, Any]:
    """What looks wrong among the people that the promise counts."""
    pairs, scores = job.parts.calibration, job.scores.calibration
    if pairs is None or scores is None:
        return {}
    suspects = doubtful(pairs, scores, job.data)
    return {} if suspects is None else {"suspects": suspects}


def _lineage(job: LoadedJob) -> dict[str, Any]:
    data, extra = job.data, job.unlabelled
    unlabelled = (
        {}
        if extra is None
        else {"unlabelled": f"{extra.name}:{extra.version}", "unlabelled_sha256": extra.sha256}
    )
    return {
        "dataset": f"{data.name}:{data.version}",
        "dataset_sha256": data.sha256,
        **unlabelled,
        "job": job.claim.job_id,
        "code_version": code_version(),
        "random_state": job.seed,
        "evaluation": job.evaluation.model_dump(),
    }


def _class_names(spec: LearnerSpec, data: LabelledData, estimator: Any) -> list[str] | None:
    """Names of a classifier's classes, in the order of its probabilities. None where the kind does not classify, or
    learned from listed pairs, whose groups have no names."""
    if "classify" not in spec.capabilities or data.pairs is not None or data.y is None:
        return None
    return [data.identities[int(code)] for code in estimator.classes_]
