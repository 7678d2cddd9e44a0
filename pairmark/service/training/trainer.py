"""From a dataset to a registered version: load, split, fit, score, calibrate, evaluate, store.

Each stage takes the record that the last one made: `splitting`, `fitting` (with scores and calibration), `evaluating`,
`storing`.
"""

from __future__ import annotations

import numpy as np
from joblib import cpu_count, parallel_config
from threadpoolctl import threadpool_limits

from pairmark.models.registry import spec_of
from pairmark.service.blobs import Blobs
from pairmark.service.datasets.held_out import stack_rows, stranger_rows, taken_by
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.jobs.leases import Claim, Leases, Progress
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.training.evaluating import evaluate
from pairmark.service.training.fitting import calibrate, fit, score
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
            evaluated_job = evaluate(calibrated_job, self._store, self._settings, progress)
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
