"""What those who run the service watch: its metrics, also beside a database that is frozen."""

from __future__ import annotations

import os
import re
import signal
import time

from prometheus_client.parser import text_string_to_metric_families


def scraped(http):
    """Samples by name and labels."""
    reported = {}
    for family in text_string_to_metric_families(http.get("/metrics").text):
        for sample in family.samples:
            reported[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return reported


def test_the_deployment_is_told_in_metrics(digits_deployment):
    http = digits_deployment.http
    http.put("/galleries/counted", json={"model": "digits"})
    vectors = digits_deployment.facts["X"][:7]
    items = [{"id": f"i{at}", "vector": row.tolist()} for at, row in enumerate(vectors)]
    http.put("/galleries/counted/items", json={"items": items})
    http.get("/models")
    reported = scraped(http)
    assert reported["pairmark_database_up", ()] == 1
    assert reported["pairmark_workers", ()] == 1
    assert reported["pairmark_queue_oldest_seconds", ()] == 0
    assert reported["pairmark_jobs", (("state", "succeeded"),)] >= 1
    ended = (("state", "succeeded"), ("task", "training"))
    assert reported["pairmark_job_seconds_count", ended] >= 1
    assert reported["pairmark_job_seconds_sum", ended] > 0
    assert reported["pairmark_gallery_items", (("gallery", "counted"),)] == 7
    assert reported["pairmark_gallery_items_all", ()] >= 7
    assert 0 < reported["pairmark_calibration_age_seconds", (("model", "digits"),)] < 3600
    assert reported["pairmark_disk_free_bytes", (("place", "home"),)] > 0
    assert reported["pairmark_database_statement_seconds_count", ()] > 0
    assert http.delete("/galleries/counted").status_code == 204


def test_refused_keys_are_counted(digits_deployment):
    wrong = {"authorization": "Bearer pm_000000000000_" + "x" * 43}
    assert digits_deployment.http.get("/models", headers=wrong).status_code == 401
    reported = scraped(digits_deployment.http)
    assert reported["pairmark_auth_failures_total", (("reason", "unauthenticated"),)] >= 1


def test_a_version_has_a_bounded_number_of_series(digits_deployment):
    rows = digits_deployment.facts["X"][:2].tolist()
    body = {"model": "digits", "left": rows[0], "right": rows[1]}
    for _ in range(3):
        assert digits_deployment.http.post("/match?fpr=0.1", json=body).status_code == 200
    lines = digits_deployment.http.get("/metrics").text.splitlines()
    own = [line for line in lines if re.search(r'model="digits"', line)]
    rates = {re.search(r'fpr="([^"]*)"', line)[1] for line in own if "fpr=" in line}
    assert len(own) <= 30 + 2 * len(rates)


def test_metrics_and_streams_go_on_beside_a_frozen_database(digits_deployment):
    from tests.e2e.test_supervision import backends, until

    server = digits_deployment
    assert scraped(server.http)["pairmark_database_up", ()] == 1
    frozen = backends(server.environment["PAIRMARK_DATABASE_URL"])
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        asked = time.monotonic()
        assert scraped(server.http)["pairmark_database_up", ()] == 0
        assert time.monotonic() - asked < 3
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    until(lambda: scraped(server.http)["pairmark_database_up", ()] == 1, "the database is seen again")
