"""The audit log over HTTP, and request ids in the logs."""

from __future__ import annotations

import json


def test_changes_are_told_with_the_ids_of_their_requests(digits_deployment):
    http = digits_deployment.http
    headers = {"x-request-id": "audited-1"}
    X = digits_deployment.facts["X"]
    body = {"model": "digits"}
    assert http.put("/galleries/audited", json=body, headers=headers).status_code == 201
    items = [{"id": f"i{at}", "subject": "s", "vector": row.tolist()} for at, row in enumerate(X[:3])]
    assert http.put("/galleries/audited/items", json={"items": items}, headers=headers).status_code == 200
    assert http.delete("/galleries/audited/subjects/s", headers=headers).status_code == 200
    assert http.delete("/galleries/audited", headers=headers).status_code == 204
    page = http.get("/audit", params={"resource": "gallery:audited"}).json()
    reported = [(entry["action"], entry["before"], entry["after"]) for entry in reversed(page["items"])]
    assert reported == [
        ("gallery.create", None, {"model": "digits:1"}),
        ("gallery.upsert", None, {"items": 3}),
        ("gallery.erase", {"items": 3}, None),
        ("gallery.delete", {"model": "digits:1", "items": 0}, None),
    ]
    assert {entry["request_id"] for entry in page["items"]} == {"audited-1"}
    assert {entry["actor"] for entry in page["items"]} == {"loopback"}
    lines = [
        json.loads(line) for line in digits_deployment.log.read_text().splitlines() if "audited-1" in line
    ]
    assert lines
