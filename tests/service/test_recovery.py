"""What is put right after a crash is logged and audited."""

from __future__ import annotations

import logging

import pytest

from pairmark.service.audit.log import AuditLog
from pairmark.service.jobs.worker import Worker
from tests.service.test_queue import expire


def entries(deployment):
    return [
        (one.action, one.resource, one.after) for one in AuditLog(deployment.db).page(action="recovery").items
    ]


def said(caplog: pytest.LogCaptureFixture):
    return [record.message for record in caplog.records if record.name == "pairmark.recovery"]


def test_a_job_queued_again_is_told_once(deployment, caplog):
    job = deployment.queue.submit(deployment.request())
    deployment.queue.leases.claim("silent")
    expire(deployment, job.id)
    with caplog.at_level(logging.WARNING):
        assert deployment.queue.leases.claim("other").attempt == 2
    assert said(caplog) == ["job queued again after a lost attempt"]
    ((action, resource, facts),) = entries(deployment)
    assert (action, resource, facts["attempt"]) == ("recovery.job", f"job:{job.id}", 1)
    assert "no heartbeat from silent" in facts["reason"]


def test_what_killed_processes_left_in_storage_is_told(deployment, caplog):
    (deployment.blobs.root / "tmp" / "half").mkdir()
    with caplog.at_level(logging.WARNING):
        Worker(deployment.settings).run(drain=True)
    assert said(caplog) == ["data of killed processes removed from storage"]
    assert entries(deployment) == [("recovery.storage", "storage", {"unfinished": 1, "blobs": 0})]
    # The next start finds nothing, and says nothing.
    Worker(deployment.settings).run(drain=True)
    assert len(entries(deployment)) == 1
