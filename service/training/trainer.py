"""From a dataset to a registered version: split, fit, score held-out pairs, calibrate, report, store."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import parallel_config
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from pairmark.models.calibration.operating_points import Calibration
from pairmark.models.core.base import checked_pairs
from pairmark.models.core.checkpoints import keeping
from pairmark.models.core.progress import listening
from pairmark.models.core.registry import jsonable_params, save, spec_of
from pairmark.models.core.spec import LearnerSpec, capabilities_of
from pairmark.models.evaluation.pairs import EvaluationReport, pair_report
from pairmark.models.pairs.splits import split_data, split_pairs
from pairmark.service.blobs import Blobs, delete_unused
from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.errors import InvalidInput, NotReady
from pairmark.service.heldout.groups import rates_by_group, without_groups
from pairmark.service.heldout.overlap import trained_on
from pairmark.service.heldout.pairs import ScoredPairs, listed_pairs, pairs_among, split_codes
from pairmark.service.heldout.report import write_report
from pairmark.service.heldout.scoring import score_pairs, taken_by, widened
from pairmark.service.jobs.leases import persist
from pairmark.service.jobs.queue import JobQueue
from pairmark.service.jobs.schemas import Claim
from pairmark.service.settings import Settings
from pairmark.service.store.calibrations import store_calibration
from pairmark.service.store.schemas import NewCalibration, NewVersion
from pairmark.service.store.store import ModelStore
from pairmark.service.training.classifiers import class_names, classifier_metrics
from pairmark.service.training.engine import engine
from pairmark.service.training.rankers import RankerParts, ranked, ranker_metrics, ranker_parts
from pairmark.version import code_version

logger = logging.getLogger("pairmark.training")
Indices = NDArray[np.int64]

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
FEATURE_NAMES_KEPT = 1_000
_CHECKPOINT_DAYS = 7
_WRITE_EVERY_S = 0.5
_EVENT_STEP = 0.01


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What is trained on and what is held out.

    Attributes
    ----------
    rows : training rows. pairs : numbers of the listed training pairs, when the dataset lists pairs.
    sizes : rows (or listed pairs) in each part, for the lineage.
    test_rows : rows that test and whose classes were learned (closed-set, without a list of pairs); else None.
    """

    protocol: str
    rows: Indices
    pairs: Indices | None
    calibration: ScoredPairs
    test: ScoredPairs
    sizes: dict[str, int]
    test_rows: Indices | None = None


def checkpoints_of(settings: Settings, job_id: str) -> Path:
    """Where a job's finished parts wait for its next attempt; what jobs left behind goes after a week."""
    folder = settings.home.absolute() / "checkpoints"
    for left in folder.iterdir() if folder.is_dir() else ():
        try:
            if time.time() - left.stat().st_mtime > _CHECKPOINT_DAYS * 86_400:
                shutil.rmtree(left, ignore_errors=True)
        except FileNotFoundError:
            continue
    return folder / job_id


class Trainer:
    """Runs one attempt at a job, from its dataset to one transaction that registers what was made."""

    def __init__(self, db: Database, blobs: Blobs, settings: Settings) -> None:
        self._db = db
        self._blobs = blobs
        self._settings = settings
        self._queue = JobQueue(db, settings)
        self._datasets = Datasets(db, blobs, settings)
        self._store = ModelStore(db, blobs, settings)

    def run(self, claim: Claim) -> int:
        """Train and register; returns the version's number.

        Raises
        ------
        Fenced
            When the attempt was superseded or cancelled: nothing was registered.
        InvalidInput, UnknownDataset, StorageFailed, CorruptArtefact
            What a person can act on.
        """
        folder = checkpoints_of(self._settings, claim.job_id)
        # A worker runs one job at a time, so a job that says nothing of threads gets every core.
        with parallel_config(n_jobs=-1), keeping(folder):
            try:
                version = self._run(claim)
            except InvalidInput:
                # No further attempt will do better.
                shutil.rmtree(folder, ignore_errors=True)
                raise
        shutil.rmtree(folder, ignore_errors=True)
        return version

    def _run(self, claim: Claim) -> int:
        spec = spec_of(claim.learner)
        progress = Progress(self._queue, claim)
        progress.stage("loading")
        data = self._datasets.load(claim.dataset_id)
        X = taken_by(spec, data.X, self._settings.max_dense_bytes)
        progress.stage("splitting")
        # The seed of everything that is drawn: the learner's own, so that one number repeats the whole job.
        seed = int(claim.params.get("random_state") or 0)
        if spec.needs == "rankings":
            return self._run_ranker(spec, claim, data, X, seed, progress)
        role = claim.evaluation.groups
        parts = _parts(without_groups(data, role), claim, seed)
        progress.stage("fitting")
        more = self._unlabelled(spec, claim, int(X.shape[1]))
        estimator = self._fitted(spec, claim, data, X, parts, more, progress)
        progress.stage("scoring")
        scored = _Scored(estimator, X, parts, progress)
        progress.stage("calibrating")
        calibration = _calibrated(parts.calibration, scored.calibration, seed)
        progress.stage("evaluating")
        report = _reported(parts.test, scored.test, seed)
        metrics = report.metrics
        if role == "compare":
            metrics = {**metrics, "groups": rates_by_group(calibration, scored.test, parts.test, data)}
        if "classify" in spec.capabilities and parts.test_rows is not None:
            with _refusals("the learner could not classify the test part"):
                found = classifier_metrics(data, X, estimator, parts.rows, parts.test_rows)
            metrics = {**metrics, "classification": found}
        progress.stage("storing")
        return self._stored(spec, claim, data, parts, estimator, calibration, report, metrics, seed)

    def _run_ranker(
        self, spec: LearnerSpec, claim: Claim, data: LabelledData, X: Any, seed: int, progress: Progress
    ) -> int:
        with _refusals(f"dataset {data.name}:{data.version} cannot be split"):
            parts = ranker_parts(data, claim, seed)
        progress.stage("fitting")
        estimator = spec.estimator(**spec.params.model_validate(claim.params).model_dump())
        with listening(progress.fit), _refusals("the learner refused the training part"):
            estimator.fit(X[parts.rows], np.asarray(data.rankings)[parts.rows])
        progress.stage("evaluating")
        with _refusals("the held-out rows cannot be used"):
            metrics = ranker_metrics(data, parts, ranked(estimator, X, parts.test))
        progress.stage("storing")
        return self._stored(spec, claim, data, parts, estimator, None, None, metrics, seed)

    def _fitted(
        self,
        spec: LearnerSpec,
        claim: Claim,
        data: LabelledData,
        X: Any,
        parts: Parts,
        more: dict[str, Any],
        progress: Progress,
    ) -> Any:
        estimator = spec.estimator(**spec.params.model_validate(claim.params).model_dump())
        with (
            engine(spec, self._settings),
            listening(progress.fit),
            _refusals("the learner refused the training part"),
        ):
            if parts.pairs is None:
                assert data.y is not None
                estimator.fit(X[parts.rows], np.asarray(data.y)[parts.rows], **more)
            else:
                assert data.pairs is not None
                weight = None if data.pairs.weight is None else np.asarray(data.pairs.weight)[parts.pairs]
                same = np.asarray(data.pairs.same)[parts.pairs]
                # Some learners take pairs of one kind and learn a constant: nothing that a service should promote.
                checked_pairs(same.size, same.size, same, weight)
                estimator.fit_pairs(
                    X[np.asarray(data.pairs.left)[parts.pairs]],
                    X[np.asarray(data.pairs.right)[parts.pairs]],
                    same,
                    sample_weight=weight,
                    **more,
                )
        return estimator

    def _unlabelled(self, spec: LearnerSpec, claim: Claim, width: int) -> dict[str, Any]:
        """Unlabelled rows, for learners that were given some."""
        if claim.unlabelled_id is None:
            return {}
        rows = taken_by(spec, self._datasets.load(claim.unlabelled_id).X, self._settings.max_dense_bytes)
        return {"unlabelled": widened(rows, width)}

    def _unlabelled_lineage(self, claim: Claim) -> dict[str, str]:
        if claim.unlabelled_id is None:
            return {}
        rows = self._datasets.load(claim.unlabelled_id)
        return {"unlabelled": f"{rows.name}:{rows.version}", "unlabelled_sha256": rows.sha256}

    def _stored(
        self,
        spec: LearnerSpec,
        claim: Claim,
        data: LabelledData,
        parts: Parts | RankerParts,
        estimator: Any,
        calibration: Calibration | None,
        report: EvaluationReport | None,
        metrics: dict[str, Any],
        seed: int,
    ) -> int:
        keys: list[str] = []
        try:
            with self._blobs.workspace() as folder:
                artefact_sha256 = save(estimator, folder / "artefact")
                size = sum(path.stat().st_size for path in (folder / "artefact").iterdir())
                written = ["artefact"]
                if report is not None:
                    write_report(folder / "report", report, trained_on(data, parts.rows, claim.job_id))
                    written.append("report")
                keys += [self._blobs.put_folder(folder / name) for name in written]
            dataset = f"{data.name}:{data.version}"
            calibrated = None
            if calibration is not None:
                keys.append(store_calibration(self._blobs, calibration))
                calibrated = NewCalibration(
                    name=f"{claim.model} held out of {dataset}"[:200],
                    blob=keys[-1],
                    protocol=calibration.protocol,
                    summary={**calibration.summary(), "dataset": dataset, "random_state": seed},
                    dataset_id=data.dataset_id,
                    dataset_sha256=data.sha256,
                )
            names, classes = data.given_feature_names, class_names(spec, data, estimator)
            capabilities = capabilities_of(spec, estimator) - (set() if classes is not None else {"classify"})
            new = NewVersion(
                model=claim.model,
                kind=spec.kind,
                capabilities=tuple(sorted(capabilities)),
                params=jsonable_params(spec, estimator),
                metrics=metrics,
                lineage={
                    "dataset": dataset,
                    "dataset_sha256": data.sha256,
                    **self._unlabelled_lineage(claim),
                    "job": claim.job_id,
                    "code_version": code_version(),
                    "random_state": seed,
                    "evaluation": claim.evaluation.model_dump(),
                },
                facts={
                    "n_features": int(estimator.n_features_in_),
                    "feature_names": None if names is None else list(names[:FEATURE_NAMES_KEPT]),
                    **({"label_names": list(data.label_names)} if spec.needs == "rankings" else {}),
                    **({} if classes is None else {"class_names": classes}),
                    # What a learner tells of itself, say the features that it selected.
                    **(estimator.model_facts(names) if hasattr(estimator, "model_facts") else {}),
                    "protocol": parts.protocol,
                    "parts": parts.sizes,
                    "size_bytes": size,
                },
                artefact=keys[0],
                artefact_sha256=artefact_sha256,
                report=keys[1] if report is not None else None,
                calibration=calibrated,
                job_id=claim.job_id,
            )
            return self._registered(claim, new)
        except BaseException:
            delete_unused(self._db, self._blobs, keys)
            raise

    def _registered(self, claim: Claim, new: NewVersion) -> int:
        """Register the version, move the alias and end the job, all or nothing."""
        made: list[int] = []

        def register(session: Session) -> None:
            if made and self._store.version_of_job(claim.job_id) in made:
                # The commit before went through and only its answer was lost.
                return
            version = self._store.register(session, new, promote=claim.promote, by=f"job:{claim.job_id}")
            told = f"registered {new.model}:{version}"
            if claim.promote is not None:
                told += f", now {new.model}@{claim.promote}"
            self._queue.finish(claim, session, version=version, message=told)
            made.append(version)

        persist(self._db, register)
        return made[-1]


class Progress:
    """Tells the queue how far an attempt is: rows at most every half second, events every percent."""

    def __init__(
        self, queue: JobQueue, claim: Claim, stages: Mapping[str, tuple[float, float]] = STAGES
    ) -> None:
        self._stages = stages
        self._queue = queue
        self._claim = claim
        self._stage = "starting"
        self._written_at = 0.0
        self._event_at = -1.0

    def stage(self, name: str) -> None:
        """A stage begins: always told. Raises `Fenced` when the attempt was superseded."""
        self._stage = name
        self._tell(self._stages[name][0], "", event=True)

    def within(self, share: float, message: str = "") -> None:
        """A share of the stage is done: told when enough time has passed."""
        if time.monotonic() - self._written_at < _WRITE_EVERY_S:
            return
        low, high = self._stages[self._stage]
        fraction = low + (high - low) * min(max(share, 0.0), 1.0)
        self._tell(fraction, message, event=fraction >= self._event_at + _EVENT_STEP)

    def fit(self, fraction: float, stage: str) -> None:
        """What `pairmark.models.core.progress` calls during a fit."""
        self.within(fraction, stage)

    def _tell(self, fraction: float, message: str, *, event: bool) -> None:
        self._written_at = time.monotonic()
        if event:
            self._event_at = fraction
        try:
            self._queue.progress(
                self._claim, fraction=fraction, stage=self._stage, message=message, event=event
            )
        except NotReady:
            # Progress is for people; the work goes on while the database is away.
            logger.warning(
                "progress was not written: the database does not answer", extra={"job": self._claim.job_id}
            )


class _Scored:
    """Scores of the pairs of both held-out parts."""

    def __init__(self, estimator: Any, X: Any, parts: Parts, progress: Progress) -> None:
        share = len(parts.calibration) / (len(parts.calibration) + len(parts.test))
        with _refusals("the learner could not score the held-out part"):
            self.calibration = score_pairs(
                estimator,
                X,
                parts.calibration.left,
                parts.calibration.right,
                lambda done: progress.within(done * share),
            )
            self.test = score_pairs(
                estimator,
                X,
                parts.test.left,
                parts.test.right,
                lambda done: progress.within(share + done * (1 - share)),
            )


def _parts(data: LabelledData, claim: Claim, seed: int) -> Parts:
    """Split, and choose the pairs that will be scored, before anything is learned."""
    asked = claim.evaluation
    fractions: dict[str, Any] = {
        "calibration_fraction": asked.calibration_fraction,
        "test_fraction": asked.test_fraction,
        "random_state": seed,
    }
    with _refusals(f"dataset {data.name}:{data.version} cannot be split"):
        if data.pairs is not None:
            ends = np.asarray(data.pairs.left), np.asarray(data.pairs.right)
            by_pairs = split_pairs(*ends, np.asarray(data.pairs.same), protocol=asked.protocol, **fractions)
            calibration, test = (
                listed_pairs(
                    data,
                    numbers,
                    by_pairs.units,
                    protocol=by_pairs.protocol,
                    n_pairs=asked.n_pairs,
                    random_state=seed + offset,
                )
                for offset, numbers in ((1, by_pairs.calibration), (2, by_pairs.test))
            )
            return Parts(
                protocol=by_pairs.protocol,
                rows=np.unique(np.concatenate([end[by_pairs.train] for end in ends])),
                pairs=by_pairs.train,
                calibration=calibration,
                test=test,
                sizes={
                    "train_pairs": int(by_pairs.train.size),
                    "calibration_pairs": int(by_pairs.calibration.size),
                    "test_pairs": int(by_pairs.test.size),
                    "dropped_pairs": by_pairs.n_dropped,
                },
            )
        if data.y is None:
            raise ValueError("it has neither a label column nor a list of pairs")
        codes, protocol = split_codes(data, asked.protocol)
        whole = "open-set" if data.groups is not None else protocol
        split = split_data(codes, protocol=whole, **fractions)
        calibration, test = (
            pairs_among(data, rows, protocol=protocol, n_pairs=asked.n_pairs, random_state=seed + offset)
            for offset, rows in ((1, split.calibration), (2, split.test))
        )
        for name, pairs in (("calibration", calibration), ("test", test)):
            if pairs.same.all() or (name == "test" and not pairs.same.any()):
                kind = "differ" if pairs.same.all() else "are the same"
                raise ValueError(
                    f"its {name} part gives no pairs that {kind}: bring more data or larger fractions"
                )
        y = np.asarray(data.y)
        sizes = {"train_rows": split.train, "calibration_rows": split.calibration, "test_rows": split.test}
        return Parts(
            protocol=protocol,
            rows=split.train,
            pairs=None,
            calibration=calibration,
            test=test,
            test_rows=split.test if protocol == "closed-set" else None,
            sizes={
                **{name: int(rows.size) for name, rows in sizes.items()},
                **{
                    name.replace("_rows", "_identities"): int(np.unique(y[rows]).size)
                    for name, rows in sizes.items()
                },
                "calibration_pairs": len(calibration),
                "test_pairs": len(test),
            },
        )


def _calibrated(pairs: ScoredPairs, scores: NDArray[np.float32], seed: int) -> Calibration:
    with _refusals("the held-out calibration pairs cannot be used"):
        return Calibration.fit(scores, pairs.same, pairs.units, protocol=pairs.protocol, random_state=seed)


def _reported(pairs: ScoredPairs, scores: NDArray[np.float32], seed: int) -> EvaluationReport:
    with _refusals("the held-out test pairs cannot be used"):
        return pair_report(scores, pairs.same, pairs.units, protocol=pairs.protocol, random_state=seed)


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    """What `models` refuses (as ``ValueError``) in words for the job's owner."""
    try:
        yield
    except ValueError as error:
        raise InvalidInput(f"{what}: {str(error)[:2000]}") from error
