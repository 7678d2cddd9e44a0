"""The audit log over HTTP and on the command line, and trace contexts in the logs."""

from __future__ import annotations

import hashlib
import json

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_changes_are_told_with_request_and_trace_ids(digits_deployment):
    http = digits_deployment.http
    headers = {"x-request-id": "audited-1", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
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
    assert {entry["trace_id"] for entry in page["items"]} == {TRACE}
    assert {entry["actor"] for entry in page["items"]} == {"loopback"}
    lines = [
        json.loads(line) for line in digits_deployment.log.read_text().splitlines() if "audited-1" in line
    ]
    assert lines
    assert all(line["trace_id"] == TRACE for line in lines)


def test_a_decision_is_kept_when_it_is_asked_for(digits_deployment):
    http, X = digits_deployment.http, digits_deployment.facts["X"]
    body = json.dumps({"model": "digits", "left": X[0].tolist(), "right": X[1].tolist()}).encode()
    headers = {"content-type": "application/json", "pairmark-log-decision": "true"}
    count = len(http.get("/audit?action=decision&limit=200").json()["items"])
    plain = http.post("/match?fpr=0.1", content=body, headers={"content-type": "application/json"})
    assert "pairmark-decision-id" not in plain.headers
    answer = http.post("/match?fpr=0.1", content=body, headers=headers)
    assert answer.json() == plain.json()
    entries = http.get("/audit?action=decision&limit=200").json()["items"]
    assert len(entries) == count + 1
    reported = entries[0]
    assert str(reported["id"]) == answer.headers["pairmark-decision-id"]
    assert reported["after"]["input_sha256"] == hashlib.sha256(body).hexdigest()
    assert reported["after"]["answer_sha256"] == hashlib.sha256(answer.content).hexdigest()
    assert reported["after"]["decisions"] == answer.json()["matches"]
    assert reported["after"]["operating_point"] == answer.json()["operating_point"]
    assert reported["request_id"] == answer.headers["x-request-id"]
    raw = http.post("/match?fpr=0.1", content=body, headers={**headers, "accept": "application/octet-stream"})
    kept = http.get("/audit?action=decision&limit=1").json()["items"][0]["after"]
    assert kept["operating_point"]["threshold"] == raw.headers["x-pairmark-threshold"]
    # A refusal decides nothing.
    assert http.post("/match?fpr=0.1", content=b"{}", headers=headers).status_code == 422
    assert len(http.get("/audit?action=decision&limit=200").json()["items"]) == count + 2
