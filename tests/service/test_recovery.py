"""What is put right after a crash is logged, audited and shown by the check-up."""

from __future__ import annotations

import logging

import pytest

from pairmark.service.audit.log import AuditLog
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.jobs.worker import Worker
from pairmark.service.operations.doctor import MANY_LOST, Doctor
from tests.service.test_queue import expire


def shown(house):
    """The finding of the check-up."""
    found = Doctor(house.db, house.blobs, house.settings, quick=True).examine()
    (finding,) = [one for one in found if one.check == "recovery"]
    return finding


def entries(house):
    return [(one.action, one.resource, one.after) for one in AuditLog(house.db).page(action="recovery").items]


def said(caplog: pytest.LogCaptureFixture):
    return [record.message for record in caplog.records if record.name == "pairmark.recovery"]


def test_nothing_repaired_is_said_to_be_nothing(house):
    assert shown(house).detail == "nothing had to be repaired in the last 7 days"


def test_a_job_queued_again_is_told_once(house, caplog):
    job = house.queue.submit(house.request())
    house.queue.claim("silent")
    expire(house, job.id)
    with caplog.at_level(logging.WARNING):
        assert house.queue.claim("other").attempt == 2
    assert said(caplog) == ["job queued again after a lost attempt"]
    ((action, resource, facts),) = entries(house)
    assert (action, resource, facts["attempt"]) == ("recovery.job", f"job:{job.id}", 1)
    assert "no heartbeat from silent" in facts["reason"]
    finding = shown(house)
    assert finding.status == "ok"
    assert "job queued again after a lost attempt: 1, last at 20" in finding.detail


def test_jobs_that_are_lost_often_are_a_warning(house):
    for _ in range(MANY_LOST):
        job = house.queue.submit(house.request())
        house.queue.claim("silent", only=job.id)
        expire(house, job.id)
        claim = house.queue.claim("other", only=job.id)
        house.queue.release(claim, "enough")
        house.queue.cancel(job.id)
    assert shown(house).status == "warning"
    assert "pairmark audit --action recovery" in shown(house).advice


def test_what_killed_processes_left_in_storage_is_told(house, caplog):
    (house.blobs.root / "tmp" / "half").mkdir()
    (house.blobs.root / "tmp" / "half.lock").touch()
    with caplog.at_level(logging.WARNING):
        Worker(house.settings).run(drain=True)
    assert said(caplog) == ["data of killed processes removed from storage"]
    assert entries(house) == [("recovery.storage", "storage", {"unfinished": 1, "blobs": 0})]
    assert "removed from storage: 1" in shown(house).detail
    # The next start finds nothing, and says nothing.
    Worker(house.settings).run(drain=True)
    assert len(entries(house)) == 1


def test_what_killed_imports_left_is_told(house, caplog):
    left = house.settings.home / "galleries" / "import-999999999-ab"
    left.mkdir(parents=True)
    galleries = Galleries(house.db, house.settings)
    with caplog.at_level(logging.WARNING):
        galleries.sweep()
        galleries.sweep()
    galleries.close()
    assert not left.exists()
    assert said(caplog) == ["data of deleted galleries and killed imports removed"]
    assert entries(house) == [("recovery.galleries", "gallery", {"galleries": 0, "folders": 1})]
