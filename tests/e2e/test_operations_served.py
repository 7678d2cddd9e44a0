"""What those who run the service watch: its metrics, also beside a database that is frozen."""

from __future__ import annotations

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
    assert (reported["pairmark_database_up", ()], reported["pairmark_workers", ()]) == (1, 1)
    assert reported["pairmark_queue_oldest_seconds", ()] == 0
    assert reported["pairmark_jobs", (("state", "succeeded"),)] >= 1
    assert reported["pairmark_gallery_items", (("gallery", "counted"),)] == 7
    assert reported["pairmark_gallery_items_all", ()] >= 7
    assert 0 < reported["pairmark_calibration_age_seconds", (("model", "digits"),)] < 3600
    assert reported["pairmark_disk_free_bytes", (("place", "home"),)] > 0
    assert http.delete("/galleries/counted").status_code == 204


def test_refused_keys_are_counted(digits_deployment):
    wrong = {"authorization": "Bearer pm_000000000000_" + "x" * 43}
    assert digits_deployment.http.get("/models", headers=wrong).status_code == 401
    reported = scraped(digits_deployment.http)
    assert reported["pairmark_auth_failures_total", (("reason", "unauthenticated"),)] >= 1
