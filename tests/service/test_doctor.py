"""The check-up: finds what was broken on purpose, says what to do, and calls a healthy place healthy."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from pairmark.service.operations import doctor as doctor_module
from pairmark.service.operations.backup import back_up
from pairmark.service.operations.doctor import Doctor, Finding, as_json


def findings(deployment, **options):
    """Findings by check."""
    reported = Doctor(deployment.db, deployment.blobs, deployment.settings, **options).examine()
    found = {}
    for finding in reported:
        found.setdefault(finding.check, []).append(finding)
    return found, as_json(reported)["status"]


def test_a_healthy_place_has_nothing_to_do(deployment, tmp_path):
    deployment.train()
    deployment.queue.mark_alive("me")
    back_up(deployment.db, deployment.blobs, deployment.settings, tmp_path / "a.tar")
    found, worst = findings(deployment, quick=True)
    assert {name: [one.status for one in some] for name, some in found.items()} == {
        name: ["ok"]
        for name in (
            "database",
            "rows",
            "clock",
            "workers",
            "blobs",
            "calibrations",
            "galleries",
            "quarantine",
            "recovery",
            "backup",
            "disk",
        )
    }
    assert worst == "ok"
    assert not any(one.advice for some in found.values() for one in some)


def test_jobs_that_wait_for_nobody_are_a_failure(deployment):
    assert findings(deployment, quick=True)[0]["workers"][0].status == "warning"
    deployment.queue.submit(deployment.request())
    found, worst = findings(deployment, quick=True)
    assert (worst, found["workers"][0].status) == ("failure", "failure")
    assert "pairmark worker" in found["workers"][0].advice


def test_damaged_and_missing_blobs_are_named(deployment):
    with deployment.db.read() as session:
        key = session.execute(text("SELECT blob FROM datasets")).scalar_one()
    file = next(path for path in deployment.blobs.folder(key).iterdir() if path.suffix == ".npy")
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    stored = Doctor(deployment.db, deployment.blobs, deployment.settings).stored_files()
    broken = [Finding("blobs", *one) for one in stored if one[0] != "ok"]
    assert key[:12] in broken[0].detail
    assert "restore a backup" in broken[0].advice
    # A quick look hashes nothing.
    assert findings(deployment, quick=True)[0]["blobs"][0].status == "ok"
    deployment.blobs.delete(key)
    assert key[:12] in findings(deployment, quick=True)[0]["blobs"][0].detail


def test_old_calibrations_and_old_backups_are_warned_of(deployment):
    deployment.train()
    with deployment.db.write() as session:
        session.execute(text("UPDATE calibrations SET created_at = created_at - 400 * 86400.0"))
        session.execute(
            text("INSERT INTO backups (id, started_at, holds_until, finished_at) VALUES ('x', 1, 1, 1)")
        )
    found, worst = findings(deployment, quick=True)
    assert worst == "warning"
    assert "faces:1" in found["calibrations"][0].detail
    assert "400 days" in found["calibrations"][0].detail
    assert "days old" in found["backup"][0].detail


def test_a_full_disk_is_a_failure(deployment, monkeypatch):
    monkeypatch.setattr(doctor_module, "EMPTY_BYTES", 10**18)
    monkeypatch.setattr(doctor_module, "LOW_BYTES", 10**18)
    found, worst = findings(deployment, quick=True)
    assert (worst, found["disk"][0].status) == ("failure", "failure")
    assert "free some space" in found["disk"][0].advice


def test_an_absent_database_hides_no_other_finding(deployment):
    deployment.db.dispose()
    if deployment.db.is_sqlite:
        pytest.skip("it is a file of this machine")
    absent = type(deployment.db)("postgresql://nobody@127.0.0.1:9/none")
    reported = Doctor(absent, deployment.blobs, deployment.settings, quick=True).examine()
    assert [one.check for one in reported] == ["database", "disk"]
    assert reported[0].status == "failure"
    absent.dispose()
