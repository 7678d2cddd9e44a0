"""Workers as real processes: killed, stopped, cancelled, the jobs they leave behind, and what is put right."""

import logging
import os
import re
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from pairmark.service.audit.log import AuditLog
from pairmark.service.processes import child_environment, return_memory
from pairmark.service.settings import Settings
from pairmark.service.worker import Worker
from tests.service.test_queue import expire
from tests.serving import PAIRMARK, children_of, ended, until

LONG = {"n_estimators": 10_000, "max_depth": 6, "n_pairs": 20_000}
SECONDS_LONG = {"n_estimators": 1_500, "max_depth": 3, "leaf_depth": 2, "n_pairs": 2_000}


@pytest.fixture
def quick(deployment):
    """The deployment with digits, whose workers look for jobs often; its leases are as long as ever."""
    settings = deployment.settings.model_copy(update={"poll_s": 0.1})
    X, y = load_digits(return_X_y=True)
    made = type(deployment)(settings, deployment.db, deployment.blobs, deployment.folder)
    made.upload("digits", X.astype(np.float32), y)
    return made


@pytest.fixture
def start(quick):
    """Start worker processes; whatever is left of them is killed in the end."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(settings: Settings = quick.settings) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*PAIRMARK, "worker"], env=child_environment(settings))
        started.append(process)
        return process

    yield begin
    for process in started:
        with process:
            process.kill()


def submit(deployment, **changes):
    return deployment.queue.submit(deployment.request(dataset="digits", model="digits", **changes)).id


def fitting(deployment, job_id, attempt=1):
    """The job once its fit is under way in that attempt."""

    def look():
        job = deployment.queue.get(job_id)
        return (
            job if job.stage == "fitting" and len(job.attempts) == attempt and job.progress > 0.05 else None
        )

    return until(look, f"attempt {attempt} is fitting")


def test_a_worker_trains_digits_from_queue_to_production(quick, caplog):
    caplog.set_level("INFO", "pairmark.worker")
    job_id = submit(quick)
    assert Worker(quick.settings, name="one").run(drain=True) == 1
    job = quick.queue.get(job_id)
    assert (job.state, job.version) == ("succeeded", 1)
    assert [(one.worker, one.outcome) for one in job.attempts] == [("one", "succeeded")]
    assert quick.store.resolve("digits") == ("digits", 1)
    assert quick.store.version("digits", 1).facts["protocol"] == "closed-set"
    assert quick.store.version("digits", 1).metrics["auc"]["value"] > 0.8
    (ended,) = [record for record in caplog.records if record.message == "attempt ended"]
    assert ended.outcome == "succeeded"
    assert ended.seconds > 0
    assert ended.peak_bytes > 2**24
    assert Worker(quick.settings).run(only_job=job_id) == 0


def test_the_job_of_a_killed_worker_is_finished_once_by_another(quick, start):
    job_id = submit(quick, params=SECONDS_LONG)
    first = start()
    fitting(quick, job_id)
    (child,) = children_of(first.pid)
    first.kill()
    first.wait()
    until(lambda: ended(child), "the child of the killed worker is gone")
    expire(quick, job_id)
    start()
    until(lambda: quick.queue.get(job_id).state == "succeeded", "the job succeeds")
    job = quick.queue.get(job_id)
    assert [one.outcome for one in job.attempts] == ["lost", "succeeded"]
    assert len({one.worker for one in job.attempts}) == 2
    assert [one.version for one in quick.store.model("digits").versions] == [1]
    assert [event.event for event in quick.queue.events(job_id)].count("done") == 1


def test_a_running_job_is_cancelled_long_before_it_would_end(quick, start):
    job_id = submit(quick, params=LONG)
    worker = start()
    fitting(quick, job_id)
    (child,) = children_of(worker.pid)
    quick.queue.cancel(job_id)
    until(lambda: quick.queue.get(job_id).state == "cancelled", "the job is cancelled")
    assert ended(child)
    assert quick.store.page().items == []
    # The worker goes on with what comes next.
    following = submit(quick)
    until(lambda: quick.queue.get(following).state == "succeeded", "the next job succeeds")


def test_a_stopped_worker_gives_its_job_back_at_once(quick, start):
    job_id = submit(quick, params=LONG)
    worker = start()
    fitting(quick, job_id)
    (child,) = children_of(worker.pid)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0
    assert ended(child)
    job = quick.queue.get(job_id)
    assert (job.state, job.attempts[0].outcome) == ("queued", "released")
    claim = quick.queue.leases.claim("another")
    assert (claim.job_id, claim.attempt) == (job_id, 2)


def kill_the_child(worker, quick, job_id, attempt):
    fitting(quick, job_id, attempt)
    (child,) = children_of(worker.pid)
    os.kill(child, signal.SIGKILL)
    return child


def test_the_job_of_a_killed_child_is_tried_again(quick, start):
    job_id = submit(quick, params=SECONDS_LONG)
    child = kill_the_child(start(), quick, job_id, 1)
    until(lambda: quick.queue.get(job_id).state == "succeeded", "the job succeeds")
    job = quick.queue.get(job_id)
    assert [one.outcome for one in job.attempts] == ["lost", "succeeded"]
    assert "SIGKILL" in job.attempts[0].detail
    assert job.version == 1
    # It was waited for: no zombie is left.
    assert not Path(f"/proc/{child}").exists()
    # What it was storing is gone too.
    assert not [path for path in (quick.blobs.root / "tmp").iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("limit", "params", "problem", "said"),
    [
        (
            {"job_memory_bytes": 64 * 2**20},
            {},
            "out-of-memory",
            "memory at 0.0625 GiB.*PAIRMARK_JOB_MEMORY_BYTES",
        ),
        ({"job_timeout_s": 3.0}, {"params": LONG}, "job-timeout", "longer than 3 s"),
    ],
)
def test_a_job_that_reaches_a_limit_fails_at_once_and_names_it(quick, caplog, limit, params, problem, said):
    caplog.set_level("INFO", "pairmark.worker")
    job_id = submit(quick, **params)
    assert (
        Worker(quick.settings.model_copy(update={"poll_s": 0.01, **limit}), name="small").run(drain=True) == 1
    )
    job = quick.queue.get(job_id)
    assert (job.state, [one.outcome for one in job.attempts]) == ("failed", ["failed"])
    assert job.error.type == f"/problems/{problem}"
    assert re.search(said, job.error.detail)
    assert "failed" in [getattr(record, "outcome", None) for record in caplog.records]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and glibc keeps what threads free")
def test_what_threads_have_freed_goes_back_to_the_system():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    def fragments():
        # Below what the C library maps on its own, and each part of its pool still holds some.
        return [np.ones(12_000) for _ in range(2_000)][::100]

    with ThreadPoolExecutor(2) as threads:
        kept = [thread.result() for thread in [threads.submit(fragments) for _ in range(2)]]
        before = resident()
        return_memory()
        assert before - resident() > 200e6
    assert len(kept) == 2


def test_children_get_the_workers_settings_and_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRMARK_HOME", "/elsewhere")
    settings = Settings(home=tmp_path, api_key="pm_secret", lease_s=7.0, database_url="sqlite:////x.db")
    given = child_environment(settings)
    assert (given["PAIRMARK_HOME"], given["PAIRMARK_LEASE_S"]) == (str(tmp_path), "7.0")
    assert "pm_secret" not in " ".join(given.values())
    for name in list(os.environ):
        if name.startswith("PAIRMARK_"):
            monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings.model_copy(update={"api_key": None})


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
