"""Calibration and evaluation of galleries as jobs, with progress and cancelling."""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy.orm import Session

from pairmark.models.core.progress import listening
from pairmark.schemas.galleries import GalleryCalibrationRequest, GalleryEvaluationRequest
from pairmark.service.blobs import Blobs
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.galleries.calibration.identification import Identification
from pairmark.service.galleries.calibration.thresholds import Thresholds
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.jobs.claims import Claim
from pairmark.service.jobs.progress import Progress
from pairmark.service.jobs.queue import JobQueue
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore

STAGES = {"loading": (0.0, 0.05), "searching": (0.05, 1.0)}


class Measurer:
    """Runs one attempt at a gallery's calibration or evaluation."""

    def __init__(self, db: Database, blobs: Blobs, settings: Settings) -> None:
        self._db, self._settings = db, settings
        self._queue = JobQueue(db, settings)
        self._store = ModelStore(db, blobs, settings)
        self._datasets = Datasets(db, blobs, settings)

    def run(self, claim: Claim) -> str:
        """Measure and keep what was found; returns its id."""
        assert claim.gallery is not None
        progress = Progress(self._queue, claim, STAGES)
        progress.stage("loading")
        galleries = Galleries(self._db, self._settings)
        try:
            state = galleries.state(claim.gallery)
            runtime = Runtime(self._store, self._db, self._settings)
            version = asyncio.run(runtime.version_for(f"{state.model}:{state.version}", "search"))
            identification = Identification(
                galleries, self._datasets, self._store, self._settings, Thresholds(galleries)
            )
            # The version of the dataset that there was when the job was submitted.
            params: dict[str, Any] = {**claim.params, "dataset": claim.dataset}
            product = "calibration" if claim.task == "gallery-calibration" else "evaluation"

            def end(session: Session, id: str) -> None:
                self._queue.finish(claim, session, result={product: id}, message=f"{product} {id}")

            progress.stage("searching")
            with listening(progress.within):
                if product == "calibration":
                    calibration = GalleryCalibrationRequest.model_validate(params)
                    return identification.calibrate(state.name, version, calibration, ending=end).id
                evaluation = GalleryEvaluationRequest.model_validate(params)
                return identification.evaluate(state.name, version, evaluation, ending=end).id
        finally:
            galleries.close()
