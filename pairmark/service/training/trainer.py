"""From a dataset to a registered version: load, split, fit, score, calibrate, evaluate, store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from joblib import cpu_count, parallel_config
from threadpoolctl import threadpool_limits

from pairmark.models.registry import spec_of
from pairmark.service.blobs import Blobs
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.jobs.child import Progress
from pairmark.service.jobs.queue import Claim, JobQueue
from pairmark.service.settings import Settings
from pairmark.service.store.calibrations import taken_by
from pairmark.service.store.store import ModelStore
from pairmark.service.training.fitting import LoadedJob, encoded, fit, split
from pairmark.service.training.measuring import calibrate, evaluate, score
from pairmark.service.training.storing import Registrar

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
