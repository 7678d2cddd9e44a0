"""A job that measures a gallery ends together with what it made, or makes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
from sqlalchemy import func, select

from pairmark.schemas.galleries import GalleryCalibrationRequest
from pairmark.service.attempt import runner_of
from pairmark.service.errors import Fenced
from pairmark.service.galleries import Galleries
from pairmark.service.galleries.calibration.identification import Identification
from pairmark.service.galleries.items.rows import RowErrors
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.tables import GalleryCalibrationRow
from tests.service.conftest import Deployment, people
from tests.service.galleries.gallery_cases import rows

PROBES = GalleryCalibrationRequest(dataset="probes")


@pytest.fixture
def identification(deployment: Deployment) -> Iterator[Identification]:
    """A gallery ``g`` of ten people, and probes of thirty others."""
    deployment.train()
    X, y = people(30, 2, seed=7)
    deployment.upload("probes", X, np.array([f"stranger {at}" for at in y]))
    galleries = Galleries(deployment.db, deployment.settings)
    runtime = Runtime(deployment.store, deployment.db, deployment.settings)
    galleries.put("g", asyncio.run(runtime.version_for("faces", "search")))
    X, _ = people(10, 1, seed=8)
    enrolled = {f"i{at}": (row, f"s{at}", None) for at, row in enumerate(X)}
    galleries.write("g", [rows(enrolled)], RowErrors(), None)
    yield Identification(galleries, deployment.datasets, deployment.store, deployment.settings)
    galleries.close()


def kept(deployment: Deployment) -> int:
    with deployment.db.read() as session:
        return session.scalar(select(func.count()).select_from(GalleryCalibrationRow)) or 0


def test_what_was_made_and_the_jobs_end_are_one(
    deployment: Deployment, identification: Identification
) -> None:
    job = identification.submit("g", PROBES)
    claim = deployment.queue.claim("test", job_id=job.id)
    assert claim is not None
    made = runner_of(claim, deployment.db, deployment.blobs, deployment.settings).run(claim)
    done = deployment.queue.get(job.id)
    assert (done.state, done.result, done.version) == ("succeeded", {"calibration": made}, None)
    assert identification.calibration("g", str(made)).n_probes == 30
    # An attempt that is no longer held keeps nothing.
    with pytest.raises(Fenced):
        runner_of(claim, deployment.db, deployment.blobs, deployment.settings).run(claim)
    assert kept(deployment) == 1


def test_a_cancelled_calibration_keeps_nothing(
    deployment: Deployment, identification: Identification
) -> None:
    job = identification.submit("g", PROBES)
    claim = deployment.queue.claim("test", job_id=job.id)
    assert claim is not None
    deployment.queue.cancel(job.id)
    with pytest.raises(Fenced):
        runner_of(claim, deployment.db, deployment.blobs, deployment.settings).run(claim)
    deployment.queue.cancelled(claim)
    assert deployment.queue.get(job.id).state == "cancelled"
    assert kept(deployment) == 0
