"""What is put right after a crash is logged, audited and shown by the check-up."""

from __future__ import annotations

import logging

import pytest

from pairmark.service.audit.log import AuditLog
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.jobs.worker import Worker
from pairmark.service.operations.doctor import MANY_LOST, Doctor
from tests.service.test_queue import expire


def shown(deployment):
    """The finding of the check-up."""
    found = Doctor(deployment.db, deployment.blobs, deployment.settings, quick=True).examine()
    (finding,) = [one for one in found if one.check == "recovery"]
    return finding


def entries(deployment):
    return [
        (one.action, one.resource, one.after) for one in AuditLog(deployment.db).page(action="recovery").items
    ]


def said(caplog: pytest.LogCaptureFixture):
    return [record.message for record in caplog.records if record.name == "pairmark.recovery"]


def test_nothing_repaired_is_said_to_be_nothing(deployment):
    assert shown(deployment).detail == "no repairs in the last 7 days"


def test_a_job_queued_again_is_told_once(deployment, caplog):
    job = deployment.queue.submit(deployment.request())
    deployment.queue.claim("silent")
    expire(deployment, job.id)
    with caplog.at_level(logging.WARNING):
        assert deployment.queue.claim("other").attempt == 2
    assert said(caplog) == ["job queued again after a lost attempt"]
    ((action, resource, facts),) = entries(deployment)
    assert (action, resource, facts["attempt"]) == ("recovery.job", f"job:{job.id}", 1)
    assert "no heartbeat from silent" in facts["reason"]
    finding = shown(deployment)
    assert finding.status == "ok"
    assert "job queued again after a lost attempt: 1, last at 20" in finding.detail


def test_jobs_that_are_lost_often_are_a_warning(deployment):
    for _ in range(MANY_LOST):
        job = deployment.queue.submit(deployment.request())
        deployment.queue.claim("silent", job_id=job.id)
        expire(deployment, job.id)
        claim = deployment.queue.claim("other", job_id=job.id)
        deployment.queue.release(claim, "enough")
        deployment.queue.cancel(job.id)
    assert shown(deployment).status == "warning"
    assert "pairmark audit --action recovery" in shown(deployment).advice


def test_what_killed_processes_left_in_storage_is_told(deployment, caplog):
    (deployment.blobs.root / "tmp" / "half").mkdir()
    (deployment.blobs.root / "tmp" / "half.lock").touch()
    with caplog.at_level(logging.WARNING):
        Worker(deployment.settings).run(drain=True)
    assert said(caplog) == ["data of killed processes removed from storage"]
    assert entries(deployment) == [("recovery.storage", "storage", {"unfinished": 1, "blobs": 0})]
    assert "removed from storage: 1" in shown(deployment).detail
    # The next start finds nothing, and says nothing.
    Worker(deployment.settings).run(drain=True)
    assert len(entries(deployment)) == 1


def test_what_killed_imports_left_is_told(deployment, caplog):
    left = deployment.settings.home / "galleries" / "import-999999999-ab"
    left.mkdir(parents=True)
    galleries = Galleries(deployment.db, deployment.settings)
    with caplog.at_level(logging.WARNING):
        galleries.sweep()
        galleries.sweep()
    galleries.close()
    assert not left.exists()
    assert said(caplog) == ["data of deleted galleries and killed imports removed"]
    assert entries(deployment) == [("recovery.galleries", "gallery", {"galleries": 0, "folders": 1})]
