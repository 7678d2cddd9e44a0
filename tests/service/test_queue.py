"""Jobs: submitted once, claimed once, kept by heartbeats, fenced by attempt."""

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from sqlalchemy import update

from pairmark.service.errors import (
    Conflict,
    Fenced,
    InvalidInput,
    RateLimited,
    TrainingFailed,
    UnknownDataset,
    UnknownLearner,
)
from pairmark.service.tables import JobRow
from pairmark.service.training.validation import TrainingQueue
from tests.service.conftest import of_all_pages

pytestmark = pytest.mark.each_database


def expire(deployment, job_id, seconds=1.0):
    """Let the lease of a running job run out so long ago, without waiting."""
    with deployment.db.write() as session:
        until = deployment.db.now(session) - seconds
        session.execute(update(JobRow).where(JobRow.id == job_id).values(lease_until=until))


def small(deployment, **changes):
    return TrainingQueue(deployment.db, deployment.settings.model_copy(update=changes))


def test_a_job_is_what_was_asked_for_with_every_parameter_spelled_out(deployment):
    job = deployment.queue.submit(deployment.request(params={"n_estimators": 3}))
    assert (job.state, job.dataset, job.promote) == ("queued", "people:1", "production")
    assert (job.params["n_estimators"], job.params["random_state"], job.attempts) == (3, 0, [])
    assert job.created_at.endswith("Z")
    assert job.unlabelled is None
    assert deployment.queue.get(job.id) == job


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"learner": "nearest-star"}, UnknownLearner, "similarity-forest"),
        ({"dataset": "nobody"}, UnknownDataset, "nobody"),
        ({"dataset": "people:9"}, UnknownDataset, "people:9"),
        ({"model": "no/slash/here"}, InvalidInput, "model"),
        ({"params": {"n_estimators": 0}}, InvalidInput, r"params\.n_estimators"),
        ({"params": {"n_trees": 5}}, InvalidInput, r"params\.n_trees.*n_estimators"),
        ({"unlabelled": "people"}, InvalidInput, "unlabelled"),
        ({"promote": "7"}, InvalidInput, "promote"),
        ({"evaluation": {"calibration_fraction": 0.6, "test_fraction": 0.5}}, InvalidInput, "below 1"),
        ({"evaluation": {"n_pairs": 10**9}}, InvalidInput, "n_pairs"),
    ],
)
def test_what_cannot_be_trained_is_refused_when_submitted(deployment, changes, error, said):
    with pytest.raises(error, match=said):
        deployment.queue.submit(deployment.request(**changes))
    assert deployment.queue.page().items == []


def test_an_idempotency_key_makes_one_job(deployment):
    first = deployment.queue.submit(deployment.request(), "key-1")
    assert deployment.queue.submit(deployment.request(), "key-1").id == first.id
    with pytest.raises(Conflict, match="another request"):
        deployment.queue.submit(deployment.request(model="other"), "key-1")
    with pytest.raises(InvalidInput, match="Idempotency-Key"):
        deployment.queue.submit(deployment.request(), "")
    with ThreadPoolExecutor(8) as threads:
        ids = set(threads.map(lambda _: deployment.queue.submit(deployment.request(), "key-2").id, range(8)))
    assert len(ids) == 1
    assert len(deployment.queue.page().items) == 2


def test_the_queue_is_bounded_under_many_submitters(deployment):
    queue = small(deployment, max_queued_jobs=3)

    def submit(_):
        try:
            return queue.submit(deployment.request()).id
        except RateLimited:
            return None

    with ThreadPoolExecutor(8) as threads:
        made = [job for job in threads.map(submit, range(12)) if job]
    assert len(made) == 3
    with pytest.raises(RateLimited, match="3 jobs wait"):
        queue.submit(deployment.request())


def test_pages_go_through_all_jobs_newest_first(deployment):
    ids = [deployment.queue.submit(deployment.request()).id for _ in range(5)]
    assert [job.id for job in of_all_pages(partial(deployment.queue.page, limit=2))] == ids[::-1]
    assert [job.id for job in deployment.queue.page(state="running").items] == []
    with pytest.raises(InvalidInput, match="limit"):
        deployment.queue.page(limit=0)
    with pytest.raises(InvalidInput, match="cursor"):
        deployment.queue.page(cursor="bm9uc2Vuc2U")


def test_each_job_is_claimed_by_one_of_eight_workers(deployment):
    ids = [deployment.queue.submit(deployment.request()).id for _ in range(24)]
    start = threading.Barrier(8)

    def work(number):
        start.wait()
        claimed = []
        while (claim := deployment.queue.leases.claim(f"worker-{number}")) is not None:
            claimed.append(claim.job_id)
        return claimed

    with ThreadPoolExecutor(8) as threads:
        claimed = [job_id for one in threads.map(work, range(8)) for job_id in one]
    assert sorted(claimed) == sorted(ids)
    assert deployment.queue.reading().states == {"running": 24}


def test_a_silent_workers_job_is_taken_over_and_its_writes_refused(deployment):
    job = deployment.queue.submit(deployment.request())
    old = deployment.queue.leases.claim("silent")
    assert deployment.queue.leases.claim("other") is None
    expire(deployment, job.id)
    new = deployment.queue.leases.claim("other")
    assert (new.job_id, new.attempt) == (job.id, 2)
    assert deployment.queue.leases.renew(old) is None
    assert deployment.queue.leases.renew(new) is False
    for write in (
        lambda: deployment.queue.leases.progress(old, fraction=0.5, stage="fitting"),
        lambda: deployment.queue.leases.log(old, "still here"),
        lambda: deployment.queue.leases.fail(old, TrainingFailed()),
        lambda: deployment.queue.leases.release(old, "stopped"),
        lambda: deployment.queue.leases.cancelled(old),
        lambda: deployment.queue.leases.claim_of(old.job_id, old.attempt),
    ):
        with pytest.raises(Fenced):
            write()
    with pytest.raises(Fenced), deployment.db.write() as session:
        deployment.queue.leases.finish(old, session, version=1)
    with deployment.db.write() as session:
        deployment.queue.leases.finish(new, session, version=1)
    done = deployment.queue.get(job.id)
    assert done.state == "succeeded"
    assert [(one.worker, one.outcome) for one in done.attempts] == [
        ("silent", "lost"),
        ("other", "succeeded"),
    ]
    assert "no heartbeat" in done.attempts[0].detail
    assert any("lost" in event.data.get("message", "") for event in deployment.queue.events(job.id))


def test_a_late_worker_of_this_machine_keeps_its_job_while_it_runs(deployment):
    job = deployment.queue.submit(deployment.request())
    claim = deployment.queue.leases.claim(f"{socket.gethostname()}:{os.getpid()}")
    expire(deployment, job.id)
    assert deployment.queue.leases.claim("other") is None
    assert deployment.queue.leases.renew(claim) is False
    # But not for ever: a process may hang.
    expire(deployment, job.id, 10 * deployment.settings.lease_s)
    assert deployment.queue.leases.claim("other").attempt == 2


def test_a_job_whose_worker_died_as_the_clock_was_set_back_does_not_wait_for_it(deployment):
    job = deployment.queue.submit(deployment.request())
    deployment.queue.leases.claim("gone")
    expire(deployment, job.id, -3600.0)
    claim = deployment.queue.leases.claim("other")
    # A server's clock is not set back with the machine's.
    assert (claim is None) == (not deployment.db.is_sqlite)
    # Who still works on it keeps it.
    deployment.queue.leases.renew(claim or deployment.queue.leases.claim_of(job.id, 1))
    assert deployment.queue.leases.claim("third") is None


def test_a_job_that_is_lost_too_often_fails_with_advice(deployment):
    queue = small(deployment, max_attempts=2)
    job = queue.submit(deployment.request())
    for _ in range(2):
        assert queue.leases.claim("crashes") is not None
        expire(deployment, job.id)
    assert queue.leases.claim("crashes") is None
    failed = queue.get(job.id)
    assert failed.state == "failed"
    # Not a word of memory, of which nothing is known.
    assert failed.error.type == "/problems/worker-silent"
    assert "no heartbeat" in failed.error.detail
    assert "memory" not in failed.error.detail
    assert [one.outcome for one in failed.attempts] == ["lost", "lost"]
    assert queue.events(job.id)[-1].event == "done"


def test_cancelling(deployment):
    waiting = deployment.queue.submit(deployment.request())
    assert deployment.queue.cancel(waiting.id).state == "cancelled"
    assert deployment.queue.leases.claim("a") is None
    assert deployment.queue.events(waiting.id)[-1].data == {"state": "cancelled"}

    running = deployment.queue.submit(deployment.request())
    claim = deployment.queue.leases.claim("a")
    asked = deployment.queue.cancel(running.id)
    assert (asked.state, asked.cancel_requested) == ("running", True)
    assert deployment.queue.leases.is_cancelled(claim)
    # A cancel that was answered holds: nothing is registered any more, even if the work is done.
    with pytest.raises(Fenced), deployment.db.write() as session:
        deployment.queue.leases.finish(claim, session, version=1)
    deployment.queue.leases.cancelled(claim)
    ended = deployment.queue.get(running.id)
    assert (ended.state, ended.attempts[0].outcome) == ("cancelled", "cancelled")
    assert deployment.queue.cancel(running.id).state == "cancelled"


def test_a_cancelled_job_whose_worker_fell_silent_is_not_tried_again(deployment):
    job = deployment.queue.submit(deployment.request())
    deployment.queue.leases.claim("silent")
    deployment.queue.cancel(job.id)
    expire(deployment, job.id)
    assert deployment.queue.leases.claim("other") is None
    assert deployment.queue.get(job.id).state == "cancelled"


def test_events_are_replayed_from_any_point(deployment):
    job = deployment.queue.submit(deployment.request())
    claim = deployment.queue.leases.claim("a")
    for step in range(3):
        deployment.queue.leases.progress(claim, fraction=step / 10, stage="fitting", message=f"tree {step}")
    events = deployment.queue.events(job.id)
    assert [event.event for event in events] == ["log", "progress", "progress", "progress"]
    assert deployment.queue.events(job.id, after=events[1].id) == events[2:]
    assert deployment.queue.get(job.id).progress == pytest.approx(0.2)
    assert deployment.queue.events(job.id, after=events[-1].id) == []
